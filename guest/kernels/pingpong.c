// SPDX-License-Identifier: Apache-2.0
/*
 * Two lanes, one in each guest, answer each other: a WRITE of the payload and, behind it on the same
 * queue pair, a WRITE of 8 bytes that says it is there. Both go with one doorbell.
 */
#include "kernel.h"
#include "session.h"

#define FLAG 0  /* cell the peer writes */

static void serve(struct session *session, uint32_t round, uint64_t deadline)
{
	const struct options *options = session->options;
	struct vrnic_wqe payload = dev_write(session_local(session, 0), session->data.region.key,
					     session_remote(session, session_inbox(session)), session->peer.rkey,
					     (uint32_t)options->size);
	struct vrnic_wqe flag = dev_write_flag(round + 1, session_remote_cell(session, FLAG), session->peer.rkey);
	uint32_t index;

	session_fill(session, 0, options->size, round);
	flag.flags |= VRNIC_WQE_SIGNAL;
	session_post(session, &payload, deadline);
	index = session_post(session, &flag, deadline);
	session_ring(session);
	/* The outbox may be filled again only after this. */
	session_wait(session, index, deadline);
}

static void receive(struct session *session, uint32_t round, uint64_t deadline)
{
	session_check(session, dev_wait_flag(session_cell(session, FLAG), round + 1, deadline), "message", round);
	session_verify(session, session_inbox(session), session->options->size, round);
}

void run_pingpong(struct session *session)
{
	const struct options *options = session->options;
	struct report *report = &session->report;
	uint64_t deadline;

	session_path_begin(session);
	deadline = session_deadline(session);
	for (uint32_t round = 0; round < options->messages; round++) {
		if (options->role == 'a')
			serve(session, round, deadline);
		receive(session, round, deadline);
		if (options->role == 'b')
			serve(session, round, deadline);
	}
	session_path_end(session);
	session_verify_guards(session);
	report->messages = options->messages;
	report->bytes = options->messages * options->size;
	report->latency_ns = (double)session->path_ticks / (double)session->ticks_per_second * 1e9 /
			     (2.0 * options->messages);
	report->verified = true;
}
