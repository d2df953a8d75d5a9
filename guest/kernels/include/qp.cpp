// SPDX-License-Identifier: Apache-2.0
// The submission protocol, one function for each move.
#include "qp.h"

#include "mlx5_format.h"

namespace kernels {

using simt::Order;
using simt::Scope;

SIMT_GLOBAL Mutation mutation = Mutation::none;

const MutationName mutations[] = {
	{ Mutation::drop_publish_fence, "drop-publish-fence", "no fence between a WQE and the ready index" },
	{ Mutation::drop_ring_fence, "drop-ring-fence", "no fence between WQEs, doorbell record and doorbell" },
	{ Mutation::ring_before_ready, "ring-before-ready", "ring up to the reserved index, not the ready one" },
	{ Mutation::skip_slot_check, "skip-slot-check", "reserve without waiting for a free slot" },
	{ Mutation::dbr_dword0, "dbr-dword0", "store the send index in the receive dword of the record" },
	{ Mutation::masked_index, "masked-index", "number WQEs by slot, not by running index" },
	{ Mutation::masked_phase, "masked-phase", "mask the index before the phase is taken from it" },
	{ Mutation::neighbour_qpn, "neighbour-qpn", "write the next QP's number into WQEs" },
	{ Mutation::swap_doorbell, "swap-doorbell", "swap the two dwords of the doorbell" },
	{ Mutation::split_doorbell, "split-doorbell", "ring with two stores of 32 bits" },
	{ Mutation::ring_all_lanes, "ring-all-lanes", "every lane of a warp rings, without lock or order" },
	{ Mutation::ring_before_connect, "ring-before-connect", "ring before the queue pair is in RTS" },
	{ Mutation::forget_consumer, "forget-consumer", "never tell the NIC what was read from a ring CQ" },
	{ Mutation::consumer_ahead, "consumer-ahead", "tell the NIC of more than it wrote to a ring CQ" },
	{ Mutation::forget_last_doorbell, "forget-last-doorbell", "ring full batches only" },
	{ Mutation::cta_scope_on_shared, "cta-scope-on-shared", "treat a QP that CTAs share as one CTA's own" },
	{ Mutation::reuse_payload, "reuse-payload", "write the next payload over one that is still being sent" },
	{ Mutation::signal_on_other_qp, "signal-on-other-qp", "send the signal on another QP than its data" },
	{ Mutation::drop_signal_fence, "drop-signal-fence", "no fence flag on a signal, on an unordered transport" },
	{ Mutation::drop_fence, "drop-fence", "no fence between data on one QP and what announces it on another" },
	{ Mutation::swap_keys, "swap-keys", "swap the bytes of a key that has them in order" },
	{ Mutation::misaligned_atomic, "misaligned-atomic", "aim an atomic 4 bytes beside its target" },
	{ Mutation::four_byte_atomic, "four-byte-atomic", "flag an atomic as one on 4 bytes, and give it 8" },
	{ Mutation::drop_lock, "drop-lock", "store record and doorbell without the queue pair's lock" },
	{ Mutation::narrow_index, "narrow-index", "keep 16 bits of the running index in WQEs" },
	{ Mutation::narrow_doorbell, "narrow-doorbell", "keep 16 bits of the running index in doorbells" },
	{ Mutation::swap_index, "swap-index", "write the running index of WQEs in the other byte order" },
	{ Mutation::change_wqe, "change-wqe", "store to a WQE once more after its doorbell" },
	{ Mutation::reuse_result, "reuse-result", "let two atomics in flight return to one result cell" },
	{ Mutation::ignore_errors, "ignore-errors", "take a completion with an error for none at all" },
	{ Mutation::unclean_cq, "unclean-cq", "leave what was in the memory of a CQ" },
	{ Mutation::unclean_ring, "unclean-ring", "leave what was in the memory of a send ring" },
	{ Mutation::pe_major, "pe-major", "take queue pairs out of an array that is laid out the other way" },
	{ Mutation::stale_psn, "stale-psn", "expect another first PSN than the peer sends" },
	{ Mutation::no_retries, "no-retries", "connect without retries" },
	{ Mutation::narrow_ring_fence, "narrow-ring-fence", "fence for the GPU where the NIC reads host memory" },
	{ Mutation::drop_block_barrier, "drop-block-barrier", "post what a CTA wrote without a barrier before" },
	{ Mutation::garbage_hints, "garbage-hints", "write random bytes into the hint ring" },
	{ Mutation::keep_lock, "keep-lock", "leave the doorbell lock taken" },
	{ Mutation::stray_key, "stray-key", "use a key that was never given out" },
	{ Mutation::narrow_signal, "narrow-signal", "add 4 bytes to a signal of 8" },
	{ Mutation::none, nullptr, nullptr },
};

SIMT_DEVICE void Qp::spin(simt::Wait wait, uint64_t index)
{
	static const char *const names[] = { "", "completion of", "turn of", "doorbell for", "doorbell lock for" };

	if (static_cast<int64_t>(clock() - deadline) > 0) {
		uint64_t is_ready = simt::ld(&ready), is_produced = simt::ld(&produced);

		simt::fail("gave up waiting for %s index %llu of QP %u (reserved %llu, ready %llu, rung %llu, "
			   "completed %llu)",
			   names[static_cast<int>(wait)], static_cast<simt::Word>(index), qpn,
			   static_cast<simt::Word>(simt::ld(&reserved)), static_cast<simt::Word>(is_ready),
			   static_cast<simt::Word>(is_produced), static_cast<simt::Word>(simt::ld(&completed)));
	}
	simt::note_wait(qpn, wait, index, simt::ld(&ready));
	simt::pause();
}

SIMT_DEVICE void Qp::fail_completion(uint64_t counter, const char *status)
{
	simt::fail("QP %u: index %llu (low 16 bits) completed with %s", qpn, static_cast<simt::Word>(counter), status);
}

// A CQE's last word, written last, says all: running index of the CQE, index of the WQE, status.
SIMT_DEVICE void Qp::take(uint64_t commit, uint64_t done)
{
	// Only 16 bits of the index: enough, a ring is shorter. What is behind us is an old CQE.
	uint16_t advance = static_cast<uint16_t>(static_cast<uint16_t>(commit >> 32) + 1 - done);

	if ((commit >> 48 & 0xff) && mutated(Mutation::ignore_errors))
		return;
	if (commit >> 48 & 0xff)
		fail_completion(commit >> 32 & 0xffff, vrnic_wc_status_name(static_cast<uint32_t>(commit >> 48 & 0xff)));
	if (advance && advance <= depth)
		simt::atomic_max(&completed, done + advance, scope());
}

SIMT_DEVICE void Qp::poll()
{
	uint64_t done = simt::ld(&completed);
	auto *words = reinterpret_cast<const uint64_t *>(cq);
	uint64_t commit;

	switch (completion) {
	case Completion::counter:
		// Every WQE counts, and they complete in order.
		if (uint64_t errors = mutated(Mutation::ignore_errors) ? 0 : le64toh(simt::ld(words + 1, Order::acquire, Scope::sys)))
			simt::fail("QP %u: %llu WQEs failed, by the CQ's counter", qpn, static_cast<simt::Word>(errors));
		simt::atomic_max(&completed, start + le64toh(simt::ld(words, Order::acquire, Scope::sys)), scope());
		break;
	case Completion::ring:
		// One lane reads the ring at a time; the others look at what it found.
		if (simt::atomic_exchange(&cq_lock, 1, scope()))
			return;
		simt::acquire(scope());
		if (device == Device::mlx5)
			poll_mlx5();
		else
			poll_ring(simt::ld(&completed));
		simt::st(&cq_lock, 0, Order::release, scope());
		break;
	default:
		if (device == Device::mlx5) {
			poll_mlx5();
			break;
		}
		commit = le64toh(simt::ld(words + VRNIC_CQE_SIZE / 8 - 1, Order::acquire, Scope::sys));
		// The slot was filled with 0xff.
		if (static_cast<uint32_t>(commit) != 0xffffffff)
			take(commit, done);
	}
}

SIMT_DEVICE void Qp::poll_ring(uint64_t done)
{
	uint32_t slots = 1u << log_cq, next = static_cast<uint32_t>(simt::ld(&consumed));
	auto *cqe = reinterpret_cast<const uint64_t *>(cq + (next & (slots - 1)) * static_cast<size_t>(VRNIC_CQE_SIZE));
	uint64_t commit = le64toh(simt::ld(cqe + VRNIC_CQE_SIZE / 8 - 1, Order::acquire, Scope::sys));

	// Its running index tells a new entry from one of an earlier pass, and from the 0xff at first.
	if (static_cast<uint32_t>(commit) != next)
		return;
	simt::st(&consumed, ++next);
	take(commit, done);
	if (next % (slots / 4) || mutated(Mutation::forget_consumer))
		return;
	if (mutated(Mutation::consumer_ahead))
		next += slots;
	simt::fence(nic_scope);
	simt::mmio_st64(doorbells + VRNIC_DB_CQ_CONSUMER / 8,
			htole64(vrnic_doorbell(VRNIC_DB_TYPE_CQ_CONSUMER, cqn, next)));
}

SIMT_DEVICE void Qp::wait_completed(uint64_t end)
{
	while (simt::ld(&completed) < end) {
		poll();
		if (simt::ld(&completed) >= end)
			break;
		spin(simt::Wait::completion, end - 1);
	}
	simt::acquire(Scope::sys);
}

SIMT_DEVICE uint64_t Qp::reserve(uint32_t count)
{
	uint64_t base = simt::atomic_add(&reserved, count, scope());

	if (base + count - start > depth && !mutated(Mutation::skip_slot_check))
		wait_completed(base + count - depth);
	return base;
}

SIMT_DEVICE void Qp::fill(uint64_t index, const Wqe &wqe)
{
	uint64_t *slot = sq + (index & (depth - 1)) * (VRNIC_WQE_SIZE / 8);
	uint32_t number = static_cast<uint32_t>(index);
	uint32_t distance = static_cast<uint32_t>(index - start);
	uint8_t flags = wqe.flags();

	if (device == Device::mlx5) {
		fill_mlx5(index, wqe);
		return;
	}
	if (mutated(Mutation::masked_index))
		number &= depth - 1;
	if (mutated(Mutation::narrow_index))
		number &= 0xffff;
	if (mutated(Mutation::swap_index))
		number = mlx5_be32(number);
	if (mutated(Mutation::masked_phase))
		distance &= depth - 1;
	if (vrnic_phase(distance, log_depth))
		flags |= VRNIC_WQE_PHASE;
	for (int pair = 1; pair < 4; pair++)
		simt::st16(slot + 2 * pair, wqe.word[2 * pair], wqe.word[2 * pair + 1]);
	// The word with index and phase makes the slot valid: it comes behind the others.
	simt::fence(scope());
	simt::st16(slot, htole64(vrnic_wqe_commit(wqe.opcode(), flags, number)),
		   htole64((le64toh(wqe.word[1]) & 0xffffffff00000000ull) |
			   (mutated(Mutation::neighbour_qpn) ? qpn + 1 : qpn)));
}

SIMT_DEVICE void Qp::publish(uint64_t base, uint32_t count)
{
	uint64_t end = base + count;

	// The lane that rings is often another one: what it rings for must be visible to it before the index.
	if (!mutated(Mutation::drop_publish_fence))
		simt::fence(scope());
	if (mutated(Mutation::ring_before_ready))
		ring(simt::ld(&reserved));
	while (simt::atomic_cas(&ready, base, end, scope()) != base)
		spin(simt::Wait::turn, base);
	simt::acquire(scope());
	if ((end == simt::ld(&reserved) && !mutated(Mutation::forget_last_doorbell)) ||
	    (base - start) / batch != (end - start) / batch)
		ring(end);
}

SIMT_DEVICE void Qp::ring(uint64_t end)
{
	if (mutated(Mutation::drop_lock)) {
		if (simt::atomic_max(&produced, end, scope()) < end)
			store_doorbell(end);
		return;
	}
	while (simt::atomic_exchange(&lock, 1, scope()))
		spin(simt::Wait::lock, end);
	simt::acquire(scope());
	if (simt::atomic_max(&produced, end, scope()) < end)
		store_doorbell(end);
	if (mutated(Mutation::keep_lock))
		return;
	// The next doorbell must come after this one, as must the next store to the record.
	simt::st(&lock, 0, Order::release, scope());
}

SIMT_DEVICE void Qp::store_doorbell(uint64_t end)
{
	uint32_t index = static_cast<uint32_t>(end);
	uint64_t doorbell = htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qpn, index));
	volatile uint64_t *target = doorbells + VRNIC_DB_SQ / 8;
	simt::Scope reach = mutated(Mutation::narrow_ring_fence) ? simt::Scope::gpu : nic_scope;

	if (mutated(Mutation::narrow_doorbell))
		doorbell = htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qpn, index & 0xffff));
	if (device == Device::mlx5) {
		doorbell = doorbell_mlx5(end);
		target = doorbells;
		index = le32toh(mlx5_record(index));
	}
	if (!mutated(Mutation::drop_ring_fence))
		simt::fence(reach);
	if (ring_twice)
		simt::mmio_st64(target, doorbell);
	simt::st(dbr + (mutated(Mutation::dbr_dword0) ? 0 : 1), htole32(index));
	if (!mutated(Mutation::drop_ring_fence))
		simt::fence(reach);
	if (mutated(Mutation::swap_doorbell))
		doorbell = doorbell << 32 | doorbell >> 32;
	if (mutated(Mutation::split_doorbell)) {
		auto *halves = reinterpret_cast<volatile uint32_t *>(target);

		simt::mmio_st32(halves, static_cast<uint32_t>(doorbell));
		simt::mmio_st32(halves + 1, static_cast<uint32_t>(doorbell >> 32));
	} else if (device == Device::mlx5 && convention == Convention::blueflame) {
		push_mlx5(end);
	} else {
		simt::mmio_st64(target, doorbell);
	}
	if (mutated(Mutation::change_wqe)) {
		auto *immediate = reinterpret_cast<uint32_t *>(sq + ((end - 1) & (depth - 1)) * (VRNIC_WQE_SIZE / 8)) + 3;

		simt::st(immediate, 0x55aa55aau);
		simt::fence(reach);
	}
	simt::atomic_add(&rings, 1, Scope::gpu);
}

SIMT_DEVICE void Qp::quiet()
{
	uint64_t end = simt::ld(&ready, Order::acquire, scope());

	while (simt::ld(&produced) < end)
		spin(simt::Wait::doorbell, end - 1);
	wait_completed(end);
}

} // namespace kernels
