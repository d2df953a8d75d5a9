// SPDX-License-Identifier: Apache-2.0
// A queue pair of an mlx5-compatible NIC: the same operations in its formats.
#include "qp.h"

#include "mlx5_format.h"

namespace kernels {

using simt::Order;
using simt::Scope;

namespace {

constexpr uint32_t WORDS = MLX5_BLOCK / 4;

// The operation of @wqe as an mlx5 opcode, and its segments behind the control segment at @word. How many
// there are, with the control segment.
SIMT_DEVICE uint32_t encode(const Wqe &wqe, uint32_t *word, uint8_t &opcode, uint8_t &modifier)
{
	uint64_t remote = le64toh(wqe.word[2]), local = le64toh(wqe.word[4]);
	uint32_t rkey = static_cast<uint32_t>(le64toh(wqe.word[3]));
	uint32_t length = static_cast<uint32_t>(le64toh(wqe.word[3]) >> 32);
	uint64_t compare = le64toh(wqe.word[5]), result = le64toh(wqe.word[6]);
	bool inlined = wqe.flags() & VRNIC_WQE_INLINE, narrow = wqe.flags() & VRNIC_WQE_OPERAND_4B;
	uint32_t *second = word + MLX5_UNIT_WORDS, *third = second + MLX5_UNIT_WORDS;

	modifier = 0;
	if (wqe.opcode() == VRNIC_OP_NOP) {
		opcode = MLX5_WQE_NOP;
		return 1;
	}
	mlx5_put_remote(word, remote, rkey);
	switch (wqe.opcode()) {
	case VRNIC_OP_READ:
		opcode = MLX5_WQE_READ;
		mlx5_put_data(second, length, static_cast<uint32_t>(compare), local);
		return 3;
	case VRNIC_OP_ATOMIC_ADD:
		opcode = narrow ? MLX5_WQE_MASKED_FA : MLX5_WQE_FA;
		if (narrow)
			mlx5_put_masked_fa4(second, static_cast<uint32_t>(local), 0);
		else
			mlx5_put_atomic(second, local, 0);
		break;
	case VRNIC_OP_ATOMIC_CAS:
		opcode = narrow ? MLX5_WQE_MASKED_CAS : MLX5_WQE_CAS;
		if (narrow)
			mlx5_put_masked_cas4(second, static_cast<uint32_t>(local), static_cast<uint32_t>(compare),
					     UINT32_MAX, UINT32_MAX);
		else
			mlx5_put_atomic(second, local, compare);
		break;
	default:
		opcode = MLX5_WQE_WRITE;
		if (inlined)
			mlx5_put_inline(second, &wqe.word[VRNIC_WQE_INLINE_OFFSET / 8], length);
		else
			mlx5_put_data(second, length, static_cast<uint32_t>(compare), local);
		return 3;
	}
	modifier = narrow ? MLX5_ATOMIC_4 : 0;
	mlx5_put_data(third, length, static_cast<uint32_t>(le64toh(wqe.word[7])), result);
	return 4;
}

} // namespace

SIMT_DEVICE void Qp::fill_mlx5(uint64_t index, const Wqe &wqe)
{
	uint64_t *slot = sq + (index & (depth - 1)) * (MLX5_BLOCK / 8);
	uint32_t number = static_cast<uint32_t>(index), words[WORDS] = {};
	uint8_t opcode, modifier, flags = 0;
	uint32_t units = encode(wqe, words + MLX5_UNIT_WORDS, opcode, modifier);

	if (mutated(Mutation::masked_index))
		number &= depth - 1;
	if (wqe.flags() & VRNIC_WQE_SIGNAL)
		flags |= MLX5_WQE_CQE;
	if (wqe.flags() & VRNIC_WQE_FENCE)
		flags |= MLX5_WQE_FENCE;
	mlx5_put_control(words, modifier, static_cast<uint16_t>(number), opcode,
			 mutated(Mutation::neighbour_qpn) ? qpn + 1 : qpn, units, flags);
	// Nothing in it says that it is whole: only the doorbell may tell the NIC of it. The control segment is
	// stored last, so that a slot that is rung too early still has the index of an earlier pass.
	for (uint32_t unit = MLX5_BLOCK / MLX5_UNIT; unit--;) {
		uint64_t pair[2];

		memcpy(pair, words + unit * MLX5_UNIT_WORDS, sizeof(pair));
		simt::st16(slot + 2 * unit, pair[0], pair[1]);
	}
}

SIMT_DEVICE void Qp::poll_mlx5()
{
	bool ring = completion == Completion::ring;
	uint32_t slots = 1u << log_cq, next = static_cast<uint32_t>(simt::ld(&consumed));
	uint64_t done = simt::ld(&completed);
	const uint8_t *cqe = cq + (ring ? next & (slots - 1) : 0) * static_cast<size_t>(MLX5_CQE_BYTES);
	mlx5_cqe_end end = mlx5_cqe_end_of(simt::ld(reinterpret_cast<const uint64_t *>(cqe + MLX5_CQE_BYTES) - 1, Order::acquire,
						 Scope::sys));
	uint16_t advance;

	if (end.opcode == MLX5_CQE_INVALID || (ring && end.owner != (next / slots & 1)))
		return;
	if (end.opcode != MLX5_CQE_DONE && !mutated(Mutation::ignore_errors)) {
		uint8_t syndrome = simt::ld(cqe + MLX5_CQE_SYNDROME, Order::acquire, Scope::sys);

		fail_completion(end.counter, mlx5_syndrome_name(syndrome));
	}
	// Of a collapsed CQ the same entry is read again and again.
	advance = static_cast<uint16_t>(end.counter + 1 - done);
	if (end.opcode == MLX5_CQE_DONE && advance && advance <= depth)
		simt::atomic_max(&completed, done + advance, scope());
	if (!ring)
		return;
	simt::st(&consumed, ++next);
	if (next % (slots / 4) || mutated(Mutation::forget_consumer))
		return;
	if (mutated(Mutation::consumer_ahead))
		next += slots;
	simt::st(cq_record, mlx5_be32(next & 0xffffff));
	simt::fence(nic_scope);
}

// What to ring with when every block before @end is written.
SIMT_DEVICE uint64_t Qp::doorbell_mlx5(uint64_t end)
{
	// The last WQE is one block: one of more has a NOP behind it.
	if (convention == Convention::next)
		return mlx5_doorbell_next(static_cast<uint32_t>(end), qpn);
	return simt::ld(sq + ((end - 1) & (depth - 1)) * (MLX5_BLOCK / 8));
}

// The last WQE whole, its start last: if it is the only one that was not rung for, the NIC fetches nothing.
SIMT_DEVICE void Qp::push_mlx5(uint64_t end)
{
	const uint64_t *slot = sq + ((end - 1) & (depth - 1)) * (MLX5_BLOCK / 8);

	for (uint32_t word = MLX5_BLOCK / 8; word--;)
		simt::mmio_st64(doorbells + word, simt::ld(slot + word));
}

} // namespace kernels
