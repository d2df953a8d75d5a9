// SPDX-License-Identifier: Apache-2.0
/*
 * mlx5-verbs: what an mlx5-compatible NIC must do beyond moving messages, by the distribution's libibverbs and
 * libmlx5, between two queue pairs of one device. See --help.
 */
#include <stdio.h>
#include <string.h>

#include "verbs.h"

static const struct {
	const char *name;
	int (*run)(struct world *world);
	const char *what;
} cases[] = {
	{ "window-type1", case_window_type1, "bind and unbind a memory window of type 1" },
	{ "window-type2", case_window_type2, "bind one of type 2, invalidate it, bind it anew" },
	{ "invalidate-remote", case_invalidate_remote, "a peer invalidates a window" },
	{ "key-list", case_key_list, "a key over pieces of another" },
	{ "key-interleaved", case_key_interleaved, "a key over pieces that come over and over" },
	{ "reregister", case_reregister, "change a region's rights in place" },
	{ "resize", case_resize, "change a CQ's size while completions are in it" },
	{ "group", case_group, "join a multicast group, and get a datagram" },
	{ "event-queue-pair", case_event_queue_pair, "hear of a request that was refused" },
	{ "event-shared-receive", case_event_shared_receive, "hear of a shared receive queue that runs low" },
	{ "event-overrun", case_event_overrun, "hear of a CQ that overran" },
	{ "dmabuf", case_dmabuf, "register video memory (needs a vGPU)" },
};

#define CASES (sizeof(cases) / sizeof(*cases))

static void usage(void)
{
	puts("mlx5-verbs [CASE]...\n"
	     "\n"
	     "Runs the cases, all but dmabuf when none is named, and prints `ok CASE` or `fail CASE` for each; a line\n"
	     "that begins with # says what was wrong. The exit status is the number of failures.\n");
	for (unsigned int at = 0; at < CASES; at++)
		printf("  %-22s %s\n", cases[at].name, cases[at].what);
}

static int run(unsigned int at)
{
	struct world world;
	int ret;

	/* Each case has objects of its own: several end in an error that is wanted. */
	if (world_open(&world))
		return 1;
	ret = world_connect(&world);
	if (!ret)
		ret = cases[at].run(&world);
	printf("%s %s\n", ret ? "fail" : "ok", cases[at].name);
	fflush(stdout);
	world_disconnect(&world);
	world_close(&world);
	return ret != 0;
}

int main(int argc, char **argv)
{
	int failures = 0;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		usage();
		return 0;
	}
	for (int word = 1; word < argc; word++) {
		unsigned int at = 0;

		while (at < CASES && strcmp(cases[at].name, argv[word]))
			at++;
		if (at == CASES) {
			fprintf(stderr, "mlx5-verbs: there is no case %s (--help lists them)\n", argv[word]);
			return 2;
		}
		failures += run(at);
	}
	for (unsigned int at = 0; argc == 1 && at < CASES; at++)
		if (cases[at].run != case_dmabuf)
			failures += run(at);
	return failures;
}
