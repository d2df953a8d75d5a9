// SPDX-License-Identifier: Apache-2.0
// The command line of vrnic-simt.
#ifndef KERNELS_SIMT_OPTIONS_H
#define KERNELS_SIMT_OPTIONS_H

#include <cstddef>
#include <cstdint>

#include "qp.h"

namespace kernels {

enum class Place { vram, host };
enum class Routing { uniform, hot, idle };

struct Options {
	const char *kernel = nullptr;
	char role = 0;  // 'a' or 'b' in a guest
	int harness = -1;  // a socket to a NIC without a guest
	bool weak = false;  // memory engine
	bool proxy = false;  // a CPU submits
	bool hints = true;  // tell the NIC's checks of this side
	Device device = Device::vrnic;
	Convention convention = Convention::next;  // of mlx5 doorbells
	Place ring = Place::vram;
	Place data = Place::vram;
	uint64_t seed = 1;
	double timeout = 20;  // seconds
	uint32_t ctas = 0;
	uint32_t warps = 0;  // of each CTA
	uint32_t messages = 0;
	uint32_t size = 0;  // bytes of a message
	uint32_t qps = 0;  // to each peer
	uint8_t log_depth = 0;
	uint32_t batch = 0;  // WQEs for each doorbell
	uint32_t start = 0;  // first running index
	uint8_t dbr_policy = 0;
	Completion completion = {};
	bool ring_twice = false;
	uint8_t transport = VRNIC_TRANSPORT_ROCE_RC;
	// moe
	uint32_t tokens = 0;  // of each rank
	uint32_t experts = 0;  // of all ranks
	uint32_t topk = 0;
	uint32_t hidden = 0;
	uint32_t steps = 0;
	Routing routing = Routing::uniform;
};

// Parse; on a mistake say what is wrong on standard error and leave with status 2.
void options_parse(int argc, char **argv, Options &options);

} // namespace kernels

#endif // KERNELS_SIMT_OPTIONS_H
