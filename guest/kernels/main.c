// SPDX-License-Identifier: Apache-2.0
/* vrnic-kernels: GPU-style kernels that submit their own RDMA work. See --help. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "options.h"
#include "proxy.h"
#include "session.h"

#define AREA_MAX (256ul << 20)

const struct kernel kernels[] = {
	{ "put", "one lane: put, quiet; a puts, b looks", 8, 256, true, false, run_put },
	{ "pingpong", "both answer each other, payload and flag", 32, 64, false, false, run_pingpong },
	{ "atomics", "fetch-and-add and compare-and-swap, both ways", 32, 8, false, false, run_atomics },
	{ "bulk", "large writes in both directions", 1, 1 << 20, true, false, run_bulk },
	{ "read", "each reads the other's memory", 8, 4096, true, false, run_read },
	{ "send", "each sends into the other's receive elements", 8, 1500, true, false, run_send },
	{ "datagram", "to the peer, and with --transport roce-ud to a group", 8, 1000, true, true, run_datagram },
	{ NULL, NULL, 0, 0, false, false, NULL },
};

static const struct kernel *find(const char *name)
{
	for (const struct kernel *kernel = kernels; kernel->name; kernel++)
		if (!strcmp(kernel->name, name))
			return kernel;
	fprintf(stderr, "vrnic-kernels: no kernel is called %s (--help lists them)\n", name);
	exit(2);
}

static void print_report(const struct session *session, uint64_t cpu_touches)
{
	static const char *const places[] = { [IN_VRAM] = "vram", [IN_HOST] = "host" };
	const struct options *options = session->options;
	const struct report *report = &session->report;

	printf("{\"kernel\":\"%s\",\"role\":\"%c\",\"ok\":true,\"verified\":%s,\"path\":\"%s\",\"ring\":\"%s\","
	       "\"data\":\"%s\",\"messages\":%llu,\"bytes\":%llu,\"doorbells\":%llu,\"ioctls\":%llu,",
	       options->kernel, options->role, report->verified ? "true" : "false",
	       session->proxy ? "proxy" : "direct", places[options->ring], places[options->data],
	       (unsigned long long)report->messages, (unsigned long long)report->bytes,
	       (unsigned long long)session->qp.doorbell_stores, (unsigned long long)session->path_calls);
	if (session->path_watched)
		printf("\"syscalls\":%llu,", (unsigned long long)session->path_syscalls);
	if (report->latency_ns > 0)
		printf("\"latency_ns\":%.0f,", report->latency_ns);
	printf("\"cpu_touches\":%llu,\"seconds\":%.6f%s}\n", (unsigned long long)cpu_touches,
	       (double)session->path_ticks / (double)session->ticks_per_second, report->detail);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct session session;
	const struct kernel *kernel;
	struct options options;
	uint64_t touches = 0;
	size_t area;

	options_parse(argc, argv, &options);
	kernel = find(options.kernel);
	if (!options.messages)
		options.messages = kernel->messages;
	if (!options.size)
		options.size = kernel->size;
	if (kernel->datagrams != options_datagrams(&options)) {
		fprintf(stderr, "vrnic-kernels: %s needs %s\n", kernel->name,
			kernel->datagrams ? "--transport roce-ud or uet-uud" : "a transport with connections");
		return 2;
	}
	area = options.size + (kernel->datagrams ? DATAGRAM_HEADER : 0);
	if (kernel->apart)
		area *= options.messages;
	if (area > AREA_MAX) {
		fprintf(stderr, "vrnic-kernels: %u messages of %zu bytes are more than %lu MiB\n", options.messages,
			options.size, AREA_MAX >> 20);
		return 2;
	}
	/* A peer that is gone is an error of write(), not the end. */
	signal(SIGPIPE, SIG_IGN);
	session_open(&session, &options, area);
	kernel->run(&session);
	if (session.proxy)
		touches = __atomic_load_n(&session.proxy->touches, __ATOMIC_RELAXED);
	print_report(&session, touches);
	session_close(&session);
	return 0;
}
