// SPDX-License-Identifier: Apache-2.0
/* Each side READs the other's outbox into its own inbox. */
#include "kernel.h"
#include "session.h"

void run_read(struct session *session)
{
	const struct options *options = session->options;
	struct report *report = &session->report;
	uint64_t deadline;
	uint32_t index = 0;

	for (uint32_t i = 0; i < options->messages; i++)
		session_fill(session, i * options->size, options->size, i);
	session_sync(session);
	session_path_begin(session);
	deadline = session_deadline(session);
	for (uint32_t i = 0; i < options->messages; i++) {
		size_t at = i * options->size;
		struct vrnic_wqe wqe = dev_read(session_local(session, session_inbox(session) + at),
						session->data.region.key, session_remote(session, at),
						session->peer.rkey, (uint32_t)options->size);

		wqe.flags = VRNIC_WQE_SIGNAL;
		index = session_post(session, &wqe, deadline);
		session_ring(session);
	}
	session_wait(session, index, deadline);
	session_path_end(session);
	for (uint32_t i = 0; i < options->messages; i++)
		session_verify(session, session_inbox(session) + i * options->size, options->size, i);
	session_verify_guards(session);
	/* The peer reads our outbox until it says so. */
	session_sync(session);
	report->messages = options->messages;
	report->bytes = options->messages * options->size;
	report->latency_ns = (double)session->path_ticks / (double)session->ticks_per_second * 1e9 /
			     options->messages;
	report->verified = true;
}
