// SPDX-License-Identifier: Apache-2.0
// Kernels that put messages into the next rank's inbox: one lane; a warp together; many CTAs on one queue
// pair; each CTA on its own.
#include "watcher.h"

namespace kernels {

namespace {

// Heap: outbox, inbox; a place of its own for each message.

SIMT_DEVICE uint64_t outbox(const Job &job, uint64_t message)
{
	if (mutated(Mutation::reuse_payload))
		message %= simt::WARP_LANES;
	return job.base + message * job.options.size;
}

SIMT_BOTH uint64_t inbox(const Job &job, uint64_t message)
{
	return job.base + (job.options.messages + message) * job.options.size;
}

size_t heap(const Options &options, uint32_t)
{
	return 2ul * options.messages * options.size;
}

void prepare(Job &job)
{
	job.messages = job.options.messages;
	job.bytes = job.messages * job.options.size;
}

// The lane writes its own message, as the kernel that computes it would.
SIMT_DEVICE void compute(const Job &job, uint64_t message)
{
	auto *words = reinterpret_cast<uint64_t *>(job.shmem.heap + outbox(job, message));

	for (uint32_t i = 0; i < job.options.size / 8; i++)
		simt::st(words + i, pattern(job.options.seed, job.shmem.pe, message, i));
}

std::string verify(Job &job)
{
	uint32_t from = job.previous_pe();

	for (uint64_t message = 0; message < job.options.messages; message++) {
		const auto *words = reinterpret_cast<const uint64_t *>(job.shmem.heap + inbox(job, message));

		for (uint32_t i = 0; i < job.options.size / 8; i++)
			if (words[i] != pattern(job.options.seed, from, message, i))
				return "message " + std::to_string(message) + " of rank " + std::to_string(from) +
				       " is wrong from byte " + std::to_string(8 * i);
	}
	return {};
}

SIMT_DEVICE void put(Job &job, uint32_t q, uint64_t message, bool warp)
{
	uint64_t to = inbox(job, message), from = outbox(job, message);

	compute(job, message);
	if (warp)
		job.shmem.put_warp(job.next_pe(), q, to, from, job.options.size);
	else
		job.shmem.put(job.next_pe(), q, to, from, job.options.size);
}

// One lane works.
SIMT_DEVICE void single_lane(Job &job)
{
	simt::Random random(job.options.seed);

	if (simt::thread_id())
		return;
	for (uint64_t message = 0; message < job.options.messages; message++) {
		if (mutated(Mutation::garbage_hints))
			SIMT_SHIM_ONLY(job.watcher.spoil(random));
		put(job, 0, message, false);
		job.shmem.quiet(job.next_pe(), 0);
	}
}

SIMT_DEVICE void coalesced_lane(Job &job)
{
	uint32_t warps = simt::threads() / simt::WARP_LANES, warp = simt::thread_id() / simt::WARP_LANES;
	uint32_t rounds = job.options.messages / simt::WARP_LANES;

	for (uint32_t round = warp; round < rounds; round += warps)
		put(job, round % job.shmem.qps, round * simt::WARP_LANES + simt::lane_id(), true);
	job.shmem.quiet_all();
}

// Warps take turns between going together and each lane for itself.
SIMT_DEVICE void shared_lane(Job &job)
{
	uint32_t warps = simt::threads() / simt::WARP_LANES, warp = simt::thread_id() / simt::WARP_LANES;
	uint32_t rounds = job.options.messages / simt::WARP_LANES;

	for (uint32_t round = warp; round < rounds; round += warps) {
		bool together = pattern(job.options.seed, job.shmem.pe, round, ~0ull) % 2;

		put(job, round % job.shmem.qps, round * simt::WARP_LANES + simt::lane_id(), together);
	}
	job.shmem.quiet_all();
}

void exclusive_prepare(Job &job)
{
	prepare(job);
	for (uint32_t q = 0; q < job.shmem.qps; q++)
		job.shmem.peers[job.next_pe()].qps[q].exclusive = true;
}

SIMT_DEVICE void exclusive_lane(Job &job)
{
	uint32_t warps = simt::threads() / simt::WARP_LANES, warp = simt::thread_id() / simt::WARP_LANES;
	uint32_t rounds = job.options.messages / simt::WARP_LANES;
	uint32_t q = mutated(Mutation::cta_scope_on_shared) ? 0 : simt::cta_id();

	for (uint32_t round = warp; round < rounds; round += warps)
		put(job, q, round * simt::WARP_LANES + simt::lane_id(), round % 2);
	job.shmem.quiet(job.next_pe(), q);
}

std::string exclusive_defaults(Options &options, uint32_t)
{
	preset(options.qps, options.ctas ? options.ctas : 2u);
	std::string error = common_defaults(options, 192, 2, 2);

	if (error.empty() && options.qps != options.ctas)
		return "--qps differs from --ctas: each CTA has a queue pair of its own";
	return error;
}

} // namespace

SIMT_LAUNCHABLE(single_grid, single_lane)
SIMT_LAUNCHABLE(coalesced_grid, coalesced_lane)
SIMT_LAUNCHABLE(shared_grid, shared_lane)
SIMT_LAUNCHABLE(exclusive_grid, exclusive_lane)

const Kernel single_kernel = {
	"single",
	"one lane: put, quiet",
	[](Options &options, uint32_t) { return common_defaults(options, 32, 1, 1); },
	heap,
	prepare,
	SIMT_LANES(single_lane),
	verify,
};

const Kernel coalesced_kernel = {
	"coalesced",
	"a warp puts 32 messages with one reservation, doorbell and completion",
	[](Options &options, uint32_t) { return common_defaults(options, 192, 1, 1); },
	heap,
	prepare,
	SIMT_LANES(coalesced_lane),
	verify,
};

const Kernel shared_kernel = {
	"shared",
	"CTAs share a queue pair; batched doorbells",
	[](Options &options, uint32_t) { return common_defaults(options, 256, 3, 2); },
	heap,
	prepare,
	SIMT_LANES(shared_lane),
	verify,
};

const Kernel exclusive_kernel = {
	"exclusive",
	"each CTA has a queue pair and CTA scope",
	exclusive_defaults,
	heap,
	exclusive_prepare,
	SIMT_LANES(exclusive_lane),
	verify,
};

} // namespace kernels
