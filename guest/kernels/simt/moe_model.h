// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: where everything lies in the heap, who chooses which expert, and the arithmetic.
#ifndef KERNELS_SIMT_MOE_MODEL_H
#define KERNELS_SIMT_MOE_MODEL_H

#include "kernel.h"

namespace kernels::moe {

constexpr uint32_t SCALED = 128;  // elements with one scale
constexpr uint32_t HEADER = 16;

// Offsets in the kernel's part of the heap.
struct Layout {
	uint32_t ranks, local, tokens, hidden, experts;
	uint64_t message, result;  // bytes
	// of a set
	uint64_t counts, flags, received, combined, staging, results, set;
	// behind both sets
	uint64_t slots, issued, cleared, barrier, output, end;

	SIMT_BOTH Layout(const Options &options, uint32_t pes)
		: ranks(pes), local(options.experts / pes), tokens(options.tokens), hidden(options.hidden),
		  experts(options.experts), message((HEADER + hidden + hidden / SCALED * 4 + 15) & ~15ull),
		  result(2ull * hidden)
	{
		uint64_t at = 0;
		auto take = [&](uint64_t size) {
			uint64_t start = at;

			at += (size + 63) & ~63ull;
			return start;
		};

		counts = take(8ull * local * ranks);
		flags = take(8ull * experts);
		received = take(message * local * ranks * tokens);
		combined = take(result * experts * tokens);
		staging = take(message * tokens);
		results = take(result * local * ranks * tokens);
		set = at;
		at *= 2;
		slots = take(8ull * experts * options.steps);
		issued = take(8ull * experts * options.steps);
		cleared = take(8ull * options.steps);
		barrier = take(8);
		output = take(4ull * hidden * tokens * options.steps);
		end = at;
	}

	// The count of tokens that rank @from sent to local expert @expert; its messages; their results.
	SIMT_BOTH uint64_t count(uint32_t parity, uint32_t expert, uint32_t from) const
	{
		return parity * set + counts + 8 * (expert * ranks + from);
	}
	SIMT_BOTH uint64_t flag(uint32_t parity, uint32_t expert) const
	{
		return parity * set + flags + 8 * expert;
	}
	SIMT_BOTH uint64_t arrival(uint32_t parity, uint32_t expert, uint32_t from, uint64_t slot) const
	{
		return parity * set + received + ((expert * ranks + from) * tokens + slot) * message;
	}
	SIMT_BOTH uint64_t outcome(uint32_t parity, uint32_t expert, uint32_t from, uint64_t slot) const
	{
		return parity * set + results + ((expert * ranks + from) * tokens + slot) * result;
	}
	SIMT_BOTH uint64_t reply(uint32_t parity, uint32_t expert, uint64_t token) const
	{
		return parity * set + combined + (expert * tokens + token) * result;
	}
	SIMT_BOTH uint64_t stage(uint32_t parity, uint64_t token) const
	{
		return parity * set + staging + token * message;
	}
};

// Which expert token @token of rank @pe chooses as its @k-th.
SIMT_BOTH uint32_t route(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t k);

// How many tokens rank @pe has for @expert.
SIMT_BOTH uint32_t tokens_for(const Options &options, uint32_t step, uint32_t pe, uint32_t expert);

// Eight elements of a token, and the scale of its @group-th 128.
SIMT_BOTH uint64_t element_word(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t word);
SIMT_BOTH float scale_of(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t group);

// Element @byte of a word.
SIMT_BOTH float element(uint64_t word, uint32_t byte, float scale);

// Rounds to nearest even.
SIMT_BOTH uint16_t to_bfloat16(float value);
SIMT_BOTH float from_bfloat16(uint16_t value);

// Of the result of a token's @k-th expert.
SIMT_BOTH float weight(uint32_t k);

} // namespace kernels::moe

#endif // KERNELS_SIMT_MOE_MODEL_H
