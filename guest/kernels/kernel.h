/* SPDX-License-Identifier: Apache-2.0 */
/* A test kernel: what it is called and its code. */
#ifndef KERNELS_KERNEL_H
#define KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;

struct kernel {
	const char *name;
	const char *summary;
	uint32_t messages;  /* defaults */
	size_t size;
	bool apart;  /* each message has its own place in the outbox and the inbox */
	bool datagrams;  /* needs a transport of datagrams; the others need any other */
	/* Run both roles' part; fails through die(). Fills in the session's report. */
	void (*run)(struct session *session);
};

/* All of them; the last one has no name. */
extern const struct kernel kernels[];

void run_put(struct session *session);
void run_pingpong(struct session *session);
void run_atomics(struct session *session);
void run_bulk(struct session *session);
void run_read(struct session *session);
void run_send(struct session *session);
void run_datagram(struct session *session);

/* Bytes in a receive buffer before a datagram's data. */
#define DATAGRAM_HEADER 40u

#endif /* KERNELS_KERNEL_H */
