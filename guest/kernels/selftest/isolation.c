// SPDX-License-Identifier: Apache-2.0
/* Two open files: neither reaches the other's objects, by call or by doorbell. */
#include <errno.h>

#include "selftest.h"

void test_isolation(void)
{
	struct fixture mine, theirs;
	struct vrnic_query_qp query, after;
	struct vrnic_object object;
	struct vrnic_reg_mr reg = { .length = 4096, .access = VRNIC_ACCESS_LOCAL_WRITE };
	struct vrnic_create_cq cq = { .log_size = 4 };
	struct vrnic_create_qp qp = { .sq_log_size = 4, .rq_log_size = VRNIC_NO_RECV_RING };
	struct vrnic_modify_qp modify = { .mask = VRNIC_ATTR_STATE, .state = VRNIC_QPS_ERR };
	struct vrnic_query_qp ask = { 0 };
	struct vrnic_create_ah ah = { .gid_index = 1, .dest_mac = { 2, 0, 0, 0, 0, 1 } };

	fixture_open(&mine);
	fixture_open(&theirs);
	check(mine.nic.limits.ctx != theirs.nic.limits.ctx, "two files have two doorbell pages", "both %u",
	      mine.nic.limits.ctx);

	reg.start = reg.iova = (uintptr_t)mine.memory;
	reg.pd = theirs.pd;
	refused(mine.nic.fd, VRNIC_IOC_REG_MR, &reg, ENOENT, "another file's PD is out of reach");
	object = (struct vrnic_object){ .number = theirs.region.key };
	refused(mine.nic.fd, VRNIC_IOC_DEREG_MR, &object, ENOENT, "another file's region is out of reach");
	cq.ring_key = theirs.region.key;
	cq.ring_address = theirs.region.address;
	refused(mine.nic.fd, VRNIC_IOC_CREATE_CQ, &cq, ENOENT, "a CQ in another file's region is refused");
	object = (struct vrnic_object){ .number = theirs.cqn };
	refused(mine.nic.fd, VRNIC_IOC_DESTROY_CQ, &object, ENOENT, "another file's CQ is out of reach");
	qp.pd = mine.pd;
	qp.ring_key = mine.region.key;
	qp.sq_address = mine.region.address;
	qp.send_cq = mine.cqn;
	qp.recv_cq = theirs.cqn;
	refused(mine.nic.fd, VRNIC_IOC_CREATE_QP, &qp, ENOENT, "a QP on another file's CQ is refused");
	modify.qpn = theirs.qpn;
	refused(mine.nic.fd, VRNIC_IOC_MODIFY_QP, &modify, ENOENT, "another file's QP cannot be changed");
	ask.qpn = theirs.qpn;
	refused(mine.nic.fd, VRNIC_IOC_QUERY_QP, &ask, ENOENT, "another file's QP cannot be asked");
	object = (struct vrnic_object){ .number = theirs.qpn };
	refused(mine.nic.fd, VRNIC_IOC_DESTROY_QP, &object, ENOENT, "another file's QP is out of reach");

	ah.pd = theirs.pd;
	need(vrnic_query_gid(&theirs.nic, 1, ah.dest_gid), "GID 1");
	refused(mine.nic.fd, VRNIC_IOC_CREATE_AH, &ah, ENOENT, "an address handle of another file's PD is refused");
	need(vrnic_create_ah(&theirs.nic, &ah), "an address handle");
	object = (struct vrnic_object){ .number = ah.ahn };
	refused(mine.nic.fd, VRNIC_IOC_DESTROY_AH, &object, ENOENT, "another file's address handle is out of reach");

	need(vrnic_query_qp(&theirs.nic, theirs.qpn, &query), "the QP's state");
	fixture_ring(&mine, theirs.qpn, 1);
	need(vrnic_query_qp(&theirs.nic, theirs.qpn, &after), "the QP's state");
	check(after.doorbell_index == query.doorbell_index && after.state == VRNIC_QPS_RTS,
	      "a doorbell through another file's page does nothing", "doorbell %u, state %u", after.doorbell_index,
	      after.state);
	fixture_close(&theirs);
	fixture_close(&mine);
}
