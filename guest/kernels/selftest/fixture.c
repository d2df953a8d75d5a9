// SPDX-License-Identifier: Apache-2.0
/* A queue pair that talks to nobody: what a group needs before it can misbehave. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "selftest.h"

#define NOBODY_LKEY 0xdeadbeef

static void make_queues(struct fixture *fixture)
{
	struct vrnic_create_cq cq = {
		.ring_address = fixture->region.address + FIXTURE_CQ,
		.ring_key = fixture->region.key,
		.mode = VRNIC_CQ_MODE_RING,
		.log_size = FIXTURE_LOG_SLOTS,
		.flags = VRNIC_CQ_EVENTS,
	};
	struct vrnic_create_qp qp = {
		.sq_address = fixture->region.address + FIXTURE_SQ,
		.ring_key = fixture->region.key,
		.pd = fixture->pd,
		.transport = VRNIC_TRANSPORT_ROCE_RC,
		.sq_log_size = FIXTURE_LOG_SLOTS,
		.rq_log_size = VRNIC_NO_RECV_RING,
		.dbr_policy = VRNIC_DBR_NONE,
	};
	struct vrnic_endpoint self = { 0 }, peer = { .qpn = 0x777, .mac = { 2, 0, 0, 0, 0, 0x77 } };

	need(vrnic_create_cq(&fixture->nic, &cq), "the fixture's CQ");
	fixture->cqn = cq.cqn;
	qp.send_cq = cq.cqn;
	qp.recv_cq = cq.cqn;
	need(vrnic_create_qp(&fixture->nic, &qp), "the fixture's QP");
	fixture->qpn = qp.qpn;
	self.qpn = qp.qpn;
	need(vrnic_query_gid(&fixture->nic, 1, peer.gid), "GID 1");
	peer.gid[15] ^= 0x80;
	need(vrnic_connect(&fixture->nic, &vrnic_path_default, &self, &peer), "the fixture's connection");
}

void fixture_open(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	need(vrnic_open(&fixture->nic, NULL), "opening the NIC");
	need(vrnic_alloc_pd(&fixture->nic, &fixture->pd), "the fixture's PD");
	fixture->memory = mmap(NULL, FIXTURE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(fixture->memory == MAP_FAILED ? -errno : 0, "the fixture's memory");
	memset(fixture->memory + FIXTURE_CQ, 0xff, 64 << FIXTURE_LOG_SLOTS);
	need(vrnic_reg_mr(&fixture->nic, fixture->pd, fixture->memory, FIXTURE_BYTES,
			  VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE, &fixture->region),
	     "the fixture's region");
	make_queues(fixture);
}

void fixture_close(struct fixture *fixture)
{
	vrnic_close(&fixture->nic);
	munmap(fixture->memory, FIXTURE_BYTES);
}

void fixture_ring(struct fixture *fixture, uint32_t qpn, uint32_t index)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	fixture->nic.doorbells[VRNIC_DB_SQ / 8] = htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qpn, index));
}

void fixture_fill_bad(struct fixture *fixture)
{
	struct vrnic_wqe wqe = {
		.opcode = VRNIC_OP_WRITE,
		.flags = VRNIC_WQE_SIGNAL,
		.blocks = htole16(1),
		.qpn = htole32(fixture->qpn),
		.length = htole32(64),
		.local_address = htole64(fixture->region.address),
		.lkey = htole32(NOBODY_LKEY),
	};

	memcpy(fixture->memory + FIXTURE_SQ, &wqe, sizeof(wqe));
}
