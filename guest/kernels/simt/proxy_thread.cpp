// SPDX-License-Identifier: Apache-2.0
// Everything here is the CPU's own: plain loads and stores, of host memory and of what the GPU maps.
#include "proxy_thread.h"

#include <cstring>

namespace kernels {

namespace {

uint64_t load(const uint64_t *word)
{
	return le64toh(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}

void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, htole64(value), __ATOMIC_RELEASE);
}

} // namespace

bool ProxyThread::open(simt::Memory &memory, Shmem &shmem)
{
	Region region;

	// The NIC never reads it, but the lanes' stores to it are stores to host memory.
	if (!machine_.make_region((PROXY_ENTRIES + 24) * sizeof(uint64_t), Place::host, VRNIC_ACCESS_LOCAL_WRITE, region))
		return false;
	memset(region.map, 0, region.size);
	memory.add_host_memory(region.map, region.size);
	ring_.entries = reinterpret_cast<uint64_t *>(region.map);
	// Each word the CPU writes has a line of its own.
	ring_.consumed = ring_.entries + PROXY_ENTRIES;
	ring_.acked = ring_.consumed + 8;
	ring_.failed = ring_.acked + 8;
	for (uint32_t pe = 0; pe < shmem.pes; pe++)
		for (uint32_t q = 0; q < shmem.qps; q++) {
			Qp &qp = shmem.peers[pe].qps[q];

			lanes_.push_back({ pe == shmem.pe ? nullptr : &qp, options_.start, options_.start });
			if (pe != shmem.pe) {
				ring_.clock = qp.clock;
				ring_.deadline = qp.deadline;
			}
		}
	shmem_ = &shmem;
	shmem.proxy = &ring_;
	return true;
}

void ProxyThread::step()
{
	if (!shmem_)
		return;
	for (Lane &lane : lanes_)
		if (lane.qp)
			observe(lane);
	while (!pending_.empty() && lanes_[pending_.front().lane].done > pending_.front().index) {
		store(ring_.acked, pending_.front().end);
		pending_.pop_front();
	}
	while (take())
		;
}

uint64_t ProxyThread::entry(uint64_t number) const
{
	return load(ring_.entries + (number & (PROXY_ENTRIES - 1)));
}

// The next command, if all of it is there and its queue pair has room.
bool ProxyThread::take()
{
	uint64_t value[PROXY_MOST], first = entry(taken_);
	uint32_t opcode, pe, q, entries;

	if ((first & 1) != proxy_flag(taken_))
		return false;
	first >>= 1;
	opcode = static_cast<uint32_t>(first & 0xf);
	pe = static_cast<uint32_t>(first >> 12 & 0xf);
	q = static_cast<uint32_t>(first >> 16 & 0xf);
	entries = opcode == VRNIC_OP_ATOMIC_CAS ? 8 : opcode == VRNIC_OP_ATOMIC_ADD ? 6 : 4;
	for (uint32_t i = 0; i < entries; i++) {
		uint64_t word = entry(taken_ + i);

		if ((word & 1) != proxy_flag(taken_ + i))
			return false;
		value[i] = word >> 1;
	}

	size_t place = static_cast<size_t>(pe) * shmem_->qps + q;
	Lane &lane = lanes_[place];

	if (lane.next - lane.done >= lane.qp->depth)
		return false;
	taken_ += entries;
	pending_.push_back({ place, lane.next, taken_ });
	submit(lane, decode(value, entries, pe));
	store(ring_.consumed, taken_);
	return true;
}

Wqe ProxyThread::decode(const uint64_t *value, uint32_t entries, uint32_t pe) const
{
	auto opcode = static_cast<vrnic_opcode>(value[0] & 0xf);
	uint8_t flags = static_cast<uint8_t>(value[0] >> 4);
	uint32_t length = static_cast<uint32_t>(value[0] >> 20), rkey = shmem_->peers[pe].rkey;
	uint64_t remote = shmem_->peers[pe].address + value[1], own = shmem_->address, both = value[3] << 32 | value[2];
	Wqe wqe;

	switch (opcode) {
	case VRNIC_OP_ATOMIC_ADD:
		wqe = Wqe::add(both, own + value[4], shmem_->lkey, remote, rkey);
		break;
	case VRNIC_OP_ATOMIC_CAS:
		wqe = Wqe::cas(value[5] << 32 | value[4], both, own + value[entries - 2], shmem_->lkey, remote, rkey);
		break;
	default:
		wqe = flags & VRNIC_WQE_INLINE ? Wqe::inlined(&both, length, remote, rkey) :
						 Wqe::transfer(opcode, own + value[2], shmem_->lkey, remote, rkey, length);
	}
	wqe.set_flags(flags);
	return wqe;
}

// What ibv_post_send() does: descriptor, record, doorbell, for each command.
void ProxyThread::submit(Lane &lane, Wqe wqe)
{
	Qp &qp = *lane.qp;
	uint64_t *slot = qp.sq + (lane.next & (qp.depth - 1)) * (VRNIC_WQE_SIZE / 8);
	uint8_t flags = wqe.flags() | VRNIC_WQE_SIGNAL;
	uint32_t end = static_cast<uint32_t>(lane.next + 1);

	if (vrnic_phase(static_cast<uint32_t>(lane.next - qp.start), qp.log_depth))
		flags |= VRNIC_WQE_PHASE;
	for (int word = 2; word < 8; word++)
		slot[word] = wqe.word[word];
	slot[1] = htole64((le64toh(wqe.word[1]) & 0xffffffff00000000ull) | qp.qpn);
	store(slot, vrnic_wqe_commit(wqe.opcode(), flags, static_cast<uint32_t>(lane.next)));
	lane.next++;
	touches_++;
	__sync_synchronize();
	qp.dbr[1] = htole32(end);
	__sync_synchronize();
	machine_.doorbell(qp.doorbells + VRNIC_DB_SQ / 8, htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qp.qpn, end)), 8);
	qp.rings++;
	touches_++;
}

void ProxyThread::observe(Lane &lane)
{
	const auto *words = reinterpret_cast<const uint64_t *>(lane.qp->cq);
	uint64_t commit = load(words + VRNIC_CQE_SIZE / 8 - 1);
	uint16_t advance = static_cast<uint16_t>(static_cast<uint16_t>(commit >> 32) + 1 - lane.done);

	// The slot was filled with 0xff.
	if (static_cast<uint32_t>(commit) == 0xffffffff || !advance || advance > lane.next - lane.done)
		return;
	touches_++;
	if (commit >> 48 & 0xff) {
		store(ring_.failed, commit >> 48 & 0xff);
		return;
	}
	lane.done += advance;
}

} // namespace kernels
