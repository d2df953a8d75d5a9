// SPDX-License-Identifier: Apache-2.0
// How far an access reaches, and who makes it.
#ifndef SIMT_SCOPE_H
#define SIMT_SCOPE_H

#include <cstddef>
#include <cstdint>

namespace simt {

enum class Scope { cta, gpu, sys };

// Who accesses: numbers in the grid.
struct Agent {
	uint32_t lane;
	uint32_t cta;
};

} // namespace simt

#endif // SIMT_SCOPE_H
