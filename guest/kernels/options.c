// SPDX-License-Identifier: Apache-2.0
/* The command line of vrnic-kernels. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "options.h"
#include "vrnic_contract.h"

enum {
	OPT_RING = 256, OPT_DATA, OPT_CQ, OPT_SLOTS, OPT_START, OPT_GID, OPT_MTU, OPT_DBR, OPT_SEED, OPT_NIC,
	OPT_GPU, OPT_TRANSPORT,
};

static const struct option long_options[] = {
	{ "role", required_argument, NULL, 'r' },
	{ "proxy", no_argument, NULL, 'p' },
	{ "messages", required_argument, NULL, 'n' },
	{ "size", required_argument, NULL, 's' },
	{ "timeout", required_argument, NULL, 't' },
	{ "ring", required_argument, NULL, OPT_RING },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "cq", required_argument, NULL, OPT_CQ },
	{ "slots", required_argument, NULL, OPT_SLOTS },
	{ "start", required_argument, NULL, OPT_START },
	{ "gid", required_argument, NULL, OPT_GID },
	{ "mtu", required_argument, NULL, OPT_MTU },
	{ "dbr", required_argument, NULL, OPT_DBR },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "nic", required_argument, NULL, OPT_NIC },
	{ "gpu", required_argument, NULL, OPT_GPU },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void usage(FILE *to)
{
	fprintf(to,
		"vrnic-kernels KERNEL --role a|b [option]...\n"
		"\n"
		"Runs a GPU-style kernel against the same program on a peer. It prints ENDPOINT and SYNC\n"
		"lines for the peer, reads the peer's as PEER and SYNC lines, and prints one JSON line.\n"
		"\n");
	for (const struct kernel *kernel = kernels; kernel->name; kernel++)
		fprintf(to, "  %-10s %s\n", kernel->name, kernel->summary);
	fprintf(to,
		"\n"
		"  -r, --role a|b      which end this is\n"
		"  -p, --proxy         the kernel hands its commands to a CPU thread, which submits them\n"
		"  -n, --messages N    messages (default: the kernel's)\n"
		"  -s, --size BYTES    bytes of a message (default: the kernel's)\n"
		"  -t, --timeout S     seconds to wait for anything (default 20)\n"
		"      --ring WHERE    rings, doorbell record and CQs: vram (default) or host\n"
		"      --data WHERE    payload: vram (default) or host\n"
		"      --cq MODE       collapsed (default) or ring\n"
		"      --slots N       log2 of the ring's slots, 2..15 (default 6)\n"
		"      --start INDEX   first running index (default 0)\n"
		"      --gid N         index of the GID to use (default 1, IPv4)\n"
		"      --mtu BYTES     path MTU: 256, 512, 1024 (default), 2048 or 4096\n"
		"      --dbr POLICY    doorbell record: none, recovery (default), authoritative or strict\n"
		"      --transport T   of the queue pair: roce-rc (default), roce-ud, uet-rod, uet-rud, uet-rudi,\n"
		"                      or uet-uud\n"
		"      --seed N        of the payload's pattern (default 1)\n"
		"      --nic, --gpu    device files (default /dev/vrnic0, /dev/vgpu0)\n");
}

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
	va_list arguments;

	fputs("vrnic-kernels: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs(" (--help lists the options)\n", stderr);
	exit(2);
}

static uint64_t number(const char *what, const char *text, uint64_t low, uint64_t high)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-' || value < low || value > high)
		refuse("%s is %s, not a number in %llu..%llu", what, text, (unsigned long long)low,
		       (unsigned long long)high);
	return value;
}

static int choice(const char *what, const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(text, words[i]))
			return i;
	refuse("%s cannot be %s", what, text);
}

static double seconds(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0 && value <= 3600))
		refuse("--timeout is %s, not a number of seconds up to 3600", text);
	return value;
}

static void set(struct options *options, int option, const char *value)
{
	static const char *const roles[] = { "a", "b", NULL };
	static const char *const places[] = { "vram", "host", NULL };
	static const char *const cq_modes[] = { "collapsed", "ring", NULL };
	static const char *const mtus[] = { "256", "512", "1024", "2048", "4096", NULL };
	static const char *const policies[] = {
		[VRNIC_DBR_NONE] = "none",
		[VRNIC_DBR_RECOVERY] = "recovery",
		[VRNIC_DBR_AUTHORITATIVE] = "authoritative",
		[VRNIC_DBR_STRICT] = "strict",
		NULL,
	};
	static const char *const transports[] = {
		"roce-rc", "roce-ud", "uet-rod", "uet-rud", "uet-rudi", "uet-uud", NULL
	};
	static const uint8_t codes[] = {
		VRNIC_TRANSPORT_ROCE_RC, VRNIC_TRANSPORT_ROCE_UD, VRNIC_TRANSPORT_UET_ROD,
		VRNIC_TRANSPORT_UET_RUD, VRNIC_TRANSPORT_UET_RUDI, VRNIC_TRANSPORT_UET_UUD,
	};

	switch (option) {
	case 'r':
		options->role = "ab"[choice("--role", value, roles)];
		break;
	case 'p':
		options->proxy = true;
		break;
	case 'n':
		options->messages = (uint32_t)number("--messages", value, 1, 1000000);
		break;
	case 's':
		options->size = number("--size", value, 8, 16 << 20);
		break;
	case 't':
		options->timeout = seconds(value);
		break;
	case OPT_RING:
		options->ring = (enum placement)choice("--ring", value, places);
		break;
	case OPT_DATA:
		options->data = (enum placement)choice("--data", value, places);
		break;
	case OPT_CQ:
		options->ring_cq = choice("--cq", value, cq_modes) == 1;
		break;
	case OPT_SLOTS:
		options->log_slots = (uint8_t)number("--slots", value, 2, 15);
		break;
	case OPT_START:
		options->start = (uint32_t)number("--start", value, 0, UINT32_MAX);
		break;
	case OPT_GID:
		options->gid_index = (uint8_t)number("--gid", value, 0, VRNIC_GID_TABLE_SIZE - 1);
		break;
	case OPT_MTU:
		options->mtu = (uint8_t)(choice("--mtu", value, mtus) + 1);
		break;
	case OPT_DBR:
		options->dbr_policy = (uint8_t)choice("--dbr", value, policies);
		break;
	case OPT_TRANSPORT:
		options->transport = codes[choice("--transport", value, transports)];
		break;
	case OPT_SEED:
		options->seed = number("--seed", value, 0, UINT64_MAX);
		break;
	case OPT_NIC:
		options->nic = value;
		break;
	case OPT_GPU:
		options->gpu = value;
		break;
	case 'h':
		usage(stdout);
		exit(0);
	default:
		fputs("vrnic-kernels: --help lists the options\n", stderr);
		exit(2);
	}
}

void options_parse(int argc, char **argv, struct options *options)
{
	int option;

	*options = (struct options){
		.log_slots = 6,
		.gid_index = 1,
		.mtu = 3,
		.dbr_policy = VRNIC_DBR_RECOVERY,
		.transport = VRNIC_TRANSPORT_ROCE_RC,
		.seed = 1,
		.timeout = 20,
	};
	while ((option = getopt_long(argc, argv, "r:pn:s:t:h", long_options, NULL)) != -1)
		set(options, option, optarg);
	if (optind != argc - 1)
		refuse(optind == argc ? "which kernel?" : "one kernel at a time");
	options->kernel = argv[optind];
	if (!options->role)
		refuse("--role a or --role b?");
}

bool options_datagrams(const struct options *options)
{
	return options->transport == VRNIC_TRANSPORT_ROCE_UD || options->transport == VRNIC_TRANSPORT_UET_UUD;
}
