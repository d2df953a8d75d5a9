/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vrnic-kernels. */
#ifndef KERNELS_OPTIONS_H
#define KERNELS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum placement { IN_VRAM, IN_HOST };

struct options {
	const char *kernel;
	char role;  /* 'a' or 'b' */
	enum placement ring;  /* rings, doorbell record, CQs */
	enum placement data;  /* payload, results, flags */
	bool proxy;  /* a CPU thread submits, for contrast */
	bool ring_cq;  /* a ring CQ instead of a collapsed one */
	uint32_t messages;
	size_t size;  /* bytes of a message */
	uint8_t log_slots;
	uint32_t start;  /* first running index */
	uint8_t gid_index;
	uint8_t mtu;  /* 1 to 5 */
	uint8_t dbr_policy;
	uint8_t transport;  /* enum vrnic_transport */
	uint64_t seed;
	double timeout;  /* seconds */
	const char *nic;
	const char *gpu;
};

/* Parse; on a mistake say what is wrong on standard error and leave with status 2. */
void options_parse(int argc, char **argv, struct options *options);

/* Whether the transport is one of datagrams, without connections. */
bool options_datagrams(const struct options *options);

#endif /* KERNELS_OPTIONS_H */
