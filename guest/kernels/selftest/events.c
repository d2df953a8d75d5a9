// SPDX-License-Identifier: Apache-2.0
/* From an error completion to the file that armed its CQ, through MSI-X and the event queue. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "selftest.h"

#define WAIT_MS 5000

void test_events(void)
{
	struct fixture fixture, other;
	struct vrnic_event_record record;
	struct vrnic_query_qp qp;
	struct vrnic_query query;
	volatile struct vrnic_cqe *cqe;
	bool completion = false;
	int ret;

	fixture_open(&fixture);
	fixture_open(&other);
	cqe = (volatile struct vrnic_cqe *)(void *)(fixture.memory + FIXTURE_CQ);
	fixture.nic.doorbells[VRNIC_DB_CQ_ARM / 8] =
		htole64(vrnic_doorbell(VRNIC_DB_TYPE_CQ_ARM, fixture.cqn, 0));
	fixture_fill_bad(&fixture);
	fixture_ring(&fixture, fixture.qpn, 1);
	while (!completion && !(ret = vrnic_next_event(&fixture.nic, WAIT_MS, &record)))
		completion = record.type == VRNIC_EVENT_COMPLETION && record.object == fixture.cqn;
	check(completion, "an armed CQ raises an event", "%s", vrnic_error(&fixture.nic));
	check(cqe->status == VRNIC_WC_LOC_PROT_ERR, "a WQE with a bad key completes in error", "status %u",
	      cqe->status);
	check(le32toh(cqe->cause) == VRNIC_CAUSE_LKEY_UNKNOWN, "its completion says why", "cause %u",
	      le32toh(cqe->cause));
	need(vrnic_query_qp(&fixture.nic, fixture.qpn, &qp), "the QP's state");
	check(qp.state == VRNIC_QPS_ERR && qp.first_error_status == VRNIC_WC_LOC_PROT_ERR,
	      "the QP remembers its first error", "state %u, status %u", qp.state, qp.first_error_status);
	need(vrnic_query(&fixture.nic, &query), "the file's counters");
	check(query.events >= 1 && !query.events_lost, "the file counts its events", "%llu, %llu lost",
	      (unsigned long long)query.events, (unsigned long long)query.events_lost);
	ret = vrnic_next_event(&other.nic, 0, &record);
	check(ret == -ETIMEDOUT, "another file gets none of them", "%d", ret);
	fixture_close(&other);
	fixture_close(&fixture);
}
