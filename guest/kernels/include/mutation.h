// SPDX-License-Identifier: Apache-2.0
// Mistakes people have made in direct submission, each of which a kernel can make on request.
#ifndef KERNELS_MUTATION_H
#define KERNELS_MUTATION_H

#include "scope.h"

namespace kernels {

enum class Mutation {
	none,
	drop_publish_fence,
	drop_ring_fence,
	ring_before_ready,
	skip_slot_check,
	dbr_dword0,
	masked_index,
	masked_phase,
	neighbour_qpn,
	swap_doorbell,
	split_doorbell,
	ring_all_lanes,
	ring_before_connect,
	forget_consumer,
	consumer_ahead,
	forget_last_doorbell,
	cta_scope_on_shared,
	reuse_payload,
	signal_on_other_qp,
	drop_signal_fence,
	drop_fence,
	swap_keys,
	misaligned_atomic,
	four_byte_atomic,
	drop_lock,
	narrow_index,
	narrow_doorbell,
	swap_index,
	change_wqe,
	reuse_result,
	ignore_errors,
	unclean_cq,
	unclean_ring,
	pe_major,
	stale_psn,
	no_retries,
	narrow_ring_fence,
	drop_block_barrier,
	garbage_hints,
	narrow_signal,
	stray_key,
	keep_lock,
};

struct MutationName {
	Mutation mutation;
	const char *name;
	const char *summary;
};

// Where a kernel's code differs, it asks for the one that is on.
extern SIMT_GLOBAL Mutation mutation;

SIMT_DEVICE inline bool mutated(Mutation which)
{
	return mutation == which;
}

// All of them but none; the last has no name.
extern const MutationName mutations[];

} // namespace kernels

#endif // KERNELS_MUTATION_H
