/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cases share: one device, two connected queue pairs of it that talk to each other, and a page of memory
 * at each end.
 */
#ifndef VERBS_H
#define VERBS_H

#include <stdint.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#define END_BYTES 65536

/* One end: its queue pair, CQ and memory. */
struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct ibv_mr *mr;
	uint8_t *memory;
};

struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int gid_index;
	struct end near, far;
};

/* Say why a case failed, and return -1. */
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Open the first mlx5 device; returns 0, or -1 having said why not. */
int world_open(struct world *world);
void world_close(struct world *world);

/* Make both ends and connect them (RC). */
int world_connect(struct world *world);
void world_disconnect(struct world *world);

/* Wait for one completion on @cq and demand @status. */
int expect(struct ibv_cq *cq, enum ibv_wc_status status, struct ibv_wc *wc);

/* WRITE @length bytes of @end's memory at @from to @address under @rkey, and wait for its completion. */
int write_to(struct end *end, size_t from, uint64_t address, uint32_t rkey, uint32_t length,
	     enum ibv_wc_status status);

/* The cases: 0 when everything was as it must be. */
int case_window_type1(struct world *world);
int case_window_type2(struct world *world);
int case_invalidate_remote(struct world *world);
int case_key_list(struct world *world);
int case_key_interleaved(struct world *world);
int case_reregister(struct world *world);
int case_resize(struct world *world);
int case_group(struct world *world);
int case_event_queue_pair(struct world *world);
int case_event_shared_receive(struct world *world);
int case_event_overrun(struct world *world);
int case_dmabuf(struct world *world);

#endif /* VERBS_H */
