# SPDX-License-Identifier: Apache-2.0
"""Operands of atomics in send descriptors.

::

    CAS                 swap (8) | compare (8)
    FA                  add (8) | reserved (8)
    masked CAS, 4 B     swap (4) | compare (4) | swap mask (4) | compare mask (4)
    masked CAS, 8 B     swap (8) | compare (8), then swap mask (8) | compare mask (8)
    masked FA, 4 B      add (4) | field boundary (4) | reserved (8)
    masked FA, 8 B      add (8) | field boundary (8)

The opcode modifier of the masked forms tells the size. A set bit of a field boundary is the highest bit of a
field that no carry leaves. Source: ``struct mlx5_wqe_masked_atomic_seg`` in ``include/linux/mlx5/qp.h``; the
short forms as open libraries write them.
"""

from __future__ import annotations

import enum
import struct

from emu.nic.atomics import AtomicMasks
from emu.nic.work import SendRequest
from emu.personality.mlx5.codes import WqeOpcode

__all__ = ["ATOMIC_OPCODES", "AtomicModifier", "BadModifier", "operands"]

ATOMIC_OPCODES = frozenset(
    (WqeOpcode.ATOMIC_CS, WqeOpcode.ATOMIC_FA, WqeOpcode.ATOMIC_MASKED_CS, WqeOpcode.ATOMIC_MASKED_FA)
)
_PAIR8 = struct.Struct(">QQ")
_PAIR4 = struct.Struct(">II8x")
_FOUR4 = struct.Struct(">IIII")
_FOUR8 = struct.Struct(">QQQQ")


class AtomicModifier(enum.IntEnum):
    """Opcode modifier of a masked atomic: how many bytes it works on."""

    FOUR = 0x08
    EIGHT = 0x09


class BadModifier(Exception):
    """The opcode modifier of a masked atomic names no size."""


def operands(request: SendRequest, opcode: int, modifier: int, wqe: bytes, at: int) -> tuple[int, int]:
    """Read the operands at byte ``at`` of ``wqe`` into ``request``. Bytes they take, and bytes of the result.

    :raises struct.error: they run past the descriptor.
    :raises BadModifier: the size is unknown.
    """
    if opcode in (WqeOpcode.ATOMIC_CS, WqeOpcode.ATOMIC_FA):
        request.swap_add, request.compare = _PAIR8.unpack_from(wqe, at)
        return _PAIR8.size, 8
    if modifier not in (AtomicModifier.FOUR, AtomicModifier.EIGHT):
        raise BadModifier(f"opcode modifier {modifier:#x} of a masked atomic is neither 0x8 nor 0x9")
    four = modifier == AtomicModifier.FOUR
    if opcode == WqeOpcode.ATOMIC_MASKED_FA:
        form = _PAIR4 if four else _PAIR8
        request.swap_add, boundary = form.unpack_from(wqe, at)
        request.masks = AtomicMasks(boundary=boundary)
    else:
        form = _FOUR4 if four else _FOUR8
        request.swap_add, request.compare, swap, compare = form.unpack_from(wqe, at)
        request.masks = AtomicMasks(compare, swap)
    return form.size, 4 if four else 8
