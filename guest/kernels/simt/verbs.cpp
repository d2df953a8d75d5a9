// SPDX-License-Identifier: Apache-2.0
// One of each call from every lane: p, put with signal (add and set), atomics with result, get, block put.
#include "watcher.h"

namespace kernels {

namespace {

constexpr uint32_t BLOCK_WORDS = 64;  // of a CTA's message

// Offsets in the kernel's part of the heap.
struct Layout {
	uint64_t words, signals, arrivals, counter, winner, olds, winners, out, in, got, block_out, block_in, blocks, end;

	SIMT_BOTH Layout(const Options &options)
	{
		uint64_t threads = options.ctas * options.warps * simt::WARP_LANES, at = 0;
		auto take = [&](uint64_t size) {
			uint64_t start = at;

			at += (size + 63) & ~63ull;
			return start;
		};

		words = take(8 * threads);
		signals = take(8 * threads);
		arrivals = take(8);
		counter = take(8);
		winner = take(8);
		olds = take(8 * threads);
		winners = take(8 * threads);
		out = take(threads * options.size);
		in = take(threads * options.size);
		got = take(threads * options.size);
		block_out = take(8ul * BLOCK_WORDS * options.ctas);
		block_in = take(8ul * BLOCK_WORDS * options.ctas);
		blocks = take(8ul * options.ctas);
		end = at;
	}
};

// The first byte that differs from what thread @thread of the previous rank computed, or -1.
SIMT_DEVICE int64_t mismatch(const Job &job, uint64_t at, uint32_t thread)
{
	for (uint32_t i = 0; i < job.options.size / 8; i++)
		if (simt::ld(job.at<uint64_t>(at) + i, simt::Order::acquire, simt::Scope::sys) !=
		    pattern(job.options.seed, job.previous_pe(), thread, i))
			return 8 * i;
	return -1;
}

// C24: a signal may only stand for data that the mode promises to deliver before it.
SIMT_DEVICE void check_signalled(Job &job, uint64_t at, uint64_t flag, uint32_t thread)
{
	int64_t byte = mismatch(job, at, thread);

	if (byte < 0)
		return;
	simt::report("C24", job.at<uint8_t>(at + static_cast<uint64_t>(byte)), job.at<uint8_t>(flag),
		     "the signal of thread %u of rank %u is here, its data is not from byte %lld; only one queue pair "
		     "keeps the two in order, and an unordered one only if the signal is fenced",
		     thread, job.previous_pe(), static_cast<long long>(byte));
	simt::fail("a signal came before its data");
}

SIMT_DEVICE void check_block(Job &job, const Layout &place, uint32_t cta)
{
	const uint64_t *words = job.at<uint64_t>(place.block_in) + cta * BLOCK_WORDS;

	for (uint32_t i = 0; i < BLOCK_WORDS; i++)
		if (simt::ld(words + i, simt::Order::acquire, simt::Scope::sys) !=
		    pattern(job.options.seed, job.previous_pe(), 5000 + cta, i)) {
			simt::report("C24", words + i, job.at<uint64_t>(place.blocks) + cta,
				     "the block of CTA %u of rank %u is announced, its word %u is not here; a fence comes "
				     "between queue pairs",
				     cta, job.previous_pe(), i);
			simt::fail("a block was announced before it came");
		}
}

SIMT_DEVICE void lane(Job &job)
{
	const Options &options = job.options;
	Layout place(options);
	Shmem &shmem = job.shmem;
	uint32_t thread = simt::thread_id(), cta = simt::cta_id(), pe = job.next_pe(), q = thread % shmem.qps;
	uint32_t cta_threads = simt::warps_per_cta() * simt::WARP_LANES;
	uint64_t mine = static_cast<uint64_t>(thread) * options.size;
	auto offset = [&](uint64_t at) { return job.base + at; };

	for (uint32_t i = 0; i < options.size / 8; i++)
		simt::st(job.at<uint64_t>(place.out + mine) + i, pattern(options.seed, shmem.pe, thread, i));
	shmem.p(pe, q, offset(place.words + 8 * thread), pattern(options.seed, shmem.pe, thread, 1000));
	if (thread % 2)
		shmem.put_signal(pe, q, offset(place.in + mine), offset(place.out + mine), options.size,
				 offset(place.arrivals), 1, SignalOp::add);
	else
		shmem.put_signal(pe, q, offset(place.in + mine), offset(place.out + mine), options.size,
				 offset(place.signals + 8 * thread), thread + 1, SignalOp::set);

	// The signal is here, so the data it follows on its queue pair is.
	if (thread % 2)
		shmem.wait_until(
			offset(place.arrivals), [](uint64_t value, uint64_t all) { return value == all; },
			simt::threads() / 2);
	else
		shmem.wait_until(
			offset(place.signals + 8 * thread), [](uint64_t value, uint64_t set) { return value == set; },
			thread + 1);
	check_signalled(job, place.in + mine, thread % 2 ? place.arrivals : place.signals + 8 * thread, thread);

	simt::st(job.at<uint64_t>(place.olds) + thread, shmem.fetch_add(pe, q, offset(place.counter), 1));
	simt::st(job.at<uint64_t>(place.winners) + thread,
		 shmem.fetch_cas(pe, q, offset(place.winner), 0, thread + 1));

	// Who sent it has written it, so it can be fetched as well.
	shmem.get(job.previous_pe(), q, offset(place.got + mine), offset(place.out + mine), options.size);
	shmem.quiet(job.previous_pe(), q);
	if (int64_t byte = mismatch(job, place.got + mine, thread); byte >= 0)
		simt::fail("what thread %u fetched is wrong from byte %lld", thread, static_cast<long long>(byte));

	for (uint32_t i = thread % cta_threads; i < BLOCK_WORDS; i += cta_threads)
		simt::st(job.at<uint64_t>(place.block_out) + cta * BLOCK_WORDS + i,
			 pattern(options.seed, shmem.pe, 5000 + cta, i));
	shmem.put_block(pe, cta % shmem.qps, offset(place.block_in + 8ul * BLOCK_WORDS * cta),
			offset(place.block_out + 8ul * BLOCK_WORDS * cta), 8 * BLOCK_WORDS);
	// Announced by the next queue pair, once the fence has seen the block through.
	if (thread % cta_threads == 0) {
		shmem.fence();
		shmem.p(pe, (cta + 1) % shmem.qps, offset(place.blocks + 8ul * cta), cta + 1);
		shmem.wait_until(
			offset(place.blocks + 8ul * cta), [](uint64_t value, uint64_t set) { return value == set; }, cta + 1);
		check_block(job, place, cta);
	}
	shmem.quiet_all();
}

std::string verify(Job &job)
{
	const Options &options = job.options;
	Layout place(options);
	uint32_t threads = options.ctas * options.warps * simt::WARP_LANES, from = job.previous_pe();
	std::string seen(threads, '\0');
	uint32_t won = 0;
	uint64_t winner = 0;

	for (uint32_t thread = 0; thread < threads; thread++) {
		uint64_t old = job.at<uint64_t>(place.olds)[thread], other = job.at<uint64_t>(place.winners)[thread];

		if (job.at<uint64_t>(place.words)[thread] != pattern(options.seed, from, thread, 1000))
			return "the word of thread " + std::to_string(thread) + " is not what was stored";
		if (old >= threads || seen[old]++)
			return "fetch_add gave " + std::to_string(old) + " twice, or never should have";
		if (!other)
			won++, winner = thread + 1;
	}
	if (won != 1)
		return std::to_string(won) + " threads won one compare-and-swap";
	for (uint32_t thread = 0; thread < threads; thread++)
		if (uint64_t other = job.at<uint64_t>(place.winners)[thread]; other && other != winner)
			return "thread " + std::to_string(thread) + " lost against " + std::to_string(other) + ", not " +
			       std::to_string(winner);
	if (*job.at<uint64_t>(place.counter) != threads)
		return "the counter is " + std::to_string(*job.at<uint64_t>(place.counter));
	return {};
}

} // namespace

SIMT_LAUNCHABLE(verbs_grid, lane)

const Kernel verbs_kernel = {
	"verbs",
	"p, put with signal, atomics with result, get, block put",
	[](Options &options, uint32_t) { return common_defaults(options, 32, 2, 1); },
	[](const Options &options, uint32_t) { return size_t{ Layout(options).end }; },
	[](Job &job) {
		uint64_t threads = job.options.ctas * job.options.warps * simt::WARP_LANES;

		// p, two of the put with signal, two atomics, get; and two of each CTA
		Layout place(job.options);

		job.watcher.declare_signal(job.base + place.arrivals, 8, VRNIC_HINT_SIGNAL_ADD);
		job.watcher.declare_signal(job.base + place.signals, 8, VRNIC_HINT_SIGNAL_SET);
		job.messages = 6 * threads + 2 * job.options.ctas;
		job.bytes = threads * (8 + 2 * job.options.size + 3 * 8) + 8ul * (BLOCK_WORDS + 1) * job.options.ctas;
	},
	SIMT_LANES(lane),
	verify,
};

} // namespace kernels
