// SPDX-License-Identifier: Apache-2.0
/*
 * Datagrams: each side sends to the other by its address handle, the last one with RoCE to a multicast
 * group that both listen to. Receive buffers begin with 40 bytes for the network header.
 */
#include <stdbool.h>
#include <string.h>

#include "kernel.h"
#include "session.h"

#define IPV4_AT 20u
#define EVERY_MEMBER 0xffffffu

static const uint8_t group_gid[16] = { [10] = 0xff, 0xff, 239, 77, 0, 1 };
static const uint8_t group_mac[6] = { 0x01, 0x00, 0x5e, 77, 0, 1 };

/* Where receive element @i begins. */
static size_t place(const struct session *session, uint32_t i)
{
	return session_inbox(session) + i * (size_t)(session->options->size + DATAGRAM_HEADER);
}

static struct vrnic_wqe datagram(const struct session *session, uint32_t message, uint32_t ahn, uint32_t qpn)
{
	size_t size = session->options->size;
	struct vrnic_wqe wqe = dev_send(session_local(session, message * size), session->data.region.key,
					(uint32_t)size);

	wqe.remote_address = htole64(vrnic_datagram_address(ahn, qpn));
	wqe.rkey = htole32(SESSION_QKEY);
	wqe.opcode = VRNIC_OP_SEND_IMM;
	wqe.immediate = htole32(message);
	wqe.flags = VRNIC_WQE_SIGNAL;
	return wqe;
}

/* The next receive is datagram @message of the peer, to @qpn. */
static void receive(struct session *session, uint32_t message, uint64_t deadline)
{
	const struct options *options = session->options;
	size_t size = options->size, at = place(session, message);
	const uint8_t *header = session_at(session, at);
	struct vrnic_cqe cqe;

	session_check(session, dev_wait_receive(&session->qp, deadline, &cqe), "receive", message);
	if (le32toh(cqe.length) != size + DATAGRAM_HEADER || le32toh(cqe.source_qpn) != session->peer.qpn ||
	    le32toh(cqe.immediate) != message ||
	    le32toh(cqe.flags) != (VRNIC_CQE_WITH_IMM | VRNIC_CQE_GRH))
		session_die(session, "receive %u: %u bytes from QP %#x, immediate %#x, flags %#x", message,
			    le32toh(cqe.length), le32toh(cqe.source_qpn), le32toh(cqe.immediate),
			    le32toh(cqe.flags));
	/* GID 1 is the IPv4 one; the header's source is the last word of the peer's. */
	if (options->gid_index == 1 && memcmp(header + IPV4_AT + 12, session->peer.gid + 12, 4))
		session_die(session, "receive %u: the header names another sender", message);
	session_verify(session, at + DATAGRAM_HEADER, size, message);
}

void run_datagram(struct session *session)
{
	const struct options *options = session->options;
	struct vrnic_create_ah group = { .pd = session->pd, .gid_index = options->gid_index };
	bool grouped = options->transport == VRNIC_TRANSPORT_ROCE_UD;
	uint32_t last = options->messages - 1, index = 0;
	uint64_t deadline;

	if (options->messages > 1u << session->qp.rq_log_size || options->messages < 2)
		session_die(session, "--messages is %u, not in 2..%u", options->messages, 1u << session->qp.rq_log_size);
	memcpy(group.dest_gid, group_gid, sizeof(group.dest_gid));
	memcpy(group.dest_mac, group_mac, sizeof(group.dest_mac));
	if (grouped && (vrnic_create_ah(&session->nic, &group) ||
			vrnic_attach_multicast(&session->nic, session->qp.qpn, group_gid)))
		session_die(session, "%s", vrnic_error(&session->nic));
	for (uint32_t i = 0; i < options->messages; i++) {
		session_fill(session, i * options->size, options->size, i);
		dev_post_receive(&session->qp, session_local(session, place(session, i)), session->data.region.key,
				 (uint32_t)options->size + DATAGRAM_HEADER);
	}
	session_sync(session);
	session_path_begin(session);
	deadline = session_deadline(session);
	for (uint32_t i = 0; i < options->messages; i++) {
		struct vrnic_wqe wqe = grouped && i == last ?
					       datagram(session, i, group.ahn, EVERY_MEMBER) :
					       datagram(session, i, session->ahn, session->peer.qpn);

		index = session_post(session, &wqe, deadline);
		session_ring(session);
	}
	session_wait(session, index, deadline);
	for (uint32_t i = 0; i < options->messages; i++)
		receive(session, i, deadline);
	session_path_end(session);
	if (grouped && (vrnic_detach_multicast(&session->nic, session->qp.qpn, group_gid) ||
			vrnic_destroy_ah(&session->nic, group.ahn)))
		session_die(session, "%s", vrnic_error(&session->nic));
	session->report.messages = options->messages;
	session->report.bytes = options->messages * options->size;
	session->report.verified = true;
}
