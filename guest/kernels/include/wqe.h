// SPDX-License-Identifier: Apache-2.0
// Send WQEs of the vrnic contract as eight words in memory order, ready for a lane's 16-byte stores.
// Index, QPN and phase are filled in where the WQE gets its slot.
#ifndef KERNELS_WQE_H
#define KERNELS_WQE_H

#include <cstdint>
#include <cstring>

#include <endian.h>

#include "simt.h"
#include "vrnic_contract.h"

namespace kernels {

struct Wqe {
	uint64_t word[VRNIC_WQE_SIZE / 8];

	SIMT_BOTH static Wqe make(vrnic_opcode opcode, uint8_t flags, uint64_t remote, uint32_t rkey, uint32_t length)
	{
		Wqe wqe = {};

		wqe.word[0] = static_cast<uint64_t>(flags) << 8 | static_cast<uint64_t>(opcode);
		wqe.word[2] = htole64(remote);
		wqe.word[3] = htole64(static_cast<uint64_t>(length) << 32 | rkey);
		return wqe;
	}

	// WRITE of @length bytes from @local to @remote, or READ the other way.
	SIMT_BOTH static Wqe transfer(vrnic_opcode opcode, uint64_t local, uint32_t lkey, uint64_t remote, uint32_t rkey,
			    uint32_t length)
	{
		Wqe wqe = make(opcode, 0, remote, rkey, length);

		wqe.word[4] = htole64(local);
		wqe.word[5] = htole64(lkey);
		return wqe;
	}

	// WRITE of @size bytes (up to 8) that are in the descriptor.
	SIMT_BOTH static Wqe inlined(const void *value, uint32_t size, uint64_t remote, uint32_t rkey)
	{
		Wqe wqe = make(VRNIC_OP_WRITE, VRNIC_WQE_INLINE, remote, rkey, size);

		memcpy(&wqe.word[VRNIC_WQE_INLINE_OFFSET / 8], value, size);
		return wqe;
	}

	// Fetch-and-add of 8 bytes; the old value goes to @result.
	SIMT_BOTH static Wqe add(uint64_t value, uint64_t result, uint32_t lkey, uint64_t remote, uint32_t rkey)
	{
		Wqe wqe = make(VRNIC_OP_ATOMIC_ADD, 0, remote, rkey, 8);

		wqe.word[4] = htole64(value);
		wqe.word[6] = htole64(result);
		wqe.word[7] = htole64(lkey);
		return wqe;
	}

	// Compare-and-swap of 8 bytes; the old value goes to @result.
	SIMT_BOTH static Wqe cas(uint64_t compare, uint64_t swap, uint64_t result, uint32_t lkey, uint64_t remote, uint32_t rkey)
	{
		Wqe wqe = add(swap, result, lkey, remote, rkey);

		wqe.word[0] = static_cast<uint64_t>(VRNIC_OP_ATOMIC_CAS);
		wqe.word[5] = htole64(compare);
		return wqe;
	}

	SIMT_BOTH void set_flags(uint8_t flags)
	{
		word[0] |= static_cast<uint64_t>(flags) << 8;
	}

	SIMT_BOTH uint8_t flags() const
	{
		return static_cast<uint8_t>(word[0] >> 8);
	}

	SIMT_BOTH vrnic_opcode opcode() const
	{
		return static_cast<vrnic_opcode>(word[0] & 0xff);
	}
};

} // namespace kernels

#endif // KERNELS_WQE_H
