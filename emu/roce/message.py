# SPDX-License-Identifier: Apache-2.0
"""A SEND or WRITE message on its way out, cut into packets."""

from __future__ import annotations

from emu.nic.atomics import AtomicMasks
from emu.nic.payload import packet_payload
from emu.nic.work import Opcode, SendRequest
from emu.roce.element import Operation
from emu.wire.headers import (
    pack_atomic_eth,
    pack_immediate,
    pack_invalidate,
    pack_masked_atomic_eth,
    pack_reth,
)

__all__ = ["atomic_head", "packet_head", "packet_payload"]

_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_PLAIN_BYTES = 8
_NO_MASKS = AtomicMasks()


def packet_head(request: SendRequest, operation: Operation, cursor: int, end: bool) -> tuple[int, bytes]:
    """Opcode and extension headers of packet ``cursor`` (from 0), which ``end`` says is the last one."""
    extension = b""
    if cursor:
        opcode = operation.last if end else operation.middle
    else:
        opcode = operation.only if end else operation.first
        if operation.write:
            extension = pack_reth(request.remote_address & _U64, request.rkey & _U32, request.length)
    if end:
        if operation.immediate:
            extension += pack_immediate(request.immediate & _U32)
        elif operation.invalidate:
            extension = pack_invalidate(request.rkey & _U32)
    return opcode, extension


def atomic_head(request: SendRequest, operation: Operation) -> tuple[int, bytes]:
    """Opcode and extension header of an atomic: the standard's where they can express it."""
    swap = request.opcode is Opcode.ATOMIC_CAS
    address, rkey = request.remote_address & _U64, request.rkey & _U32
    operand = request.swap_add & _U64
    compare = request.compare & _U64 if swap else 0
    if request.length == _PLAIN_BYTES and request.masks is None:
        return operation.only, pack_atomic_eth(address, rkey, operand, compare)
    masks = request.masks or _NO_MASKS
    first, second = (masks.swap, masks.compare) if swap else (masks.boundary, 0)
    return operation.extended, pack_masked_atomic_eth(
        address, rkey, request.length, operand, compare, first & _U64, second & _U64
    )
