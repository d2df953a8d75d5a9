// SPDX-License-Identifier: Apache-2.0
// The list of kernels, and what their options have in common.
#include "kernel.h"

#include <cstring>

namespace kernels {

const Kernel *const all_kernels[] = {
	&single_kernel, &coalesced_kernel, &shared_kernel, &exclusive_kernel, &verbs_kernel, &moe_kernel, &eager_kernel,
	&wrap_kernel, &garbage_kernel, nullptr,
};

const Kernel *kernel_named(const char *name)
{
	for (const Kernel *const *kernel = all_kernels; *kernel; kernel++)
		if (!strcmp((*kernel)->name, name))
			return *kernel;
	return nullptr;
}

std::string common_defaults(Options &options, uint32_t messages, uint32_t ctas, uint32_t warps)
{
	preset(options.ctas, ctas);
	preset(options.warps, warps);
	preset(options.messages, messages);
	preset(options.size, 64);
	preset(options.qps, 1);
	preset(options.log_depth, 7);
	preset(options.batch, 32);
	// Whoever waits for a slot must not wait for WQEs that nobody is going to ring.
	if (options.batch + simt::WARP_LANES > 1u << options.log_depth)
		return "--batch and a warp's WQEs together are more than the ring's slots";
	if (options.messages % simt::WARP_LANES)
		return "--messages is not a multiple of a warp's 32 lanes";
	return {};
}

} // namespace kernels
