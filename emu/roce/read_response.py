# SPDX-License-Identifier: Apache-2.0
"""Which response packets a READ may get, one after the other."""

from __future__ import annotations

from emu.nic.work import Cause, Status
from emu.roce.element import Element, Fault
from emu.roce.packet import RocePacket
from emu.wire.opcodes import RcOpcode

__all__ = ["read_fault"]

_FIRST = int(RcOpcode.READ_RESPONSE_FIRST)
_MIDDLE = int(RcOpcode.READ_RESPONSE_MIDDLE)
_LAST = int(RcOpcode.READ_RESPONSE_LAST)
_ONLY = int(RcOpcode.READ_RESPONSE_ONLY)


def read_fault(packet: RocePacket, head: Element, mtu: int) -> Fault | None:
    """What is wrong with ``packet`` as response number ``head.received`` (from 0) of a READ; None when it
    fits.

    Valid is ONLY, or FIRST, MIDDLE ..., LAST; all but the final one carry exactly the path MTU.
    """
    final = head.received == head.packets - 1
    opcode = packet.opcode
    if final:
        legal = opcode == (_ONLY if head.packets == 1 else _LAST)
    else:
        legal = opcode == (_MIDDLE if head.received else _FIRST)
    if head.restarted and not legal:
        # Hardware begins a restarted READ again with FIRST or ONLY, Linux rxe goes on with MIDDLE or LAST.
        legal = opcode in ((_ONLY, _LAST) if final else (_FIRST, _MIDDLE))
    number = f"READ response {head.received + 1} of {head.packets}"
    if not legal:
        return Fault(Status.BAD_RESP_ERR, Cause.NONE, f"{number} has opcode {opcode:#04x}")
    size = head.request.length - head.received * mtu if final else mtu
    if packet.payload_length != size:
        reason = f"{number} has {packet.payload_length} bytes, not {size}"
        return Fault(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
    return None
