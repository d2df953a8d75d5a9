// SPDX-License-Identifier: Apache-2.0
/* Completion queues, queue pairs, and the way of a queue pair to RTS. */
#include <string.h>

#include "call.h"
#include "libvrnic.h"

const struct vrnic_path vrnic_path_default = {
	.gid_index = 1,
	.mtu = 3,
	.timeout = 16,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 12,
	.rd_atomic = 4,
	.access = VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | VRNIC_ACCESS_REMOTE_READ |
		  VRNIC_ACCESS_REMOTE_ATOMIC,
};

int vrnic_create_cq(struct vrnic *nic, struct vrnic_create_cq *cq)
{
	return vrnic_call(nic, VRNIC_IOC_CREATE_CQ, cq, &cq->verdict, "create CQ");
}

int vrnic_set_hints(struct vrnic *nic, struct vrnic_set_hints *hints)
{
	return vrnic_call(nic, VRNIC_IOC_SET_HINTS, hints, &hints->verdict, "set hint ring");
}

int vrnic_destroy_cq(struct vrnic *nic, uint32_t cqn)
{
	struct vrnic_object object = { .number = cqn };

	return vrnic_call(nic, VRNIC_IOC_DESTROY_CQ, &object, &object.verdict, "destroy CQ");
}

int vrnic_create_qp(struct vrnic *nic, struct vrnic_create_qp *qp)
{
	return vrnic_call(nic, VRNIC_IOC_CREATE_QP, qp, &qp->verdict, "create QP");
}

int vrnic_destroy_qp(struct vrnic *nic, uint32_t qpn)
{
	struct vrnic_object object = { .number = qpn };

	return vrnic_call(nic, VRNIC_IOC_DESTROY_QP, &object, &object.verdict, "destroy QP");
}

int vrnic_modify_qp(struct vrnic *nic, struct vrnic_modify_qp *attributes)
{
	return vrnic_call(nic, VRNIC_IOC_MODIFY_QP, attributes, &attributes->verdict, "modify QP");
}

int vrnic_query_qp(struct vrnic *nic, uint32_t qpn, struct vrnic_query_qp *qp)
{
	memset(qp, 0, sizeof(*qp));
	qp->qpn = qpn;
	return vrnic_call(nic, VRNIC_IOC_QUERY_QP, qp, &qp->verdict, "query QP");
}

int vrnic_qp_to_init(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path)
{
	struct vrnic_modify_qp attributes = {
		.qpn = qpn,
		.mask = VRNIC_ATTR_STATE | VRNIC_ATTR_ACCESS_FLAGS,
		.state = VRNIC_QPS_INIT,
		.access = (uint8_t)path->access,
	};

	return vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to INIT");
}

int vrnic_qp_to_rtr(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path,
		    const struct vrnic_endpoint *peer)
{
	struct vrnic_modify_qp attributes = {
		.qpn = qpn,
		.mask = VRNIC_ATTR_STATE | VRNIC_ATTR_AV | VRNIC_ATTR_PATH_MTU | VRNIC_ATTR_DEST_QPN |
			VRNIC_ATTR_RQ_PSN | VRNIC_ATTR_MAX_DEST_RD_ATOMIC | VRNIC_ATTR_MIN_RNR_TIMER,
		.state = VRNIC_QPS_RTR,
		.path_mtu = path->mtu,
		.min_rnr_timer = path->min_rnr_timer,
		.max_dest_rd_atomic = path->rd_atomic,
		.dest_qpn = peer->qpn,
		.rq_psn = peer->psn,
		.traffic_class = path->traffic_class,
		.gid_index = path->gid_index,
	};

	memcpy(attributes.dest_gid, peer->gid, sizeof(attributes.dest_gid));
	memcpy(attributes.dest_mac, peer->mac, sizeof(attributes.dest_mac));
	return vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to RTR");
}

int vrnic_qp_to_rts(struct vrnic *nic, uint32_t qpn, const struct vrnic_path *path, uint32_t psn)
{
	struct vrnic_modify_qp attributes = {
		.qpn = qpn,
		.mask = VRNIC_ATTR_STATE | VRNIC_ATTR_SQ_PSN | VRNIC_ATTR_TIMEOUT | VRNIC_ATTR_RETRY_CNT |
			VRNIC_ATTR_RNR_RETRY | VRNIC_ATTR_MAX_RD_ATOMIC,
		.state = VRNIC_QPS_RTS,
		.sq_psn = psn,
		.timeout = path->timeout,
		.retry_cnt = path->retry_cnt,
		.rnr_retry = path->rnr_retry,
		.max_rd_atomic = path->rd_atomic,
	};

	return vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to RTS");
}

int vrnic_connect(struct vrnic *nic, const struct vrnic_path *path,
		  const struct vrnic_endpoint *self, const struct vrnic_endpoint *peer)
{
	int ret;

	ret = vrnic_qp_to_init(nic, self->qpn, path);
	if (!ret)
		ret = vrnic_qp_to_rtr(nic, self->qpn, path, peer);
	if (!ret)
		ret = vrnic_qp_to_rts(nic, self->qpn, path, self->psn);
	return ret;
}
