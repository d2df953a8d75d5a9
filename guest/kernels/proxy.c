// SPDX-License-Identifier: Apache-2.0
/* The proxy's CPU thread. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "proxy.h"

static pthread_t thread;

static void touch(struct proxy *proxy)
{
	__atomic_fetch_add(&proxy->touches, 1, __ATOMIC_RELAXED);
}

/* Submit every command that was rung: WQE by WQE, then one doorbell. True if there were any. */
static bool submit(struct proxy *proxy, uint64_t *taken)
{
	uint64_t rung = __atomic_load_n(&proxy->rung, __ATOMIC_ACQUIRE);
	uint32_t slots = 1u << proxy->qp->sq_log_size;
	bool any = false;

	while (*taken < rung && proxy->qp->next - proxy->qp->done < slots) {
		struct proxy_slot *slot = &proxy->slots[*taken % PROXY_SLOTS];

		if (__atomic_load_n(&slot->ticket, __ATOMIC_ACQUIRE) != *taken + 1)
			break;
		dev_fill(proxy->qp, proxy->qp->next++, &slot->wqe);
		++*taken;
		touch(proxy);
		any = true;
	}
	if (any) {
		dev_ring(proxy->qp, proxy->qp->next);
		touch(proxy);
	}
	return any;
}

/* Pass on what completed. */
static bool observe(struct proxy *proxy, uint64_t *base)
{
	int status = 0;

	if (!dev_poll_send(proxy->qp, &status))
		return false;
	if (!proxy->qp->collapsed)
		dev_consume(proxy->qp, proxy->qp->send_cqn, proxy->qp->send_consumer);
	touch(proxy);
	if (status) {
		__atomic_store_n(&proxy->status, status, __ATOMIC_RELEASE);
		return true;
	}
	/* Indices run from the queue pair's first one on, tickets from 0. */
	*base += (uint32_t)(proxy->qp->done - proxy->qp->start - (uint32_t)*base);
	__atomic_store_n(&proxy->done, *base, __ATOMIC_RELEASE);
	return true;
}

static void *run(void *argument)
{
	struct proxy *proxy = argument;
	uint64_t taken = 0, done = 0;

	while (!__atomic_load_n(&proxy->stop, __ATOMIC_ACQUIRE)) {
		bool worked = submit(proxy, &taken);

		worked |= observe(proxy, &done);
		/* A CPU thread may give way; on one virtual CPU the kernel would starve otherwise. */
		if (!worked)
			sched_yield();
	}
	return NULL;
}

struct proxy *proxy_start(struct dev_qp *qp)
{
	struct proxy *proxy = aligned_alloc(4096, (sizeof(*proxy) + 4095) / 4096 * 4096);

	if (!proxy)
		return NULL;
	*proxy = (struct proxy){ .qp = qp };
	/* Pinned, as a GPU that reads it would need. */
	if (mlock(proxy, sizeof(*proxy)) || pthread_create(&thread, NULL, run, proxy)) {
		free(proxy);
		return NULL;
	}
	return proxy;
}

void proxy_stop(struct proxy *proxy)
{
	__atomic_store_n(&proxy->stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	free(proxy);
}
