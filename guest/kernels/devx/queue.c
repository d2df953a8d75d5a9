// SPDX-License-Identifier: Apache-2.0
/* Completion queues and queue pairs whose rings lie in user memory. */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "command.h"

/* As GPU-initiated libraries set them. */
#define MTU_1024 3
#define LOG_MOST_BYTES 30
#define LOG_READS 2  /* READs and atomics in flight, both ways */
#define MIN_RNR 12
#define ACK_TIMEOUT 18
#define RETRIES 7
#define HOP_LIMIT 255
#define PM_MIGRATED 3
#define NO_RECEIVES 3
#define ATOMIC_UP_TO_8 3
#define LOWEST_SOURCE_PORT 0xc000

int devx_create_cq(struct devx *nic, struct devx_cq *cq)
{
	uint8_t in[DEVX_COMMAND_BYTES] = {}, out[16] = {};

	devx_set(in, DEVX_OPCODE, DEVX_OP_CREATE_CQ);
	devx_set(in, CREATE_CQ_cc, cq->collapsed);
	devx_set(in, CREATE_CQ_oi, cq->ignore_overrun);
	devx_set(in, CREATE_CQ_log_cq_size, cq->log_size);
	devx_set(in, CREATE_CQ_uar_page, nic->uar);
	devx_set(in, CREATE_CQ_c_eqn_or_apu_element, nic->eqn);
	devx_set(in, CREATE_CQ_dbr_umem_valid, 1);
	devx_set(in, CREATE_CQ_dbr_umem_id, cq->memory->umem);
	devx_set(in, CREATE_CQ_dbr_addr, cq->record);
	devx_set(in, CREATE_CQ_cq_umem_valid, 1);
	devx_set(in, CREATE_CQ_cq_umem_id, cq->memory->umem);
	devx_set(in, CREATE_CQ_cq_umem_offset, cq->at);
	if (!mlx5dv_devx_obj_create(nic->context, in, CREATE_CQ_BYTES, out, sizeof(out)))
		return devx_refused(nic, "completion queue", out);
	cq->number = (uint32_t)devx_get(out, CREATE_CQ_OUT_cqn);
	return 0;
}

int devx_create_qp(struct devx *nic, struct devx_qp *qp)
{
	uint8_t in[DEVX_COMMAND_BYTES] = {}, out[16] = {};

	devx_set(in, DEVX_OPCODE, DEVX_OP_CREATE_QP);
	devx_set(in, QPC_pm_state, PM_MIGRATED);
	devx_set(in, QPC_pd, nic->pdn);
	devx_set(in, QPC_log_sq_size, qp->log_size);
	devx_set(in, QPC_uar_page, nic->uar);
	devx_set(in, QPC_cqn_snd, qp->cqn);
	devx_set(in, QPC_cqn_rcv, qp->cqn);
	devx_set(in, QPC_rq_type, NO_RECEIVES);
	devx_set(in, QPC_send_dbr_mode, qp->no_record);
	devx_set(in, QPC_hw_sq_wqebb_counter, qp->start);
	devx_set(in, QPC_sw_sq_wqebb_counter, qp->start);
	devx_set(in, QPC_dbr_umem_valid, 1);
	devx_set(in, QPC_dbr_umem_id, qp->memory->umem);
	devx_set(in, QPC_dbr_addr, qp->record);
	devx_set(in, CREATE_QP_wq_umem_valid, 1);
	devx_set(in, CREATE_QP_wq_umem_id, qp->memory->umem);
	devx_set(in, CREATE_QP_wq_umem_offset, qp->at);
	qp->handle = mlx5dv_devx_obj_create(nic->context, in, CREATE_QP_BYTES, out, sizeof(out));
	if (!qp->handle)
		return devx_refused(nic, "queue pair", out);
	qp->number = (uint32_t)devx_get(out, CREATE_QP_OUT_qpn);
	return 0;
}

static int step(struct devx *nic, struct devx_qp *qp, uint16_t opcode, uint8_t *in, const char *what)
{
	uint8_t out[16] = {};

	devx_set(in, DEVX_OPCODE, opcode);
	devx_set(in, MODIFY_QP_qpn, qp->number);
	devx_set(in, QPC_pm_state, PM_MIGRATED);
	if (mlx5dv_devx_obj_modify(qp->handle, in, CREATE_QP_BYTES, out, sizeof(out)))
		return devx_refused(nic, what, out);
	return 0;
}

int devx_connect(struct devx *nic, struct devx_qp *qp, const struct vrnic_endpoint *self,
		 const struct vrnic_endpoint *peer)
{
	uint8_t init[DEVX_COMMAND_BYTES] = {}, receive[DEVX_COMMAND_BYTES] = {}, send[DEVX_COMMAND_BYTES] = {};

	devx_set(init, QPC_vhca_port_num, 1);
	devx_set(init, QPC_rre, 1);
	devx_set(init, QPC_rwe, 1);
	devx_set(init, QPC_rae, 1);
	devx_set(init, QPC_atomic_mode, ATOMIC_UP_TO_8);
	if (step(nic, qp, DEVX_OP_RST2INIT_QP, init, "queue pair to INIT"))
		return -1;
	devx_set(receive, QPC_mtu, MTU_1024);
	devx_set(receive, QPC_log_msg_max, LOG_MOST_BYTES);
	devx_set(receive, QPC_remote_qpn, peer->qpn);
	devx_set(receive, QPC_src_addr_index, nic->gid_index);
	devx_set(receive, QPC_hop_limit, HOP_LIMIT);
	devx_set(receive, QPC_udp_sport, LOWEST_SOURCE_PORT | (self->qpn & 0xff));
	devx_set(receive, QPC_vhca_port_num, 1);
	devx_set_bytes(receive, QPC_rgid_rip, peer->gid);
	devx_set_bytes(receive, QPC_rmac_47_32, peer->mac);
	devx_set_bytes(receive, QPC_rmac_31_0, peer->mac + 2);
	devx_set(receive, QPC_log_rra_max, LOG_READS);
	devx_set(receive, QPC_min_rnr_nak, MIN_RNR);
	devx_set(receive, QPC_next_rcv_psn, peer->psn);
	if (step(nic, qp, DEVX_OP_INIT2RTR_QP, receive, "queue pair to RTR"))
		return -1;
	devx_set(send, QPC_ack_timeout, ACK_TIMEOUT);
	devx_set(send, QPC_vhca_port_num, 1);
	devx_set(send, QPC_log_sra_max, LOG_READS);
	devx_set(send, QPC_retry_count, RETRIES);
	devx_set(send, QPC_rnr_retry, RETRIES);
	devx_set(send, QPC_next_send_psn, self->psn);
	return step(nic, qp, DEVX_OP_RTR2RTS_QP, send, "queue pair to RTS");
}

int devx_query_qp(struct devx *nic, struct devx_qp *qp, uint8_t *state)
{
	uint8_t in[QUERY_QP_BYTES] = {}, out[QUERY_QP_OUT_BYTES] = {};

	devx_set(in, DEVX_OPCODE, DEVX_OP_QUERY_QP);
	devx_set(in, MODIFY_QP_qpn, qp->number);
	if (mlx5dv_devx_obj_query(qp->handle, in, sizeof(in), out, sizeof(out)))
		return devx_refused(nic, "query of a queue pair", out);
	*state = (uint8_t)devx_get(out, QUERY_QP_OUT_state);
	return 0;
}
