// SPDX-License-Identifier: Apache-2.0
// How far an access reaches, and who makes it; and where code runs.
#ifndef SIMT_SCOPE_H
#define SIMT_SCOPE_H

#include <cstddef>
#include <cstdint>

// SIMT_DEVICE is for what lanes run, SIMT_BOTH for what the host calls as well, SIMT_GLOBAL for a variable that
// lanes read. VRNIC_INLINE is what small functions of C headers are.
#ifdef __CUDACC__
#define SIMT_DEVICE __device__
#define SIMT_BOTH __host__ __device__
#define SIMT_GLOBAL __device__
#define VRNIC_INLINE static inline __host__ __device__
#else
#define SIMT_DEVICE
#define SIMT_BOTH
#define SIMT_GLOBAL
#endif

namespace simt {

enum class Scope { cta, gpu, sys };

enum class Order { relaxed, acquire, release };

// What a lane waits for: see enum vrnic_hint_wait.
enum class Wait { completion = 1, turn, doorbell, lock };

// Who accesses: numbers in the grid.
struct Agent {
	uint32_t lane;
	uint32_t cta;
};

} // namespace simt

#endif // SIMT_SCOPE_H
