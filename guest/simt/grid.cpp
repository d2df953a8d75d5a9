// SPDX-License-Identifier: Apache-2.0
// Lanes, their scheduler, and what they wait for.
#include "grid.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace simt {

namespace {

constexpr size_t STACK = 64 << 10;
constexpr size_t GUARD = 4096;
// One access of so many gives way to another lane.
constexpr uint32_t GIVE_WAY = 12;

Grid *current_grid;

} // namespace

Grid *Grid::current()
{
	return current_grid;
}

Grid::Grid(Shape shape, Memory &memory, uint64_t seed, std::function<void()> idle)
	: shape_(shape), memory_(memory), random_(seed), idle_(std::move(idle)), lanes_(shape.lanes())
{
	stacks_ = mmap(nullptr, lanes_.size() * STACK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stacks_ == MAP_FAILED) {
		stacks_ = nullptr;
		return;
	}
	for (uint32_t first = 0; first < shape.lanes(); first += WARP_LANES)
		warps_.push_back({ { first, WARP_LANES }, {}, {} });
	for (uint32_t cta = 0; cta < shape.ctas; cta++)
		ctas_.push_back({ cta * shape.warps * WARP_LANES, shape.warps * WARP_LANES });
}

Grid::~Grid()
{
	if (stacks_)
		munmap(stacks_, lanes_.size() * STACK);
}

void Grid::enter()
{
	Grid *grid = current_grid;

	grid->body_();
	grid->give_way(State::done);
}

bool Grid::run(std::function<void()> body)
{
	if (!stacks_) {
		error_ = std::string("stacks for the lanes: ") + strerror(ENOMEM);
		return false;
	}
	body_ = std::move(body);
	current_grid = this;
	for (uint32_t lane = 0; lane < lanes_.size(); lane++) {
		char *stack = static_cast<char *>(stacks_) + lane * STACK;

		// A lane that needs more stack must not write into its neighbour's.
		mprotect(stack, GUARD, PROT_NONE);
		lanes_[lane].context = Context(stack, STACK, enter);
		ready_.push_back(lane);
	}
	for (size_t left = lanes_.size(); left && !failed_;) {
		if (ready_.empty()) {
			for (uint32_t lane = 0; lane < lanes_.size(); lane++)
				if (lanes_[lane].state == State::spinning) {
					lanes_[lane].state = State::ready;
					ready_.push_back(lane);
				}
			if (ready_.empty()) {
				error_ = "every lane waits at a barrier that the others do not reach";
				failed_ = true;
				break;
			}
			memory_.tick(true);
			idle_();
		}
		uint32_t which = random_.below(static_cast<uint32_t>(ready_.size()));

		running_ = ready_[which];
		ready_[which] = ready_.back();
		ready_.pop_back();
		Context::change(scheduler_, lanes_[running_].context);
		memory_.tick(false);
		if (lanes_[running_].state == State::ready)
			ready_.push_back(running_);
		if (lanes_[running_].state == State::done) {
			Group &warp = warps_[running_ / WARP_LANES].group;
			Group &cta = ctas_[agent().cta];

			left--;
			warp.done++;
			cta.done++;
			release(warp, running_ / WARP_LANES);
			release(cta, static_cast<uint32_t>(warps_.size()) + agent().cta);
		}
	}
	memory_.flush();
	current_grid = nullptr;
	return !failed_;
}

void Grid::give_way(State state)
{
	Lane &lane = lanes_[running_];

	lane.state = state;
	Context::change(lane.context, scheduler_);
	// What a failed lane left behind is never run again.
}

void Grid::fail(std::string sentence)
{
	if (!failed_)
		error_ = std::move(sentence);
	failed_ = true;
	for (;;)
		give_way(State::spinning);
}

void Grid::pause()
{
	give_way(State::spinning);
}

void Grid::maybe_give_way()
{
	if (random_.below(GIVE_WAY) == 0)
		give_way(State::ready);
}

void Grid::release(Group &group, uint32_t number)
{
	if (!group.arrived || group.arrived + group.done < group.count)
		return;
	group.arrived = 0;
	memory_.complete(number);
	for (uint32_t lane = group.first; lane < group.first + group.count; lane++)
		if (lanes_[lane].state == State::waiting) {
			lanes_[lane].state = State::ready;
			ready_.push_back(lane);
		}
}

void Grid::arrive(Group &group, uint32_t number)
{
	// A barrier orders the accesses before it for everybody who takes part, all of them in one CTA.
	memory_.fence(agent(), Scope::cta);
	memory_.arrive(agent(), number);
	group.arrived++;
	if (group.arrived + group.done == group.count) {
		release(group, number);
		give_way(State::ready);
	} else {
		give_way(State::waiting);
	}
	memory_.leave(agent(), number);
}

void Grid::sync_warp()
{
	arrive(warps_[running_ / WARP_LANES].group, running_ / WARP_LANES);
}

void Grid::sync_cta()
{
	arrive(ctas_[agent().cta], static_cast<uint32_t>(warps_.size()) + agent().cta);
}

// Every lane's value, for every lane of the warp. Valid until the lane's next exchange but one.
const uint64_t *Grid::exchange(uint64_t value)
{
	Warp &warp = warps_[running_ / WARP_LANES];
	uint32_t lane = running_ % WARP_LANES;
	uint8_t turn = warp.turn[lane];

	warp.turn[lane] = turn ^ 1;
	warp.values[turn][lane] = value;
	arrive(warp.group, running_ / WARP_LANES);
	return warp.values[turn];
}

} // namespace simt
