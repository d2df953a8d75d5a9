// SPDX-License-Identifier: Apache-2.0
/*
 * One lane puts and quiets: the smallest sequence there is. Role a puts, role b looks. What the lane
 * left in ring and doorbell record is compared with the contract, byte by byte.
 */
#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "session.h"

static void put_number(uint8_t *at, uint64_t value, int size)
{
	for (int i = 0; i < size; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* The WQE as the contract draws it, written without the structures the kernel uses. */
static void expected_wqe(const struct session *session, uint32_t index, size_t at, uint8_t wqe[64])
{
	const struct options *options = session->options;
	uint32_t pass = (index - options->start) >> options->log_slots;

	memset(wqe, 0, 64);
	put_number(wqe + 0, 1, 1);
	put_number(wqe + 1, 0x01 | (pass % 2 ? 0 : 0x80), 1);
	put_number(wqe + 2, 1, 2);
	put_number(wqe + 4, index, 4);
	put_number(wqe + 8, session->qp.qpn, 4);
	put_number(wqe + 16, session->peer.address + session_inbox(session) + at, 8);
	put_number(wqe + 24, session->peer.rkey, 4);
	put_number(wqe + 28, options->size, 4);
	put_number(wqe + 32, session->data.region.address + at, 8);
	put_number(wqe + 40, session->data.region.key, 4);
}

static void check_vectors(struct session *session, size_t at)
{
	const struct options *options = session->options;
	uint32_t last = options->start + options->messages - 1;
	volatile uint64_t *slot = dev_slot(&session->qp, last);
	uint64_t doorbell = vrnic_doorbell(VRNIC_DB_TYPE_SQ, session->qp.qpn, last + 1);
	char wqe_text[129], doorbell_text[17];
	uint8_t expected[64], found[64], image[8];

	for (int i = 0; i < 8; i++) {
		uint64_t word = slot[i];

		memcpy(found + 8 * i, &word, 8);
	}
	expected_wqe(session, last, at, expected);
	for (int i = 0; i < 64; i++) {
		if (found[i] != expected[i])
			session_die(session, "byte %d of the WQE is %#x, the contract says %#x", i, found[i],
				    expected[i]);
		sprintf(wqe_text + 2 * i, "%02x", found[i]);
	}
	put_number(image, last + 1, 4);
	put_number(image + 4, session->qp.qpn, 3);
	image[7] = 0x80;
	if (memcmp(&(uint64_t){ htole64(doorbell) }, image, sizeof(image)))
		session_die(session, "the doorbell is %#llx", (unsigned long long)doorbell);
	if (le32toh(session->qp.dbr->send) != last + 1)
		session_die(session, "the doorbell record says %u, not %u", le32toh(session->qp.dbr->send), last + 1);
	for (int i = 0; i < 8; i++)
		sprintf(doorbell_text + 2 * i, "%02x", image[i]);
	snprintf(session->report.detail, sizeof(session->report.detail), ",\"wqe\":\"%s\",\"doorbell\":\"%s\"",
		 wqe_text, doorbell_text);
}

static void put(struct session *session)
{
	const struct options *options = session->options;
	uint64_t deadline = session_deadline(session);

	for (uint32_t i = 0; i < options->messages; i++) {
		size_t at = i * options->size;
		struct vrnic_wqe wqe = dev_write(session_local(session, at), session->data.region.key,
						 session_remote(session, session_inbox(session) + at),
						 session->peer.rkey, (uint32_t)options->size);
		uint32_t index;

		wqe.flags = VRNIC_WQE_SIGNAL;
		index = session_post(session, &wqe, deadline);
		session_ring(session);
		session_wait(session, index, deadline);
	}
}

void run_put(struct session *session)
{
	const struct options *options = session->options;
	struct report *report = &session->report;
	bool active = options->role == 'a';

	for (uint32_t i = 0; active && i < options->messages; i++)
		session_fill(session, i * options->size, options->size, i);
	session_path_begin(session);
	if (active)
		put(session);
	session_path_end(session);
	session_sync(session);
	if (active) {
		check_vectors(session, (options->messages - 1) * options->size);
		report->messages = options->messages;
		report->bytes = options->messages * options->size;
		report->latency_ns = (double)session->path_ticks / (double)session->ticks_per_second * 1e9 /
				     options->messages;
	}
	for (uint32_t i = 0; !active && i < options->messages; i++)
		session_verify(session, session_inbox(session) + i * options->size, options->size, i);
	if (!active)
		session_verify_guards(session);
	report->verified = true;
}
