/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a direct submitter writes for an mlx5-compatible NIC: send WQEs, doorbell records, doorbells; and
 * what it reads: CQEs. Every field is big-endian; functions take host integers and store memory order.
 *
 * A WQE is segments of 16 bytes in basic blocks of 64: a control segment, then by opcode
 *
 *   WRITE, READ        remote address, data (or inline)
 *   FA, CAS            remote address, operands, data for the old value
 *   masked FA, CAS     remote address, operands with masks (two segments for a CAS of 8 bytes), data
 *   DUMP               data: read and thrown away
 *   WAIT               the CQE to wait for
 *   NOP                nothing
 *
 * Sources: struct mlx5_wqe_* in include/linux/mlx5/qp.h, struct mlx5_cqe64 in include/linux/mlx5/device.h.
 */
#ifndef KERNELS_MLX5_FORMAT_H
#define KERNELS_MLX5_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef VRNIC_INLINE
#define VRNIC_INLINE static inline
#endif

#define MLX5_BLOCK 64  /* bytes of a WQE basic block, a ring's slot */
#define MLX5_UNIT 16
#define MLX5_UNIT_WORDS 4
#define MLX5_MOST_WORDS 32  /* of the longest WQE that is built here: two blocks */
#define MLX5_INLINE_MOST 12  /* inline bytes of a WRITE in one block */
#define MLX5_CQE_BYTES 64
#define MLX5_UAR_DOORBELL 0x800  /* offset of the send doorbell in a UAR page */
#define MLX5_UAR_ALTERNATE 0x100  /* from there, the other BlueFlame register */

enum mlx5_wqe_opcode {
	MLX5_WQE_NOP = 0x00,
	MLX5_WQE_WRITE = 0x08,
	MLX5_WQE_WAIT = 0x0f,
	MLX5_WQE_READ = 0x10,
	MLX5_WQE_CAS = 0x11,
	MLX5_WQE_FA = 0x12,
	MLX5_WQE_MASKED_CAS = 0x14,
	MLX5_WQE_MASKED_FA = 0x15,
	MLX5_WQE_DUMP = 0x23,
};

/* Opcode modifier of a masked atomic: on how many bytes. */
enum { MLX5_ATOMIC_4 = 0x08, MLX5_ATOMIC_8 = 0x09 };

/* Flags of a control segment. */
enum { MLX5_WQE_CQE = 0x08, MLX5_WQE_FENCE = 0x40 };

enum mlx5_cqe_opcode { MLX5_CQE_DONE = 0x0, MLX5_CQE_REQUESTER_ERROR = 0xd, MLX5_CQE_INVALID = 0xf };

VRNIC_INLINE uint32_t mlx5_be32(uint32_t value)
{
	return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

VRNIC_INLINE void mlx5_put64(uint32_t *word, uint64_t value)
{
	word[0] = mlx5_be32((uint32_t)(value >> 32));
	word[1] = mlx5_be32((uint32_t)value);
}

/* Segments, each at @word. */

VRNIC_INLINE void mlx5_put_control(uint32_t *word, uint8_t modifier, uint16_t index, uint8_t opcode, uint32_t qpn,
				    uint32_t units, uint8_t flags)
{
	word[0] = mlx5_be32((uint32_t)modifier << 24 | (uint32_t)index << 8 | opcode);
	word[1] = mlx5_be32(qpn << 8 | units);
	word[2] = mlx5_be32(flags);
	word[3] = 0;
}

VRNIC_INLINE void mlx5_put_remote(uint32_t *word, uint64_t address, uint32_t rkey)
{
	mlx5_put64(word, address);
	word[2] = mlx5_be32(rkey);
	word[3] = 0;
}

VRNIC_INLINE void mlx5_put_data(uint32_t *word, uint32_t length, uint32_t lkey, uint64_t address)
{
	word[0] = mlx5_be32(length);
	word[1] = mlx5_be32(lkey);
	mlx5_put64(word + 2, address);
}

/* Up to MLX5_INLINE_MOST bytes. */
VRNIC_INLINE void mlx5_put_inline(uint32_t *word, const void *bytes, uint32_t length)
{
	memset(word, 0, MLX5_UNIT);
	word[0] = mlx5_be32(1u << 31 | length);
	memcpy(word + 1, bytes, length);
}

/* FA: @operand is what to add, @compare 0. CAS: @operand replaces @compare. */
VRNIC_INLINE void mlx5_put_atomic(uint32_t *word, uint64_t operand, uint64_t compare)
{
	mlx5_put64(word, operand);
	mlx5_put64(word + 2, compare);
}

/* Each bit of @boundary is the highest of a field that no carry leaves. */
VRNIC_INLINE void mlx5_put_masked_fa4(uint32_t *word, uint32_t operand, uint32_t boundary)
{
	word[0] = mlx5_be32(operand);
	word[1] = mlx5_be32(boundary);
	word[2] = word[3] = 0;
}

VRNIC_INLINE void mlx5_put_masked_fa8(uint32_t *word, uint64_t operand, uint64_t boundary)
{
	mlx5_put64(word, operand);
	mlx5_put64(word + 2, boundary);
}

VRNIC_INLINE void mlx5_put_masked_cas4(uint32_t *word, uint32_t swap, uint32_t compare, uint32_t swap_mask,
					uint32_t compare_mask)
{
	word[0] = mlx5_be32(swap);
	word[1] = mlx5_be32(compare);
	word[2] = mlx5_be32(swap_mask);
	word[3] = mlx5_be32(compare_mask);
}

/* Two segments. */
VRNIC_INLINE void mlx5_put_masked_cas8(uint32_t *word, uint64_t swap, uint64_t compare, uint64_t swap_mask,
					uint64_t compare_mask)
{
	mlx5_put64(word, swap);
	mlx5_put64(word + 2, compare);
	mlx5_put64(word + 4, swap_mask);
	mlx5_put64(word + 6, compare_mask);
}

/* Until the CQE with number @index (of all that CQ @cqn ever had, from 0) is written. */
VRNIC_INLINE void mlx5_put_wait(uint32_t *word, uint32_t index, uint32_t cqn)
{
	word[0] = word[1] = 0;
	word[2] = mlx5_be32(index);
	word[3] = mlx5_be32(cqn);
}

/* Slots of a WQE of @units segments. */
VRNIC_INLINE uint32_t mlx5_blocks(uint32_t units)
{
	return (units * MLX5_UNIT + MLX5_BLOCK - 1) / MLX5_BLOCK;
}

/*
 * Doorbells are one store of 8 bytes whose memory image is the start of a control segment. Convention A
 * names the index of the next free slot; convention B repeats the control segment of the last WQE.
 */
VRNIC_INLINE uint64_t mlx5_doorbell_next(uint32_t index, uint32_t qpn)
{
	uint32_t word[2] = { mlx5_be32((index & 0xffff) << 8), mlx5_be32(qpn << 8) };
	uint64_t value;

	memcpy(&value, word, sizeof(value));
	return value;
}

VRNIC_INLINE uint64_t mlx5_doorbell_last(const uint32_t *control)
{
	uint64_t value;

	memcpy(&value, control, sizeof(value));
	return value;
}

/* The send dword of a doorbell record, which is its second one. */
VRNIC_INLINE uint32_t mlx5_record(uint32_t index)
{
	return mlx5_be32(index & 0xffff);
}

/* The last 8 bytes of a CQE, as they lie in memory. */
struct mlx5_cqe_end {
	uint32_t qpn;
	uint16_t counter;  /* index of the first block of the WQE that completed */
	uint8_t wqe_opcode;
	uint8_t opcode;  /* enum mlx5_cqe_opcode */
	bool owner;
};

VRNIC_INLINE struct mlx5_cqe_end mlx5_cqe_end_of(uint64_t last)
{
	uint8_t byte[8];
	struct mlx5_cqe_end end;

	memcpy(byte, &last, sizeof(byte));
	end.wqe_opcode = byte[0];
	end.qpn = (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
	end.counter = (uint16_t)(byte[4] << 8 | byte[5]);
	end.opcode = byte[7] >> 4;
	end.owner = byte[7] & 1;
	return end;
}

/* Why a CQE says error; the byte before it in the CQE is the vendor's own code. */
#define MLX5_CQE_VENDOR 54
#define MLX5_CQE_SYNDROME 55

VRNIC_INLINE const char *mlx5_syndrome_name(uint8_t syndrome)
{
	switch (syndrome) {
	case 0x01: return "LOC_LEN_ERR";
	case 0x02: return "LOC_QP_OP_ERR";
	case 0x04: return "LOC_PROT_ERR";
	case 0x05: return "WR_FLUSH_ERR";
	case 0x06: return "MW_BIND_ERR";
	case 0x10: return "BAD_RESP_ERR";
	case 0x11: return "LOC_ACCESS_ERR";
	case 0x12: return "REM_INV_REQ_ERR";
	case 0x13: return "REM_ACCESS_ERR";
	case 0x14: return "REM_OP_ERR";
	case 0x15: return "RETRY_EXC_ERR";
	case 0x16: return "RNR_RETRY_EXC_ERR";
	case 0x22: return "REM_ABORT_ERR";
	default: return "unknown syndrome";
	}
}

#endif /* KERNELS_MLX5_FORMAT_H */
