// SPDX-License-Identifier: Apache-2.0
/*
 * Fetch-and-add and compare-and-swap on the peer's memory, both ways at once. Every old value that
 * comes back is known beforehand, and so is what must be left.
 */
#include "kernel.h"
#include "session.h"

#define TARGET 1  /* cell the peer works on */
#define FIRST 1000ull
#define SWAPPED 0x0123456789abcdefull
#define RESULTS 8  /* first cell of own results */
#define BATCH 8  /* WQEs each doorbell, or half a ring */

static uint64_t addend(uint32_t i)
{
	/* Carries across all 8 bytes sooner or later. */
	return 0x100000001ull * (i + 1);
}

static uint32_t post(struct session *session, struct vrnic_wqe wqe, uint64_t deadline)
{
	wqe.flags |= VRNIC_WQE_SIGNAL;
	return session_post(session, &wqe, deadline);
}

static void work(struct session *session, uint32_t adds, uint64_t total)
{
	uint64_t deadline = session_deadline(session);
	uint64_t remote = session_remote_cell(session, TARGET);
	uint32_t lkey = session->data.region.key, rkey = session->peer.rkey, index;
	uint32_t half = 1u << (session->qp.sq_log_size - 1), batch = half < BATCH ? half : BATCH;

	for (uint32_t i = 0; i < adds; i++) {
		post(session, dev_atomic_add(addend(i), session_cell_address(session, RESULTS + i), lkey, remote, rkey),
		     deadline);
		/* A full ring of WQEs nobody has rung would never drain. */
		if (i % batch == batch - 1)
			session_ring(session);
	}
	/* One that matches, and one that does not and must leave everything as it is. */
	post(session, dev_atomic_cas(total, SWAPPED, session_cell_address(session, RESULTS + adds), lkey, remote, rkey),
	     deadline);
	index = post(session, dev_atomic_cas(total, ~SWAPPED, session_cell_address(session, RESULTS + adds + 1), lkey,
					     remote, rkey), deadline);
	session_ring(session);
	session_wait(session, index, deadline);
}

static void expect(struct session *session, unsigned int cell, uint64_t value, const char *what)
{
	uint64_t found = le64toh(*session_cell(session, cell));

	if (found != value)
		session_die(session, "%s is %#llx, not %#llx", what, (unsigned long long)found,
			    (unsigned long long)value);
}

void run_atomics(struct session *session)
{
	struct report *report = &session->report;
	uint32_t adds = session->options->messages;
	uint64_t total = FIRST;

	if (adds > CELLS - RESULTS - 2)
		session_die(session, "--messages is %u, atomics has room for %d results", adds, CELLS - RESULTS - 2);
	*session_cell(session, TARGET) = htole64(FIRST);
	for (uint32_t i = 0; i < adds; i++)
		total += addend(i);
	session_sync(session);
	session_path_begin(session);
	work(session, adds, total);
	session_path_end(session);
	session_sync(session);

	total = FIRST;
	for (uint32_t i = 0; i < adds; i++) {
		expect(session, RESULTS + i, total, "the old value of a fetch-and-add");
		total += addend(i);
	}
	expect(session, RESULTS + adds, total, "the old value of the matching compare-and-swap");
	expect(session, RESULTS + adds + 1, SWAPPED, "the old value of the other compare-and-swap");
	expect(session, TARGET, SWAPPED, "what the peer left");
	expect(session, TARGET - 1, 0, "the cell before the target");
	expect(session, TARGET + 1, 0, "the cell behind the target");
	expect(session, RESULTS + adds + 2, 0, "the cell behind the results");
	report->messages = adds + 2;
	report->bytes = 8ull * report->messages;
	report->latency_ns = (double)session->path_ticks / (double)session->ticks_per_second * 1e9 /
			     (double)report->messages;
	report->verified = true;
}
