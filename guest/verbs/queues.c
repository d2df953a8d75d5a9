// SPDX-License-Identifier: Apache-2.0
/* Completion queues that change size, multicast groups, and asynchronous events. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "verbs.h"

#define PORT 1
#define QKEY 0x1234
#define GRH 40
#define WAIT_MS 60000

/* Have @count WRITEs completed and not polled. */
static int pile_up(struct world *world, int count)
{
	struct end *near = &world->near;
	struct ibv_sge sge = { (uintptr_t)near->memory, 8, near->mr->lkey };
	struct ibv_send_wr *bad, request = {
		.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)world->far.memory, .rkey = world->far.mr->rkey },
	};

	for (int number = 0; number < count; number++) {
		request.wr_id = number;
		if (ibv_post_send(near->qp, &request, &bad))
			return failed("post WRITE %d", number);
	}
	return 0;
}

static int read_off(struct world *world, int count)
{
	struct ibv_wc wc;

	for (int number = 0; number < count; number++) {
		if (expect(world->near.cq, IBV_WC_SUCCESS, &wc))
			return -1;
		if (wc.wr_id != (uint64_t)number)
			return failed("completion %d is of request %llu", number, (unsigned long long)wc.wr_id);
	}
	return 0;
}

int case_resize(struct world *world)
{
	static const int sizes[] = { 500, 20, 2000, 60 };
	struct ibv_cq *cq = world->near.cq;

	for (unsigned int round = 0; round < sizeof(sizes) / sizeof(*sizes); round++) {
		/* Completions come before, while and after it changes. */
		if (pile_up(world, 10))
			return -1;
		if (ibv_resize_cq(cq, sizes[round]))
			return failed("resize to %d", sizes[round]);
		if (cq->cqe < sizes[round])
			return failed("%d entries after a resize to %d", cq->cqe, sizes[round]);
		if (read_off(world, 10) || pile_up(world, 12) || read_off(world, 12))
			return -1;
	}
	return 0;
}

static struct ibv_qp *datagram(struct world *world, struct end *end)
{
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_UD, .send_cq = end->cq, .recv_cq = end->cq, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(world->pd, &attributes);
	struct ibv_qp_attr step = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = QKEY };

	if (!qp || ibv_modify_qp(qp, &step, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		return NULL;
	step.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &step, IBV_QP_STATE))
		return NULL;
	step.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &step, IBV_QP_STATE | IBV_QP_SQ_PSN) ? NULL : qp;
}

int case_group(struct world *world)
{
	struct end *near = &world->near, *far = &world->far;
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [14] = 2, [15] = 3 } };
	struct ibv_ah_attr address = {
		.is_global = 1, .port_num = PORT,
		.grh = { .dgid = group, .sgid_index = world->gid_index, .hop_limit = 1 },
	};
	struct ibv_sge into = { (uintptr_t)far->memory, 256, far->mr->lkey };
	struct ibv_sge from = { (uintptr_t)near->memory, 32, near->mr->lkey };
	struct ibv_recv_wr *bad_receive, receive = { .sg_list = &into, .num_sge = 1 };
	struct ibv_qp *sender = datagram(world, near), *member = datagram(world, far);
	struct ibv_ah *handle = ibv_create_ah(world->pd, &address);
	struct ibv_send_wr *bad, request = {
		.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1,
		.wr.ud = { .ah = handle, .remote_qpn = 0xffffff, .remote_qkey = QKEY },
	};
	struct ibv_wc wc;

	if (!sender || !member || !handle)
		return failed("datagram queue pairs and an address");
	if (ibv_attach_mcast(member, &group, 0))
		return failed("attach to a group");
	memset(near->memory, 0x5a, 32);
	if (ibv_post_recv(member, &receive, &bad_receive) || ibv_post_send(sender, &request, &bad))
		return failed("post");
	if (expect(near->cq, IBV_WC_SUCCESS, NULL) || expect(far->cq, IBV_WC_SUCCESS, &wc))
		return -1;
	if (wc.byte_len != GRH + 32 || memcmp(far->memory + GRH, near->memory, 32))
		return failed("another datagram than was sent");
	if (ibv_detach_mcast(member, &group, 0))
		return failed("detach");
	ibv_destroy_ah(handle);
	return ibv_destroy_qp(sender) || ibv_destroy_qp(member) ? failed("destroy") : 0;
}

/* Wait for an asynchronous event of @type. */
static int await(struct world *world, enum ibv_event_type type, struct ibv_async_event *event)
{
	struct pollfd wait = { .fd = world->context->async_fd, .events = POLLIN };

	do {
		if (poll(&wait, 1, WAIT_MS) != 1 || ibv_get_async_event(world->context, event))
			return failed("no event %s", ibv_event_type_str(type));
		ibv_ack_async_event(event);
	} while (event->event_type == IBV_EVENT_COMM_EST);
	if (event->event_type != type)
		return failed("event %s, not %s", ibv_event_type_str(event->event_type), ibv_event_type_str(type));
	return 0;
}

int case_event_queue_pair(struct world *world)
{
	struct ibv_async_event event;

	/* The far end has no receive that could tell of it. */
	if (write_to(&world->near, 0, 0x1000, 0xdead00, 8, IBV_WC_REM_ACCESS_ERR))
		return -1;
	if (await(world, IBV_EVENT_QP_ACCESS_ERR, &event))
		return -1;
	return event.element.qp == world->far.qp ? 0 : failed("the event is about another queue pair");
}

int case_event_shared_receive(struct world *world)
{
	struct ibv_srq_init_attr attributes = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(world->pd, &attributes);
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_async_event event;

	if (!srq)
		return failed("shared receive queue");
	/* It is empty, so the limit is reached at once. */
	if (ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT))
		return failed("set a limit");
	if (await(world, IBV_EVENT_SRQ_LIMIT_REACHED, &event))
		return -1;
	if (event.element.srq != srq)
		return failed("the event is about another queue");
	return ibv_destroy_srq(srq) ? failed("destroy") : 0;
}

int case_event_overrun(struct world *world)
{
	struct ibv_async_event event;

	/* More completions than the CQ has room for, and nobody reads them. */
	if (ibv_resize_cq(world->near.cq, 7) || pile_up(world, 20))
		return failed("fill the CQ");
	if (await(world, IBV_EVENT_CQ_ERR, &event))
		return -1;
	return event.element.cq == world->near.cq ? 0 : failed("the event is about another CQ");
}
