# SPDX-License-Identifier: Apache-2.0
"""The bus as one function's DMA sees it: guest RAM, and the BARs of the functions of the same guest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emu.pcie.bus import BusError
from emu.pcie.hierarchy import Hierarchy, Window
from emu.transport.dma import DmaMap

__all__ = ["AddressSpace"]

WORD = 8


class AddressSpace:
    """Implements :class:`emu.pcie.bus.PiecewiseBus` for one function.

    ``mastering`` follows the command register and the power state; without it every access fails.
    ``bytes_read`` and ``bytes_written`` count what was moved or handed out as a view, ``errors`` the accesses
    that failed. Registers of a peer are accessed in naturally aligned pieces of at most 8 bytes, as a
    processor would.
    """

    def __init__(self, hierarchy: Hierarchy, failed: Callable[[], None]) -> None:
        """``failed`` is called for each request that went out and that nothing answered."""
        self.mastering = False
        self.bytes_read = 0
        self.bytes_written = 0
        self.errors = 0
        self._hierarchy = hierarchy
        self._failed = failed
        self._ram: DmaMap | None = None

    def attach(self, ram: DmaMap) -> None:
        """A client shares its RAM."""
        self._ram = ram

    def detach(self) -> None:
        """The client is gone, and its RAM."""
        self._ram = None

    @property
    def attached(self) -> bool:
        """Whether a client is there."""
        return self._ram is not None

    def read(self, address: int, length: int) -> bytes:
        """Read ``length`` bytes. :raises BusError: unreachable, or bus mastering is off."""
        try:
            ram = self._ram_at(address)
            data = self._read_window(address, length) if ram is None else ram.read(address, length)
        except BusError:
            self._count_error()
            raise
        self.bytes_read += length
        return data

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data``, or nothing. :raises BusError: unreachable, read-only, or bus mastering is off."""
        try:
            ram = self._ram_at(address)
            if ram is None:
                self._write_window(address, data)
            else:
                ram.write(address, data)
        except BusError:
            self._count_error()
            raise
        self.bytes_written += data.nbytes if isinstance(data, memoryview) else len(data)

    def write_relaxed(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """As :meth:`write`: here every write arrives before the next. :raises BusError: as :meth:`write`."""
        self.write(address, data)

    def gather(self, pieces: Sequence[tuple[int, int]]) -> bytes:
        """Read many pieces. :raises BusError: as :meth:`read`."""
        ram = self._ram_for(pieces)
        if ram is None:
            return b"".join([self.read(address, length) for address, length in pieces])
        try:
            data = ram.gather(pieces)
        except BusError:
            self._count_error()
            raise
        self.bytes_read += len(data)
        return data

    def scatter(self, pieces: Sequence[tuple[int, int]], data: memoryview) -> None:
        """Write many pieces. :raises BusError: as :meth:`write`; the pieces before are written."""
        ram = self._ram_for(pieces)
        if ram is None:
            done = 0
            for address, length in pieces:
                self.write(address, data[done : done + length])
                done += length
            return
        try:
            ram.scatter(pieces, data)
        except BusError:
            self._count_error()
            raise
        self.bytes_written += data.nbytes

    def view(self, address: int, length: int, *, writable: bool = False) -> memoryview:
        """A zero-copy view inside one mapping or one memory BAR.

        :raises BusError: unreachable, read-only, spanning two mappings, registers, or bus mastering is off.
        """
        try:
            ram = self._ram_at(address)
            if ram is None:
                view = self._window_memory(self._window(address, length), address, length)
            else:
                view = ram.view(address, length, writable=writable)
        except BusError:
            self._count_error()
            raise
        if writable:
            self.bytes_written += length
        else:
            self.bytes_read += length
        return view

    def _ram_at(self, address: int) -> DmaMap | None:
        """The client's RAM when ``address`` is in it, None when a BAR may answer or nothing can be asked."""
        ram, hierarchy = self._ram, self._hierarchy
        if ram is None or not self.mastering:
            return None
        if hierarchy.low <= address < hierarchy.high and hierarchy.find(address) is not None:
            return None
        return ram

    def _ram_for(self, pieces: Sequence[tuple[int, int]]) -> DmaMap | None:
        """The client's RAM when no piece touches the range in which BARs lie, else None."""
        ram, hierarchy = self._ram, self._hierarchy
        if ram is None or not self.mastering:
            return None
        low, high = hierarchy.low, hierarchy.high
        for address, length in pieces:
            if address < high and low < address + length:
                return None
        return ram

    def _window(self, address: int, length: int) -> Window:
        """The window that answers an access. :raises BusError: there is none, or the access leaves it."""
        if not self.mastering:
            raise BusError(address, length, "bus mastering is off (command register, or not in D0)")
        window = self._hierarchy.find(address)
        if window is None:
            raise BusError(address, length, "no client is attached")
        if length < 0 or address + length > window.end:
            reason = f"leaves BAR{window.bar.index} of {window.owner}, which ends at {window.end:#x}"
            raise BusError(address, length, reason)
        return window

    def _window_memory(self, window: Window, address: int, length: int) -> memoryview:
        memory = window.bar.memory
        if memory is None:
            raise BusError(
                address, length, f"BAR{window.bar.index} of {window.owner} is registers, not memory"
            )
        offset = address - window.start
        return memory.view[offset : offset + length]

    def _read_window(self, address: int, length: int) -> bytes:
        window = self._window(address, length)
        if window.bar.memory is not None:
            return bytes(self._window_memory(window, address, length))
        read = window.bar.handler.read
        return b"".join(read(at, size) for at, size in _words(address - window.start, length))

    def _write_window(self, address: int, data: bytes | bytearray | memoryview) -> None:
        octets = memoryview(data).cast("B")
        window = self._window(address, len(octets))
        if window.bar.memory is not None:
            self._window_memory(window, address, len(octets))[:] = octets
            return
        offset = address - window.start
        for at, size in _words(offset, len(octets)):
            window.bar.handler.write(at, bytes(octets[at - offset : at - offset + size]))

    def _count_error(self) -> None:
        self.errors += 1
        if self.mastering:
            self._failed()


def _words(offset: int, length: int) -> list[tuple[int, int]]:
    """Naturally aligned pieces (offset, size) of at most 8 bytes that cover a span."""
    pieces = []
    end = offset + length
    while offset < end:
        size = WORD
        while offset % size or offset + size > end:
            size //= 2
        pieces.append((offset, size))
        offset += size
    return pieces
