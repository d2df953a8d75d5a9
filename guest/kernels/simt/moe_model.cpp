// SPDX-License-Identifier: Apache-2.0
// Routing and arithmetic of the mixture of experts.
#include "moe_model.h"

#include <cstring>

namespace kernels::moe {

SIMT_BOTH uint32_t route(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t k)
{
	uint32_t first = static_cast<uint32_t>(pattern(options.seed, pe, token, 7000 + step) >> 33);

	switch (options.routing) {
	case Routing::hot:
		return k ? 1 + (first + k) % (options.experts - 1) : 0;
	case Routing::idle:
		return (first + k) % (options.experts - 1);
	default:
		return (first + k) % options.experts;
	}
}

SIMT_BOTH uint32_t tokens_for(const Options &options, uint32_t step, uint32_t pe, uint32_t expert)
{
	uint32_t count = 0;

	for (uint32_t token = 0; token < options.tokens; token++)
		for (uint32_t k = 0; k < options.topk; k++)
			count += route(options, step, pe, token, k) == expert;
	return count;
}

SIMT_BOTH uint64_t element_word(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t word)
{
	return pattern(options.seed, pe, token, step * 0x10000ull + word);
}

SIMT_BOTH float scale_of(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t group)
{
	return 1.0f / static_cast<float>(1u << pattern(options.seed, pe, token, 0x8000000 + step * 0x1000 + group) % 4);
}

SIMT_BOTH float element(uint64_t word, uint32_t byte, float scale)
{
	return static_cast<float>(static_cast<int8_t>(word >> 8 * byte)) * scale;
}

SIMT_BOTH uint16_t to_bfloat16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

SIMT_BOTH float from_bfloat16(uint16_t value)
{
	uint32_t bits = static_cast<uint32_t>(value) << 16;
	float result;

	memcpy(&result, &bits, sizeof(result));
	return result;
}

SIMT_BOTH float weight(uint32_t k)
{
	return 1.0f / static_cast<float>(1u << k);
}

} // namespace kernels::moe
