/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvrnic: the calls of /dev/vrnicN and /dev/vgpuN from C.
 *
 * This is the control path: what a CPU does once. Posting and completing work needs nothing from
 * here; it is stores and loads to the rings, the doorbell record and vrnic.doorbells.
 *
 * Functions return 0 or a negative errno; vrnic_error() and vgpu_error() then give one sentence.
 * Numbers are in host byte order, sizes in bytes. Handles are not shared between threads.
 */
#ifndef LIBVRNIC_H
#define LIBVRNIC_H

#include <stddef.h>
#include <stdint.h>

#include "vgpu_uapi.h"
#include "vrnic_contract.h"
#include "vrnic_uapi.h"

#define VRNIC_ERROR_TEXT 256
#define VRNIC_ENDPOINT_TEXT 256

/* An open NIC: one context, its limits and its doorbell page. */
struct vrnic {
	int fd;
	volatile uint64_t *doorbells;  /* VRNIC_DB_* are byte offsets in it */
	struct vrnic_query limits;
	char error[VRNIC_ERROR_TEXT];
};

/* An open GPU. */
struct vgpu {
	int fd;
	struct vgpu_info info;
	char error[VRNIC_ERROR_TEXT];
};

/* Mapped VRAM. */
struct vgpu_buffer {
	uint64_t offset;  /* in VRAM */
	size_t size;
	void *map;
};

/* A registered region. Its address space is the process's own: address is the mapping's pointer. */
struct vrnic_region {
	uint32_t key;
	uint64_t address;
	uint64_t length;
};

/* What a peer must know to connect and to reach a region: one line of text between the two. */
struct vrnic_endpoint {
	uint32_t qpn;
	uint32_t psn;  /* first PSN this side sends */
	uint8_t gid[16];  /* network byte order */
	uint8_t mac[6];
	uint32_t rkey;
	uint64_t address;
	uint64_t length;
};

/* How vrnic_connect() sets up a queue pair. */
struct vrnic_path {
	uint8_t gid_index;
	uint8_t mtu;  /* 1 for 256 bytes to 5 for 4096 */
	uint8_t timeout;  /* local ACK timeout, 4.096 us * 2^n */
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t min_rnr_timer;
	uint8_t rd_atomic;  /* READs and atomics in flight, both ways */
	uint8_t traffic_class;
	uint32_t access;  /* VRNIC_ACCESS_* the peer has */
};

/* Defaults: GID 1 (IPv4), 1024 bytes, 268 ms, 7 retries, RNR for ever, every right. */
extern const struct vrnic_path vrnic_path_default;

/* device.c */

/* Open @path (NULL: /dev/vrnic0). On failure nothing is open, and vrnic_error() still works. */
int vrnic_open(struct vrnic *nic, const char *path);
/* Close; the driver destroys what is left. */
void vrnic_close(struct vrnic *nic);
/* The sentence for the last failure on @nic. */
const char *vrnic_error(const struct vrnic *nic);
/* Limits and counters as they are now. */
int vrnic_query(struct vrnic *nic, struct vrnic_query *query);
/* Read GID @index, network byte order. */
int vrnic_query_gid(struct vrnic *nic, uint32_t index, uint8_t gid[16]);
/* Set GID @index; needs CAP_NET_ADMIN. */
int vrnic_set_gid(struct vrnic *nic, uint32_t index, const uint8_t gid[16]);
/* Wait for an event. @timeout_ms < 0: for ever. -ETIMEDOUT when none came. */
int vrnic_next_event(struct vrnic *nic, int timeout_ms, struct vrnic_event_record *record);

/* memory.c */

int vrnic_alloc_pd(struct vrnic *nic, uint32_t *pd);
int vrnic_free_pd(struct vrnic *nic, uint32_t pd);
/*
 * Beside the rights of a region, with the value of IBV_ACCESS_RELAXED_ORDERING: payload may be seen after
 * what the NIC wrote later, such as a completion.
 */
#define VRNIC_RELAXED_ORDERING (1u << 20)

/*
 * Register memory of this process. With VRNIC_ACCESS_REMOTE_ATOMIC atomics may target it; access may
 * include VRNIC_RELAXED_ORDERING.
 */
int vrnic_reg_mr(struct vrnic *nic, uint32_t pd, void *memory, size_t length, uint32_t access,
		 struct vrnic_region *region);
/* Register @length bytes at @offset of a dma-buf of GPU memory, addressed as @address. */
int vrnic_reg_dmabuf(struct vrnic *nic, uint32_t pd, int fd, uint64_t offset, size_t length,
		     const void *address, uint32_t access, struct vrnic_region *region);
int vrnic_dereg_mr(struct vrnic *nic, const struct vrnic_region *region);

/* queue.c: the structures are the driver's (vrnic_uapi.h); numbers come back in them. */

int vrnic_create_cq(struct vrnic *nic, struct vrnic_create_cq *cq);
int vrnic_set_hints(struct vrnic *nic, struct vrnic_set_hints *hints);
int vrnic_destroy_cq(struct vrnic *nic, uint32_t cqn);
int vrnic_create_qp(struct vrnic *nic, struct vrnic_create_qp *qp);
int vrnic_destroy_qp(struct vrnic *nic, uint32_t qpn);
int vrnic_modify_qp(struct vrnic *nic, struct vrnic_modify_qp *attributes);
int vrnic_query_qp(struct vrnic *nic, uint32_t qpn, struct vrnic_query_qp *qp);
/* RESET to INIT. */
int vrnic_qp_to_init(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path);
/* INIT to RTR: what arrives from @peer is accepted. */
int vrnic_qp_to_rtr(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path,
		    const struct vrnic_endpoint *peer);
/* RTR to RTS: work may be posted; @psn is the first to be sent. */
int vrnic_qp_to_rts(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path, uint32_t psn);
/* All three. */
int vrnic_connect(struct vrnic *nic, const struct vrnic_path *path,
		  const struct vrnic_endpoint *self, const struct vrnic_endpoint *peer);

/* datagram.c */

/* RESET to RTS of a queue pair of datagrams; @psn is the first to be sent. */
int vrnic_qp_datagram(struct vrnic *nic, uint32_t qpn, uint32_t qkey, uint32_t psn);
/* The structure is the driver's; the number comes back in it. */
int vrnic_create_ah(struct vrnic *nic, struct vrnic_create_ah *ah);
int vrnic_destroy_ah(struct vrnic *nic, uint32_t ahn);
/* Listen to a group's GID, network byte order. */
int vrnic_attach_multicast(struct vrnic *nic, uint32_t qpn, const uint8_t gid[16]);
int vrnic_detach_multicast(struct vrnic *nic, uint32_t qpn, const uint8_t gid[16]);

/* endpoint.c */

/* Write @endpoint as one line without its end, "vrnic1 qpn=... ...". */
void vrnic_endpoint_format(const struct vrnic_endpoint *endpoint, char text[VRNIC_ENDPOINT_TEXT]);
/* Read such a line. -EINVAL when a field is missing, unknown, twice or out of range. */
int vrnic_endpoint_parse(const char *text, struct vrnic_endpoint *endpoint);

/* gpu.c */

/* Open @path (NULL: /dev/vgpu0). */
int vgpu_open(struct vgpu *gpu, const char *path);
void vgpu_close(struct vgpu *gpu);
const char *vgpu_error(const struct vgpu *gpu);
/* Allocate VRAM, zeroed, and map it write-combining. */
int vgpu_alloc(struct vgpu *gpu, size_t size, struct vgpu_buffer *buffer);
/* Unmap and free. -EBUSY while a dma-buf of it is open. */
int vgpu_free(struct vgpu *gpu, struct vgpu_buffer *buffer);
/* A dma-buf of the allocation: a new descriptor, or a negative errno. */
int vgpu_export(struct vgpu *gpu, const struct vgpu_buffer *buffer);

#endif /* LIBVRNIC_H */
