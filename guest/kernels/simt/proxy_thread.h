// SPDX-License-Identifier: Apache-2.0
// The CPU that submits in the lanes' place: see proxy_ring.h.
#ifndef KERNELS_SIMT_PROXY_THREAD_H
#define KERNELS_SIMT_PROXY_THREAD_H

#include <deque>
#include <vector>

#include "machine.h"
#include "proxy_ring.h"
#include "shmem.h"

namespace kernels {

class ProxyThread {
public:
	ProxyThread(const Options &options, Machine &machine) : options_(options), machine_(machine)
	{
	}

	// The ring, once queue pairs are connected; @shmem's calls go through it from here on. False with a
	// sentence in the machine's error().
	bool open(simt::Memory &memory, Shmem &shmem);
	// What a thread that polls would do in one turn.
	void step();

	// Times the CPU stepped in: took a command and wrote its WQE, rang, saw a completion.
	uint64_t touches() const
	{
		return touches_;
	}

private:
	// One queue pair as the CPU sees it.
	struct Lane {
		Qp *qp;
		uint64_t next;
		uint64_t done;
	};
	// A command that is not known to be complete.
	struct Pending {
		size_t lane;
		uint64_t index;
		uint64_t end;  // of its entries
	};

	bool take();
	uint64_t entry(uint64_t number) const;
	Wqe decode(const uint64_t *value, uint32_t entries, uint32_t pe) const;
	void submit(Lane &lane, Wqe wqe);
	void observe(Lane &lane);

	const Options &options_;
	Machine &machine_;
	Shmem *shmem_ = nullptr;
	ProxyRing ring_ = {};
	std::vector<Lane> lanes_;
	std::deque<Pending> pending_;
	uint64_t taken_ = 0;
	uint64_t touches_ = 0;
};

} // namespace kernels

#endif // KERNELS_SIMT_PROXY_THREAD_H
