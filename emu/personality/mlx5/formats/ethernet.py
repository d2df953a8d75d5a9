# SPDX-License-Identifier: Apache-2.0
"""Descriptors of Ethernet queues.

A send descriptor has a control segment and, unless it is a NOP, an Ethernet segment of 16 bytes::

    4 checksum flags (1 << 6 IP, 1 << 7 TCP or UDP)   6 segment size (large send)
    12 bytes inline in the descriptor, which start at 14 and run on behind the segment, padded to 16

then data segments. A receive descriptor is a list of data segments.

Source: ``struct mlx5_wqe_eth_seg`` in ``include/linux/mlx5/qp.h``.
"""

from __future__ import annotations

import struct

from emu.checks.rule import Rule
from emu.nic.ethernet import FrameRequest
from emu.nic.formats import WqeFault
from emu.nic.serial import MASK
from emu.nic.work import Cause, Sge
from emu.personality.mlx5.codes import WqeOpcode
from emu.personality.mlx5.formats.rwqe import scatter_list
from emu.personality.mlx5.formats.wqe import (
    COMPLETE_ALWAYS,
    COMPLETE_SHIFT,
    CONTROL,
    SLOT,
    UNIT,
    BadSegment,
    gather_list,
)

__all__ = ["EthernetScatterFormat", "EthernetSendFormat"]

_ETHERNET = struct.Struct(">4xBxH4xH")
CHECKSUM_L3, CHECKSUM_L4 = 1 << 6, 1 << 7
INLINE_AT = UNIT + 14
INSERT_VLAN = 1 << 15


class EthernetSendFormat:
    """Implements :class:`emu.nic.ethernet.FrameFormat`."""

    slot_size = SLOT

    def decode(self, burst: bytes, first: int, count: int, number: int) -> list[FrameRequest | WqeFault]:
        """The whole descriptors among ``count`` slots."""
        results: list[FrameRequest | WqeFault] = []
        slot = 0
        while slot < count:
            at = slot * SLOT
            word, queue, flags, _ = CONTROL.unpack_from(burst, at)
            units = queue & 0x3F
            slots = (units * UNIT + SLOT - 1) // SLOT or 1
            if slot + slots > count:
                break
            index = (first + slot) & MASK
            slot += slots
            results.append(self._one(burst[at : at + units * UNIT], index, slots, word, queue, flags, number))
        return results

    def _one(
        self, wqe: bytes, index: int, slots: int, word: int, queue: int, flags: int, number: int
    ) -> FrameRequest | WqeFault:
        opcode = word & 0xFF
        if word >> 8 & 0xFFFF != index & 0xFFFF or queue >> 8 != number:
            text = f"stale slot of index {index}: index {word >> 8 & 0xFFFF} of queue {queue >> 8:#x}"
            return WqeFault(index, Rule.C01_INDEX, Cause.INDEX_MISMATCH, text, slots)
        signaled = flags >> COMPLETE_SHIFT & 3 >= COMPLETE_ALWAYS
        if opcode == WqeOpcode.NOP:
            return FrameRequest(index, slots, signaled=signaled, send=False, cookie=opcode)
        if opcode not in (WqeOpcode.SEND, WqeOpcode.LSO):
            text = f"index {index}: Ethernet queues do not offer opcode {opcode:#x}"
            return WqeFault(index, Rule.C29_UNSUPPORTED, Cause.BAD_OPCODE, text, slots)
        if len(wqe) < 2 * UNIT:
            text = f"index {index}: {len(wqe)} bytes hold no Ethernet segment"
            return WqeFault(index, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, slots)
        offload, size, inline = _ETHERNET.unpack_from(wqe, UNIT)
        if inline & INSERT_VLAN:
            text = f"index {index}: VLAN insertion is not offered"
            return WqeFault(index, Rule.C29_UNSUPPORTED, Cause.BAD_FLAGS, text, slots)
        # Two inline bytes fit into the segment itself.
        at = 2 * UNIT + max(0, inline - 2 + UNIT - 1) // UNIT * UNIT if inline else 2 * UNIT
        try:
            if at > len(wqe):
                raise BadSegment(f"{inline} bytes inline run past the descriptor")
            sges, rest = gather_list(wqe, at)
        except BadSegment as error:
            return WqeFault(index, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, f"index {index}: {error}", slots)
        return FrameRequest(
            index,
            slots,
            header=wqe[INLINE_AT : INLINE_AT + inline] + (rest or b""),
            sges=sges,
            segment_size=size if opcode == WqeOpcode.LSO else 0,
            checksum_l3=bool(offload & CHECKSUM_L3),
            checksum_l4=bool(offload & CHECKSUM_L4),
            signaled=signaled,
            cookie=opcode,
        )


class EthernetScatterFormat:
    """Implements :class:`emu.nic.ethernet.ScatterFormat`."""

    def scatter(self, slot: bytes) -> list[Sge]:
        """The buffers of one slot."""
        return scatter_list(slot)
