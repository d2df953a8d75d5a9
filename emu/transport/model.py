# SPDX-License-Identifier: Apache-2.0
"""What a device must look like to be served: the seam between the vfio-user transport and the PCIe layer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from emu.transport.dma import DmaMap

__all__ = ["CONFIG_REGION", "DeviceModel", "IrqSink", "RegionSpec", "ResetKind"]

CONFIG_REGION = 7
"""Region index of the PCI configuration space (``VFIO_PCI_CONFIG_REGION_INDEX``); 0..5 are the BARs."""


class ResetKind(enum.Enum):
    """Why a function is reset."""

    DEVICE = "device reset"
    """The client asked (VFIO_USER_DEVICE_RESET: system reset, bus reset)."""
    FLR = "function level reset"
    """The guest set Initiate Function Level Reset: raised by the PCIe layer itself, not by transport."""
    LOST = "client lost"
    """The client closed the connection or died; every DMA mapping is gone."""


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One region. ``size`` in bytes; ``fd`` a memfd of that size when the client may map it, else None.

    A region without fd is trapped: every access arrives at the model, writes as posted messages. One mappable
    region makes QEMU turn every trapped write of the same function into a round trip, so a function with
    doorbells maps nothing.
    """

    index: int
    size: int
    fd: int | None = None


class IrqSink(Protocol):
    """Where a function's MSI-X messages go: the client's event descriptors (eventfd)."""

    def trigger(self, vector: int) -> bool:
        """Signal ``vector``; True when the client was told.

        False: it has no event descriptor for the vector yet (masked, or not requested), and the sink delivers
        the message once there is one; or there is no client or no such vector, and the message is dropped.
        """


class DeviceModel(Protocol):
    """A PCIe function as the transport drives it.

    Every call comes from the owner loop; none may block or raise.
    """

    name: str

    @property
    def regions(self) -> tuple[RegionSpec, ...]:
        """The BARs, and the configuration space (index ``CONFIG_REGION``, 4096 bytes)."""

    @property
    def msix_vectors(self) -> int:
        """MSI-X table size."""

    def region_read(self, index: int, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes."""

    def region_write(self, index: int, offset: int, data: bytes) -> None:
        """A write; ``data`` is the guest's bytes in memory order."""

    def connect(self, sink: IrqSink) -> None:
        """Called once, when an endpoint takes the function: ``sink`` takes its MSI-X messages from now on."""

    def attached(self, dma: DmaMap) -> None:
        """A client connected; ``dma`` is its map for as long as it stays."""

    def dma_unmapping(self, address: int, size: int) -> None:
        """The range disappears when this returns."""

    def reset(self, kind: ResetKind) -> None:
        """Return to power-on state (``LOST`` also ends the attachment)."""
