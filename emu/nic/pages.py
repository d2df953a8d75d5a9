# SPDX-License-Identifier: Apache-2.0
"""A range of bytes scattered over bus pages."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from emu.nic.dma import Dma

__all__ = ["Memory", "PageList", "Part"]


class Memory(Protocol):
    """What lies behind a region or a ring: ``length`` bytes, wherever they are."""

    length: int

    @property
    def pieces(self) -> int:
        """Separate runs that are kept here."""

    def segments(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Bus address and length of each piece of ``[offset, offset + length)``, which must be inside."""

    def contiguous_at(self, offset: int, length: int) -> int | None:
        """Bus address of ``[offset, offset + length)`` when it is and stays one piece, else None."""

    def read(self, dma: Dma, offset: int, length: int) -> bytes:
        """Read a sub-range. :raises BusError: a page is unreachable."""

    def write(self, dma: Dma, offset: int, data: bytes | memoryview, *, relaxed: bool = False) -> None:
        """Write a sub-range, lowest address first. :raises BusError: a page is unreachable."""


class PageList:
    """``length`` bytes that start ``offset`` bytes into the first of ``pages`` (bus addresses, ``1 <<
    page_shift`` bytes).

    Neighbours in bus space are merged, so a range that is contiguous there costs one access. Holds addresses
    only: whether anything answers them is found out at each access. One that cannot be merged takes 16 bytes.
    """

    __slots__ = ("_buses", "_starts", "base", "length")

    def __init__(self, pages: Sequence[int], page_shift: int, offset: int, length: int) -> None:
        self.length = length
        # Arrays, not lists: a guest decides how many there are, and a list takes five times the memory.
        self._starts = array("Q")
        self._buses = array("Q")
        size = 1 << page_shift
        position = 0
        expected = -1
        for page in pages:
            start = page + offset
            if start != expected:
                self._starts.append(position)
                self._buses.append(start)
            position += size - offset
            expected = page + size
            offset = 0
        self.base: int | None = self._buses[0] if len(self._buses) == 1 else None
        """Bus address of the first byte when the whole range is contiguous, else None."""

    @property
    def pieces(self) -> int:
        """Separate runs of bus memory."""
        return len(self._buses)

    @classmethod
    def contiguous(cls, base: int, length: int) -> PageList:
        """One run of ``length`` bytes at bus address ``base``."""
        return cls((base,), 0, 0, length)

    def segments(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Bus address and length of each piece of ``[offset, offset + length)``, which must be inside."""
        starts, buses = self._starts, self._buses
        run = bisect_right(starts, offset) - 1
        pieces: list[tuple[int, int]] = []
        while length:
            inside = offset - starts[run]
            room = (starts[run + 1] if run + 1 < len(starts) else self.length) - offset
            take = length if length <= room else room
            pieces.append((buses[run] + inside, take))
            offset += take
            length -= take
            run += 1
        return pieces

    def contiguous_at(self, offset: int, length: int) -> int | None:
        """Bus address of ``[offset, offset + length)`` when it is one piece, else None."""
        pieces = self.segments(offset, length)
        return pieces[0][0] if len(pieces) == 1 else None

    def read(self, dma: Dma, offset: int, length: int) -> bytes:
        """Read a sub-range. :raises BusError: a page is unreachable."""
        if self.base is not None:
            return dma.read(self.base + offset, length)
        pieces = self.segments(offset, length)
        if len(pieces) == 1:
            return dma.read(*pieces[0])
        return dma.gather(pieces, length)

    def write(self, dma: Dma, offset: int, data: bytes | memoryview, *, relaxed: bool = False) -> None:
        """Write a sub-range, lowest address first; ``relaxed`` as of :meth:`Dma.write`.

        :raises BusError: a page is unreachable; earlier pages are written.
        """
        if self.base is not None:
            dma.write(self.base + offset, data, relaxed=relaxed)
            return
        pieces = self.segments(offset, len(data))
        if len(pieces) == 1:
            dma.write(pieces[0][0], data, relaxed=relaxed)
        else:
            dma.scatter(pieces, memoryview(data), relaxed=relaxed)


class Part:
    """``length`` bytes from ``offset`` on of other memory; implements :class:`Memory`."""

    __slots__ = ("_offset", "_whole", "length")

    def __init__(self, whole: Memory, offset: int, length: int) -> None:
        self.length = length
        self._whole = whole
        self._offset = offset

    @property
    def pieces(self) -> int:
        """None of its own."""
        return 0

    def segments(self, offset: int, length: int) -> list[tuple[int, int]]:
        """As :meth:`Memory.segments`."""
        return self._whole.segments(self._offset + offset, length)

    def contiguous_at(self, offset: int, length: int) -> int | None:
        """As :meth:`Memory.contiguous_at`."""
        return self._whole.contiguous_at(self._offset + offset, length)

    def read(self, dma: Dma, offset: int, length: int) -> bytes:
        """As :meth:`Memory.read`."""
        return self._whole.read(dma, self._offset + offset, length)

    def write(self, dma: Dma, offset: int, data: bytes | memoryview, *, relaxed: bool = False) -> None:
        """As :meth:`Memory.write`."""
        self._whole.write(dma, self._offset + offset, data, relaxed=relaxed)
