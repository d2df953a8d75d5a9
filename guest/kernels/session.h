/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of a kernel: what a CPU sets up once, before the kernel runs by itself.
 *
 * Memory of a session, in two buffers with a key each:
 *
 *   rings  send ring, receive ring, send CQ, receive CQ, doorbell record: for the NIC, not the peer
 *   data   outbox (what is sent), inbox (what the peer writes, between guard bytes), cells
 *          (flags and atomics): the peer reaches it with the key of the endpoint
 */
#ifndef KERNELS_SESSION_H
#define KERNELS_SESSION_H

#include "device.h"
#include "libvrnic.h"
#include "options.h"

#define GUARD_BYTES 4096
#define GUARD 0xa5
#define CELLS 512  /* 8 bytes each */
#define SESSION_QKEY 0x11223344

struct proxy;

struct buffer {
	void *map;
	size_t size;
	enum placement placement;
	struct vgpu_buffer vram;
	struct vrnic_region region;
};

/* What a kernel reports; main() adds the counters. */
struct report {
	uint64_t messages;
	uint64_t bytes;
	bool verified;
	double latency_ns;  /* of one message; 0: not measured */
	char detail[512];  /* more JSON members, each with a comma before it */
};

struct session {
	const struct options *options;
	size_t area;  /* bytes of the outbox, and of the inbox */
	struct vrnic nic;
	struct vgpu gpu;
	uint32_t pd;
	struct buffer rings;
	struct buffer data;
	struct dev_qp qp;
	uint32_t ahn;  /* of datagrams: the peer */
	struct vrnic_endpoint self;
	struct vrnic_endpoint peer;
	struct proxy *proxy;  /* NULL: direct submission */
	unsigned int syncs;
	/* the path: between session_path_begin() and session_path_end() */
	uint64_t ticks_per_second;
	uint64_t path_ticks;
	uint64_t path_calls;  /* calls of the driver, by its own count */
	uint64_t path_syscalls;  /* of any kind, by the kernel's */
	bool path_watched;
	struct report report;
};

/* Offsets in the data buffer, the same on both sides. */
static inline size_t session_outbox(const struct session *session)
{
	(void)session;
	return 0;
}

size_t session_inbox(const struct session *session);
size_t session_cells(const struct session *session);

/* Open, allocate, register, create, meet the peer, connect. @area is as above. */
void session_open(struct session *session, const struct options *options, size_t area);
void session_close(struct session *session);

/* Own addresses, as the CPU and the NIC's keys see them. */
static inline uint8_t *session_at(const struct session *session, size_t offset)
{
	return (uint8_t *)session->data.map + offset;
}

static inline uint64_t session_local(const struct session *session, size_t offset)
{
	return session->data.region.address + offset;
}

static inline volatile uint64_t *session_cell(const struct session *session, unsigned int index)
{
	return (volatile uint64_t *)(void *)session_at(session, session_cells(session)) + index;
}

static inline uint64_t session_cell_address(const struct session *session, unsigned int index)
{
	return session_local(session, session_cells(session)) + 8ull * index;
}

/* The peer's addresses. */
static inline uint64_t session_remote(const struct session *session, size_t offset)
{
	return session->peer.address + offset;
}

static inline uint64_t session_remote_cell(const struct session *session, unsigned int index)
{
	return session_remote(session, session_cells(session)) + 8ull * index;
}

/* Wait until the peer is here, too. Not on the path. */
void session_sync(struct session *session);

/* The kernel runs from here to there: no call of the driver and no system call may happen. */
void session_path_begin(struct session *session);
void session_path_end(struct session *session);

/* The clock's value when the time is up. */
uint64_t session_deadline(const struct session *session);

/*
 * The same moves whoever submits, the kernel itself or the proxy. Each fails through die() with
 * what was being waited for and the state of the queue pair.
 */
uint32_t session_post(struct session *session, const struct vrnic_wqe *wqe, uint64_t deadline);
void session_ring(struct session *session);
void session_wait(struct session *session, uint32_t index, uint64_t deadline);

/* Payload and its check, off or on the path. The offsets are in the data buffer. */
void session_fill(struct session *session, size_t offset, size_t size, uint64_t message);
void session_verify(struct session *session, size_t offset, size_t size, uint64_t message);
/* The bytes around the inbox are as they were. */
void session_verify_guards(struct session *session);

/* Check the outcome of a wait (0, a completion status or DEV_TIMEOUT). */
void session_check(struct session *session, int status, const char *what, uint32_t index);

/* Print a sentence and the queue pair's state as a JSON line, tell the peer, leave with status 1. */
__attribute__((noreturn, format(printf, 2, 3))) void session_die(struct session *session, const char *format, ...);

#endif /* KERNELS_SESSION_H */
