// SPDX-License-Identifier: Apache-2.0
// What each lane knows of the others' stores: vector clocks with scopes.
//
// A lane's time advances at each of its fences. A store carries its lane's time, and is covered once a fence
// that comes after it, of that lane or of one that knows of it, has the scope its memory needs. Knowledge
// goes from lane to lane where they synchronise: at barriers, and through words that one updates or releases
// behind a fence and another reads before one. Scopes count: what is published with CTA scope is for the CTA.
// A second, loose set of clocks takes every scope for wide enough, so that a scope too narrow can be told
// from a fence that is missing.
#ifndef SIMT_CLOCKS_H
#define SIMT_CLOCKS_H

#include <cstdint>
#include <map>
#include <vector>

#include "scope.h"

namespace simt {

// The latest store to a word: 0 for the clock if no lane stored there.
struct Writer {
	uint32_t lane;
	uint32_t clock;
};

class Clocks {
public:
	// More lanes than this have no clocks: they take lanes * lanes * 100 bytes.
	static constexpr uint32_t MOST_LANES = 512;

	explicit Clocks(uint32_t lanes);

	// Memory whose stores are watched, by words of 8 bytes.
	void add_memory(const void *address, size_t size);

	void store(Agent who, const void *address, size_t size);
	void fence(Agent who, Scope scope);
	void acquire(Agent who);
	// @who read a word that others may have published.
	void read(Agent who, const void *address, Scope scope);
	// @who publishes what it fenced, in a word that others may read.
	void publish(Agent who, const void *address, Scope scope);
	// Barriers, by number of the group: everybody arrives, then everybody leaves.
	void arrive(Agent who, uint32_t group);
	void complete(uint32_t group);
	void leave(Agent who, uint32_t group);

	Writer writer(const void *address) const;
	// Up to which of @of's clocks @who knows its stores to be visible at @scope, or at any.
	uint32_t known(Agent who, uint32_t of, Scope scope) const;
	uint32_t loosely_known(Agent who, uint32_t of) const;

private:
	using Vector = std::vector<uint32_t>;

	// Offsets of the parts of a lane's vector, in units of lanes: known, visible to the GPU, visible to
	// the system; and the loose ones.
	enum Part { KNOWN, GPU, SYSTEM, LOOSE, LOOSE_VISIBLE, PARTS };
	static constexpr uint32_t SCOPED = 3;

	struct Lane {
		uint32_t time = 1;
		Vector now;  // all parts
		Vector fenced;  // all parts, at the last fence
		Vector fenced_wide;  // scoped parts, at the last fence of more than CTA scope
		Vector read;  // all parts, of words read since the last acquire
		bool has_read = false;
	};

	struct Word {
		std::map<uint32_t, Vector> ctas;  // scoped parts, published for a CTA
		Vector gpu;  // scoped parts, published for everyone
		Vector loose;  // loose parts
	};

	struct Group {
		Vector arriving, done;
	};

	struct Memory {
		uintptr_t start;
		size_t size;
		std::vector<Writer> words;
	};

	void merge(Vector &into, uint32_t at, const Vector &from, uint32_t from_at, uint32_t parts) const;
	uint32_t &part(Vector &vector, Part part, uint32_t lane) const
	{
		return vector[static_cast<uint32_t>(part) * count_ + lane];
	}

	uint32_t count_;
	std::vector<Lane> lanes_;
	std::map<const void *, Word> words_;
	std::map<uint32_t, Group> groups_;
	std::vector<Memory> memories_;
};

} // namespace simt

#endif // SIMT_CLOCKS_H
