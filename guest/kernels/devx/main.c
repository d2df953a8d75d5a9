// SPDX-License-Identifier: Apache-2.0
/*
 * vrnic-devx: direct submission on an mlx5-compatible NIC, with the distribution's kernel driver and libmlx5.
 *
 * The CPU makes the objects through DevX, as the host side of GPU-initiated libraries does; one thread then
 * plays the GPU and posts, rings and completes by loads and stores. See --help.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "../rendezvous.h"
#include "steps.h"
#include "vectors.h"

#define LOG_DEPTH 7
#define LOG_CQ 8
#define RECORDS 64  /* bytes apart */

struct choice {
	const char *name;
	int value;
};

static const struct choice places[] = { { "vram", 1 }, { "host", 0 }, { NULL, 0 } };
static const struct choice cqs[] = { { "collapsed", 1 }, { "ring", 0 }, { NULL, 0 } };
static const struct choice conventions[] = {
	{ "next", DOORBELL_NEXT },
	{ "last", DOORBELL_LAST },
	{ "blueflame", DOORBELL_BLUEFLAME },
	{ NULL, 0 },
};
static const struct choice orders[] = {
	{ "record-doorbell", RECORD_DOORBELL },
	{ "doorbell-record-doorbell", DOORBELL_RECORD_DOORBELL },
	{ "doorbell", DOORBELL_ONLY },
	{ NULL, 0 },
};

struct options {
	int role;
	int ring_in_vram, data_in_vram, collapsed, convention, order;
	double timeout;
};

static void usage(void)
{
	puts("vrnic-devx --role a|b [option]...\n"
	     "\n"
	     "Submits RDMA work directly on an mlx5-compatible NIC, against the same program on a peer. It prints\n"
	     "ENDPOINT and SYNC lines for the peer, reads the peer's, and prints one JSON line.\n"
	     "\n"
	     "  -r, --role a|b         which end this is\n"
	     "      --ring WHERE       rings, records and CQs: vram (default) or host\n"
	     "      --data WHERE       payload: vram (default) or host\n"
	     "      --cq MODE          collapsed (default) or ring\n"
	     "      --doorbell WHAT    next (index, default), last (descriptor's header), or blueflame (descriptor)\n"
	     "      --order ORDER      record-doorbell (default), doorbell-record-doorbell, or doorbell\n"
	     "  -t, --timeout S        seconds to wait for anything (default 20)\n"
	     "      --vectors          print bytes of two descriptors, a record and doorbells, and leave\n"
	     "\n"
	     "  vrnic-devx --role a --ring vram --data host --doorbell last");
}

static int pick(const char *option, const char *text, const struct choice *choices)
{
	for (; choices->name; choices++)
		if (!strcmp(choices->name, text))
			return choices->value;
	fprintf(stderr, "vrnic-devx: %s cannot be %s (--help lists the options)\n", option, text);
	exit(2);
}

static void parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "role", required_argument, NULL, 'r' },  { "ring", required_argument, NULL, 'R' },
		{ "data", required_argument, NULL, 'D' },  { "cq", required_argument, NULL, 'C' },
		{ "doorbell", required_argument, NULL, 'B' }, { "order", required_argument, NULL, 'O' },
		{ "timeout", required_argument, NULL, 't' }, { "vectors", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	static const struct choice roles[] = { { "a", 'a' }, { "b", 'b' }, { NULL, 0 } };
	int which;

	*options = (struct options){ .ring_in_vram = 1, .data_in_vram = 1, .collapsed = 1, .timeout = 20 };
	while ((which = getopt_long(argc, argv, "r:t:h", known, NULL)) != -1) {
		char *end;

		switch (which) {
		case 'r': options->role = pick("--role", optarg, roles); break;
		case 'R': options->ring_in_vram = pick("--ring", optarg, places); break;
		case 'D': options->data_in_vram = pick("--data", optarg, places); break;
		case 'C': options->collapsed = pick("--cq", optarg, cqs); break;
		case 'B': options->convention = pick("--doorbell", optarg, conventions); break;
		case 'O': options->order = pick("--order", optarg, orders); break;
		case 't':
			options->timeout = strtod(optarg, &end);
			if (end != optarg && !*end && options->timeout > 0 && options->timeout <= 3600)
				break;
			fprintf(stderr, "vrnic-devx: --timeout is %s, not a number of seconds up to 3600\n", optarg);
			exit(2);
		case 'V': print_vectors(); exit(0);
		case 'h': usage(); exit(0);
		default: fputs("vrnic-devx: --help lists the options\n", stderr); exit(2);
		}
	}
	if (optind != argc || !options->role) {
		fputs(optind != argc ? "vrnic-devx: there are only options (--help lists them)\n" :
				       "vrnic-devx: --role a or --role b?\n", stderr);
		exit(2);
	}
}

static int report(const struct options *options, const char *error)
{
	if (error)
		fprintf(stderr, "vrnic-devx: %s\n", error);
	printf("{\"program\":\"vrnic-devx\",\"role\":\"%c\",\"ok\":false,\"error\":\"", options->role);
	for (; *error; error++)
		putchar(*error == '"' || *error == '\\' ? '\'' : *error);
	puts("\"}");
	return 1;
}

/* Memory, and the descriptor of its dma-buf if it is the GPU's; -1 for own memory. */
static void *take(struct vgpu *gpu, size_t size, bool vram, int *dmabuf, char *error, size_t room)
{
	struct vgpu_buffer buffer;
	void *map;

	*dmabuf = -1;
	if (!vram) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map != MAP_FAILED)
			return map;
		snprintf(error, room, "%zu bytes of memory: %s", size, strerror(errno));
		return NULL;
	}
	if (gpu->fd < 0 && vgpu_open(gpu, NULL)) {
		snprintf(error, room, "%s (--ring host --data host needs no GPU)", vgpu_error(gpu));
		return NULL;
	}
	if (vgpu_alloc(gpu, size, &buffer) || (*dmabuf = vgpu_export(gpu, &buffer)) < 0) {
		snprintf(error, room, "%s", vgpu_error(gpu));
		return NULL;
	}
	return buffer.map;
}

/* Places of one queue pair in the memory for queues. */
enum { CQ_AT = 0, SQ_AT = MLX5_CQE_BYTES << LOG_CQ, RECORDS_AT = SQ_AT + (MLX5_BLOCK << LOG_DEPTH) };
#define QUEUE_BYTES ((RECORDS_AT + 2 * RECORDS + 4095) & ~4095)

static int make(struct devx *nic, const struct options *options, const struct devx_memory *memory, uint64_t at,
		struct devx_qp *qp, struct direct *queue)
{
	struct devx_cq cq = {
		.memory = memory,
		.at = at + CQ_AT,
		.record = at + RECORDS_AT,
		.log_size = LOG_CQ,
		.collapsed = options->collapsed,
		.ignore_overrun = options->collapsed,
	};

	/* Nothing is valid yet. */
	memset(memory->map + at, 0, QUEUE_BYTES);
	memset(memory->map + cq.at, 0xff, (size_t)MLX5_CQE_BYTES << LOG_CQ);
	__sync_synchronize();
	*qp = (struct devx_qp){
		.memory = memory,
		.at = at + SQ_AT,
		.record = at + RECORDS_AT + RECORDS,
		.log_size = LOG_DEPTH,
	};
	if (devx_create_cq(nic, &cq))
		return -1;
	qp->cqn = cq.number;
	if (devx_create_qp(nic, qp))
		return -1;
	*queue = (struct direct){
		.sq = memory->map + qp->at,
		.record = (volatile uint32_t *)(memory->map + qp->record),
		.cq = memory->map + cq.at,
		.cq_record = (volatile uint32_t *)(memory->map + cq.record),
		.doorbell = (volatile uint64_t *)(nic->page + MLX5_UAR_DOORBELL),
		.qpn = qp->number,
		.depth = 1u << LOG_DEPTH,
		.cq_slots = 1u << LOG_CQ,
		.collapsed = options->collapsed,
		.convention = (enum doorbell)options->convention,
		.order = (enum order)options->order,
	};
	return 0;
}

static uint64_t ticks_per_second(void)
{
	struct timespec pause = { .tv_nsec = 20000000 }, start, end;
	uint64_t ticks = direct_ticks();

	clock_gettime(CLOCK_MONOTONIC, &start);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	ticks = direct_ticks() - ticks;
	return (uint64_t)((double)ticks / ((double)(end.tv_sec - start.tv_sec) +
					   (double)(end.tv_nsec - start.tv_nsec) * 1e-9));
}

int main(int argc, char **argv)
{
	static struct setting setting;
	struct options options;
	struct devx nic;
	struct vgpu gpu = { .fd = -1 };
	struct devx_memory queues, data;
	struct devx_qp qps[2];
	struct direct *directs[2] = { &setting.data, &setting.companion };
	struct vrnic_endpoint self = {}, peer = {};
	char error[512], refusal[256] = "";
	int ring_fd, data_fd;
	unsigned int syncs = 0;
	uint64_t deadline;
	uint8_t state = 0;
	void *rings, *heap;
	bool watched = true;

	parse(argc, argv, &options);
	if (devx_open(&nic, NULL))
		return report(&options, nic.error);
	rings = take(&gpu, 2 * QUEUE_BYTES, options.ring_in_vram, &ring_fd, error, sizeof(error));
	heap = rings ? take(&gpu, (sizeof(struct heap) + 4095) & ~4095ul, options.data_in_vram, &data_fd, error,
			    sizeof(error)) :
		       NULL;
	if (!heap)
		return report(&options, error);
	if (devx_register_queues(&nic, rings, 2 * QUEUE_BYTES, ring_fd, &queues) ||
	    devx_register_payload(&nic, heap, (sizeof(struct heap) + 4095) & ~4095ul, data_fd, &data))
		return report(&options, nic.error);
	setting.heap = heap;
	setting.address = data.address;
	setting.key = data.key;
	for (int i = 0; i < 2; i++) {
		self = (struct vrnic_endpoint){ .rkey = data.key, .address = data.address, .length = data.size };
		memcpy(self.gid, nic.gid, sizeof(self.gid));
		memcpy(self.mac, nic.mac, sizeof(self.mac));
		if (make(&nic, &options, &queues, (uint64_t)i * QUEUE_BYTES, &qps[i], directs[i]))
			return report(&options, nic.error);
		self.qpn = qps[i].number;
		self.psn = self.qpn * 0x1001 & 0xffffff;
		if (rendezvous_meet(&self, &peer, options.timeout))
			return report(&options, rendezvous_error);
		if (devx_connect(&nic, &qps[i], &self, &peer))
			return report(&options, nic.error);
	}
	setting.data_cqn = qps[0].cqn;
	setting.peer_address = peer.address;
	setting.peer_key = peer.rkey;
	setting.seed = options.role == 'a' ? 0x1234567 : 0x89abcde;
	setting.peer_seed = options.role == 'a' ? 0x89abcde : 0x1234567;
	deadline = direct_ticks() + (uint64_t)(options.timeout * (double)ticks_per_second());
	setting.data.deadline = setting.companion.deadline = deadline;
	if (rendezvous_sync(++syncs, options.timeout))
		return report(&options, rendezvous_error);
	for (const struct step *step = steps; step->name; step++) {
		int ret;

		watched = direct_begin() && watched;
		ret = step->run(&setting);
		direct_end();
		if (!ret && rendezvous_sync(++syncs, options.timeout))
			return report(&options, rendezvous_error);
		if (!ret)
			ret = step->check(&setting);
		if (ret) {
			snprintf(error, sizeof(error), "step %s: %s", step->name, setting.error);
			return report(&options, error);
		}
	}
	/* The other end's queue pair goes down with it. */
	if (options.role == 'a' && refused_write(&setting, refusal, sizeof(refusal)))
		return report(&options, setting.error);
	if (rendezvous_sync(++syncs, options.timeout))
		return report(&options, rendezvous_error);
	if (devx_query_qp(&nic, &qps[0], &state))
		return report(&options, nic.error);
	if (rendezvous_sync(++syncs, options.timeout))
		return report(&options, rendezvous_error);
	printf("{\"program\":\"vrnic-devx\",\"role\":\"%c\",\"ok\":true,\"steps\":[", options.role);
	for (const struct step *step = steps; step->name; step++)
		printf("%s\"%s\"", step == steps ? "" : ",", step->name);
	printf("],\"blocks\":%u,\"doorbells\":%llu,\"payload\":\"%s\",\"blueflame\":%s,\"no_system_calls\":%s,"
	       "\"refusal\":\"%s\",\"state\":%u}\n",
	       setting.data.next + setting.companion.next,
	       (unsigned long long)(setting.data.rings + setting.companion.rings), data.how,
	       nic.blueflame ? "true" : "false", watched ? "true" : "false", refusal, state);
	return 0;
}
