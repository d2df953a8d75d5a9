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
#include "moe_model.h"

namespace kernels {

namespace {

using namespace moe;
using simt::Order;
using simt::Scope;

// One step of one lane; what is in it is the same for the whole warp but lane and thread.
class Step {
public:
	SIMT_DEVICE Step(Job &job, const Layout &place, uint32_t step)
		: job_(job), options_(job.options), shmem_(job.shmem), place_(place), step_(step), parity_(step % 2),
		  pe_(job.shmem.pe), lane_(simt::lane_id()), warp_(simt::thread_id() / simt::WARP_LANES),
		  warps_(simt::threads() / simt::WARP_LANES)
	{
	}

	SIMT_DEVICE void run()
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
	SIMT_DEVICE uint64_t offset(uint64_t at) const
	{
		return job_.base + at;
	}
	SIMT_DEVICE uint64_t *cell(uint64_t at, uint64_t index = 0) const
	{
		return job_.at<uint64_t>(at) + index;
	}
	SIMT_DEVICE uint32_t q_of(uint32_t local_expert) const
	{
		return local_expert % shmem_.qps;
	}

	SIMT_DEVICE void clear_other_set()
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

	SIMT_DEVICE void copy(uint64_t to, uint64_t from, uint64_t size)
	{
		for (uint64_t at = 16 * lane_; at < size; at += 16 * simt::WARP_LANES)
			simt::st16(job_.at<uint8_t>(to + at), simt::ld(cell(from + at)), simt::ld(cell(from + at + 8)));
	}

	SIMT_DEVICE void dispatch(uint32_t token)
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

	SIMT_DEVICE void send(uint32_t token, uint32_t expert)
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
	SIMT_DEVICE void announce(uint32_t expert)
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
	SIMT_DEVICE void serve(uint32_t expert, uint32_t from)
	{
		uint32_t global = pe_ * place_.local + expert;
		uint64_t count = 0, flag = place_.flag(parity_, global);

		if (lane_ == 0)
			count = ~shmem_.wait_until(
				offset(place_.count(parity_, expert, from)),
				[](uint64_t value, uint64_t) { return value != 0; }, 0);
		count = simt::shfl(count, 0);
		if (count > options_.tokens)
			simt::fail("expert %u was promised %llu tokens", global, static_cast<simt::Word>(count));
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

	SIMT_DEVICE uint64_t compute(uint32_t expert, uint32_t from, uint64_t slot)
	{
		uint64_t at = place_.arrival(parity_, expert, from, slot);
		uint64_t token = simt::ld(cell(at), Order::acquire, Scope::sys);
		auto *to = job_.at<uint64_t>(place_.outcome(parity_, expert, from, slot));
		float factor = static_cast<float>(pe_ * place_.local + expert + 1);

		if (token >= options_.tokens)
			simt::fail("a message of rank %u is of token %llu", from, static_cast<simt::Word>(token));
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

	SIMT_DEVICE void combine(uint32_t token)
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

	// Nothing comes into this set or leaves it any more, and every CTA is here.
	SIMT_DEVICE void finish()
	{
		// An expert that no token of ours chose says so as well: were it late, its flag would outlive the
		// clearing and stand for data that two steps on has not come.
		for (uint32_t expert = simt::thread_id(); expert < options_.experts; expert += simt::threads())
			shmem_.wait_until(
				offset(place_.flag(parity_, expert)), [](uint64_t value, uint64_t) { return value != 0; }, 0);
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

SIMT_DEVICE void lane(Job &job)
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

SIMT_LAUNCHABLE(moe_grid, lane)

const Kernel moe_kernel = {
	"moe",
	"mixture-of-experts dispatch and combine",
	defaults,
	[](const Options &options, uint32_t pes) { return size_t{ Layout(options, pes).end }; },
	prepare,
	SIMT_LANES(lane),
	verify,
};

} // namespace kernels
