// SPDX-License-Identifier: Apache-2.0
// Mixture-of-experts dispatch and combine, with the traffic of DeepEP's low-latency kernels.
//
// Dispatch: one WRITE for each token and chosen expert into a slot of the expert's rank, then one atomic
// for each expert, of -(tokens + 1), on the queue pair the WRITEs took. Combine: the expert's rank writes
// each result back to where the token's rank expects it, then adds 1 to the expert's flag there. Two sets
// of buffers take turns; each step clears the other set's counters before its combine lets a peer go on.
//
// A dispatched token has hidden bytes with one scale (a float) for each 128 of them; a result has bfloat16.
// Expert e multiplies by e + 1; the token's rank sums the results of its topk experts, the k-th weighted
// with 2^-k, in that order, in single precision.
#include "kernel.h"

#include <cstring>

namespace kernels {

namespace {

constexpr uint32_t SCALED = 128;  // elements with one scale
constexpr uint32_t HEADER = 16;

using simt::Order;
using simt::Scope;

uint64_t align(uint64_t size)
{
	return (size + 63) & ~63ull;
}

// Offsets in the kernel's part of the heap.
struct Layout {
	uint32_t ranks, local, tokens, hidden, experts;
	uint64_t message, result;  // bytes
	// of a set
	uint64_t counts, flags, received, combined, staging, results, set;
	// behind both sets
	uint64_t slots, issued, cleared, barrier, output, end;

	Layout(const Options &options, uint32_t pes)
		: ranks(pes), local(options.experts / pes), tokens(options.tokens), hidden(options.hidden),
		  experts(options.experts), message((HEADER + hidden + hidden / SCALED * 4 + 15) & ~15ull),
		  result(2ull * hidden)
	{
		uint64_t at = 0;
		auto take = [&](uint64_t size) {
			uint64_t start = at;

			at += align(size);
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
	uint64_t count(uint32_t parity, uint32_t expert, uint32_t from) const
	{
		return parity * set + counts + 8 * (expert * ranks + from);
	}
	uint64_t flag(uint32_t parity, uint32_t expert) const
	{
		return parity * set + flags + 8 * expert;
	}
	uint64_t arrival(uint32_t parity, uint32_t expert, uint32_t from, uint64_t slot) const
	{
		return parity * set + received + ((expert * ranks + from) * tokens + slot) * message;
	}
	uint64_t outcome(uint32_t parity, uint32_t expert, uint32_t from, uint64_t slot) const
	{
		return parity * set + results + ((expert * ranks + from) * tokens + slot) * result;
	}
	uint64_t reply(uint32_t parity, uint32_t expert, uint64_t token) const
	{
		return parity * set + combined + (expert * tokens + token) * result;
	}
	uint64_t stage(uint32_t parity, uint64_t token) const
	{
		return parity * set + staging + token * message;
	}
};

// Which expert token @token of rank @pe chooses as its @k-th.
uint32_t route(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t k)
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

uint32_t tokens_for(const Options &options, uint32_t step, uint32_t pe, uint32_t expert)
{
	uint32_t count = 0;

	for (uint32_t token = 0; token < options.tokens; token++)
		for (uint32_t k = 0; k < options.topk; k++)
			count += route(options, step, pe, token, k) == expert;
	return count;
}

// Eight elements of a token, and the scale of its @group-th 128.
uint64_t element_word(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t word)
{
	return pattern(options.seed, pe, token, step * 0x10000ull + word);
}

float scale_of(const Options &options, uint32_t step, uint32_t pe, uint32_t token, uint32_t group)
{
	return 1.0f / static_cast<float>(1u << pattern(options.seed, pe, token, 0x8000000 + step * 0x1000 + group) % 4);
}

float element(uint64_t word, uint32_t byte, float scale)
{
	return static_cast<float>(static_cast<int8_t>(word >> 8 * byte)) * scale;
}

// Round to nearest even.
uint16_t to_bfloat16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bfloat16(uint16_t value)
{
	uint32_t bits = static_cast<uint32_t>(value) << 16;
	float result;

	memcpy(&result, &bits, sizeof(result));
	return result;
}

float weight(uint32_t k)
{
	return 1.0f / static_cast<float>(1u << k);
}

// One step of one lane; what is in it is the same for the whole warp but lane and thread.
class Step {
public:
	Step(Job &job, const Layout &place, uint32_t step)
		: job_(job), options_(job.options), shmem_(job.shmem), place_(place), step_(step), parity_(step % 2),
		  pe_(job.shmem.pe), lane_(simt::lane_id()), warp_(simt::thread_id() / simt::WARP_LANES),
		  warps_(simt::threads() / simt::WARP_LANES)
	{
	}

	void run()
	{
		clear_other_set();
		for (uint32_t token = warp_; token < options_.tokens; token += warps_)
			dispatch(token);
		for (uint32_t expert = simt::thread_id(); expert < options_.experts; expert += simt::threads())
			announce(expert);
		for (uint32_t pair = warp_; pair < place_.local * place_.ranks; pair += warps_)
			serve(pair / place_.ranks, pair % place_.ranks);
		for (uint32_t token = warp_; token < options_.tokens; token += warps_)
			combine(token);
		finish();
	}

private:
	uint64_t offset(uint64_t at) const
	{
		return job_.base + at;
	}
	uint64_t *cell(uint64_t at, uint64_t index = 0) const
	{
		return job_.at<uint64_t>(at) + index;
	}
	uint32_t q_of(uint32_t local_expert) const
	{
		return local_expert % shmem_.qps;
	}

	void clear_other_set()
	{
		uint32_t cells = place_.local * place_.ranks;

		for (uint32_t i = simt::thread_id(); i < cells + options_.experts; i += simt::threads())
			simt::st(i < cells ? cell(place_.count(1 - parity_, 0, 0), i) :
					     cell(place_.flag(1 - parity_, 0), i - cells),
				 0);
		simt::fence(Scope::sys);
		simt::syncthreads();
		if (simt::thread_id() % (simt::warps_per_cta() * simt::WARP_LANES) == 0)
			simt::atomic_add(cell(place_.cleared, step_), 1, Scope::gpu);
	}

	void copy(uint64_t to, uint64_t from, uint64_t size)
	{
		for (uint64_t at = 16 * lane_; at < size; at += 16 * simt::WARP_LANES)
			simt::st16(job_.at<uint8_t>(to + at), simt::ld(cell(from + at)), simt::ld(cell(from + at + 8)));
	}

	void dispatch(uint32_t token)
	{
		uint64_t stage = place_.stage(parity_, token);
		uint32_t words = place_.hidden / 8, groups = place_.hidden / SCALED;

		if (lane_ == 0)
			simt::st16(job_.at<uint8_t>(stage), token, 0);
		for (uint32_t word = 2 * lane_; word < words; word += 2 * simt::WARP_LANES)
			simt::st16(job_.at<uint8_t>(stage + HEADER + 8 * word),
				   element_word(options_, step_, pe_, token, word),
				   element_word(options_, step_, pe_, token, word + 1));
		for (uint32_t group = lane_; group < groups; group += simt::WARP_LANES)
			simt::st(job_.at<float>(stage + HEADER + place_.hidden) + group,
				 scale_of(options_, step_, pe_, token, group));
		simt::syncwarp();
		for (uint32_t k = 0; k < options_.topk; k++)
			send(token, route(options_, step_, pe_, token, k));
	}

	void send(uint32_t token, uint32_t expert)
	{
		uint32_t owner = expert / place_.local, local = expert % place_.local;
		uint64_t slot = 0;

		if (lane_ == 0)
			slot = simt::atomic_add(cell(place_.slots, step_ * options_.experts + expert), 1, Scope::gpu);
		slot = simt::shfl(slot, 0);
		if (owner == pe_) {
			copy(place_.arrival(parity_, local, pe_, slot), place_.stage(parity_, token), place_.message);
			simt::syncwarp();
		} else if (lane_ == 0) {
			shmem_.put(owner, q_of(local), offset(place_.arrival(parity_, local, pe_, slot)),
				   offset(place_.stage(parity_, token)), static_cast<uint32_t>(place_.message));
		}
		if (lane_ == 0) {
			simt::fence(Scope::gpu);
			simt::atomic_add(cell(place_.issued, step_ * options_.experts + expert), 1, Scope::gpu);
		}
	}

	// Behind everything sent to the expert: how much it was.
	void announce(uint32_t expert)
	{
		uint32_t owner = expert / place_.local, local = expert % place_.local;
		uint64_t count = tokens_for(options_, step_, pe_, expert), at = place_.count(parity_, local, pe_);

		shmem_.wait_until(
			offset(place_.issued + 8 * (step_ * options_.experts + expert)),
			[](uint64_t value, uint64_t all) { return value == all; }, count);
		simt::fence(Scope::gpu);
		if (owner == pe_)
			simt::atomic_add(cell(at), ~count, Scope::sys);
		else
			shmem_.add(owner, q_of(local), offset(at), ~count);
	}

	// What local expert @expert got from rank @from: compute it and send it back.
	void serve(uint32_t expert, uint32_t from)
	{
		uint32_t global = pe_ * place_.local + expert;
		uint64_t count = 0, flag = place_.flag(parity_, global);

		if (lane_ == 0)
			count = ~shmem_.wait_until(
				offset(place_.count(parity_, expert, from)),
				[](uint64_t value, uint64_t) { return value != 0; }, 0);
		count = simt::shfl(count, 0);
		if (count > options_.tokens)
			simt::fail("expert " + std::to_string(global) + " was promised " + std::to_string(count) + " tokens");
		for (uint64_t slot = 0; slot < count; slot++) {
			uint64_t token = compute(expert, from, slot);

			simt::syncwarp();
			if (from == pe_)
				copy(place_.reply(parity_, global, token), place_.outcome(parity_, expert, from, slot),
				     place_.result);
			else if (lane_ == 0)
				shmem_.put(from, q_of(expert), offset(place_.reply(parity_, global, token)),
					   offset(place_.outcome(parity_, expert, from, slot)),
					   static_cast<uint32_t>(place_.result));
		}
		simt::syncwarp();
		if (lane_)
			return;
		// With this flag the peer may get as far as writing into the other set.
		shmem_.wait_until(
			offset(place_.cleared + 8 * step_), [](uint64_t value, uint64_t all) { return value == all; },
			simt::ctas());
		simt::fence(Scope::sys);
		if (from == pe_)
			simt::atomic_add(cell(flag), 1, Scope::sys);
		else
			shmem_.add(from, q_of(expert), offset(flag), 1);
	}

	uint64_t compute(uint32_t expert, uint32_t from, uint64_t slot)
	{
		uint64_t at = place_.arrival(parity_, expert, from, slot);
		uint64_t token = simt::ld(cell(at), Order::acquire, Scope::sys);
		auto *to = job_.at<uint64_t>(place_.outcome(parity_, expert, from, slot));
		float factor = static_cast<float>(pe_ * place_.local + expert + 1);

		if (token >= options_.tokens)
			simt::fail("a message of rank " + std::to_string(from) + " is of token " + std::to_string(token));
		for (uint32_t word = lane_; word < place_.hidden / 8; word += simt::WARP_LANES) {
			uint64_t elements = simt::ld(cell(at + HEADER + 8 * word), Order::acquire, Scope::sys), half[2] = {};
			float scale = simt::ld(job_.at<float>(at + HEADER + place_.hidden) + word * 8 / SCALED,
					       Order::acquire, Scope::sys);

			for (uint32_t i = 0; i < 8; i++)
				half[i / 4] |= static_cast<uint64_t>(to_bfloat16(element(elements, i, scale) * factor))
					       << 16 * (i % 4);
			simt::st16(to + 2 * word, half[0], half[1]);
		}
		return token;
	}

	void combine(uint32_t token)
	{
		for (uint32_t k = 0; k < options_.topk; k++)
			shmem_.wait_until(
				offset(place_.flag(parity_, route(options_, step_, pe_, token, k))),
				[](uint64_t value, uint64_t) { return value != 0; }, 0);
		for (uint32_t i = lane_; i < place_.hidden; i += simt::WARP_LANES) {
			float sum = 0;

			for (uint32_t k = 0; k < options_.topk; k++) {
				uint32_t expert = route(options_, step_, pe_, token, k);
				auto *from = job_.at<uint16_t>(place_.reply(parity_, expert, token));

				sum += weight(k) * from_bfloat16(simt::ld(from + i, Order::acquire, Scope::sys));
			}
			simt::st(job_.at<float>(place_.output) + (step_ * options_.tokens + token) * place_.hidden + i, sum);
		}
	}

	// Buffers of this set are sent from no more, and every CTA is here.
	void finish()
	{
		simt::syncthreads();
		if (simt::thread_id() % (simt::warps_per_cta() * simt::WARP_LANES) == 0) {
			shmem_.quiet_all();
			simt::fence(Scope::gpu);
			simt::atomic_add(cell(place_.barrier), 1, Scope::gpu);
			shmem_.wait_until(
				offset(place_.barrier), [](uint64_t value, uint64_t all) { return value >= all; },
				(step_ + 1) * simt::ctas());
		}
		simt::syncthreads();
	}

	Job &job_;
	const Options &options_;
	Shmem &shmem_;
	const Layout &place_;
	uint32_t step_, parity_, pe_, lane_, warp_, warps_;
};

void lane(Job &job)
{
	Layout place(job.options, job.shmem.pes);

	for (uint32_t step = 0; step < job.options.steps; step++)
		Step(job, place, step).run();
}

std::string defaults(Options &options, uint32_t pes)
{
	preset(options.tokens, 8);
	preset(options.experts, 8);
	preset(options.topk, 2);
	preset(options.hidden, 128);
	preset(options.steps, 3);
	preset(options.qps, 2);
	preset(options.batch, 4);
	if (options.experts % pes)
		return "--experts is not a multiple of the ranks";
	if (options.topk >= options.experts)
		return "--topk is not below --experts";
	return common_defaults(options, 32, 2, 2);
}

void prepare(Job &job)
{
	const Options &options = job.options;
	Layout place(options, job.shmem.pes);
	uint64_t there = 0, back = 0;

	for (uint32_t step = 0; step < options.steps; step++)
		for (uint32_t expert = 0; expert < options.experts; expert++)
			for (uint32_t pe = 0; pe < job.shmem.pes; pe++) {
				bool served_here = expert / place.local == job.shmem.pe;
				uint32_t count = tokens_for(options, step, pe, expert);

				if (pe == job.shmem.pe && !served_here)
					there += count;
				if (pe != job.shmem.pe && served_here)
					back += count;
			}
	job.messages = there + back;
	job.bytes = there * place.message + back * place.result;
	job.detail = ",\"output\":" + std::to_string(job.base + place.output);
}

std::string verify(Job &job)
{
	const Options &options = job.options;
	Layout place(options, job.shmem.pes);
	const float *output = job.at<float>(place.output);
	uint32_t last = (options.steps - 1) % 2;

	for (uint32_t step = 0; step < options.steps; step++)
		for (uint32_t token = 0; token < options.tokens; token++)
			for (uint32_t i = 0; i < options.hidden; i++) {
				uint64_t word = element_word(options, step, job.shmem.pe, token, i / 8);
				float x = element(word, i % 8,
						  scale_of(options, step, job.shmem.pe, token, i / SCALED));
				float sum = 0;

				for (uint32_t k = 0; k < options.topk; k++) {
					float factor =
						static_cast<float>(route(options, step, job.shmem.pe, token, k) + 1);

					sum += weight(k) * from_bfloat16(to_bfloat16(x * factor));
				}
				if (output[(step * options.tokens + token) * options.hidden + i] != sum)
					return "element " + std::to_string(i) + " of token " + std::to_string(token) +
					       " in step " + std::to_string(step) + " is wrong";
			}
	for (uint32_t i = 0; i < place.local * place.ranks; i++)
		if (*job.at<uint64_t>(place.count(1 - last, 0, 0) + 8 * i))
			return "a count of the set that was cleared is not 0";
	return {};
}

} // namespace

const Kernel moe_kernel = {
	"moe",
	"mixture-of-experts dispatch and combine",
	defaults,
	[](const Options &options, uint32_t pes) { return size_t{ Layout(options, pes).end }; },
	prepare,
	lane,
	verify,
};

} // namespace kernels
