// SPDX-License-Identifier: Apache-2.0
// A queue pair that many lanes submit to: reserve, fill, publish in order, ring, observe.
//
// The state below lies in GPU memory and is touched through the SIMT layer only. Indices are 64-bit and
// never wrap; what the NIC sees are their low 32 bits.
#ifndef KERNELS_QP_H
#define KERNELS_QP_H

#include <cstdint>

#include "mutation.h"
#include "simt.h"
#include "wqe.h"

namespace kernels {

// How the NIC reports, see enum vrnic_cq_mode: each CQE into one slot, round a ring, or only counted.
enum class Completion { collapsed, ring, counter };

// Whose formats a queue pair has.
enum class Device { vrnic, mlx5 };

// What an mlx5 doorbell says: the index of the next free slot, the start of the last WQE, or all of it.
enum class Convention { next, last, blueflame };

struct Qp {
	// set up by the host
	uint64_t *sq;
	Device device;
	Convention convention;
	uint32_t *dbr;  // dword 0 receive, dword 1 send
	uint32_t *cq_record;  // of mlx5: dword 0 says what was read of a ring CQ
	uint8_t *cq;
	Completion completion;
	uint8_t log_cq;  // log2 of a ring CQ's slots: twice the send ring's, for what the NIC is told late
	uint32_t cqn;
	bool ring_twice;  // doorbell, record, doorbell, instead of record, doorbell
	volatile uint64_t *doorbells;
	uint64_t start;
	uint64_t deadline;  // in simt clock ticks: see Qp::spin
	uint64_t (*clock)();
	uint32_t qpn;
	uint32_t depth;
	uint8_t log_depth;
	bool exclusive;  // used by one CTA only
	simt::Scope nic_scope;  // what a fence needs before the NIC may look
	uint32_t batch;  // WQEs a doorbell may wait for; a power of two
	// the lanes' own
	uint64_t reserved;  // next index to hand out
	uint64_t ready;  // every WQE below is written
	uint64_t produced;  // highest index a doorbell covers
	uint64_t completed;  // every WQE below is complete
	uint64_t lock;
	uint64_t cq_lock;
	uint64_t consumed;  // entries of a ring CQ that were read
	uint64_t rings;  // doorbells stored, for the report

	SIMT_DEVICE simt::Scope scope() const
	{
		return exclusive ? simt::Scope::cta : simt::Scope::gpu;
	}

	// Take @count indices; waits until the ring has room for them.
	SIMT_DEVICE uint64_t reserve(uint32_t count);
	// Write @wqe into the slot of @index.
	SIMT_DEVICE void fill(uint64_t index, const Wqe &wqe);
	// Indices [@base, @base + @count) are written: once everything before them is, let others know, and
	// ring unless somebody behind us is sure to.
	SIMT_DEVICE void publish(uint64_t base, uint32_t count);
	// Wait until every published WQE is complete.
	SIMT_DEVICE void quiet();
	// Doorbell record and doorbell, whatever others do at the time.
	SIMT_DEVICE void store_doorbell(uint64_t end);

private:
	SIMT_DEVICE void spin(simt::Wait wait, uint64_t index);
	SIMT_DEVICE void poll();
	SIMT_DEVICE void poll_ring(uint64_t done);
	SIMT_DEVICE void take(uint64_t commit, uint64_t done);
	[[noreturn]] SIMT_DEVICE void fail_completion(uint64_t counter, const char *status);
	SIMT_DEVICE void wait_completed(uint64_t end);
	SIMT_DEVICE void ring(uint64_t end);
	SIMT_DEVICE void fill_mlx5(uint64_t index, const Wqe &wqe);
	SIMT_DEVICE void poll_mlx5();
	SIMT_DEVICE uint64_t doorbell_mlx5(uint64_t end);
	SIMT_DEVICE void push_mlx5(uint64_t end);
};

} // namespace kernels

#endif // KERNELS_QP_H
