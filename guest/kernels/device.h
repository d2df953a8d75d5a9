/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs "on the GPU": direct submission to a vrnic queue pair, one lane.
 *
 * Everything here is loads and stores. No library call, no system call: the code would run on a
 * GPU, where there are none. The five moves are the same in every GPU-initiated library:
 *
 *   reserve   take running indices, once the ring has room
 *   fill      write 64-byte WQEs, the commit word last
 *   publish   a fence, so that the NIC sees WQEs and payload before the doorbell
 *   ring      the doorbell record, a fence, one 64-bit store to the doorbell page
 *   observe   read the CQ that the NIC writes
 *
 * Indices run on over 32 bits; a slot is the index modulo the ring size. An index names the WQE,
 * a doorbell names the next free index.
 */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include "vrnic_contract.h"

/* Outcome of a wait: a completion status (0 is success), or this. */
#define DEV_TIMEOUT (-1)

/* A queue pair as a kernel sees it. One lane uses it at a time. */
struct dev_qp {
	volatile uint64_t *sq;  /* 8 words each slot */
	volatile struct vrnic_recv_wqe *rq;
	volatile struct vrnic_dbr *dbr;
	volatile struct vrnic_cqe *send_cq;
	volatile struct vrnic_cqe *recv_cq;
	volatile uint64_t *doorbells;
	uint32_t qpn;
	uint32_t send_cqn;
	uint32_t recv_cqn;
	uint32_t start;  /* first running index */
	uint32_t next;  /* next send index to reserve */
	uint32_t done;  /* every send index before it is complete */
	uint32_t recv_next;  /* next receive index to post */
	uint32_t send_consumer;  /* CQ running indices */
	uint32_t recv_consumer;
	uint8_t sq_log_size;
	uint8_t rq_log_size;
	uint8_t cq_log_size;
	bool collapsed;  /* the send CQ has one slot */
	bool phase;
	/* counted for the report */
	uint64_t doorbell_stores;
	uint64_t cq_polls;
	/* of the last error */
	uint32_t error_index;
	uint32_t error_cause;
};

/* The GPU's clock, in ticks of any length; the host side measures how many a second has. */
static inline uint64_t dev_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
#error "no clock for this machine"
#endif
}

/* Tell the core that this is a spin loop. */
static inline void dev_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/*
 * System-scope fence. A compiler's fence is not enough: VRAM is write-combining, and only sfence
 * (or a stronger one) empties those buffers before the doorbell.
 */
static inline void dev_fence_system(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" ::: "memory");
#else
	__asm__ volatile("dsb sy" ::: "memory");
#endif
}

static inline uint8_t dev_phase_flag(const struct dev_qp *qp, uint32_t index)
{
	if (!qp->phase)
		return 0;
	return vrnic_phase(index - qp->start, qp->sq_log_size) ? VRNIC_WQE_PHASE : 0;
}

static inline volatile uint64_t *dev_slot(const struct dev_qp *qp, uint32_t index)
{
	uint32_t mask = (1u << qp->sq_log_size) - 1;

	return qp->sq + (uint64_t)(index & mask) * (VRNIC_WQE_SIZE / 8);
}

/*
 * Read one completion of the send CQ, if there is a new one: 1, or 0. On an error completion the
 * queue pair's error fields are set and @status is not 0.
 */
static inline int dev_poll_send(struct dev_qp *qp, int *status)
{
	uint32_t mask = qp->collapsed ? 0 : (1u << qp->cq_log_size) - 1;
	volatile struct vrnic_cqe *cqe = qp->send_cq + (qp->send_consumer & mask);
	uint64_t commit = le64toh(((volatile uint64_t *)cqe)[7]);
	uint32_t producer = (uint32_t)commit;

	qp->cq_polls++;
	/*
	 * The entry's own running index tells new from old, and from the 0xff the ring was filled
	 * with; in a collapsed CQ it may have moved on by more than one.
	 */
	if (qp->collapsed ? producer == 0xffffffff || (int32_t)(producer - qp->send_consumer) < 0 :
			    producer != qp->send_consumer)
		return 0;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	*status = (int)(commit >> 48 & 0xff);
	if (*status) {
		qp->error_index = le32toh(cqe->index);
		qp->error_cause = le32toh(cqe->cause);
	}
	/* The commit word has the low half of the WQE's index: enough, a ring is shorter. */
	qp->done += (uint16_t)((uint16_t)(commit >> 32) + 1 - qp->done);
	qp->send_consumer = producer + 1;
	return 1;
}

/* Tell the NIC how far a ring CQ was read, so that it can report an overrun. */
static inline void dev_consume(struct dev_qp *qp, uint32_t cqn, uint32_t consumer)
{
	qp->doorbells[VRNIC_DB_CQ_CONSUMER / 8] =
		htole64(vrnic_doorbell(VRNIC_DB_TYPE_CQ_CONSUMER, cqn, consumer));
	qp->doorbell_stores++;
}

/* Wait until send index @index is complete: 0, a completion status, or DEV_TIMEOUT. */
static inline int dev_wait_send(struct dev_qp *qp, uint32_t index, uint64_t deadline)
{
	int status = 0;

	while ((int32_t)(qp->done - index) <= 0) {
		if (dev_poll_send(qp, &status)) {
			if (!qp->collapsed)
				dev_consume(qp, qp->send_cqn, qp->send_consumer);
			if (status)
				return status;
			continue;
		}
		if ((int64_t)(dev_clock() - deadline) > 0)
			return DEV_TIMEOUT;
		dev_pause();
	}
	return 0;
}

/* Take @count indices; waits until the ring has room. 0, a completion status, or DEV_TIMEOUT. */
static inline int dev_reserve(struct dev_qp *qp, uint32_t count, uint64_t deadline, uint32_t *index)
{
	uint32_t slots = 1u << qp->sq_log_size;
	int status;

	if (qp->next + count - qp->done > slots) {
		status = dev_wait_send(qp, qp->next + count - slots - 1, deadline);
		if (status)
			return status;
	}
	*index = qp->next;
	qp->next += count;
	return 0;
}

/* Write @wqe, whose opcode and flags are set, into the slot of @index. */
static inline void dev_fill(struct dev_qp *qp, uint32_t index, const struct vrnic_wqe *wqe)
{
	const uint64_t *words = (const uint64_t *)(const void *)wqe;
	volatile uint64_t *slot = dev_slot(qp, index);
	uint8_t flags = wqe->flags | dev_phase_flag(qp, index);

	/* Words 1 to 7 of the descriptor; the QPN echo is in the low half of word 1. */
	slot[1] = htole64((le64toh(words[1]) & 0xffffffff00000000ull) | qp->qpn);
	for (int i = 2; i < VRNIC_WQE_SIZE / 8; i++)
		slot[i] = words[i];
	/* With the phase bit the slot is valid from here on. */
	dev_fence_system();
	slot[0] = htole64(vrnic_wqe_commit((enum vrnic_opcode)wqe->opcode, flags, index));
}

/* Publish everything before @next and ring: record, fence, doorbell. */
static inline void dev_ring(struct dev_qp *qp, uint32_t next)
{
	dev_fence_system();
	qp->dbr->send = htole32(next);
	dev_fence_system();
	qp->doorbells[VRNIC_DB_SQ / 8] = htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qp->qpn, next));
	qp->doorbell_stores++;
}

/* Post one receive element and ring. The caller keeps within the ring. */
static inline void dev_post_receive(struct dev_qp *qp, uint64_t address, uint32_t lkey, uint32_t length)
{
	uint32_t mask = (1u << qp->rq_log_size) - 1;
	uint32_t index = qp->recv_next++;
	volatile struct vrnic_recv_wqe *slot = qp->rq + (index & mask);

	slot->index = htole32(index);
	slot->qpn = htole32(qp->qpn);
	slot->address = htole64(address);
	slot->lkey = htole32(lkey);
	slot->length = htole32(length);
	slot->reserved = 0;
	dev_fence_system();
	qp->dbr->receive = htole32(qp->recv_next);
	dev_fence_system();
	qp->doorbells[VRNIC_DB_RQ / 8] = htole64(vrnic_doorbell(VRNIC_DB_TYPE_RQ, qp->qpn, qp->recv_next));
	qp->doorbell_stores++;
}

/* Wait for the next receive completion and copy it to @out: its status, or DEV_TIMEOUT. */
static inline int dev_wait_receive(struct dev_qp *qp, uint64_t deadline, struct vrnic_cqe *out)
{
	uint32_t mask = (1u << qp->cq_log_size) - 1;
	volatile uint64_t *cqe = (volatile uint64_t *)(qp->recv_cq + (qp->recv_consumer & mask));
	uint64_t *words = (uint64_t *)(void *)out;

	while ((uint32_t)le64toh(cqe[7]) != qp->recv_consumer) {
		qp->cq_polls++;
		if ((int64_t)(dev_clock() - deadline) > 0)
			return DEV_TIMEOUT;
		dev_pause();
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (int i = 0; i < VRNIC_CQE_SIZE / 8; i++)
		words[i] = cqe[i];
	dev_consume(qp, qp->recv_cqn, ++qp->recv_consumer);
	if (out->status) {
		qp->error_index = le32toh(out->index);
		qp->error_cause = le32toh(out->cause);
	}
	return out->status;
}

/* Wait until the 8 bytes at @flag are @value: what a peer's inline WRITE puts there. */
static inline int dev_wait_flag(const volatile uint64_t *flag, uint64_t value, uint64_t deadline)
{
	while (*flag != value) {
		if ((int64_t)(dev_clock() - deadline) > 0)
			return DEV_TIMEOUT;
		dev_pause();
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return 0;
}

/* Descriptors. Addresses are in the named key's address space. */

static inline struct vrnic_wqe dev_write(uint64_t local, uint32_t lkey, uint64_t remote, uint32_t rkey,
					 uint32_t length)
{
	return (struct vrnic_wqe){
		.opcode = VRNIC_OP_WRITE,
		.remote_address = htole64(remote),
		.rkey = htole32(rkey),
		.length = htole32(length),
		.local_address = htole64(local),
		.lkey = htole32(lkey),
	};
}

/* WRITE of 8 bytes that are in the descriptor: a flag, ordered behind the WRITEs before it. */
static inline struct vrnic_wqe dev_write_flag(uint64_t value, uint64_t remote, uint32_t rkey)
{
	struct vrnic_wqe wqe = {
		.opcode = VRNIC_OP_WRITE,
		/* On transports without order between messages only the fence keeps it behind the data. */
		.flags = VRNIC_WQE_INLINE | VRNIC_WQE_FENCE,
		.remote_address = htole64(remote),
		.rkey = htole32(rkey),
		.length = htole32(sizeof(value)),
	};

	/* The payload is in memory order, and begins where local_address is. */
	wqe.local_address = (__le64)value;
	return wqe;
}

static inline struct vrnic_wqe dev_read(uint64_t local, uint32_t lkey, uint64_t remote, uint32_t rkey,
					uint32_t length)
{
	struct vrnic_wqe wqe = dev_write(local, lkey, remote, rkey, length);

	wqe.opcode = VRNIC_OP_READ;
	return wqe;
}

static inline struct vrnic_wqe dev_send(uint64_t local, uint32_t lkey, uint32_t length)
{
	struct vrnic_wqe wqe = dev_write(local, lkey, 0, 0, length);

	wqe.opcode = VRNIC_OP_SEND;
	return wqe;
}

/* Fetch-and-add of 8 bytes; the old value goes to @result. */
static inline struct vrnic_wqe dev_atomic_add(uint64_t add, uint64_t result, uint32_t lkey, uint64_t remote,
					      uint32_t rkey)
{
	return (struct vrnic_wqe){
		.opcode = VRNIC_OP_ATOMIC_ADD,
		.remote_address = htole64(remote),
		.rkey = htole32(rkey),
		.length = htole32(8),
		.local_address = htole64(add),
		.result_address = htole64(result),
		.result_lkey = htole32(lkey),
	};
}

/* Compare-and-swap of 8 bytes; the old value goes to @result. */
static inline struct vrnic_wqe dev_atomic_cas(uint64_t compare, uint64_t swap, uint64_t result, uint32_t lkey,
					      uint64_t remote, uint32_t rkey)
{
	struct vrnic_wqe wqe = dev_atomic_add(swap, result, lkey, remote, rkey);

	wqe.opcode = VRNIC_OP_ATOMIC_CAS;
	wqe.lkey = htole32((uint32_t)compare);
	wqe.compare_high = htole32((uint32_t)(compare >> 32));
	return wqe;
}

#endif /* KERNELS_DEVICE_H */
