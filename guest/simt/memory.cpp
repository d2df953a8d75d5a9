// SPDX-License-Identifier: Apache-2.0
// The two memory engines.
#include "memory.h"

#include <cstring>

namespace simt {

namespace {

// Entries a buffer holds before it drains by itself.
constexpr size_t LANE_ENTRIES = 12;
constexpr size_t SHARED_ENTRIES = 96;
constexpr size_t MAX_VIOLATIONS = 16;

// One access of the machine's own width, so that the NIC never sees half of a word.
template <typename T> void copy_word(void *to, const void *from)
{
	T word;

	memcpy(&word, from, sizeof(word));
	__atomic_store_n(static_cast<T *>(to), word, __ATOMIC_RELAXED);
}

template <typename T> void read_word(void *to, const void *from)
{
	T word = __atomic_load_n(static_cast<const T *>(from), __ATOMIC_RELAXED);

	memcpy(to, &word, sizeof(word));
}

void write_memory(void *to, const void *from, size_t size)
{
	switch (size) {
	case 1:
		return copy_word<uint8_t>(to, from);
	case 2:
		return copy_word<uint16_t>(to, from);
	case 4:
		return copy_word<uint32_t>(to, from);
	default:
		for (size_t at = 0; at < size; at += 8)
			copy_word<uint64_t>(static_cast<char *>(to) + at, static_cast<const char *>(from) + at);
	}
}

void read_memory(void *to, const void *from, size_t size)
{
	switch (size) {
	case 1:
		return read_word<uint8_t>(to, from);
	case 2:
		return read_word<uint16_t>(to, from);
	case 4:
		return read_word<uint32_t>(to, from);
	default:
		for (size_t at = 0; at < size; at += 8)
			read_word<uint64_t>(static_cast<char *>(to) + at, static_cast<const char *>(from) + at);
	}
}

uint64_t word_of(const void *value, size_t size)
{
	uint64_t word = 0;

	memcpy(&word, value, size);
	return word;
}

} // namespace

bool Memory::in_host_memory(uintptr_t address) const
{
	for (const Range &range : host_)
		if (address - range.start < range.size)
			return true;
	return false;
}

void Memory::report(const char *rule, std::string text, const Evidence &evidence)
{
	bus_.violated(rule, evidence);
	if (violations_.size() < MAX_VIOLATIONS)
		violations_.push_back({ rule, std::move(text) });
}

void Memory::note_atomic(Agent who, const void *address, Scope scope)
{
	auto [found, fresh] = atomics_.try_emplace(address, Sharing{ who, false, false, false });
	Sharing &sharing = found->second;

	(void)fresh;
	sharing.narrow |= scope == Scope::cta;
	sharing.shared |= sharing.first.cta != who.cta;
	if (!sharing.narrow || !sharing.shared || sharing.reported)
		return;
	sharing.reported = true;
	report("C10", "CTA " + std::to_string(who.cta) + " and CTA " + std::to_string(sharing.first.cta) +
			      " update one word with CTA scope; a word that CTAs share needs gpu scope",
	       { who, sharing.first, address });
}

void DirectMemory::load(Agent, const void *address, void *value, size_t size)
{
	read_memory(value, address, size);
}

void DirectMemory::look(Agent, const void *address, void *value, size_t size)
{
	read_memory(value, address, size);
}

void DirectMemory::store(Agent who, void *address, const void *value, size_t size)
{
	bus_.storing(who, address, value, size);
	write_memory(address, value, size);
}

void DirectMemory::mmio(Agent who, volatile void *address, uint64_t value, size_t size)
{
	bus_.ringing(who, address, value, size);
	bus_.doorbell(address, value, size);
}

void DirectMemory::fence(Agent, Scope)
{
	bus_.drain();
}

uint64_t DirectMemory::update(Agent who, void *address, size_t size, Scope scope, Change change,
			      uint64_t a, uint64_t b)
{
	uint64_t old = 0, fresh;

	// Lanes take turns only between calls, and nobody else writes what lanes update: plain accesses do.
	note_atomic(who, address, scope);
	read_memory(&old, address, size);
	fresh = change(old, a, b);
	write_memory(address, &fresh, size);
	bus_.updated(who, address, old, fresh);
	return old;
}

void DirectMemory::tick(bool)
{
}

void DirectMemory::flush()
{
	bus_.drain();
}

WeakMemory::WeakMemory(Bus &bus, uint64_t seed, uint32_t lanes, uint32_t ctas) : Memory(bus, seed)
{
	gpu_ = { {}, nullptr };
	for (uint32_t cta = 0; cta < ctas; cta++)
		ctas_.push_back({ {}, &gpu_ });
	for (uint32_t lane = 0; lane < lanes; lane++)
		lanes_.push_back({ {}, &ctas_[lane / (lanes / ctas)] });
	if (lanes <= Clocks::MOST_LANES)
		clocks_ = std::make_unique<Clocks>(lanes);
}

void WeakMemory::push(Buffer &buffer, const Entry &entry)
{
	size_t limit = buffer.next && buffer.next != &gpu_ ? LANE_ENTRIES : SHARED_ENTRIES;

	if (buffer.entries.size() >= limit)
		drain_one(buffer);
	buffer.entries.push_back(entry);
}

// Move entry @which on by one level.
void WeakMemory::drain(Buffer &buffer, size_t which)
{
	Entry entry = buffer.entries[which];

	buffer.entries.erase(buffer.entries.begin() + static_cast<ptrdiff_t>(which));
	// GPU memory is coherent where the GPU's buffer would begin.
	if (buffer.next && !(buffer.next == &gpu_ && !entry.mmio && !in_host_memory(entry.address)))
		push(*buffer.next, entry);
	else if (entry.mmio)
		bus_.doorbell(reinterpret_cast<volatile void *>(entry.address), word_of(entry.data, entry.size),
			      entry.size);
	else
		write_memory(reinterpret_cast<void *>(entry.address), entry.data, entry.size);
}

void WeakMemory::drain_one(Buffer &buffer)
{
	size_t which;

	if (buffer.entries.empty())
		return;
	which = random_.below(static_cast<uint32_t>(buffer.entries.size()));
	// An older store to the same bytes goes first, and one that is older still to that one's.
	for (size_t i = 0; i < which;)
		if (buffer.entries[i].touches(buffer.entries[which].address, buffer.entries[which].size)) {
			which = i;
			i = 0;
		} else {
			i++;
		}
	drain(buffer, which);
}

void WeakMemory::drain_all(Buffer &buffer)
{
	while (!buffer.entries.empty())
		drain_one(buffer);
}

void WeakMemory::drain_touching(Buffer &buffer, uintptr_t address, size_t size)
{
	for (size_t i = 0; i < buffer.entries.size();)
		if (buffer.entries[i].touches(address, size))
			drain(buffer, i);
		else
			i++;
}

void WeakMemory::overlay(const Buffer &buffer, uintptr_t address, void *value, size_t size) const
{
	for (const Entry &entry : buffer.entries) {
		if (!entry.touches(address, size))
			continue;
		for (size_t i = 0; i < entry.size; i++) {
			uintptr_t at = entry.address + i;

			if (at >= address && at < address + size)
				static_cast<uint8_t *>(value)[at - address] = entry.data[i];
		}
	}
}

// What @who sees: its own stores before its CTA's before the GPU's.
void WeakMemory::view(Agent who, uintptr_t address, void *value, size_t size) const
{
	read_memory(value, reinterpret_cast<const void *>(address), size);
	overlay(gpu_, address, value, size);
	overlay(ctas_[who.cta], address, value, size);
	overlay(lanes_[who.lane], address, value, size);
}

void WeakMemory::load(Agent who, const void *address, void *value, size_t size)
{
	view(who, reinterpret_cast<uintptr_t>(address), value, size);
	if (clocks_)
		clocks_->read(who, address, Scope::gpu);
}

void WeakMemory::look(Agent who, const void *address, void *value, size_t size)
{
	view(who, reinterpret_cast<uintptr_t>(address), value, size);
}

void WeakMemory::store(Agent who, void *address, const void *value, size_t size)
{
	Entry entry = { reinterpret_cast<uintptr_t>(address), static_cast<uint8_t>(size), false, {} };

	bus_.storing(who, address, value, size);
	if (clocks_)
		clocks_->store(who, address, size);
	memcpy(entry.data, value, size);
	push(lanes_[who.lane], entry);
}

void WeakMemory::mmio(Agent who, volatile void *address, uint64_t value, size_t size)
{
	Entry entry = { reinterpret_cast<uintptr_t>(address), static_cast<uint8_t>(size), true, {} };

	bus_.ringing(who, address, value, size);
	memcpy(entry.data, &value, size);
	push(lanes_[who.lane], entry);
}

void WeakMemory::fence(Agent who, Scope scope)
{
	if (clocks_)
		clocks_->fence(who, scope);
	drain_all(lanes_[who.lane]);
	if (scope != Scope::cta)
		drain_all(ctas_[who.cta]);
	if (scope == Scope::sys)
		drain_all(gpu_);
	bus_.drain();
}

uint64_t WeakMemory::update(Agent who, void *address, size_t size, Scope scope, Change change,
			    uint64_t a, uint64_t b)
{
	uintptr_t at = reinterpret_cast<uintptr_t>(address);
	uint64_t old = 0, fresh;

	note_atomic(who, address, scope);
	if (clocks_) {
		clocks_->read(who, address, scope);
		clocks_->publish(who, address, scope);
	}
	drain_touching(lanes_[who.lane], at, size);
	if (scope == Scope::cta) {
		Entry entry = { at, static_cast<uint8_t>(size), false, {} };

		view(who, at, &old, size);
		fresh = change(old, a, b);
		memcpy(entry.data, &fresh, size);
		push(ctas_[who.cta], entry);
		bus_.updated(who, address, old, fresh);
		return old;
	}
	drain_touching(ctas_[who.cta], at, size);
	drain_touching(gpu_, at, size);
	read_memory(&old, address, size);
	fresh = change(old, a, b);
	write_memory(address, &fresh, size);
	bus_.updated(who, address, old, fresh);
	return old;
}

void WeakMemory::arrive(Agent who, uint32_t group)
{
	if (clocks_)
		clocks_->arrive(who, group);
}

void WeakMemory::complete(uint32_t group)
{
	if (clocks_)
		clocks_->complete(group);
}

void WeakMemory::leave(Agent who, uint32_t group)
{
	if (clocks_)
		clocks_->leave(who, group);
}

void WeakMemory::acquire(Agent who)
{
	if (clocks_)
		clocks_->acquire(who);
}

void WeakMemory::published(Agent who, const void *address, Scope scope)
{
	if (clocks_)
		clocks_->publish(who, address, scope);
}

void WeakMemory::tick(bool idle)
{
	// Seldom, while lanes run: what is late is what shows a missing fence.
	uint32_t count = idle ? 1 + random_.below(8) : random_.below(8) == 0;

	while (count--) {
		drain_one(lanes_[random_.below(static_cast<uint32_t>(lanes_.size()))]);
		drain_one(ctas_[random_.below(static_cast<uint32_t>(ctas_.size()))]);
		drain_one(gpu_);
	}
	if (!idle)
		return;
	// An idle lane's buffer must not stay full because chance never picks it.
	for (Buffer &lane : lanes_)
		if (random_.below(4) == 0)
			drain_one(lane);
}

void WeakMemory::flush()
{
	for (Buffer &lane : lanes_)
		drain_all(lane);
	for (Buffer &cta : ctas_)
		drain_all(cta);
	drain_all(gpu_);
	bus_.drain();
}

bool WeakMemory::settled() const
{
	for (const Buffer &lane : lanes_)
		if (!lane.entries.empty())
			return false;
	for (const Buffer &cta : ctas_)
		if (!cta.entries.empty())
			return false;
	return gpu_.entries.empty();
}

} // namespace simt
