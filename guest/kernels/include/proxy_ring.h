// SPDX-License-Identifier: Apache-2.0
// Submission through a CPU: lanes write commands into a ring in host memory, a thread of the CPU turns them
// into WQEs and doorbells, sees the completions, and says so in host memory again. The shape of NVSHMEM's
// host-assisted transport (IBRC): entries of 8 bytes, each with a flag of the pass, so that none is taken
// before it is there; a transfer is 4 of them, an atomic 6, a compare-and-swap 8.
//
//   entry 0   opcode 3:0, flags 11:4, rank 15:12, queue pair 19:16, bytes 51:20
//   entry 1   offset in the peer's heap
//   then      transfer: offset in the own heap, 0; inline: low and high half of the value
//             atomic: low and high half of the operand, offset of the result, 0
//             compare-and-swap: halves of the new value, halves of the expected one, offset of the result, 0
//
// An entry is the value shifted left by one; bit 0 is the flag, 1 in the first pass.
#ifndef KERNELS_PROXY_RING_H
#define KERNELS_PROXY_RING_H

#include "simt.h"
#include "wqe.h"

namespace kernels {

constexpr uint32_t PROXY_LOG_ENTRIES = 10;
constexpr uint32_t PROXY_ENTRIES = 1u << PROXY_LOG_ENTRIES;
constexpr uint32_t PROXY_MOST = 8;  // entries of a command

struct ProxyCommand {
	uint64_t value[PROXY_MOST];
	uint32_t entries;

	// What @wqe asks for: addresses in it become offsets, of heaps at @local and @remote.
	SIMT_DEVICE static ProxyCommand of(const Wqe &wqe, uint32_t pe, uint32_t q, uint64_t local, uint64_t remote);
};

// Bit 0 of the entry with running number @number.
SIMT_BOTH inline uint64_t proxy_flag(uint64_t number)
{
	return ((number >> PROXY_LOG_ENTRIES) + 1) & 1;
}

struct ProxyRing {
	// in host memory
	uint64_t *entries;
	uint64_t *consumed;  // by the CPU: every entry below was taken
	uint64_t *acked;  // by the CPU: every command below is complete
	uint64_t *failed;  // by the CPU: a completion status, 0 for none
	// in GPU memory: next entry to hand out
	uint64_t issued;
	uint64_t deadline;
	uint64_t (*clock)();

	// Hand a command over; waits for room.
	SIMT_DEVICE void post(const ProxyCommand &command);
	// Wait until every command is complete.
	SIMT_DEVICE void quiet();

private:
	SIMT_DEVICE void spin(const char *what, uint64_t number);
};

} // namespace kernels

#endif // KERNELS_PROXY_RING_H
