// SPDX-License-Identifier: Apache-2.0
// The calls, as WQEs.
#include "shmem.h"

#include "mlx5_format.h"

namespace kernels {

using simt::Order;
using simt::Scope;

SIMT_DEVICE uint32_t Shmem::rkey(uint32_t pe) const
{
	if (mutated(Mutation::stray_key))
		return peers[pe].rkey ^ 0x00800000;
	return mutated(Mutation::swap_keys) ? mlx5_be32(peers[pe].rkey) : peers[pe].rkey;
}

// One lane alone.
SIMT_DEVICE void Shmem::submit(uint32_t pe, Qp &qp, Wqe wqe)
{
	if (proxy) {
		hand_over(pe, qp, wqe);
		return;
	}

	uint64_t index = qp.reserve(1);

	simt::note_use(qp.qpn, index, pe);
	wqe.set_flags(VRNIC_WQE_SIGNAL);
	qp.fill(index, wqe);
	qp.publish(index, 1);
}

// To the CPU, as a command.
SIMT_DEVICE void Shmem::hand_over(uint32_t pe, const Qp &qp, const Wqe &wqe)
{
	proxy->post(ProxyCommand::of(wqe, pe, static_cast<uint32_t>(&qp - peers[pe].qps), address, peers[pe].address));
}

// A WQE of each lane of the warp, if all go the same way: only the last asks for a completion.
SIMT_DEVICE void Shmem::submit_warp(uint32_t pe, uint32_t q, Wqe wqe)
{
	Qp &own = qp(pe, q);
	bool together = simt::ballot(simt::shfl(pe << 8 | q, 0) == (pe << 8 | q)) == 0xffffffff;
	uint32_t lane = simt::lane_id();
	uint64_t base = 0;

	if (!together || proxy) {
		submit(pe, own, wqe);
		return;
	}
	if (lane == 0) {
		base = own.reserve(simt::WARP_LANES);
		simt::note_use(own.qpn, base, pe);
	}
	base = simt::shfl(base, 0);
	if (lane == simt::WARP_LANES - 1)
		wqe.set_flags(VRNIC_WQE_SIGNAL);
	own.fill(base + lane, wqe);
	// The payload is every lane's own, and only the leader's fences come before the doorbell.
	if (own.nic_scope == Scope::sys)
		simt::fence(Scope::sys);
	simt::syncwarp();
	if (mutated(Mutation::ring_all_lanes))
		own.store_doorbell(base + lane + 1);
	if (lane == 0)
		own.publish(base, simt::WARP_LANES);
	simt::syncwarp();
}

SIMT_DEVICE void Shmem::put(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size)
{
	submit(pe, qp(pe, q), Wqe::transfer(VRNIC_OP_WRITE, address + from, lkey, remote(pe, to), rkey(pe), size));
}

SIMT_DEVICE void Shmem::put_warp(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size)
{
	submit_warp(pe, q, Wqe::transfer(VRNIC_OP_WRITE, address + from, lkey, remote(pe, to), rkey(pe), size));
}

SIMT_DEVICE void Shmem::put_block(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size)
{
	// Every lane may have written a part of the payload.
	if (!mutated(Mutation::drop_block_barrier))
		simt::syncthreads();
	if (simt::warp_id() == 0 && simt::lane_id() == 0)
		put(pe, q, to, from, size);
	simt::syncthreads();
}

SIMT_DEVICE void Shmem::put_signal(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size, uint64_t signal,
		       uint64_t value, SignalOp op)
{
	Qp &own = qp(pe, q);
	// Where messages may overtake each other, the fence is what keeps the signal behind the data.
	uint8_t behind = mutated(Mutation::drop_signal_fence) ? 0 : VRNIC_WQE_FENCE;
	Wqe change = op == SignalOp::add ? adder(pe, signal, value, sink) :
					   Wqe::inlined(&value, sizeof(value), remote(pe, signal), rkey(pe));

	if (mutated(Mutation::signal_on_other_qp)) {
		put(pe, q, to, from, size);
		submit(pe, qp(pe, (q + 1) % qps), change);
		return;
	}

	change.set_flags(VRNIC_WQE_SIGNAL | behind);
	if (proxy) {
		put(pe, q, to, from, size);
		hand_over(pe, own, change);
		return;
	}

	uint64_t base = own.reserve(2);

	own.fill(base, Wqe::transfer(VRNIC_OP_WRITE, address + from, lkey, remote(pe, to), rkey(pe), size));
	own.fill(base + 1, change);
	own.publish(base, 2);
}

SIMT_DEVICE void Shmem::get(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size)
{
	submit(pe, qp(pe, q), Wqe::transfer(VRNIC_OP_READ, address + to, lkey, remote(pe, from), rkey(pe), size));
}

SIMT_DEVICE void Shmem::p(uint32_t pe, uint32_t q, uint64_t to, uint64_t value)
{
	submit(pe, qp(pe, q), Wqe::inlined(&value, sizeof(value), remote(pe, to), rkey(pe)));
}

SIMT_DEVICE void Shmem::p_warp(uint32_t pe, uint32_t q, uint64_t to, uint64_t value)
{
	submit_warp(pe, q, Wqe::inlined(&value, sizeof(value), remote(pe, to), rkey(pe)));
}

SIMT_DEVICE Wqe Shmem::adder(uint32_t pe, uint64_t to, uint64_t value, uint64_t result) const
{
	uint64_t beside = mutated(Mutation::misaligned_atomic) ? 4 : 0;
	Wqe wqe = Wqe::add(value, address + result, lkey, remote(pe, to) + beside, rkey(pe));

	if (mutated(Mutation::four_byte_atomic))
		wqe.set_flags(VRNIC_WQE_OPERAND_4B);
	if (mutated(Mutation::narrow_signal)) {
		wqe.set_flags(VRNIC_WQE_OPERAND_4B);
		wqe.word[3] = htole64((le64toh(wqe.word[3]) & 0xffffffff) | 4ull << 32);
	}
	return wqe;
}

SIMT_DEVICE void Shmem::add(uint32_t pe, uint32_t q, uint64_t to, uint64_t value)
{
	submit(pe, qp(pe, q), adder(pe, to, value, sink));
}

// The lane's own result cell is free again when this returns.
SIMT_DEVICE uint64_t Shmem::fetch(uint32_t pe, Qp &own, const Wqe &wqe)
{
	submit(pe, own, wqe);
	if (mutated(Mutation::reuse_result))
		submit(pe, own, wqe);
	quiet(pe, static_cast<uint32_t>(&own - peers[pe].qps));
	return le64toh(simt::ld(reinterpret_cast<const uint64_t *>(heap + results) + simt::thread_id(), Order::acquire,
				Scope::sys));
}

SIMT_DEVICE uint64_t Shmem::fetch_add(uint32_t pe, uint32_t q, uint64_t to, uint64_t value)
{
	return fetch(pe, qp(pe, q), adder(pe, to, value, results + 8 * simt::thread_id()));
}

SIMT_DEVICE uint64_t Shmem::fetch_cas(uint32_t pe, uint32_t q, uint64_t to, uint64_t compare, uint64_t swap)
{
	return fetch(pe, qp(pe, q), Wqe::cas(compare, swap, address + results + 8 * simt::thread_id(), lkey, remote(pe, to),
					 rkey(pe)));
}

SIMT_DEVICE void Shmem::quiet(uint32_t pe, uint32_t q)
{
	if (proxy)
		proxy->quiet();
	else
		qp(pe, q).quiet();
}

SIMT_DEVICE void Shmem::quiet_all()
{
	for (uint32_t other = 0; other < pes; other++)
		for (uint32_t q = 0; other != pe && q < qps; q++)
			quiet(other, q);
}

SIMT_DEVICE void Shmem::fence()
{
	// One queue pair delivers in order by itself, if its transport does.
	if ((pes > 2 || qps > 1 || unordered) && !mutated(Mutation::drop_fence))
		quiet_all();
}

SIMT_DEVICE uint64_t Shmem::wait_until(uint64_t at, bool (*done)(uint64_t, uint64_t), uint64_t operand)
{
	const Qp &watch = qp(pe ? 0 : 1, 0);
	uint64_t value;

	while (!done(value = simt::ld(reinterpret_cast<const uint64_t *>(heap + at), Order::acquire, Scope::sys),
		     operand)) {
		if (static_cast<int64_t>(watch.clock() - watch.deadline) > 0)
			simt::fail("gave up waiting for the 8 bytes at offset %llu of the heap, which are %llu",
				   static_cast<simt::Word>(at), static_cast<simt::Word>(value));
		simt::pause();
	}
	return value;
}

} // namespace kernels
