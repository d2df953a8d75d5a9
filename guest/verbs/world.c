// SPDX-License-Identifier: Apache-2.0
/* The device and the two ends. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verbs.h"

#define PORT 1
#define DEPTH 32
#define PATIENCE 60  /* seconds: an emulated machine may be slow */
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

int failed(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("# ");
	vprintf(format, arguments);
	printf(" (%s)\n", strerror(errno));
	va_end(arguments);
	return -1;
}

static int find_gid(struct world *world)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;

	for (int index = 0; index < 256; index++) {
		if (ibv_query_gid_ex(world->context, PORT, index, &entry, 0) || memcmp(entry.gid.raw, mapped, 12))
			continue;
		world->gid = entry.gid;
		world->gid_index = index;
		return 0;
	}
	return failed("no RoCE v2 address over IPv4");
}

int world_open(struct world *world)
{
	struct mlx5dv_context_attr attributes = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(world, 0, sizeof(*world));
	if (!list || !*list)
		return failed("no RDMA device");
	world->context = mlx5dv_open_device(*list, &attributes);
	ibv_free_device_list(list);
	if (!world->context)
		return failed("open the device");
	world->pd = ibv_alloc_pd(world->context);
	return world->pd ? find_gid(world) : failed("protection domain");
}

void world_close(struct world *world)
{
	ibv_dealloc_pd(world->pd);
	ibv_close_device(world->context);
}

static int make_end(struct world *world, struct end *end)
{
	struct ibv_qp_init_attr_ex attributes = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 1,
			 .max_inline_data = 512 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = world->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	};

	end->memory = aligned_alloc(4096, END_BYTES);
	if (!end->memory)
		return failed("memory");
	memset(end->memory, 0, END_BYTES);
	end->mr = ibv_reg_mr(world->pd, end->memory, END_BYTES, RIGHTS);
	if (!end->mr)
		return failed("register memory");
	end->cq = ibv_create_cq(world->context, DEPTH * 2, NULL, NULL, 0);
	if (!end->cq)
		return failed("CQ");
	attributes.send_cq = attributes.recv_cq = end->cq;
	end->qp = mlx5dv_create_qp(world->context, &attributes, &dv);
	if (!end->qp)
		return failed("queue pair");
	end->ex = ibv_qp_to_qp_ex(end->qp);
	return 0;
}

static int to_rts(struct world *world, struct end *end, struct end *peer)
{
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = RIGHTS & ~IBV_ACCESS_MW_BIND,
	};

	if (ibv_modify_qp(end->qp, &attributes,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return failed("INIT");
	attributes = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = PORT,
			     .grh = { .dgid = world->gid, .sgid_index = world->gid_index, .hop_limit = 64 } },
	};
	if (ibv_modify_qp(end->qp, &attributes,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return failed("RTR");
	attributes = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
	};
	if (ibv_modify_qp(end->qp, &attributes,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		return failed("RTS");
	return 0;
}

int world_connect(struct world *world)
{
	if (make_end(world, &world->near) || make_end(world, &world->far))
		return -1;
	return to_rts(world, &world->near, &world->far) || to_rts(world, &world->far, &world->near) ? -1 : 0;
}

static void end_end(struct end *end)
{
	if (end->qp)
		ibv_destroy_qp(end->qp);
	if (end->cq)
		ibv_destroy_cq(end->cq);
	if (end->mr)
		ibv_dereg_mr(end->mr);
	free(end->memory);
	memset(end, 0, sizeof(*end));
}

void world_disconnect(struct world *world)
{
	end_end(&world->near);
	end_end(&world->far);
}

int expect(struct ibv_cq *cq, enum ibv_wc_status status, struct ibv_wc *wc)
{
	struct ibv_wc own;
	time_t end = time(NULL) + PATIENCE;
	int found = 0;

	wc = wc ? wc : &own;
	while (!found && time(NULL) < end)
		found = ibv_poll_cq(cq, 1, wc);
	if (found != 1)
		return failed("no completion in %d s", PATIENCE);
	if (wc->status != status)
		return failed("completion says %s (vendor %#x), not %s", ibv_wc_status_str(wc->status),
			      wc->vendor_err, ibv_wc_status_str(status));
	return 0;
}

int write_to(struct end *end, size_t from, uint64_t address, uint32_t rkey, uint32_t length,
	     enum ibv_wc_status status)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + from, length, end->mr->lkey };
	struct ibv_send_wr *bad, request = {
		.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = address, .rkey = rkey },
	};

	if (ibv_post_send(end->qp, &request, &bad))
		return failed("post a WRITE");
	return expect(end->cq, status, NULL);
}
