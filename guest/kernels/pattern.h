/* SPDX-License-Identifier: Apache-2.0 */
/* Payload that can be checked byte by byte. Free of library calls: kernels use it on the path. */
#ifndef KERNELS_PATTERN_H
#define KERNELS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* A stream's state: which payload (seed), whose (role) and the how many-th message it is. */
static inline uint64_t pattern_start(uint64_t seed, char role, uint64_t message)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + (uint8_t)role * 0xbf58476d1ce4e5b9ull +
			 message * 0x94d049bb133111ebull;

	/* xorshift stays at 0 for ever. */
	return state ? state : 1;
}

/* xorshift64 */
static inline uint64_t pattern_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void pattern_fill(volatile uint8_t *to, size_t size, uint64_t state)
{
	uint64_t word = 0;

	for (size_t i = 0; i < size; i++) {
		if (i % 8 == 0)
			word = pattern_next(&state);
		to[i] = (uint8_t)(word >> 8 * (i % 8));
	}
}

/* The offset of the first byte that differs, or @size. */
static inline size_t pattern_compare(const volatile uint8_t *at, size_t size, uint64_t state)
{
	uint64_t word = 0;

	for (size_t i = 0; i < size; i++) {
		if (i % 8 == 0)
			word = pattern_next(&state);
		if (at[i] != (uint8_t)(word >> 8 * (i % 8)))
			return i;
	}
	return size;
}

#endif /* KERNELS_PATTERN_H */
