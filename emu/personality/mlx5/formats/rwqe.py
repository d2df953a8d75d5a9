# SPDX-License-Identifier: Apache-2.0
"""Receive descriptors: a list of 16-byte data segments, ended by the invalid key or by the slot's end.

Source: ``struct mlx5_wqe_data_seg`` in ``include/linux/mlx5/qp.h``; the invalid key is ``MLX5_INVALID_LKEY``.
"""

from __future__ import annotations

import struct

from emu.nic.formats import WqeFault
from emu.nic.qp import QueuePair
from emu.nic.serial import MASK
from emu.nic.work import ReceiveRequest, Sge

__all__ = [
    "INVALID_LKEY",
    "SEGMENT",
    "CyclicReceiveFormat",
    "ReceiveFormat",
    "SharedReceiveFormat",
    "scatter_list",
]

INVALID_LKEY = 0x100
SEGMENT = struct.Struct(">IIQ")


def scatter_list(slot: bytes) -> list[Sge]:
    """The pieces of memory a receive slot names, up to the key that ends the list."""
    pieces: list[Sge] = []
    for length, lkey, address in SEGMENT.iter_unpack(slot):
        if lkey == INVALID_LKEY:
            break
        if length:
            pieces.append(Sge(address, length & 0x7FFFFFFF, lkey))
    return pieces


class SharedReceiveFormat:
    """Implements :class:`emu.nic.srq.SharedFormat`: a segment with the next slot's number, then data."""

    def shared(self, slot: int, data: bytes) -> tuple[int, list[Sge]]:
        """The number in bytes 2 and 3, and the list behind the first segment."""
        return int.from_bytes(data[2:4], "big"), scatter_list(data[SEGMENT.size :])


class CyclicReceiveFormat:
    """The same slots in a pool that is used in order, whatever the first segment says.

    Source: what UCX writes into the receive memory pools it makes through DevX; no public kernel code uses
    this kind.
    """

    def shared(self, slot: int, data: bytes) -> tuple[int, list[Sge]]:
        """The next slot, and the list behind the first segment."""
        return slot + 1, scatter_list(data[SEGMENT.size :])


class ReceiveFormat:
    """Implements :class:`emu.nic.formats.ReceiveFormat`. Each queue has slots of its own size."""

    slot_size = SEGMENT.size

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[ReceiveRequest | WqeFault]:
        """One result per slot."""
        size = len(burst) // count
        return [
            ReceiveRequest((first + at) & MASK, scatter_list(burst[at * size : (at + 1) * size]))
            for at in range(count)
        ]
