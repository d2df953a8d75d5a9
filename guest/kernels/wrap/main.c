// SPDX-License-Identifier: Apache-2.0
/*
 * vrnic-wrap: a reliable connection whose packet numbers begin where it is told, over libibverbs.
 *
 * Stock tools draw their first number at random, so that one near the end of the 24 bits is rare. Both ends
 * send, write, read and add to each other's memory, and compare every byte. See --help.
 */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../rendezvous.h"

#define AREA 65536u
#define ROUNDS 4u
#define OPERATIONS 4u
#define CQ_DEPTH 64

enum area { SOURCE, SENT_TO, WRITTEN_TO, READ_INTO, CELL, OLD_CELL, AREAS };

struct options {
	char role;
	uint32_t psn;
	uint32_t size;
	int gid_index;
	double timeout;
};

struct side {
	const struct options *options;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct vrnic_endpoint self, peer;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("vrnic-wrap: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static void usage(FILE *to)
{
	fputs("vrnic-wrap --role a|b --psn NUMBER [option]...\n"
	      "\n"
	      "Connects to the same program on a peer, through the first RDMA device, and exchanges SENDs, WRITEs,\n"
	      "READs and atomics in both directions. It prints ENDPOINT and SYNC lines for the peer, reads the\n"
	      "peer's, and prints one JSON line.\n"
	      "\n"
	      "  -r, --role a|b     which end this is\n"
	      "  -p, --psn NUMBER   first packet number that this end sends, 0 to 0xffffff\n"
	      "  -s, --size BYTES   of a message, up to 65536 (default 20000)\n"
	      "  -g, --gid N        index of the GID to use (default 1)\n"
	      "  -t, --timeout S    seconds to wait for anything (default 20)\n"
	      "\n"
	      "  vrnic-wrap --role a --psn 0xfffff0\n",
	      to);
}

static uint64_t number(const char *what, const char *text, uint64_t high)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-' || value > high) {
		fprintf(stderr, "vrnic-wrap: %s is %s, not a number up to %llu (--help lists the options)\n", what,
			text, (unsigned long long)high);
		exit(2);
	}
	return value;
}

static void parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "role", required_argument, NULL, 'r' }, { "psn", required_argument, NULL, 'p' },
		{ "size", required_argument, NULL, 's' }, { "gid", required_argument, NULL, 'g' },
		{ "timeout", required_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int which, given = 0;

	*options = (struct options){ .size = 20000, .gid_index = 1, .timeout = 20 };
	while ((which = getopt_long(argc, argv, "r:p:s:g:t:h", known, NULL)) != -1) {
		switch (which) {
		case 'r': options->role = *optarg; break;
		case 'p': options->psn = (uint32_t)number("--psn", optarg, 0xffffff); given = 1; break;
		case 's': options->size = (uint32_t)number("--size", optarg, AREA); break;
		case 'g': options->gid_index = (int)number("--gid", optarg, 255); break;
		case 't': options->timeout = (double)number("--timeout", optarg, 3600); break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (optind != argc || !given || (options->role != 'a' && options->role != 'b')) {
		usage(stderr);
		exit(2);
	}
}

static uint8_t *at(struct side *side, enum area area)
{
	return side->memory + (size_t)area * AREA;
}

/* Byte @i of what role @role has in its source. */
static uint8_t pattern(char role, uint32_t i)
{
	return (uint8_t)(i * 7 + i / 251 + (uint8_t)role);
}

static void open_device(struct side *side)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid gid;

	if (!list || !*list)
		die("there is no RDMA device");
	side->context = ibv_open_device(*list);
	if (!side->context)
		die("%s cannot be opened: %s", ibv_get_device_name(*list), strerror(errno));
	if (ibv_query_gid(side->context, 1, side->options->gid_index, &gid))
		die("there is no GID %d: %s", side->options->gid_index, strerror(errno));
	memcpy(side->self.gid, gid.raw, sizeof(side->self.gid));
}

static void make_objects(struct side *side)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr made = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned int)access };
	size_t size = (size_t)AREAS * AREA;

	side->memory = aligned_alloc(4096, size);
	if (!side->memory)
		die("no memory");
	memset(side->memory, 0, size);
	for (uint32_t i = 0; i < AREA; i++)
		at(side, SOURCE)[i] = pattern(side->options->role, i);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = side->pd ? ibv_create_cq(side->context, CQ_DEPTH, NULL, NULL, 0) : NULL;
	side->mr = side->cq ? ibv_reg_mr(side->pd, side->memory, size, access) : NULL;
	made.send_cq = made.recv_cq = side->cq;
	side->qp = side->mr ? ibv_create_qp(side->pd, &made) : NULL;
	if (!side->qp)
		die("domain, queues or memory: %s", strerror(errno));
	if (ibv_modify_qp(side->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("to INIT: %s", strerror(errno));
	side->self.qpn = side->qp->qp_num;
	side->self.psn = side->options->psn;
	side->self.rkey = side->mr->rkey;
	side->self.address = (uintptr_t)side->memory;
	side->self.length = size;
}

static void connect_peer(struct side *side)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	if (rendezvous_meet(&side->self, &side->peer, side->options->timeout))
		die("%s", rendezvous_error);
	attr.dest_qp_num = side->peer.qpn;
	attr.rq_psn = side->peer.psn;
	memcpy(attr.ah_attr.grh.dgid.raw, side->peer.gid, sizeof(side->peer.gid));
	attr.ah_attr.grh.sgid_index = (uint8_t)side->options->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR: %s", strerror(errno));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 17;
	attr.retry_cnt = 6;
	attr.rnr_retry = 6;
	attr.sq_psn = side->options->psn;
	attr.max_rd_atomic = 1;
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS: %s", strerror(errno));
}

static void post_receive(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)at(side, SENT_TO), AREA, side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(side->qp, &wr, &bad))
		die("a receive: %s", strerror(errno));
}

static void post(struct side *side, enum ibv_wr_opcode opcode, enum area local, enum area remote, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)at(side, local), size, side->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	uint64_t address = side->peer.address + (uint64_t)remote * AREA;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = side->peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = side->peer.rkey;
	}
	if (ibv_post_send(side->qp, &wr, &bad))
		die("operation %d: %s", opcode, strerror(errno));
}

/* Wait for @count completions, all of them good. */
static void complete(struct side *side, unsigned int count)
{
	time_t deadline = time(NULL) + (time_t)side->options->timeout + 1;
	struct ibv_wc wc;

	while (count) {
		int got = ibv_poll_cq(side->cq, 1, &wc);

		if (got < 0 || (got && wc.status != IBV_WC_SUCCESS))
			die("operation %llu ended with %s", (unsigned long long)wc.wr_id,
			    got < 0 ? "no completion" : ibv_wc_status_str(wc.status));
		if (got)
			count--;
		else if (time(NULL) > deadline)
			die("%u completions did not come in %.0f s", count, side->options->timeout);
	}
}

static void compare(struct side *side, enum area area, const char *what)
{
	char peer = side->options->role == 'a' ? 'b' : 'a';

	for (uint32_t i = 0; i < side->options->size; i++)
		if (at(side, area)[i] != pattern(peer, i))
			die("byte %u of what was %s is not the peer's", i, what);
}

static void meet(unsigned int *syncs, double timeout)
{
	if (rendezvous_sync(++*syncs, timeout))
		die("%s", rendezvous_error);
}

int main(int argc, char **argv)
{
	struct options options;
	struct side side = { .options = &options };
	unsigned int syncs = 0;
	uint64_t cell, old;

	parse(argc, argv, &options);
	open_device(&side);
	make_objects(&side);
	connect_peer(&side);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (enum area area = SENT_TO; area <= READ_INTO; area++)
			memset(at(&side, area), 0, AREA);
		post_receive(&side);
		meet(&syncs, options.timeout);
		post(&side, IBV_WR_SEND, SOURCE, 0, options.size);
		post(&side, IBV_WR_RDMA_WRITE, SOURCE, WRITTEN_TO, options.size);
		post(&side, IBV_WR_RDMA_READ, READ_INTO, SOURCE, options.size);
		post(&side, IBV_WR_ATOMIC_FETCH_AND_ADD, OLD_CELL, CELL, sizeof(cell));
		complete(&side, OPERATIONS + 1);
		meet(&syncs, options.timeout);
		compare(&side, SENT_TO, "sent");
		compare(&side, WRITTEN_TO, "written");
		compare(&side, READ_INTO, "read");
		/* Each end adds one a round to the other's, exactly once. */
		memcpy(&cell, at(&side, CELL), sizeof(cell));
		memcpy(&old, at(&side, OLD_CELL), sizeof(old));
		if (cell != round + 1 || old != round)
			die("the cell is %llu and the peer's was %llu in round %u", (unsigned long long)cell,
			    (unsigned long long)old, round);
	}
	printf("{\"program\":\"vrnic-wrap\",\"role\":\"%c\",\"ok\":true,\"psn\":%u,\"rounds\":%u,\"bytes\":%u}\n",
	       options.role, options.psn, ROUNDS, ROUNDS * 3 * options.size);
	return 0;
}
