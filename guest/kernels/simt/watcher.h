// SPDX-License-Identifier: Apache-2.0
// The watch on what lanes do to queue pairs: what the NIC cannot see of it goes to its checks as hints.
#ifndef KERNELS_SIMT_WATCHER_H
#define KERNELS_SIMT_WATCHER_H

#include <deque>
#include <string>
#include <vector>

#include "hints.h"
#include "kernel.h"

namespace kernels {

class Watcher {
public:
	Watcher(const Options &options, Machine &machine) : options_(options), machine_(machine), hints_(machine)
	{
	}

	// Once memory and heap are there: @rings and @data are what the lanes' stores go to.
	bool open(simt::Memory &memory, Shmem &shmem, const Region &rings, const Region &data);
	// @qp leads to rank @pe.
	void add(Qp &qp, uint32_t pe);
	// Peers change the word at @offset of the heap, @width bytes at a time.
	void declare_signal(uint64_t offset, uint32_t width, vrnic_hint_signal how);
	// Every lane spins; and the kernel has ended.
	void idle();
	void finish();

	void storing(simt::Agent who, const void *address, const void *value, size_t size);
	void ringing(simt::Agent who, volatile void *address, uint64_t value, size_t size);
	void updated(simt::Agent who, const void *address, uint64_t old, uint64_t fresh);
	void violated(const char *rule, const simt::Evidence &evidence);
	void waiting(simt::Agent who, uint32_t qpn, simt::Wait wait, uint64_t index, uint64_t ready);
	void using_for(simt::Agent who, uint32_t qpn, uint64_t index, uint32_t pe);

	// Random bytes into the hint ring.
	void spoil(simt::Random &random)
	{
		hints_.spoil(random);
	}

private:
	// What a WQE that is not known to be complete still uses.
	struct Used {
		uint64_t index;
		const uint8_t *start;
		uint64_t size;
		vrnic_hint_part part;
	};

	// A queue pair and what its doorbells covered.
	struct Watched {
		Qp *qp;
		uint32_t pe;
		uint64_t rung;
		uint64_t completed;  // everything before it was, to a lane that stored something
		std::deque<Used> in_use;
		std::vector<uint64_t> slots;  // of the ring, as stored last, whatever of it has drained
		uint32_t holder;  // lane that holds the lock, VRNIC_NOBODY
		bool reused;  // said so already
		std::vector<bool> told;  // which ranks it was used for
	};

	// The stores of one part of what a doorbell covers, and the one known least.
	struct Latest {
		simt::Writer writer = { 0, 0 };
		const uint8_t *address = nullptr;
		uint64_t index = 0;
	};

	static constexpr uint32_t NOBODY = 0xffffffff;

	uint64_t nic_address(const void *address) const;
	struct vrnic_hint describe(vrnic_hint_kind kind, simt::Agent who, const Watched *watched, uint64_t index);
	void cover(Watched &watched, simt::Agent who, uint32_t index);
	void look(simt::Agent who, const uint8_t *start, uint64_t size, uint64_t index, Latest &latest) const;
	void order(const Watched &watched, simt::Agent who, vrnic_hint_part part, const Latest &latest);
	void check_reuse(Watched &watched, simt::Agent who, const uint8_t *address, size_t size);
	void reuse(Watched &watched, simt::Agent who, vrnic_hint_part part, uint64_t index, const void *address,
		   uint64_t completed);
	uint32_t cta_of(uint32_t lane) const;

	const Options &options_;
	Machine &machine_;
	Hints hints_;
	simt::Memory *memory_ = nullptr;
	Shmem *shmem_ = nullptr;
	Region rings_ = {}, data_ = {};
	std::deque<Watched> watched_;
	std::vector<struct vrnic_hint> stalls_;  // what lanes wait for, by queue pair
	uint64_t stalled_at_ = 0;
	bool settled_ = false;
};

} // namespace kernels

#endif // KERNELS_SIMT_WATCHER_H
