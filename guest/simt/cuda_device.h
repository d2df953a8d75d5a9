// SPDX-License-Identifier: Apache-2.0
// The calls of simt.h for a GPU: what a kernel is compiled with by nvcc. Here, and in the macros below, is
// everything that differs between the two.
//
// Sources: CUDA C++ Programming Guide (memory fence functions, scoped atomics, warp intrinsics) and the PTX
// ISA's memory consistency model (ld/st.relaxed with a scope, st.mmio for stores to devices).
#ifndef SIMT_CUDA_DEVICE_H
#define SIMT_CUDA_DEVICE_H

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include <endian.h>

#include "random.h"
#include "scope.h"

// GPUs are little-endian; the C library's conversions are functions of the host.
#undef htole64
#undef le64toh
#undef htole32
#undef le32toh
#define htole64(value) (static_cast<uint64_t>(value))
#define le64toh(value) (static_cast<uint64_t>(value))
#define htole32(value) (static_cast<uint32_t>(value))
#define le32toh(value) (static_cast<uint32_t>(value))

// A kernel of the grid: on a GPU the lanes' code is launched, not called through a table.
#define SIMT_LAUNCHABLE(name, lane) \
	__global__ void name(kernels::Job *job) \
	{ \
		lane(*job); \
	}
#define SIMT_LANES(lane) nullptr
// What only the shim can do for a lane.
#define SIMT_SHIM_ONLY(statement)

namespace simt {

constexpr uint32_t WARP_LANES = 32;
constexpr uint32_t ALL_LANES = 0xffffffff;

using Word = unsigned long long;

class Memory;

SIMT_DEVICE inline uint32_t thread_id()
{
	return blockIdx.x * blockDim.x + threadIdx.x;
}

SIMT_DEVICE inline uint32_t lane_id()
{
	return threadIdx.x % WARP_LANES;
}

SIMT_DEVICE inline uint32_t cta_id()
{
	return blockIdx.x;
}

SIMT_DEVICE inline uint32_t warp_id()
{
	return threadIdx.x / WARP_LANES;
}

SIMT_DEVICE inline uint32_t warps_per_cta()
{
	return blockDim.x / WARP_LANES;
}

SIMT_DEVICE inline uint32_t ctas()
{
	return gridDim.x;
}

SIMT_DEVICE inline uint32_t threads()
{
	return gridDim.x * blockDim.x;
}

SIMT_DEVICE inline void syncwarp()
{
	__syncwarp();
}

SIMT_DEVICE inline void syncthreads()
{
	__syncthreads();
}

SIMT_DEVICE inline uint64_t shfl(uint64_t value, uint32_t source)
{
	return __shfl_sync(ALL_LANES, static_cast<Word>(value), static_cast<int>(source));
}

SIMT_DEVICE inline uint32_t ballot(bool vote)
{
	return __ballot_sync(ALL_LANES, vote);
}

SIMT_DEVICE inline void pause()
{
	__nanosleep(20);
}

template <typename... Values> [[noreturn]] SIMT_DEVICE void fail(const char *format, Values... values)
{
	printf(format, values...);
	printf("\n");
	__trap();
	__builtin_unreachable();
}

template <typename... Values>
SIMT_DEVICE void report(const char *rule, const void *, const void *, const char *format, Values... values)
{
	printf("%s: ", rule);
	printf(format, values...);
	printf("\n");
}

SIMT_DEVICE inline void note_wait(uint32_t, Wait, uint64_t, uint64_t)
{
}

SIMT_DEVICE inline void note_use(uint32_t, uint64_t, uint32_t)
{
}

SIMT_DEVICE inline void fence(Scope scope)
{
	switch (scope) {
	case Scope::cta:
		__threadfence_block();
		break;
	case Scope::gpu:
		__threadfence();
		break;
	default:
		__threadfence_system();
	}
}

// A fence behind relaxed loads makes them acquire.
SIMT_DEVICE inline void acquire(Scope scope)
{
	fence(scope);
}

template <typename T> SIMT_DEVICE T ld(const T *address, Order order = Order::relaxed, Scope scope = Scope::gpu)
{
	T value;

	static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
	if constexpr (sizeof(T) == 8) {
		uint64_t word;

		asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
		memcpy(&value, &word, sizeof(value));
	} else if constexpr (sizeof(T) == 4) {
		uint32_t word;

		asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
		memcpy(&value, &word, sizeof(value));
	} else {
		value = *const_cast<const volatile T *>(address);
	}
	if (order == Order::acquire)
		acquire(scope);
	return value;
}

template <typename T>
SIMT_DEVICE void st(T *address, std::common_type_t<T> value, Order order = Order::relaxed, Scope scope = Scope::gpu)
{
	static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
	if (order == Order::release)
		fence(scope);
	if constexpr (sizeof(T) == 8) {
		uint64_t word;

		memcpy(&word, &value, sizeof(word));
		asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
	} else if constexpr (sizeof(T) == 4) {
		uint32_t word;

		memcpy(&word, &value, sizeof(word));
		asm volatile("st.relaxed.sys.b32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
	} else {
		*const_cast<volatile T *>(address) = value;
	}
}

SIMT_DEVICE inline void st16(void *address, uint64_t low, uint64_t high)
{
	asm volatile("st.v2.b64 [%0], {%1, %2};" ::"l"(address), "l"(low), "l"(high) : "memory");
}

SIMT_DEVICE inline void mmio_st64(volatile uint64_t *address, uint64_t value)
{
	asm volatile("st.mmio.relaxed.sys.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

SIMT_DEVICE inline void mmio_st32(volatile uint32_t *address, uint32_t value)
{
	asm volatile("st.mmio.relaxed.sys.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// What CUDA's atomics take: its own name for 64 bits.
template <typename T> using Native = std::conditional_t<sizeof(T) == 8, Word, unsigned int>;

template <typename T> SIMT_DEVICE T atomic_add(T *address, std::common_type_t<T> value, Scope scope)
{
	auto *word = reinterpret_cast<Native<T> *>(address);
	auto operand = static_cast<Native<T>>(value);

	return static_cast<T>(scope == Scope::cta ? atomicAdd_block(word, operand) :
			      scope == Scope::gpu ? atomicAdd(word, operand) :
						    atomicAdd_system(word, operand));
}

template <typename T> SIMT_DEVICE T atomic_max(T *address, std::common_type_t<T> value, Scope scope)
{
	auto *word = reinterpret_cast<Native<T> *>(address);
	auto operand = static_cast<Native<T>>(value);

	return static_cast<T>(scope == Scope::cta ? atomicMax_block(word, operand) :
			      scope == Scope::gpu ? atomicMax(word, operand) :
						    atomicMax_system(word, operand));
}

template <typename T> SIMT_DEVICE T atomic_exchange(T *address, std::common_type_t<T> value, Scope scope)
{
	auto *word = reinterpret_cast<Native<T> *>(address);
	auto operand = static_cast<Native<T>>(value);

	return static_cast<T>(scope == Scope::cta ? atomicExch_block(word, operand) :
			      scope == Scope::gpu ? atomicExch(word, operand) :
						    atomicExch_system(word, operand));
}

template <typename T>
SIMT_DEVICE T atomic_cas(T *address, std::common_type_t<T> compare, std::common_type_t<T> value, Scope scope)
{
	auto *word = reinterpret_cast<Native<T> *>(address);
	auto before = static_cast<Native<T>>(compare), after = static_cast<Native<T>>(value);

	return static_cast<T>(scope == Scope::cta ? atomicCAS_block(word, before, after) :
			      scope == Scope::gpu ? atomicCAS(word, before, after) :
						    atomicCAS_system(word, before, after));
}

} // namespace simt

#endif // SIMT_CUDA_DEVICE_H
