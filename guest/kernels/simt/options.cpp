// SPDX-License-Identifier: Apache-2.0
// The command line of vrnic-simt.
#include "options.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <getopt.h>

#include "kernel.h"
#include "mutation.h"

namespace kernels {

namespace {

enum {
	OPT_HARNESS = 256, OPT_ENGINE, OPT_RING, OPT_DATA, OPT_SEED, OPT_CTAS, OPT_WARPS, OPT_QPS, OPT_SLOTS, OPT_BATCH,
	OPT_START, OPT_DBR, OPT_CQ, OPT_ORDER, OPT_TRANSPORT,
	OPT_DEVICE, OPT_DOORBELL, OPT_SUBMIT, OPT_MUTATION, OPT_HINTS, OPT_TOKENS, OPT_EXPERTS, OPT_TOPK, OPT_HIDDEN, OPT_STEPS, OPT_ROUTING,
};

const option long_options[] = {
	{ "role", required_argument, nullptr, 'r' },
	{ "harness", required_argument, nullptr, OPT_HARNESS },
	{ "engine", required_argument, nullptr, OPT_ENGINE },
	{ "ring", required_argument, nullptr, OPT_RING },
	{ "data", required_argument, nullptr, OPT_DATA },
	{ "seed", required_argument, nullptr, OPT_SEED },
	{ "timeout", required_argument, nullptr, 't' },
	{ "ctas", required_argument, nullptr, OPT_CTAS },
	{ "warps", required_argument, nullptr, OPT_WARPS },
	{ "messages", required_argument, nullptr, 'n' },
	{ "size", required_argument, nullptr, 's' },
	{ "qps", required_argument, nullptr, OPT_QPS },
	{ "slots", required_argument, nullptr, OPT_SLOTS },
	{ "batch", required_argument, nullptr, OPT_BATCH },
	{ "start", required_argument, nullptr, OPT_START },
	{ "dbr", required_argument, nullptr, OPT_DBR },
	{ "transport", required_argument, nullptr, OPT_TRANSPORT },
	{ "cq", required_argument, nullptr, OPT_CQ },
	{ "order", required_argument, nullptr, OPT_ORDER },
	{ "device", required_argument, nullptr, OPT_DEVICE },
	{ "doorbell", required_argument, nullptr, OPT_DOORBELL },
	{ "submit", required_argument, nullptr, OPT_SUBMIT },
	{ "mutation", required_argument, nullptr, OPT_MUTATION },
	{ "hints", required_argument, nullptr, OPT_HINTS },
	{ "tokens", required_argument, nullptr, OPT_TOKENS },
	{ "experts", required_argument, nullptr, OPT_EXPERTS },
	{ "topk", required_argument, nullptr, OPT_TOPK },
	{ "hidden", required_argument, nullptr, OPT_HIDDEN },
	{ "steps", required_argument, nullptr, OPT_STEPS },
	{ "routing", required_argument, nullptr, OPT_ROUTING },
	{ "help", no_argument, nullptr, 'h' },
	{ nullptr, 0, nullptr, 0 },
};

void usage()
{
	printf("vrnic-simt KERNEL --role a|b [option]...\n"
	       "\n"
	       "Runs a GPU-style kernel of CTAs, warps and lanes against the same program on a peer. It prints\n"
	       "ENDPOINT and SYNC lines for the peer, reads the peer's, and prints one JSON line.\n"
	       "\n");
	for (const Kernel *const *kernel = all_kernels; *kernel; kernel++)
		printf("  %-10s %s\n", (*kernel)->name, (*kernel)->summary);
	printf("\n"
	       "  -r, --role a|b         which end this is\n"
	       "      --engine ENGINE    memory: direct (default), or weak (stores drain in random order)\n"
	       "      --seed N           of lane order, of the weak engine and of the payload (default 1)\n"
	       "      --ring WHERE       rings, doorbell records and CQs: vram (default) or host\n"
	       "      --data WHERE       the heap: vram (default) or host\n"
	       "      --ctas, --warps N  CTAs, and warps of 32 lanes in each\n"
	       "  -n, --messages N       messages of each rank\n"
	       "  -s, --size BYTES       of a message, a multiple of 8\n"
	       "      --transport T      of the queue pairs: roce-rc (default), uet-rod or uet-rud\n"
	       "      --qps N            queue pairs to each peer\n"
	       "      --slots N          log2 of a send ring's slots, 5..15\n"
	       "      --batch N          WQEs a doorbell may wait for, a power of two\n"
	       "      --start INDEX      first running index\n"
	       "      --dbr POLICY       doorbell record: none, recovery (default), authoritative or strict\n"
	       "      --order ORDER      record-doorbell (default) or doorbell-record-doorbell\n"
	       "      --submit HOW       direct (default), or proxy: lanes hand commands to a thread of the CPU\n"
	       "      --hints WHAT       on (default), or off: tell the NIC's checks what it cannot see\n"
	       "      --cq MODE          collapsed (default), ring or counter\n"
	       "      --device NIC       whose formats: vrnic (default), or mlx5 (an mlx5-compatible NIC's)\n"
	       "      --doorbell WHAT    of mlx5: next (index, default), last (descriptor's start) or blueflame (all of it)\n"
	       "      --tokens, --experts, --topk, --hidden, --steps N, --routing uniform|hot|idle   of moe\n"
	       "  -t, --timeout S        seconds to wait for anything (default 20)\n"
	       "      --harness FD       a socket to a NIC without a guest\n"
	       "      --mutation NAME    make one mistake on purpose:\n");
	for (const MutationName *entry = mutations; entry->name; entry++)
		printf("         %-22s %s\n", entry->name, entry->summary);
}

[[noreturn]] __attribute__((format(printf, 1, 2))) void refuse(const char *format, ...)
{
	va_list arguments;

	fputs("vrnic-simt: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs(" (--help lists the options)\n", stderr);
	exit(2);
}

uint64_t number(const char *what, const char *text, uint64_t low, uint64_t high)
{
	char *end;

	errno = 0;
	unsigned long long value = strtoull(text, &end, 0);

	if (errno || end == text || *end || *text == '-' || value < low || value > high)
		refuse("%s is %s, not a number in %llu..%llu", what, text, static_cast<unsigned long long>(low),
		       static_cast<unsigned long long>(high));
	return value;
}

uint32_t number32(const char *what, const char *text, uint64_t low, uint64_t high)
{
	return static_cast<uint32_t>(number(what, text, low, high));
}

int choice(const char *what, const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(text, words[i]))
			return i;
	refuse("%s cannot be %s", what, text);
}

Mutation mutation_named(const char *text)
{
	for (const MutationName *entry = mutations; entry->name; entry++)
		if (!strcmp(text, entry->name))
			return entry->mutation;
	refuse("--mutation cannot be %s", text);
}

double seconds(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0 && value <= 3600))
		refuse("--timeout is %s, not a number of seconds up to 3600", text);
	return value;
}

void set(Options &options, int which, const char *value)
{
	static const char *const roles[] = { "a", "b", nullptr };
	static const char *const engines[] = { "direct", "weak", nullptr };
	static const char *const places[] = { "vram", "host", nullptr };
	static const char *const transports[] = { "roce-rc", "uet-rod", "uet-rud", nullptr };
	static const uint8_t transport_codes[] = {
		VRNIC_TRANSPORT_ROCE_RC,
		VRNIC_TRANSPORT_UET_ROD,
		VRNIC_TRANSPORT_UET_RUD,
	};
	static const char *const cqs[] = { "collapsed", "ring", "counter", nullptr };
	static const char *const orders[] = { "record-doorbell", "doorbell-record-doorbell", nullptr };
	static const char *const submitters[] = { "direct", "proxy", nullptr };
	static const char *const switches[] = { "on", "off", nullptr };
	static const char *const routings[] = { "uniform", "hot", "idle", nullptr };
	static const char *const devices[] = { "vrnic", "mlx5", nullptr };
	static const char *const conventions[] = { "next", "last", "blueflame", nullptr };
	// In the order of enum vrnic_dbr_policy.
	static const char *const policies[] = { "none", "recovery", "authoritative", "strict", nullptr };

	switch (which) {
	case 'r':
		options.role = "ab"[choice("--role", value, roles)];
		break;
	case OPT_HARNESS:
		options.harness = static_cast<int>(number("--harness", value, 0, 1023));
		break;
	case OPT_ENGINE:
		options.weak = choice("--engine", value, engines) == 1;
		break;
	case OPT_RING:
		options.ring = static_cast<Place>(choice("--ring", value, places));
		break;
	case OPT_DATA:
		options.data = static_cast<Place>(choice("--data", value, places));
		break;
	case OPT_SEED:
		options.seed = number("--seed", value, 0, UINT64_MAX);
		break;
	case 't':
		options.timeout = seconds(value);
		break;
	case OPT_CTAS:
		options.ctas = number32("--ctas", value, 1, 16);
		break;
	case OPT_WARPS:
		options.warps = number32("--warps", value, 1, 16);
		break;
	case 'n':
		options.messages = number32("--messages", value, 1, 1000000);
		break;
	case 's':
		options.size = number32("--size", value, 8, 1 << 20);
		if (options.size % 8)
			refuse("--size is %s, not a multiple of 8", value);
		break;
	case OPT_QPS:
		options.qps = number32("--qps", value, 1, MAX_QPS);
		break;
	case OPT_SLOTS:
		options.log_depth = static_cast<uint8_t>(number("--slots", value, 5, 15));
		break;
	case OPT_BATCH:
		options.batch = number32("--batch", value, 1, 1 << 14);
		if (options.batch & (options.batch - 1))
			refuse("--batch is %s, not a power of two", value);
		break;
	case OPT_START:
		options.start = number32("--start", value, 0, UINT32_MAX);
		break;
	case OPT_DBR:
		options.dbr_policy = static_cast<uint8_t>(choice("--dbr", value, policies));
		break;
	case OPT_TRANSPORT:
		options.transport = transport_codes[choice("--transport", value, transports)];
		break;
	case OPT_CQ:
		options.completion = static_cast<Completion>(choice("--cq", value, cqs));
		break;
	case OPT_ORDER:
		options.ring_twice = choice("--order", value, orders) == 1;
		break;
	case OPT_SUBMIT:
		options.proxy = choice("--submit", value, submitters) == 1;
		break;
	case OPT_HINTS:
		options.hints = choice("--hints", value, switches) == 0;
		break;
	case OPT_DEVICE:
		options.device = static_cast<Device>(choice("--device", value, devices));
		break;
	case OPT_DOORBELL:
		options.convention = static_cast<Convention>(choice("--doorbell", value, conventions));
		break;
	case OPT_MUTATION:
		mutation = mutation_named(value);
		break;
	case OPT_TOKENS:
		options.tokens = number32("--tokens", value, 1, 256);
		break;
	case OPT_EXPERTS:
		options.experts = number32("--experts", value, 1, 64);
		break;
	case OPT_TOPK:
		options.topk = number32("--topk", value, 1, 8);
		break;
	case OPT_HIDDEN:
		options.hidden = number32("--hidden", value, 128, 8192);
		if (options.hidden % 128)
			refuse("--hidden is %s, not a multiple of 128", value);
		break;
	case OPT_STEPS:
		options.steps = number32("--steps", value, 1, 100);
		break;
	case OPT_ROUTING:
		options.routing = static_cast<Routing>(choice("--routing", value, routings));
		break;
	case 'h':
		usage();
		exit(0);
	default:
		fputs("vrnic-simt: --help lists the options\n", stderr);
		exit(2);
	}
}

// What an mlx5-compatible NIC has no form for.
void check_mlx5(Options &options)
{
	if (options.completion == Completion::counter)
		refuse("--cq cannot be counter: mlx5 CQs have entries");
	if (options.transport != VRNIC_TRANSPORT_ROCE_RC)
		refuse("--transport: what carries an mlx5 connection is the lab's to choose (carry)");
	// The hint ring is a part of the vrnic contract.
	options.hints = false;
}

// What a CPU that submits does without.
void check_proxy(Options &options)
{
	if (options.device == Device::mlx5)
		refuse("--submit proxy is for --device vrnic");
	if (options.completion != Completion::collapsed)
		refuse("--submit proxy reads collapsed CQs: --cq collapsed");
	if (mutation != Mutation::none)
		refuse("--submit proxy makes no mistakes: no --mutation");
	// Hints tell what lanes do to rings; here lanes do nothing to them.
	options.hints = false;
}

} // namespace

void options_parse(int argc, char **argv, Options &options)
{
	int which;

	options.dbr_policy = VRNIC_DBR_RECOVERY;
	while ((which = getopt_long(argc, argv, "r:n:s:t:h", long_options, nullptr)) != -1)
		set(options, which, optarg);
	if (optind != argc - 1)
		refuse(optind == argc ? "which kernel?" : "one kernel at a time");
	options.kernel = argv[optind];
	if (options.proxy)
		check_proxy(options);
	if (options.device == Device::mlx5)
		check_mlx5(options);
	if (!options.role && options.harness < 0)
		refuse("--role a or --role b?");
}

} // namespace kernels
