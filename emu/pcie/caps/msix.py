# SPDX-License-Identifier: Apache-2.0
"""MSI-X capability: where the table is, and the two bits that rule all vectors.

::

     31 30 29   27 26                 16 15            8 7             0
    +--+--+-------+---------------------+---------------+---------------+
    |En|FM| resv. | table size - 1      | next          | id 0x11       | +0
    +--+--+-------+---------------------+---------------+-------+-------+
    | table offset (8-byte units)                               | BIR   | +4
    +-----------------------------------------------------------+-------+
    | pending bit array offset                                  | BIR   | +8
    +-----------------------------------------------------------+-------+

Source: PCI Express Base Specification, "MSI-X Capability Structure"; PCI_MSIX_* in linux/pci_regs.h.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.pcie.config import ConfigSpace

__all__ = ["MsixCapability"]

CAPABILITY = 0x11
SIZE = 12
CONTROL = 2
ENABLE = 1 << 15
FUNCTION_MASK = 1 << 14
MAX_VECTORS = 2048


class MsixCapability:
    """The capability; ``changed`` is called after a write to its control word."""

    def __init__(
        self, config: ConfigSpace, vectors: int, bar: int, pba_offset: int, changed: Callable[[], None]
    ) -> None:
        """Table at offset 0 of ``bar``, pending bits at ``pba_offset`` of it.

        :raises ValueError: not 1..2048 vectors, or ``pba_offset`` is inside the table or not a multiple of 8.
        """
        if not 1 <= vectors <= MAX_VECTORS:
            raise ValueError(f"{vectors} MSI-X vectors: 1..{MAX_VECTORS} are possible")
        if pba_offset % 8 or pba_offset < 16 * vectors:
            raise ValueError(f"pending bits at {pba_offset:#x} overlap a table of {vectors} vectors")
        self._config = config
        self.vectors = vectors
        self.offset = config.add_capability(CAPABILITY, SIZE)
        config.define(self.offset + CONTROL, 2, vectors - 1, writable=ENABLE | FUNCTION_MASK)
        config.define(self.offset + 4, 4, bar)
        config.define(self.offset + 8, 4, pba_offset | bar)
        config.watch(self.offset + CONTROL, 2, changed)

    @property
    def enabled(self) -> bool:
        """MSI-X Enable."""
        return bool(self._config.get(self.offset + CONTROL, 2) & ENABLE)

    @property
    def masked(self) -> bool:
        """Function Mask: every vector counts as masked."""
        return bool(self._config.get(self.offset + CONTROL, 2) & FUNCTION_MASK)
