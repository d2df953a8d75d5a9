// SPDX-License-Identifier: Apache-2.0
/* Large WRITEs in both directions at once, each followed by a flag on the same queue pair. */
#include "kernel.h"
#include "session.h"

#define FLAG 0

void run_bulk(struct session *session)
{
	const struct options *options = session->options;
	struct report *report = &session->report;
	struct vrnic_wqe flag = dev_write_flag(options->messages, session_remote_cell(session, FLAG),
					       session->peer.rkey);
	uint64_t deadline;
	uint32_t index;

	for (uint32_t i = 0; i < options->messages; i++)
		session_fill(session, i * options->size, options->size, i);
	session_path_begin(session);
	deadline = session_deadline(session);
	for (uint32_t i = 0; i < options->messages; i++) {
		size_t at = i * options->size;
		struct vrnic_wqe wqe = dev_write(session_local(session, at), session->data.region.key,
						 session_remote(session, session_inbox(session) + at),
						 session->peer.rkey, (uint32_t)options->size);

		wqe.flags = VRNIC_WQE_SIGNAL;
		session_post(session, &wqe, deadline);
		session_ring(session);
	}
	flag.flags |= VRNIC_WQE_SIGNAL;
	index = session_post(session, &flag, deadline);
	session_ring(session);
	session_wait(session, index, deadline);
	session_check(session, dev_wait_flag(session_cell(session, FLAG), options->messages, deadline),
		      "the peer's flag", options->messages);
	session_path_end(session);

	for (uint32_t i = 0; i < options->messages; i++)
		session_verify(session, session_inbox(session) + i * options->size, options->size, i);
	session_verify_guards(session);
	report->messages = options->messages;
	report->bytes = options->messages * options->size;
	report->latency_ns = (double)session->path_ticks / (double)session->ticks_per_second * 1e9 /
			     options->messages;
	report->verified = true;
}
