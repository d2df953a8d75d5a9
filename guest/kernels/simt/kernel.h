// SPDX-License-Identifier: Apache-2.0
// A kernel of vrnic-simt: defaults, its place in the heap, the code of a lane, the check afterwards.
#ifndef KERNELS_SIMT_KERNEL_H
#define KERNELS_SIMT_KERNEL_H

#include <string>

#include "machine.h"
#include "options.h"
#include "shmem.h"

namespace kernels {

class Watcher;

struct Job {
	const Options &options;
	Shmem &shmem;
	simt::Memory &memory;
	uint64_t base;  // offset in the heap where the kernel's own part begins
	Watcher &watcher;
	uint64_t messages = 0;  // for the report
	uint64_t bytes = 0;
	uint64_t ticks = 0;  // of the machine's clock, while lanes ran
	std::string detail = {};  // more JSON members, each with a comma before it

	// Memory of the own heap, for the host: while no lane runs.
	template <typename T> SIMT_BOTH T *at(uint64_t offset) const
	{
		return reinterpret_cast<T *>(shmem.heap + base + offset);
	}
	SIMT_BOTH uint32_t next_pe() const
	{
		return (shmem.pe + 1) % shmem.pes;
	}
	SIMT_BOTH uint32_t previous_pe() const
	{
		return (shmem.pe + shmem.pes - 1) % shmem.pes;
	}
};

struct Kernel {
	const char *name;
	const char *summary;
	// Fill in what the command line left open; a sentence when it does not fit.
	std::string (*defaults)(Options &options, uint32_t pes);
	// Bytes of the heap the kernel needs.
	size_t (*heap)(const Options &options, uint32_t pes);
	void (*prepare)(Job &job);
	void (*lane)(Job &job);
	// A sentence about the first thing that is wrong; empty when all is as it should be.
	std::string (*verify)(Job &job);
};

// All of them, and a null pointer behind.
extern const Kernel *const all_kernels[];

extern const Kernel single_kernel, coalesced_kernel, shared_kernel, exclusive_kernel, verbs_kernel, moe_kernel,
	wrap_kernel, eager_kernel, garbage_kernel;

const Kernel *kernel_named(const char *name);

template <typename T, typename V> void preset(T &option, V otherwise)
{
	if (!option)
		option = static_cast<T>(otherwise);
}

// Defaults of what every kernel has; a sentence when the options do not fit together.
std::string common_defaults(Options &options, uint32_t messages, uint32_t ctas, uint32_t warps);

// Word @index of message @message that rank @pe sends: what both sides can compute.
SIMT_BOTH inline uint64_t pattern(uint64_t seed, uint32_t pe, uint64_t message, uint64_t index)
{
	return simt::Random(seed * 0x1000003 + pe * 0x10001 + message * 0x101 + index).next();
}

} // namespace kernels

#endif // KERNELS_SIMT_KERNEL_H
