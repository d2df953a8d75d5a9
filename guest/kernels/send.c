// SPDX-License-Identifier: Apache-2.0
/* Each side SENDs into receive elements that the other posted before. */
#include "kernel.h"
#include "session.h"

static void send_all(struct session *session, uint64_t deadline)
{
	const struct options *options = session->options;
	uint32_t index = 0;

	for (uint32_t i = 0; i < options->messages; i++) {
		struct vrnic_wqe wqe = dev_send(session_local(session, i * options->size), session->data.region.key,
						(uint32_t)options->size);

		/* Immediate data travels with the last one only: both forms get used. */
		if (i == options->messages - 1) {
			wqe.opcode = VRNIC_OP_SEND_IMM;
			wqe.immediate = htole32(i);
		}
		wqe.flags = VRNIC_WQE_SIGNAL;
		index = session_post(session, &wqe, deadline);
		session_ring(session);
	}
	session_wait(session, index, deadline);
}

static void receive_all(struct session *session, uint64_t deadline)
{
	const struct options *options = session->options;
	struct vrnic_cqe cqe;

	for (uint32_t i = 0; i < options->messages; i++) {
		bool immediate = i == options->messages - 1;

		session_check(session, dev_wait_receive(&session->qp, deadline, &cqe), "receive", i);
		if (vrnic_cqe_opcode(&cqe) != VRNIC_WC_OP_RECV || le32toh(cqe.length) != options->size ||
		    le32toh(cqe.index) != options->start + i || le32toh(cqe.qpn) != session->qp.qpn)
			session_die(session, "receive %u: %s of %u bytes at index %u", i,
				    vrnic_wc_opcode_name(vrnic_cqe_opcode(&cqe)), le32toh(cqe.length),
				    le32toh(cqe.index));
		if (!(le32toh(cqe.flags) & VRNIC_CQE_WITH_IMM) != !immediate ||
		    (immediate && le32toh(cqe.immediate) != i))
			session_die(session, "receive %u: immediate %#x, flags %#x", i, le32toh(cqe.immediate),
				    le32toh(cqe.flags));
	}
}

void run_send(struct session *session)
{
	const struct options *options = session->options;
	struct report *report = &session->report;
	uint64_t deadline;

	if (options->messages > 1u << session->qp.rq_log_size)
		session_die(session, "--messages is %u, the receive ring has %u slots", options->messages,
			    1u << session->qp.rq_log_size);
	for (uint32_t i = 0; i < options->messages; i++) {
		session_fill(session, i * options->size, options->size, i);
		dev_post_receive(&session->qp, session_local(session, session_inbox(session) + i * options->size),
				 session->data.region.key, (uint32_t)options->size);
	}
	session_sync(session);
	session_path_begin(session);
	deadline = session_deadline(session);
	send_all(session, deadline);
	receive_all(session, deadline);
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
