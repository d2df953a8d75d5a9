// SPDX-License-Identifier: Apache-2.0
// A grid of CTAs of warps of 32 lanes on one CPU thread.
//
// Every lane is a coroutine. Which one runs next is drawn from the seed; a lane gives way where it waits
// for others, where it spins, and now and then at a memory access, so that one seed is one interleaving.
#ifndef SIMT_GRID_H
#define SIMT_GRID_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "memory.h"
#include "random.h"

namespace simt {

constexpr uint32_t WARP_LANES = 32;

struct Shape {
	uint32_t ctas;
	uint32_t warps;  // in each CTA

	uint32_t lanes() const
	{
		return ctas * warps * WARP_LANES;
	}
};

class Grid {
public:
	// @idle is called when every lane spins: the machine may make something happen meanwhile.
	Grid(Shape shape, Memory &memory, uint64_t seed, std::function<void()> idle);
	~Grid();
	Grid(const Grid &) = delete;
	Grid &operator=(const Grid &) = delete;

	// Run @body in every lane until all have returned or one has failed; true in the first case.
	bool run(std::function<void()> body);

	// The sentence of the lane that failed.
	const std::string &error() const
	{
		return error_;
	}

	// For the running lane; see simt.h.
	[[noreturn]] void fail(std::string sentence);
	void pause();
	void maybe_give_way();
	void sync_warp();
	void sync_cta();
	const uint64_t *exchange(uint64_t value);

	Agent agent() const
	{
		return { running_, running_ / (shape_.warps * WARP_LANES) };
	}
	const Shape &shape() const
	{
		return shape_;
	}
	Memory &memory()
	{
		return memory_;
	}

	// The grid whose lane is running.
	static Grid *current();

private:
	enum class State : uint8_t { ready, spinning, waiting, done };

	struct Lane {
		Context context;
		State state = State::ready;
	};

	// Lanes that wait for each other: a warp, or a CTA.
	struct Group {
		uint32_t first;
		uint32_t count;
		uint32_t arrived = 0;
		uint32_t done = 0;
	};

	struct Warp {
		Group group;
		uint64_t values[2][WARP_LANES] = {};
		uint8_t turn[WARP_LANES] = {};
	};

	static void enter();
	void give_way(State state);
	void arrive(Group &group, uint32_t number);
	void release(Group &group, uint32_t number);

	Shape shape_;
	Memory &memory_;
	Random random_;
	std::function<void()> idle_;
	std::function<void()> body_;
	std::vector<Lane> lanes_;
	std::vector<Warp> warps_;
	std::vector<Group> ctas_;
	std::vector<uint32_t> ready_;
	Context scheduler_;
	uint32_t running_ = 0;
	bool failed_ = false;
	std::string error_;
	void *stacks_ = nullptr;
};

} // namespace simt

#endif // SIMT_GRID_H
