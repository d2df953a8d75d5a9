# SPDX-License-Identifier: Apache-2.0
"""The memory a client shares: bus addresses to views of guest RAM.

Ranges come and go while the guest runs (hot-plug, BAR moves, reboot). The table never hands out memory it has
already dropped, and memory that is still looked at through an old view stays mapped until that view is gone:
a late access can be wrong but never fatal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emu.pcie.bus import BusError

__all__ = ["DmaMap", "DmaRange"]


@dataclass(frozen=True, slots=True)
class DmaRange:
    """One range the client announced: ``[start, end)`` in bus addresses, bytes.

    ``memory`` is a view of exactly that range, read-only when the client granted no write access. It is None
    when the client gave no descriptor for it, as QEMU does for the BAR of another function.
    """

    start: int
    end: int
    memory: memoryview | None

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.end - self.start


_NOTHING = DmaRange(0, 0, None)


class DmaMap:
    """Sorted, disjoint ranges; lookup is a binary search with the last hit remembered.

    Addresses and lengths are bytes. A view must not be kept past the current callback: after :meth:`remove`
    it still reads and writes memory, but memory nobody else looks at.
    """

    def __init__(self) -> None:
        self.generation = 0
        """Counts changes of the table; what was resolved under an older number must be resolved again."""
        self._starts: list[int] = []
        self._ranges: list[DmaRange] = []
        self._last = _NOTHING

    def __iter__(self) -> Iterator[DmaRange]:
        """The ranges in address order."""
        return iter(tuple(self._ranges))

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._ranges)

    def add(self, address: int, size: int, memory: memoryview | None) -> DmaRange:
        """Enter a range; ``memory`` holds its ``size`` bytes, or is None when they cannot be reached.

        :raises ValueError: empty, past the end of the 64-bit space, overlapping an existing range, or
            ``memory`` of another size.
        """
        end = address + size
        if size <= 0 or address < 0 or end > 1 << 64:
            raise ValueError(f"DMA range {address:#x}+{size:#x} is empty or outside the 64-bit space")
        if memory is not None and memory.nbytes != size:
            raise ValueError(f"DMA range {address:#x}+{size:#x} given {memory.nbytes:#x} bytes of memory")
        at = bisect_right(self._starts, address)
        for other in self._ranges[max(at - 1, 0) : at + 1]:
            if address < other.end and other.start < end:
                raise ValueError(
                    f"DMA range {address:#x}+{size:#x} overlaps {other.start:#x}+{other.size:#x}"
                )
        entry = DmaRange(address, end, memory)
        self._starts.insert(at, address)
        self._ranges.insert(at, entry)
        self.generation += 1
        return entry

    def remove(self, address: int, size: int) -> DmaRange:
        """Drop the range that was added with exactly these bounds.

        :raises KeyError: there is none.
        """
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._ranges[at].start != address or self._ranges[at].size != size:
            raise KeyError(f"no DMA range {address:#x}+{size:#x}")
        self._last = _NOTHING
        self.generation += 1
        del self._starts[at]
        return self._ranges.pop(at)

    def clear(self) -> None:
        """Drop everything."""
        self._last = _NOTHING
        self.generation += 1
        self._starts.clear()
        self._ranges.clear()

    def find(self, address: int) -> DmaRange | None:
        """The range that holds ``address``, reachable or not."""
        last = self._last
        if last.start <= address < last.end:
            return last
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._ranges[at].end:
            self._last = self._ranges[at]
            return self._last
        return None

    def view(self, address: int, length: int, *, writable: bool = False) -> memoryview:
        """A zero-copy view inside one range.

        :raises BusError: unreachable, read-only, or it spans two ranges.
        """
        entry = self._last
        if not entry.start <= address < entry.end:
            found = self.find(address)
            if found is None:
                raise BusError(address, length, "nothing is mapped there")
            entry = found
        memory = entry.memory
        if memory is None:
            raise BusError(address, length, "the client shares no memory for it")
        if writable and memory.readonly:
            raise BusError(address, length, "read-only")
        offset = address - entry.start
        if length < 0 or address + length > entry.end:
            raise BusError(address, length, f"leaves the mapping that ends at {entry.end:#x}")
        return memory[offset : offset + length]

    def read(self, address: int, length: int) -> bytes:
        """Read ``length`` bytes, across adjacent ranges too.

        :raises BusError: some byte is unreachable; the error names the first hole.
        """
        entry = self._last
        if entry.start <= address and address + length <= entry.end and entry.memory is not None:
            offset = address - entry.start
            return bytes(entry.memory[offset : offset + length])
        pieces = self._pieces(address, length, writable=False)
        return b"".join(pieces)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data``, across adjacent ranges too.

        :raises BusError: some byte is unreachable; the error names the first hole and nothing was written.
        """
        source = memoryview(data).cast("B") if isinstance(data, memoryview) else memoryview(data)
        length = len(source)
        entry = self._last
        memory = entry.memory
        inside = entry.start <= address and address + length <= entry.end
        if inside and memory is not None and not memory.readonly:
            offset = address - entry.start
            memory[offset : offset + length] = source
            return
        done = 0
        for piece in self._pieces(address, length, writable=True):
            piece[:] = source[done : done + len(piece)]
            done += len(piece)

    def gather(self, pieces: Sequence[tuple[int, int]]) -> bytes:
        """Read pieces (address, length), one after the other. :raises BusError: as :meth:`read`."""
        parts: list[bytes | memoryview] = []
        start = end = 0
        memory: memoryview | None = None
        for address, length in pieces:
            if not start <= address or address + length > end:
                entry = self.find(address)
                if entry is None or entry.memory is None or address + length > entry.end:
                    parts.append(self.read(address, length))
                    continue
                start, end, memory = entry.start, entry.end, entry.memory
            if memory is not None:
                parts.append(memory[address - start : address - start + length])
        return b"".join(parts)

    def scatter(self, pieces: Sequence[tuple[int, int]], data: memoryview) -> None:
        """Write ``data`` to pieces (address, length) in order.

        :raises BusError: as :meth:`write`; the pieces before the error are written.
        """
        done = start = end = 0
        memory: memoryview | None = None
        for address, length in pieces:
            part = data[done : done + length]
            done += length
            if not start <= address or address + length > end:
                entry = self.find(address)
                reachable = entry is not None and entry.memory is not None and not entry.memory.readonly
                if entry is None or not reachable or address + length > entry.end:
                    self.write(address, part)
                    continue
                start, end, memory = entry.start, entry.end, entry.memory
            if memory is not None:
                memory[address - start : address - start + length] = part

    def _pieces(self, address: int, length: int, *, writable: bool) -> list[memoryview]:
        """Views that together cover the span. :raises BusError: they do not."""
        pieces = []
        end = address + length
        while address < end:
            entry = self.find(address)
            if entry is None:
                raise BusError(address, end - address, "nothing is mapped there")
            stop = min(end, entry.end)
            pieces.append(self.view(address, stop - address, writable=writable))
            address = stop
        return pieces
