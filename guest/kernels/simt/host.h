// SPDX-License-Identifier: Apache-2.0
// The host side of a kernel: what a CPU does once before lanes run by themselves, and the watch on what
// leaves them.
#ifndef KERNELS_SIMT_HOST_H
#define KERNELS_SIMT_HOST_H

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernel.h"
#include "machine.h"

namespace kernels {

class Host : public simt::Bus {
public:
	Host(const Options &options, Machine &machine);

	// Memory, queue pairs to every peer, connections. False with a sentence in error().
	bool open(size_t heap, uint32_t lanes, uint32_t ctas);
	void doorbell(volatile void *address, uint64_t value, size_t size) override;
	void drain() override;
	void storing(simt::Agent who, const void *address, size_t size) override;
	// What the NIC says of the first queue pair that failed, or nothing.
	std::string explain();

	Shmem &shmem()
	{
		return *shmem_;
	}
	simt::Memory &memory()
	{
		return *memory_;
	}
	// Where the heap's part of the kernel begins.
	uint64_t base() const
	{
		return base_;
	}
	uint64_t rings() const;
	const std::string &error() const
	{
		return error_;
	}

private:
	bool failed()
	{
		error_ = machine_.error();
		return false;
	}
	struct Payload {
		uint64_t index;
		const uint8_t *start;
		uint64_t size;
	};

	// A queue pair and what its doorbells covered.
	struct Watched {
		Qp *qp;
		uint64_t rung;
		uint64_t completed;  // everything before it was, to a lane that stored something
		std::deque<Payload> in_flight;  // of WRITEs that are not known to be complete
		bool reused;  // said so already
	};

	bool make_qp(Qp &qp, const Region &rings, uint64_t at);
	void watch(Watched &watched, uint32_t index);
	void check_reuse(Watched &watched, simt::Agent who, const uint8_t *address, size_t size);

	const Options &options_;
	Machine &machine_;
	std::unique_ptr<Shmem> shmem_;
	std::unique_ptr<simt::Memory> memory_;
	std::vector<Watched> watched_;
	uint64_t base_ = 0;
	std::string error_;
};

// Bytes of the heap that come before the kernel's part.
size_t heap_header(uint32_t lanes);

} // namespace kernels

#endif // KERNELS_SIMT_HOST_H
