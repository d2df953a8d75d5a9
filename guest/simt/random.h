// SPDX-License-Identifier: Apache-2.0
// A small seeded generator (splitmix64): the same seed gives the same run.
#ifndef SIMT_RANDOM_H
#define SIMT_RANDOM_H

#include <cstdint>

#include "scope.h"

namespace simt {

class Random {
public:
	SIMT_BOTH explicit Random(uint64_t seed) : state_(seed)
	{
	}

	SIMT_BOTH uint64_t next()
	{
		uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		return z ^ (z >> 31);
	}

	// A number below @limit, which is not 0.
	SIMT_BOTH uint32_t below(uint32_t limit)
	{
		return static_cast<uint32_t>((next() >> 32) * limit >> 32);
	}

private:
	uint64_t state_;
};

} // namespace simt

#endif // SIMT_RANDOM_H
