// SPDX-License-Identifier: Apache-2.0
// What a kernel may do, as free functions for the running lane: the counterpart of CUDA's built-ins.
// A kernel touches memory through these only.
#ifndef SIMT_SIMT_H
#define SIMT_SIMT_H

#include "scope.h"

#ifdef __CUDACC__
#include "cuda_device.h"
#else

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "grid.h"

// Lanes are called through a table here; see cuda_device.h.
#define SIMT_LAUNCHABLE(name, lane)
#define SIMT_LANES(lane) lane
#define SIMT_SHIM_ONLY(statement) statement

namespace simt {

using Word = unsigned long long;

// Where the lane is.

inline uint32_t thread_id()  // in the grid
{
	return Grid::current()->agent().lane;
}

inline uint32_t lane_id()  // in the warp
{
	return thread_id() % WARP_LANES;
}

inline uint32_t cta_id()
{
	return Grid::current()->agent().cta;
}

inline uint32_t warp_id()  // in the CTA
{
	return thread_id() / WARP_LANES % Grid::current()->shape().warps;
}

inline uint32_t warps_per_cta()
{
	return Grid::current()->shape().warps;
}

inline uint32_t ctas()
{
	return Grid::current()->shape().ctas;
}

inline uint32_t threads()
{
	return Grid::current()->shape().lanes();
}

// Lanes together.

inline void syncwarp()
{
	Grid::current()->sync_warp();
}

inline void syncthreads()
{
	Grid::current()->sync_cta();
}

// The value of lane @source of the warp; every lane of the warp takes part.
inline uint64_t shfl(uint64_t value, uint32_t source)
{
	return Grid::current()->exchange(value)[source % WARP_LANES];
}

// One bit for each lane of the warp.
inline uint32_t ballot(bool vote)
{
	const uint64_t *votes = Grid::current()->exchange(vote);
	uint32_t bits = 0;

	for (uint32_t lane = 0; lane < WARP_LANES; lane++)
		bits |= static_cast<uint32_t>(votes[lane]) << lane;
	return bits;
}

// In a spin loop: let others run.
inline void pause()
{
	Grid::current()->pause();
}

// A sentence as of vsnprintf().
inline std::string sentence(const char *format, va_list values)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, values);
	return text;
}

// End the kernel with a sentence. 64-bit values are printed as Word.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	std::string text = sentence(format, values);
	va_end(values);
	Grid::current()->fail(std::move(text));
}

// Say that the running lane found rule @rule broken: @flag stood for the memory at @data.
__attribute__((format(printf, 4, 5))) inline void report(const char *rule, const void *data, const void *flag,
							 const char *format, ...)
{
	Grid *grid = Grid::current();
	va_list values;

	va_start(values, format);
	std::string text = sentence(format, values);
	va_end(values);
	grid->memory().report(rule, std::move(text), { grid->agent(), {}, data, flag });
}

// Memory.

inline void fence(Scope scope)
{
	Grid *grid = Grid::current();

	grid->maybe_give_way();
	grid->memory().fence(grid->agent(), scope);
}

// What comes after sees what the last loads saw. Loads are not reordered by either engine, so only the
// compiler must be kept from it.
inline void acquire(Scope)
{
	Grid *grid = Grid::current();

	grid->memory().acquire(grid->agent());
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

template <typename T> T ld(const T *address, Order order = Order::relaxed, Scope scope = Scope::gpu)
{
	Grid *grid = Grid::current();
	T value;

	static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
	grid->maybe_give_way();
	grid->memory().load(grid->agent(), address, &value, sizeof(value));
	if (order == Order::acquire)
		acquire(scope);
	return value;
}

template <typename T>
void st(T *address, std::common_type_t<T> value, Order order = Order::relaxed, Scope scope = Scope::gpu)
{
	Grid *grid = Grid::current();

	static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
	grid->maybe_give_way();
	if (order == Order::release)
		grid->memory().fence(grid->agent(), scope);
	grid->memory().store(grid->agent(), address, &value, sizeof(value));
	if (order == Order::release)
		grid->memory().published(grid->agent(), address, scope);
}

// What a lane says of itself, for the rules that need it; without effect on what it does.

// It waits for @index of a queue pair, whose WQEs below @ready are written.
inline void note_wait(uint32_t qpn, Wait wait, uint64_t index, uint64_t ready)
{
	Grid *grid = Grid::current();

	grid->memory().bus().waiting(grid->agent(), qpn, wait, index, ready);
}

// It uses a queue pair for rank @pe, from @index on.
inline void note_use(uint32_t qpn, uint64_t index, uint32_t pe)
{
	Grid *grid = Grid::current();

	grid->memory().bus().using_for(grid->agent(), qpn, index, pe);
}

// One store of 16 bytes, 16-byte aligned.
inline void st16(void *address, uint64_t low, uint64_t high)
{
	Grid *grid = Grid::current();
	uint64_t value[2] = { low, high };

	grid->maybe_give_way();
	grid->memory().store(grid->agent(), address, value, sizeof(value));
}

// One aligned store to the NIC.
inline void mmio_st64(volatile uint64_t *address, uint64_t value)
{
	Grid *grid = Grid::current();

	grid->maybe_give_way();
	grid->memory().mmio(grid->agent(), address, value, sizeof(value));
}

inline void mmio_st32(volatile uint32_t *address, uint32_t value)
{
	Grid *grid = Grid::current();

	grid->maybe_give_way();
	grid->memory().mmio(grid->agent(), address, value, sizeof(value));
}

// Atomics are relaxed; put fences around them. Each returns the old value.

template <typename T> T atomic(T *address, Scope scope, Change change, uint64_t a, uint64_t b)
{
	Grid *grid = Grid::current();

	static_assert(std::is_unsigned_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
	grid->maybe_give_way();
	return static_cast<T>(grid->memory().update(grid->agent(), address, sizeof(T), scope, change, a, b));
}

template <typename T> T atomic_add(T *address, std::common_type_t<T> value, Scope scope)
{
	return atomic(
		address, scope, [](uint64_t old, uint64_t add, uint64_t) { return old + add; }, value, 0);
}

template <typename T> T atomic_max(T *address, std::common_type_t<T> value, Scope scope)
{
	return atomic(
		address, scope, [](uint64_t old, uint64_t other, uint64_t) { return old > other ? old : other; },
		value, 0);
}

template <typename T> T atomic_exchange(T *address, std::common_type_t<T> value, Scope scope)
{
	return atomic(
		address, scope, [](uint64_t, uint64_t fresh, uint64_t) { return fresh; }, value, 0);
}

template <typename T>
T atomic_cas(T *address, std::common_type_t<T> compare, std::common_type_t<T> value, Scope scope)
{
	return atomic(
		address, scope,
		[](uint64_t old, uint64_t expected, uint64_t fresh) { return old == expected ? fresh : old; }, compare,
		value);
}

} // namespace simt

#endif // __CUDACC__

#endif // SIMT_SIMT_H
