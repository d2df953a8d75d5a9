# SPDX-License-Identifier: Apache-2.0
"""Memory that lies behind other keys: what an indirect key or a memory window covers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from emu.nic.context import ProtectionDomain
from emu.nic.dma import Dma
from emu.nic.mr import MemoryKeys, MemoryRegion
from emu.nic.work import Access, Sge

__all__ = ["Indirect", "KeyedList", "Layout", "Strided"]


class Layout(Protocol):
    """Which pieces of other keys' memory follow each other."""

    length: int
    count: int
    """Pieces that are kept."""

    def cut(self, offset: int, length: int) -> list[Sge]:
        """The pieces of ``[offset, offset + length)``, which must be inside."""


class KeyedList:
    """Pieces one after the other. The last one may be longer than ``length`` needs."""

    def __init__(self, pieces: Sequence[Sge], length: int) -> None:
        self.length = length
        self.count = len(pieces)
        self._pieces = pieces
        self._ends = list(accumulate(piece.length for piece in pieces))

    @property
    def room(self) -> int:
        """Bytes that the pieces have together."""
        return self._ends[-1] if self._ends else 0

    def cut(self, offset: int, length: int) -> list[Sge]:
        """As :meth:`Layout.cut`."""
        found: list[Sge] = []
        at = bisect_right(self._ends, offset)
        while length:
            piece = self._pieces[at]
            inside = offset - (self._ends[at] - piece.length)
            size = min(length, piece.length - inside)
            found.append(Sge(piece.address + inside, size, piece.lkey))
            offset, length, at = offset + size, length - size, at + 1
        return found


@dataclass(frozen=True, slots=True)
class _Column:
    address: int
    length: int
    lkey: int
    stride: int


class Strided:
    """The same pieces over and over, each time ``stride`` bytes further on."""

    def __init__(self, columns: Sequence[tuple[Sge, int]], repeat: int) -> None:
        """:param columns: the pieces of the first round, and how far each one's next piece is"""
        self._columns = [_Column(sge.address, sge.length, sge.lkey, stride) for sge, stride in columns]
        self._round = sum(column.length for column in self._columns)
        self.length = self._round * repeat
        self.count = len(self._columns)

    def cut(self, offset: int, length: int) -> list[Sge]:
        """As :meth:`Layout.cut`."""
        found: list[Sge] = []
        turn, inside = divmod(offset, self._round)
        while length:
            for column in self._columns:
                if inside >= column.length:
                    inside -= column.length
                    continue
                size = min(length, column.length - inside)
                found.append(Sge(column.address + turn * column.stride + inside, size, column.lkey))
                inside, length = 0, length - size
                if not length:
                    break
            turn += 1
        return found


class Indirect:
    """Implements :class:`emu.nic.pages.Memory`. Nothing is resolved before it is used: a key behind it that
    went away, or that belongs to another domain, refuses the access.

    Reading needs no right of the keys behind, writing their LOCAL_WRITE.
    """

    def __init__(self, keys: MemoryKeys, pd: ProtectionDomain, layout: Layout) -> None:
        self._keys = keys
        self._pd = pd
        self._layout = layout
        self.length = layout.length

    @property
    def pieces(self) -> int:
        """Pieces that are kept here."""
        return self._layout.count

    def segments(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Bus address and length of each piece. :raises ProtectionError: a key behind does not allow it."""
        found: list[tuple[int, int]] = []
        with self._keys.nested():
            for region, at, size in self._resolve(offset, length, Access.LOCAL_WRITE):
                found += region.pages.segments(at, size)
        return found

    def contiguous_at(self, offset: int, length: int) -> int | None:
        """None: what lies behind may change."""
        return None

    def read(self, dma: Dma, offset: int, length: int) -> bytes:
        """Read a sub-range. :raises ProtectionError: a key behind does not allow it; BusError."""
        with self._keys.nested():
            parts = [
                region.pages.read(dma, at, size)
                for region, at, size in self._resolve(offset, length, Access.NONE)
            ]
        return b"".join(parts)

    def write(self, dma: Dma, offset: int, data: bytes | memoryview, *, relaxed: bool = False) -> None:
        """Write a sub-range; nothing is written when a key behind does not allow it.

        :raises ProtectionError: one does not; BusError.
        """
        view, done = memoryview(data), 0
        with self._keys.nested():
            for region, at, size in self._resolve(offset, len(data), Access.LOCAL_WRITE):
                region.pages.write(dma, at, view[done : done + size], relaxed=relaxed or region.relaxed)
                done += size

    def _resolve(self, offset: int, length: int, access: Access) -> list[tuple[MemoryRegion, int, int]]:
        """Region, offset in it and length of each piece."""
        found = []
        for piece in self._layout.cut(offset, length):
            region = self._keys.check(piece.lkey, piece.address, piece.length, self._pd, access, remote=False)
            found.append((region, piece.address - region.address, piece.length))
        return found
