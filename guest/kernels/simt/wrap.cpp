// SPDX-License-Identifier: Apache-2.0
// Round and round a small ring, past the end of the running index: each message is 8 bytes in its WQE.
#include "kernel.h"

namespace kernels {

namespace {

constexpr uint32_t CELLS = 1024;  // a power of two, and more than a ring's slots in use

SIMT_DEVICE void lane(Job &job)
{
	uint32_t rounds = job.options.messages / simt::WARP_LANES;

	for (uint32_t round = 0; round < rounds; round++) {
		uint64_t message = round * simt::WARP_LANES + simt::lane_id();

		job.shmem.p_warp(job.next_pe(), 0, job.base + 8 * (message % CELLS),
				 pattern(job.options.seed, job.shmem.pe, message, 0));
	}
	job.shmem.quiet_all();
}

std::string defaults(Options &options, uint32_t)
{
	if (options.ctas > 1 || options.warps > 1)
		return "wrap is one warp: with more, nobody knows which message came last";
	preset(options.start, 0xffffff80);
	return common_defaults(options, 8 * 128, 1, 1);
}

std::string verify(Job &job)
{
	uint64_t last = job.options.messages, first = last > CELLS ? last - CELLS : 0;

	for (uint64_t message = first; message < last; message++)
		if (*job.at<uint64_t>(8 * (message % CELLS)) !=
		    pattern(job.options.seed, job.previous_pe(), message, 0))
			return "the cell of message " + std::to_string(message) + " holds something else";
	return {};
}

} // namespace

SIMT_LAUNCHABLE(wrap_grid, lane)

const Kernel wrap_kernel = {
	"wrap",
	"a warp goes round the ring many times, over the end of the index",
	defaults,
	[](const Options &, uint32_t) { return size_t{ 8 * CELLS }; },
	[](Job &job) {
		job.messages = job.options.messages;
		job.bytes = 8 * job.messages;
	},
	SIMT_LANES(lane),
	verify,
};

} // namespace kernels
