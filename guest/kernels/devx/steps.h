/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of vrnic-devx: each does one kind of work on the peer's memory and checks what came back. */
#ifndef DEVX_STEPS_H
#define DEVX_STEPS_H

#include "direct.h"

#define MESSAGES 64
#define MESSAGE_BYTES 512

/* The heap, which is the same on both sides. */
struct heap {
	uint8_t outbox[MESSAGES][MESSAGE_BYTES];
	uint8_t inbox[MESSAGES][MESSAGE_BYTES];
	uint8_t fetched[MESSAGES][MESSAGE_BYTES];
	uint64_t sink;  /* results that nobody reads */
	uint64_t old;  /* result of an atomic */
	uint64_t word;  /* target of inline writes */
	uint64_t counter, swapped, masked;  /* targets of atomics on 8 bytes */
	uint32_t counter4, swapped4;  /* on 4 bytes */
	uint64_t laps;  /* what the last of many inline writes left */
	uint64_t flag;  /* written once the data queue's CQE is there */
};

struct setting {
	struct direct data, companion;
	uint32_t data_cqn;
	volatile struct heap *heap;
	uint64_t address;  /* of the heap, for the key */
	uint32_t key;
	uint64_t peer_address;
	uint32_t peer_key;
	uint64_t seed;  /* what payload is drawn from: the own side's, and the peer's */
	uint64_t peer_seed;
	char error[384];
};

struct step {
	const char *name;
	/* With the peer's memory as it was at first; system calls are off. 0, or -1 with a sentence. */
	int (*run)(struct setting *setting);
	/* After the peer did the same: what is in the own heap. */
	int (*check)(struct setting *setting);
};

/* In the order they run; the last has no name. */
extern const struct step steps[];

/* A WRITE that the peer refuses: 0 when its completion said so, in @sentence. The queue pair is in error then. */
int refused_write(struct setting *setting, char *sentence, size_t size);

#endif /* DEVX_STEPS_H */
