// SPDX-License-Identifier: Apache-2.0
// The submitter's end of the hint ring: what the NIC's checks are told of this side.
#ifndef KERNELS_SIMT_HINTS_H
#define KERNELS_SIMT_HINTS_H

#include "machine.h"

namespace kernels {

class Hints {
public:
	explicit Hints(Machine &machine) : machine_(machine)
	{
	}

	// Make the ring. False, with a sentence in the machine's error(), when a machine that has hints fails;
	// one without them leaves this off.
	bool open();
	bool on() const
	{
		return ring_.map != nullptr;
	}
	// Write one; the NIC sees it with the next doorbell, or with ring().
	void write(struct vrnic_hint hint);
	// What a program that lost its mind does to it.
	void spoil(simt::Random &random);
	// Have the NIC look now.
	void ring();

private:
	Machine &machine_;
	Region ring_ = {};
	uint32_t producer_ = 0;
};

} // namespace kernels

#endif // KERNELS_SIMT_HINTS_H
