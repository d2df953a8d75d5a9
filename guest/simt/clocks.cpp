// SPDX-License-Identifier: Apache-2.0
// Clocks of lanes.
#include "clocks.h"

#include <algorithm>

namespace simt {

Clocks::Clocks(uint32_t lanes) : count_(lanes), lanes_(lanes)
{
	for (Lane &lane : lanes_) {
		lane.now.assign(PARTS * count_, 0);
		lane.fenced = lane.read = lane.now;
		lane.fenced_wide.assign(SCOPED * count_, 0);
	}
}

void Clocks::add_memory(const void *address, size_t size)
{
	memories_.push_back({ reinterpret_cast<uintptr_t>(address), size, std::vector<Writer>((size + 7) / 8) });
}

void Clocks::merge(Vector &into, uint32_t at, const Vector &from, uint32_t from_at, uint32_t parts) const
{
	uint32_t *target = into.data() + static_cast<size_t>(at) * count_;
	const uint32_t *source = from.data() + static_cast<size_t>(from_at) * count_;

	for (size_t i = 0; i < static_cast<size_t>(parts) * count_; i++)
		target[i] = std::max(target[i], source[i]);
}

void Clocks::store(Agent who, const void *address, size_t size)
{
	uintptr_t at = reinterpret_cast<uintptr_t>(address);

	for (Memory &memory : memories_)
		if (at - memory.start < memory.size)
			for (size_t word = (at - memory.start) / 8; word <= (at + size - 1 - memory.start) / 8; word++)
				memory.words[word] = { who.lane, lanes_[who.lane].time };
}

void Clocks::fence(Agent who, Scope scope)
{
	Lane &lane = lanes_[who.lane];

	acquire(who);
	part(lane.now, KNOWN, who.lane) = part(lane.now, LOOSE, who.lane) = lane.time;
	if (scope != Scope::cta)
		merge(lane.now, GPU, lane.now, KNOWN, 1);
	if (scope == Scope::sys)
		merge(lane.now, SYSTEM, lane.now, KNOWN, 1);
	merge(lane.now, LOOSE_VISIBLE, lane.now, LOOSE, 1);
	lane.fenced = lane.now;
	if (scope != Scope::cta)
		lane.fenced_wide.assign(lane.now.begin(), lane.now.begin() + SCOPED * count_);
	lane.time++;
}

void Clocks::acquire(Agent who)
{
	Lane &lane = lanes_[who.lane];

	if (!lane.has_read)
		return;
	merge(lane.now, 0, lane.read, 0, PARTS);
	lane.read.assign(lane.read.size(), 0);
	lane.has_read = false;
}

void Clocks::read(Agent who, const void *address, Scope scope)
{
	auto found = words_.find(address);

	if (found == words_.end())
		return;
	Lane &lane = lanes_[who.lane];
	const Word &word = found->second;
	auto own = word.ctas.find(who.cta);

	lane.has_read = true;
	if (own != word.ctas.end())
		merge(lane.read, 0, own->second, 0, SCOPED);
	if (scope != Scope::cta && !word.gpu.empty())
		merge(lane.read, 0, word.gpu, 0, SCOPED);
	merge(lane.read, LOOSE, word.loose, 0, PARTS - SCOPED);
}

void Clocks::publish(Agent who, const void *address, Scope scope)
{
	const Lane &lane = lanes_[who.lane];
	Word &word = words_[address];
	Vector &own = word.ctas[who.cta];

	own.resize(SCOPED * count_);
	merge(own, 0, lane.fenced, 0, SCOPED);
	if (scope != Scope::cta) {
		word.gpu.resize(SCOPED * count_);
		merge(word.gpu, 0, lane.fenced_wide, 0, SCOPED);
	}
	word.loose.resize((PARTS - SCOPED) * count_);
	merge(word.loose, 0, lane.fenced, LOOSE, PARTS - SCOPED);
}

void Clocks::arrive(Agent who, uint32_t group)
{
	Vector &arriving = groups_[group].arriving;

	arriving.resize(PARTS * count_);
	merge(arriving, 0, lanes_[who.lane].now, 0, PARTS);
}

void Clocks::complete(uint32_t group)
{
	Group &which = groups_[group];

	which.done = which.arriving;
	which.arriving.assign(which.arriving.size(), 0);
}

void Clocks::leave(Agent who, uint32_t group)
{
	const Vector &done = groups_[group].done;

	if (!done.empty())
		merge(lanes_[who.lane].now, 0, done, 0, PARTS);
}

Writer Clocks::writer(const void *address) const
{
	uintptr_t at = reinterpret_cast<uintptr_t>(address);

	for (const Memory &memory : memories_)
		if (at - memory.start < memory.size)
			return memory.words[(at - memory.start) / 8];
	return { 0, 0 };
}

uint32_t Clocks::known(Agent who, uint32_t of, Scope scope) const
{
	Part which = scope == Scope::cta ? KNOWN : scope == Scope::gpu ? GPU : SYSTEM;

	return lanes_[who.lane].now[static_cast<uint32_t>(which) * count_ + of];
}

uint32_t Clocks::loosely_known(Agent who, uint32_t of) const
{
	return lanes_[who.lane].now[LOOSE_VISIBLE * count_ + of];
}

} // namespace simt
