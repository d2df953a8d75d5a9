// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, completion queues, queue pairs, GIDs: objects whose memory is in a region of
 * the user's, so all the driver keeps is who owns which number.
 */

#include <linux/capability.h>

#include "vrnic.h"

/* Remember that @ctx owns @number, and who gets its events. */
static int vrnic_number_add(struct vrnic_context *ctx, struct xarray *mine, struct xarray *owners,
			    u32 number)
{
	int ret;

	ret = xa_err(xa_store(mine, number, xa_mk_value(1), GFP_KERNEL_ACCOUNT));
	if (ret || !owners)
		return ret;
	ret = xa_err(xa_store_irq(owners, number, ctx, GFP_KERNEL_ACCOUNT));
	if (ret)
		xa_erase(mine, number);
	return ret;
}

static void vrnic_number_remove(struct xarray *mine, struct xarray *owners, u32 number)
{
	if (owners)
		xa_erase_irq(owners, number);
	xa_erase(mine, number);
}

/* Carry out a command that makes an object, and own it. */
/* @reply: room for the whole reply, of which only the object is looked at here. */
int vrnic_number_make(struct vrnic_context *ctx, const void *command,
		      struct vrnic_reply_object *reply, struct xarray *mine,
		      struct xarray *owners, enum vrnic_admin_opcode undo,
		      struct vrnic_verdict *verdict, u32 *number)
{
	int ret;

	ret = vrnic_context_call(ctx, command, reply, verdict);
	if (ret)
		return ret;
	*number = le32_to_cpu(reply->object);
	ret = vrnic_number_add(ctx, mine, owners, *number);
	if (ret)
		vrnic_admin_object(ctx->vdev, undo, *number, NULL);
	return ret;
}

int vrnic_number_destroy(struct vrnic_context *ctx, enum vrnic_admin_opcode opcode,
			 struct xarray *mine, struct xarray *owners, u32 number,
			 struct vrnic_verdict *verdict)
{
	int ret;

	if (!xa_load(mine, number))
		return -ENOENT;
	atomic64_inc(&ctx->admin_commands);
	ret = vrnic_admin_object(ctx->vdev, opcode, number, verdict);
	if (!ret)
		vrnic_number_remove(mine, owners, number);
	return ret;
}

static int vrnic_numbers_destroy(struct vrnic_context *ctx, enum vrnic_admin_opcode opcode,
				 struct xarray *mine, struct xarray *owners)
{
	unsigned long number;
	void *entry;
	int ret;

	xa_for_each(mine, number, entry) {
		ret = vrnic_number_destroy(ctx, opcode, mine, owners, number, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

static void vrnic_numbers_forget(struct xarray *mine, struct xarray *owners)
{
	unsigned long number;
	void *entry;

	xa_for_each(mine, number, entry)
		vrnic_number_remove(mine, owners, number);
}

static int vrnic_hints_set(struct vrnic_context *ctx, u64 address, u32 key, u8 log_size,
			   struct vrnic_verdict *verdict)
{
	struct vrnic_cmd_set_hints command = {
		.opcode = cpu_to_le16(VRNIC_CMD_SET_HINTS),
		.ctx = cpu_to_le32(ctx->number),
		.ring_key = cpu_to_le32(key),
		.ring_address = cpu_to_le64(address),
		.log_size = log_size,
	};
	struct vrnic_reply reply;
	int ret;

	ret = vrnic_context_call(ctx, &command, &reply, verdict);
	if (!ret)
		ctx->hints = log_size != VRNIC_NO_HINTS;
	return ret;
}

int vrnic_set_hints(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_set_hints *hints = arg;

	if (hints->reserved[0] || hints->reserved[1] || hints->reserved[2])
		return -EINVAL;
	if (hints->log_size == VRNIC_NO_HINTS)
		return vrnic_hints_set(ctx, 0, 0, VRNIC_NO_HINTS, &hints->verdict);
	if (!xa_load(&ctx->mrs, hints->ring_key))
		return -ENOENT;
	return vrnic_hints_set(ctx, hints->ring_address, hints->ring_key, hints->log_size,
			       &hints->verdict);
}

int vrnic_queues_destroy(struct vrnic_context *ctx)
{
	struct vrnic_dev *vdev = ctx->vdev;
	int ret;

	if (ctx->hints) {
		ret = vrnic_hints_set(ctx, 0, 0, VRNIC_NO_HINTS, NULL);
		if (ret)
			return ret;
	}
	ret = vrnic_numbers_destroy(ctx, VRNIC_CMD_DESTROY_QP, &ctx->qps, &vdev->qp_owners);
	if (ret)
		return ret;
	ret = vrnic_numbers_destroy(ctx, VRNIC_CMD_DESTROY_CQ, &ctx->cqs, &vdev->cq_owners);
	if (ret)
		return ret;
	return vrnic_numbers_destroy(ctx, VRNIC_CMD_DESTROY_AH, &ctx->ahs, NULL);
}

int vrnic_pds_free(struct vrnic_context *ctx)
{
	return vrnic_numbers_destroy(ctx, VRNIC_CMD_FREE_PD, &ctx->pds, NULL);
}

/* The device knows these objects no more. */
void vrnic_queues_forget(struct vrnic_context *ctx)
{
	vrnic_numbers_forget(&ctx->qps, &ctx->vdev->qp_owners);
	vrnic_numbers_forget(&ctx->cqs, &ctx->vdev->cq_owners);
	vrnic_numbers_forget(&ctx->ahs, NULL);
	vrnic_numbers_forget(&ctx->pds, NULL);
	ctx->hints = false;
}

int vrnic_query(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_dev *vdev = ctx->vdev;
	const struct vrnic_limits *limits = &vdev->limits;
	struct vrnic_query *query = arg;
	u32 low = vrnic_read(vdev, VRNIC_REG_MAC_LOW);
	u32 high = vrnic_read(vdev, VRNIC_REG_MAC_HIGH);
	int i;

	query->uapi_version = VRNIC_UAPI_VERSION;
	query->abi_version = limits->abi_version;
	query->ctx = ctx->number;
	query->vectors = vdev->eq_count;
	query->max_pd = limits->max_pd;
	query->max_mr = limits->max_mr;
	query->max_cq = limits->max_cq;
	query->max_qp = limits->max_qp;
	query->max_log_ring = limits->max_log_ring;
	query->max_inline = limits->max_inline;
	query->max_message = limits->max_message;
	query->port_state = vrnic_read(vdev, VRNIC_REG_PORT_STATE);
	query->port_mtu = vrnic_read(vdev, VRNIC_REG_PORT_MTU);
	query->port_speed = vrnic_read(vdev, VRNIC_REG_PORT_SPEED);
	for (i = 0; i < 4; i++)
		query->mac[i] = low >> (8 * i);
	for (i = 0; i < 2; i++)
		query->mac[4 + i] = high >> (8 * i);
	query->syscalls = atomic64_read(&ctx->syscalls);
	query->doorbell_maps = atomic64_read(&ctx->doorbell_maps);
	query->admin_commands = atomic64_read(&ctx->admin_commands);
	query->events = atomic64_read(&ctx->event_count);
	query->events_lost = atomic64_read(&ctx->events_lost);
	return 0;
}

int vrnic_query_gid(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_gid *gid = arg;
	struct vrnic_cmd_gid command = {
		.opcode = cpu_to_le16(VRNIC_CMD_QUERY_GID),
		.gid_index = cpu_to_le32(gid->index),
	};
	struct vrnic_reply_gid reply;
	int ret;

	if (gid->reserved || memchr_inv(gid->gid, 0, sizeof(gid->gid)))
		return -EINVAL;
	ret = vrnic_context_call(ctx, &command, &reply, &gid->verdict);
	if (!ret)
		memcpy(gid->gid, reply.gid, sizeof(gid->gid));
	return ret;
}

int vrnic_set_gid(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_gid *gid = arg;
	struct vrnic_cmd_gid command = {
		.opcode = cpu_to_le16(VRNIC_CMD_SET_GID),
		.gid_index = cpu_to_le32(gid->index),
	};
	struct vrnic_reply reply;

	if (gid->reserved)
		return -EINVAL;
	/* An address is everybody's, unlike everything else a file can change. */
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	memcpy(command.gid, gid->gid, sizeof(command.gid));
	return vrnic_context_call(ctx, &command, &reply, &gid->verdict);
}

int vrnic_alloc_pd(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;
	struct vrnic_cmd_alloc_pd command = {
		.opcode = cpu_to_le16(VRNIC_CMD_ALLOC_PD),
		.ctx = cpu_to_le32(ctx->number),
	};
	struct vrnic_reply_object reply;

	if (object->number || object->reserved)
		return -EINVAL;
	return vrnic_number_make(ctx, &command, &reply, &ctx->pds, NULL, VRNIC_CMD_FREE_PD,
				 &object->verdict, &object->number);
}

int vrnic_free_pd(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;

	if (object->reserved)
		return -EINVAL;
	return vrnic_number_destroy(ctx, VRNIC_CMD_FREE_PD, &ctx->pds, NULL, object->number,
				    &object->verdict);
}

int vrnic_create_cq(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_create_cq *cq = arg;
	struct vrnic_dev *vdev = ctx->vdev;
	u32 eq = VRNIC_NO_EQ;
	struct vrnic_cmd_create_cq command = {
		.opcode = cpu_to_le16(VRNIC_CMD_CREATE_CQ),
		.ctx = cpu_to_le32(ctx->number),
		.mode = cq->mode,
		.overrun = cq->overrun,
		.log_size = cq->log_size,
		.ring_key = cpu_to_le32(cq->ring_key),
		.ring_address = cpu_to_le64(cq->ring_address),
	};
	struct vrnic_reply_object reply;

	if (cq->reserved0 || cq->cqn || cq->reserved || cq->flags & ~VRNIC_CQ_EVENTS)
		return -EINVAL;
	if (!xa_load(&ctx->mrs, cq->ring_key))
		return -ENOENT;
	if (cq->flags & VRNIC_CQ_EVENTS)
		eq = vdev->eqs[cq->vector % vdev->eq_count].number;
	command.eq = cpu_to_le32(eq);
	return vrnic_number_make(ctx, &command, &reply, &ctx->cqs, &vdev->cq_owners,
				 VRNIC_CMD_DESTROY_CQ, &cq->verdict, &cq->cqn);
}

int vrnic_destroy_cq(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;

	if (object->reserved)
		return -EINVAL;
	return vrnic_number_destroy(ctx, VRNIC_CMD_DESTROY_CQ, &ctx->cqs, &ctx->vdev->cq_owners,
				    object->number, &object->verdict);
}

int vrnic_create_qp(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_create_qp *qp = arg;
	struct vrnic_cmd_create_qp command = {
		.opcode = cpu_to_le16(VRNIC_CMD_CREATE_QP),
		.ctx = cpu_to_le32(ctx->number),
		.pd = cpu_to_le32(qp->pd),
		.send_cq = cpu_to_le32(qp->send_cq),
		.recv_cq = cpu_to_le32(qp->recv_cq),
		.transport = qp->transport,
		.sq_log_size = qp->sq_log_size,
		.rq_log_size = qp->rq_log_size,
		.dbr_policy = qp->dbr_policy,
		.ring_key = cpu_to_le32(qp->ring_key),
		.sq_address = cpu_to_le64(qp->sq_address),
		.rq_address = cpu_to_le64(qp->rq_address),
		.dbr_address = cpu_to_le64(qp->dbr_address),
		.flags = cpu_to_le32(qp->flags),
		.start_index = cpu_to_le32(qp->start_index),
	};

	union {
		struct vrnic_reply_object object;
		struct vrnic_reply_create_qp created;
	} reply;
	int ret;

	if (qp->qpn || qp->doorbell || qp->reserved)
		return -EINVAL;
	if (!xa_load(&ctx->pds, qp->pd) || !xa_load(&ctx->mrs, qp->ring_key) ||
	    !xa_load(&ctx->cqs, qp->send_cq) || !xa_load(&ctx->cqs, qp->recv_cq))
		return -ENOENT;
	ret = vrnic_number_make(ctx, &command, &reply.object, &ctx->qps, &ctx->vdev->qp_owners,
				VRNIC_CMD_DESTROY_QP, &qp->verdict, &qp->qpn);
	if (!ret)
		qp->doorbell = le32_to_cpu(reply.created.doorbell);
	return ret;
}

int vrnic_modify_qp(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_modify_qp *qp = arg;
	struct vrnic_cmd_modify_qp command = {
		.opcode = cpu_to_le16(VRNIC_CMD_MODIFY_QP),
		.qpn = cpu_to_le32(qp->qpn),
		.mask = cpu_to_le32(qp->mask),
		.state = qp->state,
		.path_mtu = qp->path_mtu,
		.timeout = qp->timeout,
		.retry_cnt = qp->retry_cnt,
		.rnr_retry = qp->rnr_retry,
		.min_rnr_timer = qp->min_rnr_timer,
		.max_rd_atomic = qp->max_rd_atomic,
		.max_dest_rd_atomic = qp->max_dest_rd_atomic,
		.dest_qpn = cpu_to_le32(qp->dest_qpn),
		.rq_psn = cpu_to_le32(qp->rq_psn),
		.sq_psn = cpu_to_le32(qp->sq_psn),
		.access = qp->access,
		.traffic_class = qp->traffic_class,
		.hop_limit = qp->hop_limit,
		.gid_index = qp->gid_index,
		.udp_source_port = cpu_to_le16(qp->udp_source_port),
	};
	struct vrnic_reply reply;

	if (!xa_load(&ctx->qps, qp->qpn))
		return -ENOENT;
	memcpy(command.dest_gid, qp->dest_gid, sizeof(command.dest_gid));
	memcpy(command.dest_mac, qp->dest_mac, sizeof(command.dest_mac));
	return vrnic_context_call(ctx, &command, &reply, &qp->verdict);
}

int vrnic_query_qp(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_query_qp *qp = arg;
	struct vrnic_cmd_object command = {
		.opcode = cpu_to_le16(VRNIC_CMD_QUERY_QP),
		.object = cpu_to_le32(qp->qpn),
	};
	struct vrnic_reply_query_qp reply;
	int ret;

	if (!xa_load(&ctx->qps, qp->qpn))
		return -ENOENT;
	ret = vrnic_context_call(ctx, &command, &reply, &qp->verdict);
	if (ret)
		return ret;
	qp->state = reply.state;
	qp->transport = reply.transport;
	qp->first_error_status = reply.first_error_status;
	qp->first_error_index = le32_to_cpu(reply.first_error_index);
	qp->first_error_cause = le16_to_cpu(reply.first_error_cause);
	qp->doorbell_index = le32_to_cpu(reply.doorbell_index);
	qp->fetched_index = le32_to_cpu(reply.fetched_index);
	qp->completed_index = le32_to_cpu(reply.completed_index);
	qp->receive_index = le32_to_cpu(reply.receive_index);
	qp->receive_doorbell = le32_to_cpu(reply.receive_doorbell);
	qp->next_psn = le32_to_cpu(reply.next_psn);
	qp->expected_psn = le32_to_cpu(reply.expected_psn);
	return 0;
}

int vrnic_destroy_qp(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;

	if (object->reserved)
		return -EINVAL;
	return vrnic_number_destroy(ctx, VRNIC_CMD_DESTROY_QP, &ctx->qps, &ctx->vdev->qp_owners,
				    object->number, &object->verdict);
}
