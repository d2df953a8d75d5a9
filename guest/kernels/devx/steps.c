// SPDX-License-Identifier: Apache-2.0
/* What is done directly, and how it is checked. */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "steps.h"

#define LAPS 1000  /* inline writes: several times round the ring */
#define ADDS 10
#define AT(field) offsetof(struct heap, field)

__attribute__((format(printf, 2, 3))) static int wrong(struct setting *setting, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(setting->error, sizeof(setting->error), format, arguments);
	va_end(arguments);
	return -1;
}

static int failed(struct setting *setting, const struct direct *queue)
{
	return wrong(setting, "%s", queue->error);
}

static uint8_t pattern(uint64_t seed, uint32_t message, uint32_t byte)
{
	uint64_t value = seed * 0x9e3779b97f4a7c15ull + message * 0xbf58476d1ce4e5b9ull + byte * 0x94d049bb133111ebull;

	return (uint8_t)(value >> 32 ^ value >> 56);
}

static void put_remote(const struct setting *setting, uint32_t *segment, uint64_t at)
{
	mlx5_put_remote(segment, setting->peer_address + at, setting->peer_key);
}

static void put_local(const struct setting *setting, uint32_t *segment, uint64_t at, uint32_t length)
{
	mlx5_put_data(segment, length, setting->key, setting->address + at);
}

/* Messages of many bytes, one completion for all. */
static int write_messages(struct setting *setting)
{
	for (uint32_t message = 0; message < MESSAGES; message++) {
		uint32_t segments[2 * MLX5_UNIT_WORDS];

		for (uint32_t byte = 0; byte < MESSAGE_BYTES; byte++)
			setting->heap->outbox[message][byte] = pattern(setting->seed, message, byte);
		put_remote(setting, segments, AT(inbox) + message * MESSAGE_BYTES);
		put_local(setting, segments + MLX5_UNIT_WORDS, AT(outbox) + message * MESSAGE_BYTES, MESSAGE_BYTES);
		if (direct_post(&setting->data, 0, MLX5_WQE_WRITE, segments, 3,
				message == MESSAGES - 1 ? MLX5_WQE_CQE : 0))
			return failed(setting, &setting->data);
	}
	return direct_quiet(&setting->data) ? failed(setting, &setting->data) : 0;
}

static int compare(struct setting *setting, const volatile uint8_t (*found)[MESSAGE_BYTES], uint64_t seed,
		   const char *what)
{
	for (uint32_t message = 0; message < MESSAGES; message++)
		for (uint32_t byte = 0; byte < MESSAGE_BYTES; byte++)
			if (found[message][byte] != pattern(seed, message, byte))
				return wrong(setting, "%s: byte %u of message %u is %#x, not %#x", what, byte, message,
					     found[message][byte], pattern(seed, message, byte));
	return 0;
}

static int check_messages(struct setting *setting)
{
	return compare(setting, setting->heap->inbox, setting->peer_seed, "what the peer wrote");
}

/* Fetch what the peer computed; the fenced DUMP comes behind the data. */
static int read_messages(struct setting *setting)
{
	uint32_t segments[2 * MLX5_UNIT_WORDS];

	for (uint32_t message = 0; message < MESSAGES; message++) {
		put_remote(setting, segments, AT(outbox) + message * MESSAGE_BYTES);
		put_local(setting, segments + MLX5_UNIT_WORDS, AT(fetched) + message * MESSAGE_BYTES, MESSAGE_BYTES);
		if (direct_post(&setting->data, 0, MLX5_WQE_READ, segments, 3, 0))
			return failed(setting, &setting->data);
	}
	put_local(setting, segments, AT(fetched), 1);
	if (direct_post(&setting->data, 0, MLX5_WQE_DUMP, segments, 2, MLX5_WQE_CQE | MLX5_WQE_FENCE) ||
	    direct_quiet(&setting->data))
		return failed(setting, &setting->data);
	return compare(setting, (const volatile uint8_t(*)[MESSAGE_BYTES])setting->heap->fetched, setting->peer_seed,
		       "what was read");
}

static int write_inline(struct setting *setting)
{
	uint64_t value = setting->seed;
	uint32_t segments[2 * MLX5_UNIT_WORDS];

	put_remote(setting, segments, AT(word));
	mlx5_put_inline(segments + MLX5_UNIT_WORDS, &value, sizeof(value));
	if (direct_post(&setting->data, 0, MLX5_WQE_WRITE, segments, 3, MLX5_WQE_CQE) || direct_quiet(&setting->data))
		return failed(setting, &setting->data);
	return 0;
}

static int check_inline(struct setting *setting)
{
	return setting->heap->word == setting->peer_seed ?
		       0 :
		       wrong(setting, "the inline word is %#" PRIx64, setting->heap->word);
}

/* One atomic with its old value, as a host integer of @size bytes. */
static int fetch(struct setting *setting, uint8_t modifier, uint8_t opcode, uint32_t *segments, uint32_t units,
		 uint64_t target, uint32_t size, uint64_t *old)
{
	put_remote(setting, segments, target);
	put_local(setting, segments + (units - 2) * MLX5_UNIT_WORDS, AT(old), size);
	if (direct_post(&setting->data, modifier, opcode, segments, units, MLX5_WQE_CQE) || direct_quiet(&setting->data))
		return failed(setting, &setting->data);
	*old = size == 4 ? (uint32_t)setting->heap->old : setting->heap->old;
	return 0;
}

static int expect(struct setting *setting, const char *what, uint64_t found, uint64_t wanted)
{
	return found == wanted ? 0 : wrong(setting, "%s gave %#" PRIx64 ", not %#" PRIx64, what, found, wanted);
}

static int atomics(struct setting *setting)
{
	uint32_t segments[4 * MLX5_UNIT_WORDS];
	uint64_t old;

	for (uint32_t i = 0; i < ADDS; i++) {
		mlx5_put_atomic(segments + MLX5_UNIT_WORDS, 3, 0);
		if (fetch(setting, 0, MLX5_WQE_FA, segments, 4, AT(counter), 8, &old) ||
		    expect(setting, "fetch-and-add", old, 3ull * i))
			return -1;
	}
	mlx5_put_atomic(segments + MLX5_UNIT_WORDS, 0xabcdef, 1);
	if (fetch(setting, 0, MLX5_WQE_CAS, segments, 4, AT(swapped), 8, &old) ||
	    expect(setting, "a compare-and-swap that must fail", old, 0))
		return -1;
	mlx5_put_atomic(segments + MLX5_UNIT_WORDS, 0xabcdef, 0);
	return fetch(setting, 0, MLX5_WQE_CAS, segments, 4, AT(swapped), 8, &old) ||
	       expect(setting, "compare-and-swap", old, 0);
}

static int check_atomics(struct setting *setting)
{
	return expect(setting, "the peer's adds", setting->heap->counter, 3ull * ADDS) ||
	       expect(setting, "the peer's swap", setting->heap->swapped, 0xabcdef);
}

/* On 4 bytes, and with masks; 16 tokens are announced as -17, as mixture-of-experts kernels do. */
static int masked_atomics(struct setting *setting)
{
	uint32_t segments[5 * MLX5_UNIT_WORDS];
	uint64_t old;

	mlx5_put_masked_fa4(segments + MLX5_UNIT_WORDS, (uint32_t)-17, 0);
	if (fetch(setting, MLX5_ATOMIC_4, MLX5_WQE_MASKED_FA, segments, 4, AT(counter4), 4, &old) ||
	    expect(setting, "fetch-and-add on 4 bytes", old, 0))
		return -1;
	mlx5_put_masked_cas4(segments + MLX5_UNIT_WORDS, 77, 0, UINT32_MAX, UINT32_MAX);
	if (fetch(setting, MLX5_ATOMIC_4, MLX5_WQE_MASKED_CAS, segments, 4, AT(swapped4), 4, &old) ||
	    expect(setting, "compare-and-swap on 4 bytes", old, 0))
		return -1;
	/* Two blocks; sets the low half whatever the word is. */
	mlx5_put_masked_cas8(segments + MLX5_UNIT_WORDS, 0x1111222233334444, 0, 0xffffffff, 0);
	return fetch(setting, MLX5_ATOMIC_8, MLX5_WQE_MASKED_CAS, segments, 5, AT(masked), 8, &old) ||
	       expect(setting, "masked compare-and-swap", old, 0);
}

static int check_masked_atomics(struct setting *setting)
{
	return expect(setting, "the peer's add on 4 bytes", setting->heap->counter4, (uint32_t)-17) ||
	       expect(setting, "the peer's swap on 4 bytes", setting->heap->swapped4, 77) ||
	       expect(setting, "the peer's masked swap", setting->heap->masked, 0x33334444);
}

/* Round and round the ring, with a completion now and then. */
static int laps(struct setting *setting)
{
	for (uint64_t lap = 1; lap <= LAPS; lap++) {
		uint32_t segments[2 * MLX5_UNIT_WORDS];

		put_remote(setting, segments, AT(laps));
		mlx5_put_inline(segments + MLX5_UNIT_WORDS, &lap, sizeof(lap));
		if (direct_post(&setting->data, 0, MLX5_WQE_WRITE, segments, 3, lap % 8 ? 0 : MLX5_WQE_CQE))
			return failed(setting, &setting->data);
		if (lap % 8 == 0)
			direct_ring(&setting->data);
	}
	return direct_quiet(&setting->data) ? failed(setting, &setting->data) : 0;
}

static int check_laps(struct setting *setting)
{
	return expect(setting, "the last of the peer's inline writes", setting->heap->laps, LAPS);
}

/*
 * A second queue pair waits in the NIC for the first one's completion, then writes. It is rung before there
 * is anything to wait for.
 */
static int companion(struct setting *setting)
{
	uint32_t segments[2 * MLX5_UNIT_WORDS];
	uint64_t value = 1;
	/* Every block that was complete so far and asked for a CQE counts; only a fresh CQ makes that easy. */
	uint32_t number = 0;

	mlx5_put_wait(segments, number, setting->data_cqn);
	if (direct_post(&setting->companion, 0, MLX5_WQE_WAIT, segments, 2, 0))
		return failed(setting, &setting->companion);
	put_remote(setting, segments, AT(flag));
	mlx5_put_inline(segments + MLX5_UNIT_WORDS, &value, sizeof(value));
	if (direct_post(&setting->companion, 0, MLX5_WQE_WRITE, segments, 3, MLX5_WQE_CQE))
		return failed(setting, &setting->companion);
	direct_ring(&setting->companion);
	/* The data queue's first completion. */
	if (direct_post(&setting->data, 0, MLX5_WQE_NOP, NULL, 1, MLX5_WQE_CQE) || direct_quiet(&setting->data))
		return failed(setting, &setting->data);
	return direct_quiet(&setting->companion) ? failed(setting, &setting->companion) : 0;
}

static int check_companion(struct setting *setting)
{
	return expect(setting, "the flag behind the WAIT", setting->heap->flag, 1);
}

static int nothing(struct setting *setting)
{
	(void)setting;
	return 0;
}

const struct step steps[] = {
	{ "wait", companion, check_companion },
	{ "write", write_messages, check_messages },
	{ "inline", write_inline, check_inline },
	{ "read", read_messages, nothing },
	{ "atomics", atomics, check_atomics },
	{ "masked-atomics", masked_atomics, check_masked_atomics },
	{ "laps", laps, check_laps },
	{ NULL, NULL, NULL },
};

int refused_write(struct setting *setting, char *sentence, size_t size)
{
	uint32_t segments[2 * MLX5_UNIT_WORDS];

	mlx5_put_remote(segments, setting->peer_address, setting->peer_key ^ 0xffff00);
	put_local(setting, segments + MLX5_UNIT_WORDS, AT(outbox), 8);
	if (direct_post(&setting->data, 0, MLX5_WQE_WRITE, segments, 3, MLX5_WQE_CQE))
		return failed(setting, &setting->data);
	if (!direct_quiet(&setting->data))
		return wrong(setting, "a WRITE with a wrong key was carried out");
	snprintf(sentence, size, "%s", setting->data.error);
	return 0;
}
