# SPDX-License-Identifier: Apache-2.0
"""The NIC's reads and writes of guest memory and VRAM, counted and traced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emu.events import Kind
from emu.nic.counters import Counters
from emu.nic.trace import Trace
from emu.pcie.bus import Bus, BusError, PiecewiseBus

__all__ = ["Dma", "QuietDma"]

_READ = Kind.DMA_READ.bit
_WRITE = Kind.DMA_WRITE.bit


class Dma:
    """A :class:`emu.pcie.bus.Bus` that counts bytes and failures.

    Nothing is cached: an address that was unmapped since it was given raises :class:`BusError` at its next
    use.
    """

    __slots__ = ("_bus", "_counters", "_events", "_piecewise", "_trace")

    def __init__(self, bus: Bus, counters: Counters, trace: Trace) -> None:
        self._bus = bus
        self._piecewise = bus if isinstance(bus, PiecewiseBus) else None
        self._counters = counters
        self._trace = trace
        self._events = trace.bus

    def read(self, address: int, length: int) -> bytes:
        """Read ``length`` bytes at a bus address. :raises BusError: some byte is unreachable."""
        try:
            data = self._bus.read(address, length)
        except BusError as error:
            self._failed(Kind.DMA_READ, error)
            raise
        self._counters.dma_read_bytes += length
        if self._events.mask & _READ:
            self._trace.emit(
                Kind.DMA_READ, f"read {length} bytes at {address:#x}", address=address, length=length
            )
        return data

    def write(self, address: int, data: bytes | bytearray | memoryview, *, relaxed: bool = False) -> None:
        """Write ``data`` to a bus address; ``relaxed`` lets it overtake what was written before.

        :raises BusError: some byte is unreachable; nothing was written then.
        """
        try:
            if relaxed:
                self._bus.write_relaxed(address, data)
            else:
                self._bus.write(address, data)
        except BusError as error:
            self._failed(Kind.DMA_WRITE, error)
            raise
        length = len(data)
        self._counters.dma_write_bytes += length
        if self._events.mask & _WRITE:
            self._trace.emit(
                Kind.DMA_WRITE, f"write {length} bytes at {address:#x}", address=address, length=length
            )

    def gather(self, pieces: Sequence[tuple[int, int]], length: int) -> bytes:
        """Read pieces (address, length) of ``length`` bytes in all. :raises BusError: as :meth:`read`."""
        bus = self._piecewise
        if bus is None or self._events.mask & _READ:
            return b"".join([self.read(address, size) for address, size in pieces])
        try:
            data = bus.gather(pieces)
        except BusError as error:
            self._failed(Kind.DMA_READ, error)
            raise
        self._counters.dma_read_bytes += length
        return data

    def scatter(self, pieces: Sequence[tuple[int, int]], data: memoryview, *, relaxed: bool = False) -> None:
        """Write ``data`` to pieces (address, length) in order.

        :raises BusError: one is unreachable; the pieces before it are written.
        """
        bus = self._piecewise
        if bus is None or relaxed or self._events.mask & _WRITE:
            done = 0
            for address, size in pieces:
                self.write(address, data[done : done + size], relaxed=relaxed)
                done += size
            return
        try:
            bus.scatter(pieces, data)
        except BusError as error:
            self._failed(Kind.DMA_WRITE, error)
            raise
        self._counters.dma_write_bytes += len(data)

    def _failed(self, kind: Kind, error: BusError) -> None:
        self._counters.dma_errors += 1
        if self._trace.wants(kind):
            self._trace.emit(kind, f"failed: {error}", address=error.address, length=error.length)

    def quiet(self) -> QuietDma:
        """The same memory, for looking without leaving marks."""
        return QuietDma(self._bus, self._counters, self._trace)


class QuietDma(Dma):
    """Reads that check: neither counted nor traced, and no push for posted writes."""

    __slots__ = ("_look",)

    def __init__(self, bus: Bus, counters: Counters, trace: Trace) -> None:
        super().__init__(bus, counters, trace)
        self._piecewise = None
        # A bus that holds writes back would let them go for a read; it offers another way in.
        self._look: Callable[[int, int], bytes] = getattr(bus, "peek", bus.read)

    def read(self, address: int, length: int) -> bytes:
        """Read ``length`` bytes at a bus address. :raises BusError: some byte is unreachable."""
        return self._look(address, length)
