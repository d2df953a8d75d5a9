// SPDX-License-Identifier: Apache-2.0
// Memory as lanes see it. Two engines behind the same calls:
//
//   direct  a store is in memory at once; fast, and as forgiving as the machine it runs on
//   weak    a store goes through buffers before everybody, and at last the NIC, can see it
//
// The weak engine's buffers, each drained one entry at a time in random order, never reordering two
// stores to the same bytes:
//
//   lane  ->  CTA (its L1)  ->  GPU (its L2)  ->  memory
//
// What a scope's fence does is to empty every buffer on the way to the scope's level: the lane's for
// cta, the CTA's as well for gpu, the GPU's as well for sys. GPU memory is coherent from the GPU level
// on, so that the NIC sees a store to it there; host memory and MMIO only behind the last buffer.
#ifndef SIMT_MEMORY_H
#define SIMT_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clocks.h"
#include "random.h"
#include "scope.h"

namespace simt {

// What an atomic makes of the old value and its two operands.
using Change = uint64_t (*)(uint64_t old, uint64_t a, uint64_t b);

// What a broken rule is about, beside its sentence. What does not matter is 0.
struct Evidence {
	Agent who = {};
	Agent other = {};  // who accessed before
	const void *address = nullptr;
	const void *flag = nullptr;  // what stood for the memory at @address
};

// What memory needs of the machine below it.
class Bus {
public:
	virtual ~Bus() = default;
	// A store of 4 or 8 bytes that left the GPU for the NIC's doorbell page.
	virtual void doorbell(volatile void *address, uint64_t value, size_t size) = 0;
	// Empty the write-combining buffers of the CPU that plays the GPU.
	virtual void drain() = 0;
	// @who is about to store the bytes at @value.
	virtual void storing(Agent who, const void *address, const void *value, size_t size) = 0;
	// @who is about to store to the doorbell page; it may reach the NIC later.
	virtual void ringing(Agent who, volatile void *address, uint64_t value, size_t size) = 0;
	// @who updated a word.
	virtual void updated(Agent who, const void *address, uint64_t old, uint64_t fresh) = 0;
	// A rule was broken that only this side can see.
	virtual void violated(const char *rule, const Evidence &evidence) = 0;
	// @who waits, until told otherwise; @ready: index below which every WQE of the queue pair is written.
	virtual void waiting(Agent who, uint32_t qpn, Wait wait, uint64_t index, uint64_t ready) = 0;
	// @who uses the queue pair for rank @pe, from running index @index on.
	virtual void using_for(Agent who, uint32_t qpn, uint64_t index, uint32_t pe) = 0;
};

// A broken rule that only the submitter's side can see.
struct Violation {
	std::string rule;
	std::string text;
};

class Memory {
public:
	Memory(Bus &bus, uint64_t seed) : bus_(bus), random_(seed)
	{
	}
	virtual ~Memory() = default;

	virtual void load(Agent who, const void *address, void *value, size_t size) = 0;
	// As load, without being an access of the lane's.
	virtual void look(Agent who, const void *address, void *value, size_t size) = 0;
	virtual void store(Agent who, void *address, const void *value, size_t size) = 0;
	virtual void mmio(Agent who, volatile void *address, uint64_t value, size_t size) = 0;
	virtual void fence(Agent who, Scope scope) = 0;
	// Read @size bytes (4 or 8) as everyone in @scope sees them, and replace them by what @change makes.
	virtual uint64_t update(Agent who, void *address, size_t size, Scope scope, Change change, uint64_t a,
				uint64_t b) = 0;
	// Time passes: something may drain. @idle: nothing else goes on.
	virtual void tick(bool idle) = 0;
	// Everything drains: the kernel ended.
	virtual void flush() = 0;
	// Whether nothing is on its way.
	virtual bool settled() const
	{
		return true;
	}

	// Host memory, which the NIC sees only behind the last buffer. Everything else is GPU memory.
	void add_host_memory(const void *address, size_t size)
	{
		host_.push_back({ reinterpret_cast<uintptr_t>(address), size });
	}

	// C10: atomics on one address by several CTAs need more than CTA scope.
	void note_atomic(Agent who, const void *address, Scope scope);

	void report(const char *rule, std::string text, const Evidence &evidence = {});
	// Barriers, by number of the group; and an acquire without a fence.
	virtual void arrive(Agent, uint32_t)
	{
	}
	virtual void complete(uint32_t)
	{
	}
	virtual void leave(Agent, uint32_t)
	{
	}
	virtual void acquire(Agent)
	{
	}
	// @who publishes, by a release store of scope @scope.
	virtual void published(Agent, const void *, Scope)
	{
	}
	// What lanes know of each other's stores; null where that is not followed.
	virtual Clocks *clocks()
	{
		return nullptr;
	}
	Scope needed(const void *address) const
	{
		return in_host_memory(reinterpret_cast<uintptr_t>(address)) ? Scope::sys : Scope::gpu;
	}
	Bus &bus()
	{
		return bus_;
	}
	const std::vector<Violation> &violations() const
	{
		return violations_;
	}

protected:
	struct Range {
		uintptr_t start;
		size_t size;
	};

	bool in_host_memory(uintptr_t address) const;

	Bus &bus_;
	Random random_;

private:
	struct Sharing {
		Agent first;
		bool narrow;
		bool shared;
		bool reported;
	};

	std::vector<Range> host_;
	std::map<const void *, Sharing> atomics_;
	std::vector<Violation> violations_;
};

class DirectMemory : public Memory {
public:
	using Memory::Memory;
	void load(Agent who, const void *address, void *value, size_t size) override;
	void look(Agent who, const void *address, void *value, size_t size) override;
	void store(Agent who, void *address, const void *value, size_t size) override;
	void mmio(Agent who, volatile void *address, uint64_t value, size_t size) override;
	void fence(Agent who, Scope scope) override;
	uint64_t update(Agent who, void *address, size_t size, Scope scope, Change change, uint64_t a,
			uint64_t b) override;
	void tick(bool idle) override;
	void flush() override;
};

class WeakMemory : public Memory {
public:
	WeakMemory(Bus &bus, uint64_t seed, uint32_t lanes, uint32_t ctas);
	void load(Agent who, const void *address, void *value, size_t size) override;
	void look(Agent who, const void *address, void *value, size_t size) override;
	void store(Agent who, void *address, const void *value, size_t size) override;
	void mmio(Agent who, volatile void *address, uint64_t value, size_t size) override;
	void fence(Agent who, Scope scope) override;
	uint64_t update(Agent who, void *address, size_t size, Scope scope, Change change, uint64_t a,
			uint64_t b) override;
	void tick(bool idle) override;
	void flush() override;
	bool settled() const override;
	void arrive(Agent who, uint32_t group) override;
	void complete(uint32_t group) override;
	void leave(Agent who, uint32_t group) override;
	void acquire(Agent who) override;
	void published(Agent who, const void *address, Scope scope) override;
	Clocks *clocks() override
	{
		return clocks_.get();
	}

private:
	struct Entry {
		uintptr_t address;
		uint8_t size;
		bool mmio;
		uint8_t data[16];

		bool touches(uintptr_t other, size_t length) const
		{
			return address < other + length && other < address + size;
		}
	};

	// Where a buffer's entries go next.
	struct Buffer {
		std::vector<Entry> entries;
		Buffer *next;  // null: memory, or the NIC
	};

	void push(Buffer &buffer, const Entry &entry);
	void drain(Buffer &buffer, size_t which);
	void drain_one(Buffer &buffer);
	void drain_all(Buffer &buffer);
	void drain_touching(Buffer &buffer, uintptr_t address, size_t size);
	void overlay(const Buffer &buffer, uintptr_t address, void *value, size_t size) const;
	void view(Agent who, uintptr_t address, void *value, size_t size) const;

	std::vector<Buffer> lanes_;
	std::vector<Buffer> ctas_;
	Buffer gpu_;
	std::unique_ptr<Clocks> clocks_;
};

} // namespace simt

#endif // SIMT_MEMORY_H
