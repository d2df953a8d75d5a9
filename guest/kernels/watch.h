/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches a thread for system calls of any kind, with the kernel's syscall user dispatch: while
 * watched, each one is a SIGSYS that is counted. Switching on and off is a store, not a call.
 */
#ifndef KERNELS_WATCH_H
#define KERNELS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Prepare the calling thread. False when the kernel cannot do it; nothing is counted then. */
bool watch_prepare(void);

void watch_begin(void);

/* System calls since watch_begin(); the first one ends the watch, so this is 0 or 1. */
uint64_t watch_end(void);

#endif /* KERNELS_WATCH_H */
