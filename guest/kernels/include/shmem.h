// SPDX-License-Identifier: Apache-2.0
// One-sided communication as a kernel calls it, in the shape of NVSHMEM's device calls.
//
// Every rank has a heap of the same layout, and a place in it is the same offset on all of them. A call
// names the rank it is for (pe) and which of the queue pairs to that rank carries it (q); order is
// guaranteed within one queue pair only. Variants:
//
//   thread  (no suffix)  each lane for itself
//   _warp                all 32 lanes of a warp together: one reservation, one completion, one doorbell
//   _block               all lanes of a CTA together; the last lane of the first warp submits
#ifndef KERNELS_SHMEM_H
#define KERNELS_SHMEM_H

#include "proxy_ring.h"
#include "qp.h"

namespace kernels {

constexpr uint32_t MAX_PES = 4;
constexpr uint32_t MAX_QPS = 8;  // for each peer

enum class SignalOp { add, set };

struct Peer {
	uint64_t address;  // of its heap, for its key
	uint32_t rkey;
	Qp qps[MAX_QPS];
};

struct Shmem {
	uint32_t pe;
	uint32_t pes;
	uint32_t qps;  // for each peer
	bool unordered;  // messages of a queue pair may overtake each other
	uint8_t *heap;
	uint64_t address;  // of the heap, for the NIC
	uint32_t lkey;
	uint64_t sink;  // offset of 8 bytes that nobody reads: results of atomics without fetch
	uint64_t results;  // offset of 8 bytes for each thread: results of atomics with
	Peer peers[MAX_PES];
	ProxyRing *proxy;  // through which a CPU submits; nullptr: lanes do

	// WRITE @size bytes at @from of the own heap to @to of the peer's. Returns before it is complete.
	SIMT_DEVICE void put(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size);
	SIMT_DEVICE void put_warp(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size);
	SIMT_DEVICE void put_block(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size);

	// The same, and then change the 8 bytes at @signal of the peer's heap.
	SIMT_DEVICE void put_signal(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size, uint64_t signal,
			uint64_t value, SignalOp op);

	// READ @size bytes at @from of the peer's heap to @to of the own; complete after quiet().
	SIMT_DEVICE void get(uint32_t pe, uint32_t q, uint64_t to, uint64_t from, uint32_t size);

	// Store 8 bytes.
	SIMT_DEVICE void p(uint32_t pe, uint32_t q, uint64_t to, uint64_t value);
	SIMT_DEVICE void p_warp(uint32_t pe, uint32_t q, uint64_t to, uint64_t value);

	// Atomics on 8 bytes, without and with the old value.
	SIMT_DEVICE void add(uint32_t pe, uint32_t q, uint64_t to, uint64_t value);
	SIMT_DEVICE uint64_t fetch_add(uint32_t pe, uint32_t q, uint64_t to, uint64_t value);
	SIMT_DEVICE uint64_t fetch_cas(uint32_t pe, uint32_t q, uint64_t to, uint64_t compare, uint64_t swap);

	// Everything submitted to this queue pair, or to all of them, is complete.
	SIMT_DEVICE void quiet(uint32_t pe, uint32_t q);
	SIMT_DEVICE void quiet_all();
	// What comes later arrives after what came before, on any queue pair.
	SIMT_DEVICE void fence();

	// Spin until the 8 bytes at @at of the own heap are what @done accepts; their value.
	SIMT_DEVICE uint64_t wait_until(uint64_t at, bool (*done)(uint64_t value, uint64_t operand), uint64_t operand);

private:
	SIMT_DEVICE Qp &qp(uint32_t other, uint32_t q)
	{
		if (mutated(Mutation::pe_major) && pes > 2) {
			// Position among the peers, which are numbered from the own rank on.
			uint32_t flat = (other + pes - pe - 1) % pes * qps + q;

			return peers[(pe + 1 + flat % (pes - 1)) % pes].qps[flat / (pes - 1)];
		}
		return peers[other].qps[q];
	}

	SIMT_DEVICE uint64_t remote(uint32_t pe, uint64_t offset) const
	{
		return peers[pe].address + offset;
	}

	SIMT_DEVICE uint32_t rkey(uint32_t pe) const;
	SIMT_DEVICE void submit(uint32_t pe, Qp &qp, Wqe wqe);
	SIMT_DEVICE void hand_over(uint32_t pe, const Qp &qp, const Wqe &wqe);
	SIMT_DEVICE void submit_warp(uint32_t pe, uint32_t q, Wqe wqe);
	SIMT_DEVICE uint64_t fetch(uint32_t pe, Qp &qp, const Wqe &wqe);
	SIMT_DEVICE Wqe adder(uint32_t pe, uint64_t to, uint64_t value, uint64_t result) const;
};

} // namespace kernels

#endif // KERNELS_SHMEM_H
