// SPDX-License-Identifier: Apache-2.0
/* Two processes: neither rings the other's queue pairs, uses its keys or reads its rings. */
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest.h"

#define SECRET 0x5a
#define PATIENCE_MS 5000
#define SQ_A 8192ul
#define SQ_B 12288ul

/* What the victim tells, and what it answers at the end. */
struct victim {
	uint32_t qpn;
	uint32_t key;
	uint64_t address;
};

struct verdict {
	uint32_t doorbell;
	uint32_t state;
	uint32_t touched;  /* bytes of its memory that changed */
};

static void live_as_victim(int out, int in)
{
	struct fixture fixture;
	struct victim self;
	struct verdict verdict = { 0 };
	struct vrnic_query_qp query;
	char done;

	fixture_open(&fixture);
	memset(fixture.memory, SECRET, FIXTURE_CQ);
	self = (struct victim){ fixture.qpn, fixture.region.key, fixture.region.address };
	if (write(out, &self, sizeof(self)) != sizeof(self) || read(in, &done, 1) != 1)
		_exit(1);
	if (vrnic_query_qp(&fixture.nic, fixture.qpn, &query))
		_exit(1);
	verdict.doorbell = query.doorbell_index;
	verdict.state = query.state;
	for (size_t i = 0; i < FIXTURE_CQ; i++)
		verdict.touched += fixture.memory[i] != SECRET;
	_exit(write(out, &verdict, sizeof(verdict)) != sizeof(verdict));
}

static uint32_t make_qp(struct fixture *fixture, uint64_t at)
{
	struct vrnic_create_qp qp = {
		.sq_address = fixture->region.address + at,
		.ring_key = fixture->region.key,
		.pd = fixture->pd,
		.send_cq = fixture->cqn,
		.recv_cq = fixture->cqn,
		.transport = VRNIC_TRANSPORT_ROCE_RC,
		.sq_log_size = FIXTURE_LOG_SLOTS,
		.rq_log_size = VRNIC_NO_RECV_RING,
		.dbr_policy = VRNIC_DBR_NONE,
	};

	need(vrnic_create_qp(&fixture->nic, &qp), "a QP");
	return qp.qpn;
}

/* Two QPs of this process, connected to each other; the first carries out @wqe. Its first error. */
static struct vrnic_query_qp try(struct fixture *fixture, struct vrnic_wqe wqe)
{
	struct vrnic_endpoint a = { .qpn = make_qp(fixture, SQ_A) }, b = { .qpn = make_qp(fixture, SQ_B) };
	struct vrnic_query_qp query;
	struct timespec pause = { 0, 1000000 };

	need(vrnic_query_gid(&fixture->nic, 1, a.gid), "GID 1");
	memcpy(a.mac, fixture->nic.limits.mac, sizeof(a.mac));
	memcpy(b.gid, a.gid, sizeof(b.gid));
	memcpy(b.mac, a.mac, sizeof(b.mac));
	need(vrnic_connect(&fixture->nic, &vrnic_path_default, &b, &a), "the responder");
	need(vrnic_connect(&fixture->nic, &vrnic_path_default, &a, &b), "the requester");
	wqe.blocks = htole16(1);
	wqe.qpn = htole32(a.qpn);
	wqe.flags |= VRNIC_WQE_SIGNAL;
	memcpy(fixture->memory + SQ_A, &wqe, sizeof(wqe));
	fixture_ring(fixture, a.qpn, 1);
	for (int waited = 0; waited < PATIENCE_MS; waited++) {
		need(vrnic_query_qp(&fixture->nic, a.qpn, &query), "the requester's state");
		if (query.completed_index || query.state == VRNIC_QPS_ERR)
			break;
		nanosleep(&pause, NULL);
	}
	need(vrnic_destroy_qp(&fixture->nic, a.qpn), "the requester's end");
	need(vrnic_destroy_qp(&fixture->nic, b.qpn), "the responder's end");
	return query;
}

static void use_keys(struct fixture *mine, const struct victim *theirs)
{
	struct vrnic_wqe wqe = {
		.opcode = VRNIC_OP_WRITE,
		.length = htole32(64),
		.local_address = htole64(mine->region.address + FIXTURE_SQ),
		.lkey = htole32(mine->region.key),
		.remote_address = htole64(mine->region.address + 2 * FIXTURE_CQ),
		.rkey = htole32(mine->region.key),
	};
	struct vrnic_query_qp query = try(mine, wqe);

	check(query.completed_index == 1 && !query.first_error_status, "one's own keys work", "status %u",
	      query.first_error_status);
	wqe.lkey = htole32(theirs->key);
	wqe.local_address = htole64(theirs->address);
	query = try(mine, wqe);
	check(query.first_error_status == VRNIC_WC_LOC_PROT_ERR, "another process's lkey gives LOC_PROT_ERR",
	      "status %u", query.first_error_status);
	wqe.lkey = htole32(mine->region.key);
	wqe.local_address = htole64(mine->region.address + FIXTURE_SQ);
	wqe.rkey = htole32(theirs->key);
	wqe.remote_address = htole64(theirs->address);
	query = try(mine, wqe);
	check(query.first_error_status == VRNIC_WC_REM_ACCESS_ERR,
	      "a WRITE by another process's rkey gives REM_ACCESS_ERR", "status %u", query.first_error_status);
	wqe.opcode = VRNIC_OP_READ;
	query = try(mine, wqe);
	check(query.first_error_status == VRNIC_WC_REM_ACCESS_ERR,
	      "a READ of another process's ring gives REM_ACCESS_ERR", "status %u", query.first_error_status);
}

/* A child has the parent's file, but the mapping of its doorbell page is not inherited. */
static void check_fork(struct fixture *mine)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		mine->nic.doorbells[VRNIC_DB_SQ / 8] = 0;
		_exit(0);
	}
	need(child < 0 ? -errno : 0, "a child");
	need(waitpid(child, &status, 0), "the child's end");
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a forked child has no doorbell page",
	      "status %#x", status);
}

void test_processes(void)
{
	int to_me[2], to_them[2], status;
	struct victim theirs;
	struct verdict verdict;
	struct vrnic_region region;
	struct fixture mine;
	pid_t child;

	need(pipe(to_me), "a pipe");
	need(pipe(to_them), "a pipe");
	child = fork();
	if (!child)
		live_as_victim(to_me[1], to_them[0]);
	need(child < 0 ? -errno : 0, "a child");
	need(read(to_me[0], &theirs, sizeof(theirs)) == sizeof(theirs) ? 0 : -EIO, "the victim's objects");

	fixture_open(&mine);
	fixture_ring(&mine, theirs.qpn, 1);
	for (uint64_t offset = VRNIC_DOORBELL_BLOCK_BASE; offset < VRNIC_DOORBELL_PAGE_SIZE;
	     offset += VRNIC_DOORBELL_BLOCK_SIZE)
		mine.nic.doorbells[offset / 8] = htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, theirs.qpn, 1));
	use_keys(&mine, &theirs);
	/* The other's address names nothing here, or memory of this process; never the other's ring. */
	if (theirs.address != mine.region.address)
		check(vrnic_reg_mr(&mine.nic, mine.pd, (void *)(uintptr_t)theirs.address, 4096,
				   VRNIC_ACCESS_LOCAL_WRITE, &region) == -EFAULT,
		      "another process's ring cannot be registered", "it was");
	check_fork(&mine);

	need(write(to_them[1], "x", 1) == 1 ? 0 : -EIO, "the victim's turn");
	need(read(to_me[0], &verdict, sizeof(verdict)) == sizeof(verdict) ? 0 : -EIO, "the victim's verdict");
	need(waitpid(child, &status, 0), "the victim's end");
	check(!verdict.doorbell && verdict.state == VRNIC_QPS_RTS, "another process's doorbells do nothing",
	      "doorbell %u, state %u", verdict.doorbell, verdict.state);
	check(!verdict.touched, "another process's memory is as it was", "%u bytes changed", verdict.touched);
	fixture_close(&mine);
	close(to_me[0]);
	close(to_me[1]);
	close(to_them[0]);
	close(to_them[1]);
}
