// SPDX-License-Identifier: Apache-2.0
// What a kernel runs on: a NIC, memory it can reach, peers, and a clock.
//
//   device   the guest's drivers, and a peer reached by lines on standard input and output
//   mlx5     the same with an mlx5-compatible NIC, through DevX
//   harness  a NIC in another process, over a socket, without a guest; see harness.cpp
//
// Calls return false, or nothing where they cannot fail, with a sentence in error().
#ifndef KERNELS_SIMT_MACHINE_H
#define KERNELS_SIMT_MACHINE_H

#include <memory>
#include <string>

#include "memory.h"
#include "options.h"

extern "C" {
#include "libvrnic.h"
}

namespace kernels {

// What explains a queue pair in ERR whose own work did nothing wrong.
constexpr char PEER_ERROR[] = "the NIC ended it for what its peer asked of it";

// The record of an mlx5 CQ is that many bytes behind its ring.
constexpr uint64_t MLX5_CQ_RECORD_BEHIND = 16;

struct Region {
	uint8_t *map;
	uint64_t address;  // for the key
	uint32_t key;
	size_t size;
};

class Machine {
public:
	uint32_t pe = 0;
	uint32_t pes = 2;
	uint64_t ticks_per_second = 1000000000;
	uint8_t retries = 7;  // of connections

	virtual ~Machine() = default;
	virtual bool open(const Options &options) = 0;
	virtual bool make_region(size_t size, Place place, uint32_t access, Region &region) = 0;
	virtual bool create_cq(struct vrnic_create_cq &cq) = 0;
	// @qp without its protection domain.
	virtual bool create_qp(struct vrnic_create_qp &qp) = 0;
	// Whether the NIC takes hints, and the ring to take them from.
	virtual bool has_hints() const
	{
		return false;
	}
	virtual bool set_hints(const Region &, uint8_t)
	{
		return fail("this NIC takes no hints");
	}
	// Fill in who we are on the network.
	virtual bool identify(vrnic_endpoint &self) = 0;
	// Exchange endpoints with rank @peer.
	virtual bool meet(uint32_t peer, const vrnic_endpoint &self, vrnic_endpoint &other) = 0;
	virtual bool connect(const vrnic_endpoint &self, const vrnic_endpoint &other) = 0;
	// Wait until every rank is here.
	virtual bool sync() = 0;
	// Every lane spins.
	virtual void idle() = 0;
	virtual uint64_t clock() = 0;
	virtual volatile uint64_t *doorbells() = 0;
	// A store of 4 or 8 bytes to the doorbell page.
	virtual void doorbell(volatile void *address, uint64_t value, size_t size) = 0;
	// What the NIC knows of a queue pair that failed; nothing of one that did not.
	virtual std::string explain(uint32_t qpn) = 0;

	const std::string &error() const
	{
		return error_;
	}

protected:
	bool fail(std::string sentence)
	{
		error_ = std::move(sentence);
		return false;
	}

private:
	std::string error_;
};

std::unique_ptr<Machine> make_device_machine();
std::unique_ptr<Machine> make_mlx5_machine();
std::unique_ptr<Machine> make_harness_machine();

} // namespace kernels

#endif // KERNELS_SIMT_MACHINE_H
