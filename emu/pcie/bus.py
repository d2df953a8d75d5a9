# SPDX-License-Identifier: Apache-2.0
"""What a function reaches by bus address, and how it interrupts: the seam between devices and PCIe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Bus", "BusError", "Interrupts", "MasteredBus", "PiecewiseBus"]


class BusError(Exception):
    """A bus address that no memory answers (unmapped, read-only, or crossing a mapping's end)."""

    def __init__(self, address: int, length: int, reason: str) -> None:
        super().__init__(f"bus address {address:#x}+{length:#x}: {reason}")
        self.address = address
        self.length = length
        self.reason = reason


class Bus(Protocol):
    """Memory as one PCIe function sees it: guest RAM and the BARs of its peers.

    ``address`` and ``length`` are bytes. A view must not be kept past the current callback: an unmap makes it
    stale.
    """

    def read(self, address: int, length: int) -> bytes:
        """Read ``length`` bytes. :raises BusError: some byte is unreachable."""

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data``. :raises BusError: some byte is unreachable; nothing was written then."""

    def write_relaxed(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """As :meth:`write`, with the relaxed-ordering attribute: it may overtake writes before it."""

    def view(self, address: int, length: int, *, writable: bool = False) -> memoryview:
        """A zero-copy view of one mapping. :raises BusError: unreachable, or it spans two mappings."""


@runtime_checkable
class PiecewiseBus(Bus, Protocol):
    """A bus that moves many pieces in one go, as a DMA engine follows a page list.

    ``pieces`` are address and length of each.
    """

    def gather(self, pieces: Sequence[tuple[int, int]]) -> bytes:
        """Read all pieces, one after the other. :raises BusError: some byte is unreachable."""

    def scatter(self, pieces: Sequence[tuple[int, int]], data: memoryview) -> None:
        """Write ``data`` to the pieces in order. :raises BusError: one is unreachable; those before it are
        written."""


@runtime_checkable
class MasteredBus(Bus, Protocol):
    """A bus that a function may be forbidden to use."""

    mastering: bool
    """False: every access fails, as the command register or the power state says."""


class Interrupts(Protocol):
    """The function's MSI-X vectors."""

    def trigger(self, vector: int) -> None:
        """Signal ``vector``; a masked vector becomes pending, an absent one is counted and ignored."""
