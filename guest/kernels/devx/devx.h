/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of a direct submitter on an mlx5-compatible NIC, through the distribution's libmlx5: what
 * GPU-initiated libraries do once, on the CPU, before kernels submit by themselves. Rings, doorbell records and
 * CQs lie in memory of the caller's (its own, or a GPU's as a dma-buf) that is registered as user memory
 * ("umem"); queues are made by raw device commands that name places in it.
 *
 * Functions return 0, or -1 with one sentence in error. Objects end with the process.
 */
#ifndef DEVX_H
#define DEVX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libvrnic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEVX_ERROR_TEXT 256

struct ibv_context;
struct ibv_pd;

/* An open NIC with a protection domain and a doorbell page. */
struct devx {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t pdn;
	uint32_t eqn;  /* CQs must name one; nothing is armed */
	uint32_t uar;
	bool blueflame;  /* the page is mapped for BlueFlame, not just for doorbells */
	volatile uint8_t *page;  /* the doorbell page */
	uint8_t mac[6];
	uint8_t gid[16];
	uint8_t gid_index;
	char error[DEVX_ERROR_TEXT];
};

/* Registered memory: for queues by @umem, for payload by @key. */
struct devx_memory {
	uint8_t *map;
	uint64_t address;  /* of its first byte, for @key */
	size_t size;
	uint32_t umem;
	uint32_t key;
	const char *how;  /* @key was made: "mr", "dmabuf-mr" or "umem-mkey" */
};

/* A completion queue: CQEs at @at of @memory, its record at @record. */
struct devx_cq {
	const struct devx_memory *memory;
	uint64_t at, record;
	uint8_t log_size;
	bool collapsed;  /* every CQE to slot 0 */
	bool ignore_overrun;
	uint32_t number;  /* out */
};

/* A reliable connection that only sends: its ring at @at of @memory, its record at @record. */
struct devx_qp {
	const struct devx_memory *memory;
	uint64_t at, record;
	uint8_t log_size;
	uint32_t cqn;
	uint32_t start;  /* first running index; real devices begin at 0 */
	bool no_record;  /* the doorbell alone counts, @record is not read */
	uint32_t number;  /* out */
	void *handle;  /* out */
};

/* Open the first mlx5 device, or the one called @name. */
int devx_open(struct devx *nic, const char *name);
/* Register @size bytes at @map for queues; with @dmabuf >= 0, the memory behind that descriptor. */
int devx_register_queues(struct devx *nic, void *map, size_t size, int dmabuf, struct devx_memory *memory);
/* Register for payload, with every right. A dma-buf by ibv_reg_dmabuf_mr() where that works, else as a
 * memory key over user memory. */
int devx_register_payload(struct devx *nic, void *map, size_t size, int dmabuf, struct devx_memory *memory);
int devx_create_cq(struct devx *nic, struct devx_cq *cq);
int devx_create_qp(struct devx *nic, struct devx_qp *qp);
/* RESET to RTS towards @peer. */
int devx_connect(struct devx *nic, struct devx_qp *qp, const struct vrnic_endpoint *self,
		 const struct vrnic_endpoint *peer);
/* State of a queue pair as the device has it: 3 is RTS, 6 error. */
int devx_query_qp(struct devx *nic, struct devx_qp *qp, uint8_t *state);

#ifdef __cplusplus
}
#endif

#endif /* DEVX_H */
