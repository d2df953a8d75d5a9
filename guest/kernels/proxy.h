/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contrast: the kernel does not own the queue pair but a ring of commands in host memory, and a
 * CPU thread takes them out, writes the WQEs, rings, polls the CQ and tells the kernel.
 */
#ifndef KERNELS_PROXY_H
#define KERNELS_PROXY_H

#include "device.h"

#define PROXY_SLOTS 64

/* One command; the ticket (index + 1) is stored last. */
struct proxy_slot {
	struct vrnic_wqe wqe;
	uint64_t ticket;
	uint64_t padding[7];
};

struct proxy {
	struct proxy_slot slots[PROXY_SLOTS];
	uint64_t posted;  /* commands the kernel wrote */
	uint64_t rung;  /* of those, how many the CPU may submit: the kernel's "doorbell" */
	uint64_t done;  /* commands that completed, the CPU's */
	int64_t status;  /* of the first error, the CPU's */
	uint64_t touches;  /* commands, doorbells and completions the CPU handled */
	uint64_t stop;
	struct dev_qp *qp;
};

/* Start the CPU thread for @qp, which is its own from now on. NULL when there is none to be had. */
struct proxy *proxy_start(struct dev_qp *qp);
void proxy_stop(struct proxy *proxy);

/* The kernel's side; like device.h, loads and stores only. */

static inline int proxy_post(struct proxy *proxy, const struct vrnic_wqe *wqe, uint64_t deadline, uint64_t *index)
{
	struct proxy_slot *slot;

	while (proxy->posted - __atomic_load_n(&proxy->done, __ATOMIC_ACQUIRE) == PROXY_SLOTS) {
		if ((int64_t)(dev_clock() - deadline) > 0)
			return DEV_TIMEOUT;
		dev_pause();
	}
	*index = proxy->posted++;
	slot = &proxy->slots[*index % PROXY_SLOTS];
	slot->wqe = *wqe;
	__atomic_store_n(&slot->ticket, *index + 1, __ATOMIC_RELEASE);
	return 0;
}

static inline void proxy_ring(struct proxy *proxy)
{
	__atomic_store_n(&proxy->rung, proxy->posted, __ATOMIC_RELEASE);
}

static inline int proxy_wait(struct proxy *proxy, uint64_t index, uint64_t deadline)
{
	while (__atomic_load_n(&proxy->done, __ATOMIC_ACQUIRE) <= index) {
		int64_t status = __atomic_load_n(&proxy->status, __ATOMIC_ACQUIRE);

		if (status)
			return (int)status;
		if ((int64_t)(dev_clock() - deadline) > 0)
			return DEV_TIMEOUT;
		dev_pause();
	}
	return 0;
}

#endif /* KERNELS_PROXY_H */
