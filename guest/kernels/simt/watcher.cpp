// SPDX-License-Identifier: Apache-2.0
// What lanes do, as evidence.
#include "watcher.h"

#include <algorithm>
#include <cstring>

namespace kernels {

namespace {

constexpr uint64_t WORDS = VRNIC_WQE_SIZE / 8;
// Parts of a second between two hints of what lanes wait for.
constexpr uint64_t IDLE_FRACTION = 50;

} // namespace

bool Watcher::open(simt::Memory &memory, Shmem &shmem, const Region &rings, const Region &data)
{
	memory_ = &memory;
	shmem_ = &shmem;
	rings_ = rings;
	data_ = data;
	if (simt::Clocks *clocks = memory.clocks()) {
		clocks->add_memory(rings.map, rings.size);
		clocks->add_memory(data.map, data.size);
	}
	return !options_.hints || hints_.open();
}

void Watcher::add(Qp &qp, uint32_t pe)
{
	watched_.push_back({ &qp, pe, qp.start, qp.start, {}, {}, NOBODY, false, {} });
	watched_.back().slots.resize(WORDS * qp.depth);
	watched_.back().told.resize(machine_.pes);

	struct vrnic_hint hint = describe(VRNIC_HINT_PEER, { 0, 0 }, &watched_.back(), 0);

	hint.writer = htole32(pe);
	hints_.write(hint);
}

void Watcher::declare_signal(uint64_t offset, uint32_t width, vrnic_hint_signal how)
{
	struct vrnic_hint hint = describe(VRNIC_HINT_SIGNAL, { 0, 0 }, nullptr, 0);

	hint.detail = static_cast<uint8_t>(how);
	hint.length = htole32(width);
	hint.address = htole64(shmem_->address + offset);
	hints_.write(hint);
}

// The address the NIC knows memory by; what is no memory of the NIC's stays as it is.
uint64_t Watcher::nic_address(const void *address) const
{
	uintptr_t at = reinterpret_cast<uintptr_t>(address);

	for (const Region *region : { &rings_, &data_ }) {
		uintptr_t start = reinterpret_cast<uintptr_t>(region->map);

		if (at - start < region->size)
			return region->address + (at - start);
	}
	return at;
}

struct vrnic_hint Watcher::describe(vrnic_hint_kind kind, simt::Agent who, const Watched *watched, uint64_t index)
{
	struct vrnic_hint hint = {};

	hint.kind = static_cast<uint8_t>(kind);
	hint.lane = htole32(who.lane);
	hint.cta = htole16(static_cast<uint16_t>(who.cta));
	hint.qpn = htole32(watched ? watched->qp->qpn : 0);
	hint.index = htole32(static_cast<uint32_t>(index));
	return hint;
}

uint32_t Watcher::cta_of(uint32_t lane) const
{
	return lane / (options_.warps * simt::WARP_LANES);
}

// The store to these bytes that @who knows least of, or the last one if it knows all.
void Watcher::look(simt::Agent who, const uint8_t *start, uint64_t size, uint64_t index, Latest &latest) const
{
	const simt::Clocks &clocks = *memory_->clocks();

	for (uint64_t at = 0; at < size; at += 8) {
		simt::Writer writer = clocks.writer(start + at);
		simt::Scope needed = memory_->needed(start + at);

		if (!writer.clock)
			continue;
		bool known = writer.clock <= clocks.known(who, writer.lane, needed);
		bool better = latest.writer.clock &&
			      latest.writer.clock <=
				      clocks.known(who, latest.writer.lane, memory_->needed(latest.address));

		if (!latest.writer.clock || (!known && better))
			latest = { writer, start + at, index };
	}
}

void Watcher::order(const Watched &watched, simt::Agent who, vrnic_hint_part part, const Latest &latest)
{
	if (!latest.writer.clock)
		return;

	const simt::Clocks &clocks = *memory_->clocks();
	simt::Scope needed = memory_->needed(latest.address);
	struct vrnic_hint hint = describe(VRNIC_HINT_ORDER, who, &watched, latest.index);
	uint8_t scope = 0;

	for (simt::Scope reached : { simt::Scope::cta, simt::Scope::gpu, simt::Scope::sys })
		if (latest.writer.clock <= clocks.known(who, latest.writer.lane, reached))
			scope = static_cast<uint8_t>(static_cast<int>(reached) + 1);
	hint.detail = static_cast<uint8_t>(part);
	hint.address = htole64(nic_address(latest.address));
	hint.length = htole32(8);
	hint.writer = htole32(latest.writer.lane);
	hint.writer_cta = htole16(static_cast<uint16_t>(cta_of(latest.writer.lane)));
	hint.scope = scope;
	hint.needed = static_cast<uint8_t>(static_cast<int>(needed) + 1);
	hint.writer_clock = htole32(latest.writer.clock);
	hint.known_clock = htole32(clocks.known(who, latest.writer.lane, needed));
	hint.loose_clock = htole32(clocks.loosely_known(who, latest.writer.lane));
	hints_.write(hint);
}

// A doorbell covers every WQE before @index that none covered before.
void Watcher::cover(Watched &watched, simt::Agent who, uint32_t index)
{
	Qp &qp = *watched.qp;
	uint32_t count = index - static_cast<uint32_t>(watched.rung);
	bool clocks = memory_->clocks() != nullptr;
	Latest wqe, payload, record;

	// An odd index is the NIC's to name.
	if (count > qp.depth)
		return;
	for (; count; count--, watched.rung++) {
		uint64_t slot = watched.rung & (qp.depth - 1);
		const uint64_t *words = &watched.slots[slot * WORDS];
		auto opcode = static_cast<vrnic_opcode>(le64toh(words[0]) & 0xff);
		bool inlined = le64toh(words[0]) >> 8 & VRNIC_WQE_INLINE;
		uint64_t size = le64toh(words[3]) >> 32;
		auto at = [&](int word) { return shmem_->heap + (le64toh(words[word]) - shmem_->address); };

		// The NIC may have found it by the doorbell record. Its slot may be another WQE's by now.
		if (watched.rung < watched.completed)
			continue;
		if (clocks)
			look(who, reinterpret_cast<const uint8_t *>(qp.sq) + slot * VRNIC_WQE_SIZE, VRNIC_WQE_SIZE,
			     watched.rung, wqe);
		if (opcode == VRNIC_OP_WRITE && !inlined) {
			watched.in_use.push_back({ watched.rung, at(4), size, VRNIC_HINT_PART_PAYLOAD });
			if (clocks)
				look(who, at(4), size, watched.rung, payload);
		} else if (opcode == VRNIC_OP_READ) {
			watched.in_use.push_back({ watched.rung, at(4), size, VRNIC_HINT_PART_RESULT });
		} else if ((opcode == VRNIC_OP_ATOMIC_ADD || opcode == VRNIC_OP_ATOMIC_CAS) &&
			   at(6) != shmem_->heap + shmem_->sink) {
			for (const Used &used : watched.in_use)
				if (used.part == VRNIC_HINT_PART_RESULT && at(6) < used.start + used.size &&
				    used.start < at(6) + 8 && used.index >= watched.completed && !watched.reused)
					reuse(watched, who, used.part, used.index, at(6), watched.completed);
			watched.in_use.push_back({ watched.rung, at(6), 8, VRNIC_HINT_PART_RESULT });
		}
	}
	if (!clocks)
		return;
	if (options_.dbr_policy != VRNIC_DBR_NONE && !options_.ring_twice)
		look(who, reinterpret_cast<const uint8_t *>(qp.dbr), 8, index, record);
	order(watched, who, VRNIC_HINT_PART_RECORD, record);
	order(watched, who, VRNIC_HINT_PART_WQE, wqe);
	order(watched, who, VRNIC_HINT_PART_PAYLOAD, payload);
}

void Watcher::ringing(simt::Agent who, volatile void *address, uint64_t value, size_t size)
{
	uint64_t doorbell = le64toh(value);

	for (Watched &watched : watched_) {
		Qp &qp = *watched.qp;

		if (size != 8 || address != qp.doorbells + VRNIC_DB_SQ / 8 ||
		    doorbell >> VRNIC_DB_QPN_SHIFT !=
			    vrnic_doorbell(VRNIC_DB_TYPE_SQ, qp.qpn, 0) >> VRNIC_DB_QPN_SHIFT)
			continue;
		if (watched.holder != who.lane) {
			struct vrnic_hint hint = describe(VRNIC_HINT_LOCK, who, &watched, doorbell);

			hint.writer = htole32(watched.holder);
			hints_.write(hint);
		}
		cover(watched, who, static_cast<uint32_t>(doorbell));
	}
}

void Watcher::updated(simt::Agent who, const void *address, uint64_t old, uint64_t fresh)
{
	for (Watched &watched : watched_)
		if (address == &watched.qp->lock && !old && fresh)
			watched.holder = who.lane;
}

void Watcher::reuse(Watched &watched, simt::Agent who, vrnic_hint_part part, uint64_t index, const void *address,
		    uint64_t completed)
{
	const char *what = part == VRNIC_HINT_PART_WQE	  ? "the slot" :
			   part == VRNIC_HINT_PART_RESULT ? "the result buffer" :
							    "the payload";
	struct vrnic_hint hint = describe(VRNIC_HINT_REUSE, who, &watched, index);

	watched.reused = true;
	hint.detail = static_cast<uint8_t>(part);
	hint.address = htole64(nic_address(address));
	hint.value = htole64(completed & 0xffffffff);
	hints_.write(hint);
	memory_->report("C05", "lane " + std::to_string(who.lane) + " writes over " + what + " of index " +
				       std::to_string(index) + " of QP " + std::to_string(watched.qp->qpn) +
				       ", whose completion it has not seen; wait for it first");
}

// C05: what the NIC may still use stays as it is until its completion was seen.
void Watcher::check_reuse(Watched &watched, simt::Agent who, const uint8_t *address, size_t size)
{
	const Qp &qp = *watched.qp;
	auto *ring = reinterpret_cast<const uint8_t *>(qp.sq);
	uint64_t completed;

	memory_->look(who, &qp.completed, &completed, sizeof(completed));
	watched.completed = std::max(watched.completed, completed);
	while (!watched.in_use.empty() && watched.in_use.front().index < completed)
		watched.in_use.pop_front();
	for (const Used &used : watched.in_use)
		if (address < used.start + used.size && used.start < address + size) {
			reuse(watched, who, used.part, used.index, address, completed);
			return;
		}
	if (address < ring || address >= ring + VRNIC_WQE_SIZE * static_cast<uint64_t>(qp.depth))
		return;

	uint64_t slot = static_cast<uint64_t>(address - ring) / VRNIC_WQE_SIZE;
	// How far behind the last rung index the last one with this slot is.
	uint64_t behind = (watched.rung - 1 - slot) & (qp.depth - 1);

	if (behind < watched.rung - qp.start && watched.rung - 1 - behind >= completed)
		reuse(watched, who, VRNIC_HINT_PART_WQE, watched.rung - 1 - behind, address, completed);
}

void Watcher::storing(simt::Agent who, const void *address, const void *value, size_t size)
{
	auto *at = static_cast<const uint8_t *>(address);

	for (Watched &watched : watched_) {
		auto *ring = reinterpret_cast<const uint8_t *>(watched.qp->sq);

		if (address == &watched.qp->lock)
			watched.holder = NOBODY;
		if (!watched.reused)
			check_reuse(watched, who, at, size);
		if (at >= ring && at + size <= ring + 8 * watched.slots.size())
			memcpy(reinterpret_cast<uint8_t *>(watched.slots.data()) + (at - ring), value, size);
	}
}

void Watcher::violated(const char *rule, const simt::Evidence &evidence)
{
	struct vrnic_hint hint;

	if (!strcmp(rule, "C10")) {
		hint = describe(VRNIC_HINT_SCOPE, evidence.who, nullptr, 0);
		hint.writer = htole32(evidence.other.lane);
		hint.writer_cta = htole16(static_cast<uint16_t>(evidence.other.cta));
	} else if (!strcmp(rule, "C24")) {
		hint = describe(VRNIC_HINT_MISSING, evidence.who, nullptr, 0);
		hint.value = htole64(nic_address(evidence.flag));
	} else {
		return;
	}
	hint.address = htole64(nic_address(evidence.address));
	hints_.write(hint);
	hints_.ring();
}

void Watcher::waiting(simt::Agent who, uint32_t qpn, simt::Wait wait, uint64_t index, uint64_t ready)
{
	struct vrnic_hint hint = {};

	for (Watched &watched : watched_)
		if (watched.qp->qpn == qpn)
			hint = describe(VRNIC_HINT_STALL, who, &watched, index);
	hint.detail = static_cast<uint8_t>(wait);
	hint.value = htole64(ready & 0xffffffff);
	for (struct vrnic_hint &known : stalls_)
		if (known.qpn == hint.qpn) {
			known = hint;
			return;
		}
	stalls_.push_back(hint);
}

void Watcher::using_for(simt::Agent who, uint32_t qpn, uint64_t index, uint32_t pe)
{
	for (Watched &watched : watched_)
		if (watched.qp->qpn == qpn && !watched.told[pe]) {
			struct vrnic_hint hint = describe(VRNIC_HINT_USE, who, &watched, index);

			watched.told[pe] = true;
			hint.writer = htole32(pe);
			hints_.write(hint);
		}
}

void Watcher::idle()
{
	uint64_t now = machine_.clock();
	std::vector<struct vrnic_hint> stalls;

	// Who still waits says so again before the next time. What is on its way may yet change that.
	stalls.swap(stalls_);
	bool before = settled_;

	settled_ = memory_->settled();
	if (!hints_.on() || stalls.empty() || !before || !settled_ || now - stalled_at_ < machine_.ticks_per_second / IDLE_FRACTION)
		return;
	stalled_at_ = now;
	for (const struct vrnic_hint &hint : stalls)
		hints_.write(hint);
	hints_.ring();
}

void Watcher::finish()
{
	hints_.ring();
}

} // namespace kernels
