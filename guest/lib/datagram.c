// SPDX-License-Identifier: Apache-2.0
/* Datagram queue pairs: their way to RTS, address handles, multicast groups. */
#include <string.h>

#include "call.h"
#include "libvrnic.h"

int vrnic_qp_datagram(struct vrnic *nic, uint32_t qpn, uint32_t qkey, uint32_t psn)
{
	struct vrnic_modify_qp attributes = {
		.qpn = qpn,
		.mask = VRNIC_ATTR_STATE | VRNIC_ATTR_QKEY,
		.state = VRNIC_QPS_INIT,
		/* Datagrams have no one peer: the field has the Q_Key. */
		.dest_qpn = qkey,
	};
	int ret;

	ret = vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to INIT");
	if (ret)
		return ret;
	attributes = (struct vrnic_modify_qp){ .qpn = qpn, .mask = VRNIC_ATTR_STATE, .state = VRNIC_QPS_RTR };
	ret = vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to RTR");
	if (ret)
		return ret;
	attributes = (struct vrnic_modify_qp){
		.qpn = qpn,
		.mask = VRNIC_ATTR_STATE | VRNIC_ATTR_SQ_PSN,
		.state = VRNIC_QPS_RTS,
		.sq_psn = psn,
	};
	return vrnic_call(nic, VRNIC_IOC_MODIFY_QP, &attributes, &attributes.verdict, "QP to RTS");
}

int vrnic_create_ah(struct vrnic *nic, struct vrnic_create_ah *ah)
{
	return vrnic_call(nic, VRNIC_IOC_CREATE_AH, ah, &ah->verdict, "create AH");
}

int vrnic_destroy_ah(struct vrnic *nic, uint32_t ahn)
{
	struct vrnic_object object = { .number = ahn };

	return vrnic_call(nic, VRNIC_IOC_DESTROY_AH, &object, &object.verdict, "destroy AH");
}

static int multicast(struct vrnic *nic, unsigned long request, uint32_t qpn, const uint8_t gid[16],
		     const char *what)
{
	struct vrnic_multicast group = { .qpn = qpn };

	memcpy(group.gid, gid, sizeof(group.gid));
	return vrnic_call(nic, request, &group, &group.verdict, what);
}

int vrnic_attach_multicast(struct vrnic *nic, uint32_t qpn, const uint8_t gid[16])
{
	return multicast(nic, VRNIC_IOC_ATTACH_MULTICAST, qpn, gid, "attach to a multicast group");
}

int vrnic_detach_multicast(struct vrnic *nic, uint32_t qpn, const uint8_t gid[16])
{
	return multicast(nic, VRNIC_IOC_DETACH_MULTICAST, qpn, gid, "detach from a multicast group");
}
