# SPDX-License-Identifier: Apache-2.0
"""A ring of equal slots in guest memory."""

from __future__ import annotations

from dataclasses import dataclass

from emu.nic.dma import Dma
from emu.nic.mr import MemoryRegion
from emu.nic.pages import Memory

__all__ = ["Ring", "RingMemory"]


@dataclass(frozen=True, slots=True)
class RingMemory:
    """Where a ring lives:

    ``offset`` bytes into ``pages``; ``region`` is pinned while the ring exists (None: no region).
    """

    pages: Memory
    offset: int
    region: MemoryRegion | None = None


class Ring:
    """``1 << log_size`` slots of ``slot_size`` bytes.

    Slots are named by running index; the slot is its low bits.
    """

    __slots__ = ("_base", "_dma", "_offset", "_pages", "_region", "log_size", "mask", "size", "slot_size")

    def __init__(self, memory: RingMemory, slot_size: int, log_size: int, dma: Dma) -> None:
        self.slot_size = slot_size
        self.log_size = log_size
        self.size = 1 << log_size
        self.mask = self.size - 1
        self._dma = dma
        self._pages = memory.pages
        self._offset = memory.offset
        self._region = memory.region
        self._base = memory.pages.contiguous_at(memory.offset, slot_size << log_size)
        if memory.region is not None:
            memory.region.pins += 1

    def release(self) -> None:
        """Unpin the memory."""
        if self._region is not None:
            self._region.pins -= 1
            self._region = None

    def read(self, index: int, count: int) -> bytes:
        """``count`` slots from running index ``index`` on: one bus read, two when the span wraps.

        :raises BusError: the ring is unreachable.
        """
        slot = index & self.mask
        head = self.size - slot
        if count <= head:
            return self._read(slot, count)
        return self._read(slot, head) + self._read(0, count - head)

    def peek(self, dma: Dma, index: int, count: int) -> bytes:
        """As :meth:`read`, by way of ``dma``. :raises BusError: the ring is unreachable."""
        slot = index & self.mask
        head = min(count, self.size - slot)
        size = self.slot_size
        data = self._pages.read(dma, self._offset + slot * size, head * size)
        return data if count <= head else data + self._pages.read(dma, self._offset, (count - head) * size)

    def place(self, index: int) -> int:
        """Bus address of a slot."""
        at = self._offset + (index & self.mask) * self.slot_size
        return self._pages.segments(at, self.slot_size)[0][0]

    def write(self, index: int, body: bytes, commit: bytes) -> None:
        """Fill one slot:

        ``body`` first, then ``commit`` right behind it, so a reader that sees the new commit word sees the
        whole entry.

        :raises BusError: the ring is unreachable.
        """
        at = (index & self.mask) * self.slot_size
        if body:
            self._write(at, body)
        self._write(at + len(body), commit)

    def _read(self, slot: int, count: int) -> bytes:
        at = slot * self.slot_size
        length = count * self.slot_size
        if self._base is not None:
            return self._dma.read(self._base + at, length)
        return self._pages.read(self._dma, self._offset + at, length)

    def _write(self, at: int, data: bytes) -> None:
        if self._base is not None:
            self._dma.write(self._base + at, data)
        else:
            self._pages.write(self._dma, self._offset + at, data)
