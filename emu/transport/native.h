/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vfio-user endpoint as the Python side sees it, whichever generation of libvfio-user is below.
 *
 * Calls return 0 or a count, or a negative errno. Nothing here is thread-safe: one owner thread calls it all,
 * and the callbacks (vrnic_py_*) run inside vrnic_drain, vrnic_attach and vrnic_close.
 */
#ifndef VRNIC_NATIVE_H
#define VRNIC_NATIVE_H

#include <stdint.h>

#define VRNIC_QUEUE 256

/* A write of at most 8 bytes that waits to be handed to Python; bytes beyond size are zero. */
struct vrnic_write {
	uint32_t region;
	uint32_t size;
	uint64_t offset;
	uint8_t data[8];
};

struct vrnic_endpoint;

struct vrnic_endpoint *vrnic_open(const char *path, void *handle, int log_level, int *error);
int vrnic_region(struct vrnic_endpoint *ep, int index, uint64_t size, int fd);
int vrnic_realize(struct vrnic_endpoint *ep, uint32_t msix_vectors);
int vrnic_poll_fd(struct vrnic_endpoint *ep);
int vrnic_attach(struct vrnic_endpoint *ep);
int vrnic_drain(struct vrnic_endpoint *ep, int budget);
int vrnic_trigger(struct vrnic_endpoint *ep, uint32_t vector);
int vrnic_refuse(struct vrnic_endpoint *ep);
void vrnic_disconnect(struct vrnic_endpoint *ep);
void vrnic_close(struct vrnic_endpoint *ep);
void vrnic_unmap(void *base, uint64_t length);
struct vrnic_write *vrnic_queue(struct vrnic_endpoint *ep);

/* Implemented in Python. handle is the one given to vrnic_open. */
void vrnic_py_writes(void *handle, uint32_t count);
void vrnic_py_write(void *handle, uint32_t region, uint64_t offset, char *data, uint64_t size);
void vrnic_py_read(void *handle, uint32_t region, uint64_t offset, char *data, uint64_t size);
void vrnic_py_map(void *handle, uint64_t address, uint64_t size, void *base, uint64_t length, uint64_t skip,
		  int prot);
void vrnic_py_unmap(void *handle, uint64_t address, uint64_t size);
void vrnic_py_reset(void *handle, int lost);
void vrnic_py_log(void *handle, int level, char *message);

/* Between native.c and guards.c: a connection whose first message has not arrived whole; -1 when none. */
extern int *vrnic_waiting;

#endif
