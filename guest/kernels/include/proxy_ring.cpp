// SPDX-License-Identifier: Apache-2.0
// The lanes' side of the ring.
#include "proxy_ring.h"

namespace kernels {

using simt::Order;
using simt::Scope;

SIMT_DEVICE ProxyCommand ProxyCommand::of(const Wqe &wqe, uint32_t pe, uint32_t q, uint64_t local, uint64_t remote)
{
	ProxyCommand command = {};
	uint64_t operand = le64toh(wqe.word[4]), compare = le64toh(wqe.word[5]), result = le64toh(wqe.word[6]) - local;
	uint64_t length = le64toh(wqe.word[3]) >> 32;
	uint64_t *next = command.value;

	*next++ = static_cast<uint64_t>(wqe.opcode()) | static_cast<uint64_t>(wqe.flags()) << 4 |
		  static_cast<uint64_t>(pe) << 12 | static_cast<uint64_t>(q) << 16 | length << 20;
	*next++ = le64toh(wqe.word[2]) - remote;
	if (wqe.opcode() == VRNIC_OP_ATOMIC_ADD || wqe.opcode() == VRNIC_OP_ATOMIC_CAS) {
		*next++ = operand & 0xffffffff;
		*next++ = operand >> 32;
		if (wqe.opcode() == VRNIC_OP_ATOMIC_CAS) {
			*next++ = compare & 0xffffffff;
			*next++ = compare >> 32;
		}
		*next++ = result;
		*next++ = 0;
	} else if (wqe.flags() & VRNIC_WQE_INLINE) {
		uint64_t value = le64toh(wqe.word[VRNIC_WQE_INLINE_OFFSET / 8]);

		*next++ = value & 0xffffffff;
		*next++ = value >> 32;
	} else {
		*next++ = operand - local;
		*next++ = 0;
	}
	command.entries = static_cast<uint32_t>(next - command.value);
	return command;
}

SIMT_DEVICE void ProxyRing::spin(const char *what, uint64_t number)
{
	uint64_t status = simt::ld(failed, Order::relaxed, Scope::sys);

	if (status)
		simt::fail("the proxy saw a completion with %s",
			   vrnic_wc_status_name(static_cast<uint32_t>(status)));
	if (static_cast<int64_t>(clock() - deadline) > 0)
		simt::fail("gave up waiting for the proxy to %s entry %llu", what, static_cast<simt::Word>(number));
	simt::pause();
}

SIMT_DEVICE void ProxyRing::post(const ProxyCommand &command)
{
	uint64_t base = simt::atomic_add(&issued, command.entries, Scope::gpu);

	while (simt::ld(consumed, Order::acquire, Scope::sys) + PROXY_ENTRIES < base + command.entries)
		spin("take", base);
	// The NIC is told of the payload by another processor: it must have left the GPU before the entries do.
	simt::fence(Scope::sys);
	for (uint32_t i = 0; i < command.entries; i++)
		simt::st(entries + ((base + i) & (PROXY_ENTRIES - 1)),
			 htole64(command.value[i] << 1 | proxy_flag(base + i)));
	simt::fence(Scope::sys);
}

SIMT_DEVICE void ProxyRing::quiet()
{
	uint64_t end = simt::ld(&issued);

	while (simt::ld(acked, Order::acquire, Scope::sys) < end)
		spin("complete", end - 1);
}

} // namespace kernels
