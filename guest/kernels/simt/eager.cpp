// SPDX-License-Identifier: Apache-2.0
// Eager messages: no signal, no atomic. Each tile of a message ends in a tag of the step, and the receiver
// takes a tile once its tag is there. Right only where the end of a tile never becomes visible before
// the rest of it. Two buffers take turns, so that a tag of two steps ago is never the one waited for.
#include "kernel.h"

namespace kernels {

namespace {

constexpr uint32_t TILE = 64;  // bytes, the last 8 of them the tag
constexpr uint32_t STEPS = 4;

// Heap: outboxes of both parities, inboxes of both.
SIMT_BOTH uint64_t box(const Job &job, bool inbox, uint32_t step, uint64_t message)
{
	uint64_t which = (inbox ? 2 : 0) + step % 2;

	return (which * job.options.messages + message) * job.options.size;
}

SIMT_BOTH uint64_t tag_of(uint32_t step, uint64_t message, uint32_t tile)
{
	return static_cast<uint64_t>(step + 1) << 48 | message << 16 | tile;
}

SIMT_DEVICE void send(Job &job, uint32_t step, uint64_t message)
{
	uint32_t tiles = job.options.size / TILE;
	uint64_t from = box(job, false, step, message);
	auto *words = job.at<uint64_t>(from);

	for (uint32_t tile = 0; tile < tiles; tile++, words += TILE / 8) {
		for (uint32_t word = 0; word < TILE / 8 - 1; word++)
			simt::st(words + word, pattern(job.options.seed + step, job.shmem.pe, message, tile * 8 + word));
		simt::st(words + TILE / 8 - 1, tag_of(step, message, tile));
	}
	job.shmem.put(job.next_pe(), message % job.shmem.qps, job.base + box(job, true, step, message), job.base + from,
		      job.options.size);
}

SIMT_DEVICE void receive(Job &job, uint32_t step, uint64_t message)
{
	uint32_t tiles = job.options.size / TILE;
	uint64_t at = box(job, true, step, message);

	for (uint32_t tile = 0; tile < tiles; tile++, at += TILE) {
		job.shmem.wait_until(
			job.base + at + TILE - 8, [](uint64_t value, uint64_t tag) { return value == tag; },
			tag_of(step, message, tile));
		for (uint32_t word = 0; word < TILE / 8 - 1; word++)
			if (simt::ld(job.at<uint64_t>(at) + word, simt::Order::acquire, simt::Scope::sys) !=
			    pattern(job.options.seed + step, job.previous_pe(), message, tile * 8 + word)) {
				simt::report("C24", job.at<uint64_t>(at) + word, job.at<uint64_t>(at) + TILE / 8 - 1,
					     "the tag of tile %u of message %llu is here, word %u of the tile is not", tile,
					     static_cast<simt::Word>(message), word);
				simt::fail("a tag came before its tile");
			}
	}
}

SIMT_DEVICE void lane(Job &job)
{
	for (uint32_t step = 0; step < STEPS; step++) {
		for (uint64_t message = simt::thread_id(); message < job.options.messages; message += simt::threads())
			send(job, step, message);
		for (uint64_t message = simt::thread_id(); message < job.options.messages; message += simt::threads())
			receive(job, step, message);
		// Outboxes are written again two steps on, and what the peer sent back shows that it took them; their
		// completions must have been seen all the same.
		job.shmem.quiet_all();
	}
}

std::string defaults(Options &options, uint32_t pes)
{
	// Who answers must be who sends: that a lane of the peer goes on shows that its tiles were taken.
	if (pes != 2)
		return "eager is between two ranks";
	preset(options.size, 4 * TILE);
	if (options.size % TILE)
		return "--size is not a multiple of a tile's 64 bytes";
	return common_defaults(options, 64, 2, 1);
}

} // namespace

SIMT_LAUNCHABLE(eager_grid, lane)

const Kernel eager_kernel = {
	"eager",
	"tiles with tags instead of a signal",
	defaults,
	[](const Options &options, uint32_t) { return size_t{ 4 } * options.messages * options.size; },
	[](Job &job) {
		job.messages = static_cast<uint64_t>(STEPS) * job.options.messages;
		job.bytes = job.messages * job.options.size;
	},
	SIMT_LANES(lane),
	// Lanes compared every word as it came.
	[](Job &) { return std::string(); },
};

} // namespace kernels
