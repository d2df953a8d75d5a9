// SPDX-License-Identifier: Apache-2.0
// Writes hints.
#include "hints.h"

#include <cstring>

#include <endian.h>

namespace kernels {

namespace {

constexpr uint8_t LOG_SIZE = 10;
constexpr uint32_t SIZE = 1u << LOG_SIZE;
// Seconds to wait for the NIC when the ring is full; what it has not taken by then is written over.
constexpr uint64_t PATIENCE = 5;

} // namespace

bool Hints::open()
{
	size_t size = VRNIC_HINT_HEADER_SIZE + static_cast<size_t>(VRNIC_HINT_SIZE) * SIZE;
	Region region = {};

	if (!machine_.has_hints())
		return true;
	if (!machine_.make_region(size, Place::host, VRNIC_ACCESS_LOCAL_WRITE, region))
		return false;
	memset(region.map, 0, size);
	if (!machine_.set_hints(region, LOG_SIZE))
		return false;
	ring_ = region;
	return true;
}

void Hints::write(struct vrnic_hint hint)
{
	auto *header = reinterpret_cast<struct vrnic_hint_header *>(ring_.map);
	auto *entries = reinterpret_cast<struct vrnic_hint *>(ring_.map + VRNIC_HINT_HEADER_SIZE);
	uint64_t start = machine_.clock();

	if (!on())
		return;
	while (producer_ - le32toh(__atomic_load_n(&header->consumer, __ATOMIC_ACQUIRE)) >= SIZE) {
		if (machine_.clock() == start)
			ring();
		if (machine_.clock() - start > PATIENCE * machine_.ticks_per_second)
			break;
		machine_.idle();
	}
	hint.sequence = htole32(producer_);
	entries[producer_++ & (SIZE - 1)] = hint;
	__atomic_store_n(&header->producer, htole32(producer_), __ATOMIC_RELEASE);
}

void Hints::spoil(simt::Random &random)
{
	auto *header = reinterpret_cast<struct vrnic_hint_header *>(ring_.map);

	if (!on())
		return;
	for (uint32_t i = 0; i < 8; i++)
		reinterpret_cast<uint64_t *>(ring_.map + VRNIC_HINT_HEADER_SIZE)[random.below(SIZE * 8)] =
			random.next() >> random.below(64);
	producer_ += random.below(8) ? random.below(16) : static_cast<uint32_t>(random.next());
	__atomic_store_n(&header->producer, htole32(producer_), __ATOMIC_RELEASE);
	ring();
}

void Hints::ring()
{
	auto *header = reinterpret_cast<struct vrnic_hint_header *>(ring_.map);

	if (!on() || producer_ == le32toh(__atomic_load_n(&header->consumer, __ATOMIC_ACQUIRE)))
		return;
	// The entries may be in a write-combining buffer.
	__sync_synchronize();
	machine_.doorbell(machine_.doorbells() + VRNIC_DB_HINTS / 8,
			  htole64(vrnic_doorbell(static_cast<vrnic_doorbell_type>(VRNIC_DB_TYPE_HINTS), 0, producer_)), 8);
}

} // namespace kernels
