# SPDX-License-Identifier: Apache-2.0
"""The type 0 configuration header: identity, command and status, base address registers.

::

     31                    16 15                     0
    +------------------------+------------------------+
    | device id              | vendor id              | 0x00
    | status                 | command                | 0x04
    | class code                          | revision  | 0x08
    | BIST      | header type| latency    | cache line| 0x0c
    | base address register 0 .. 5                    | 0x10 .. 0x24
    | CardBus CIS                                     | 0x28
    | subsystem id           | subsystem vendor id    | 0x2c
    | expansion ROM base                              | 0x30
    | reserved                            | cap. ptr  | 0x34
    | reserved                                        | 0x38
    | max_lat   | min_gnt    | int. pin   | int. line | 0x3c
    +------------------------+------------------------+

Source: PCI Express Base Specification, "PCI-Compatible Configuration Registers"; names as in
linux/pci_regs.h.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emu.pcie.config import ConfigSpace

__all__ = ["BAR_COUNT", "COMMAND", "STATUS", "Command", "Header", "Identity", "Status", "bar_offset"]

COMMAND = 0x04
STATUS = 0x06
BAR_COUNT = 6
BAR_64 = 0x4
BAR_PREFETCH = 0x8
BAR_FLAGS = 0xF


class Command(enum.IntFlag):
    """Bits of the command register that this function implements."""

    MEMORY = 1 << 1
    """Memory BARs answer."""
    MASTER = 1 << 2
    """The function may send memory requests: DMA, and MSI-X messages."""
    PARITY = 1 << 6
    SERR = 1 << 8
    INTX_DISABLE = 1 << 10


class Status(enum.IntFlag):
    """Bits of the status register; all but CAPABILITIES are RW1C."""

    CAPABILITIES = 1 << 4
    PARITY = 1 << 8
    SIGNALED_TARGET_ABORT = 1 << 11
    RECEIVED_TARGET_ABORT = 1 << 12
    RECEIVED_MASTER_ABORT = 1 << 13
    """A request of this function got "unsupported request": nothing answers at the address."""
    SIGNALED_SYSTEM_ERROR = 1 << 14
    DETECTED_PARITY = 1 << 15


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the function says it is. ``class_code`` is base class, subclass and interface (24 bits)."""

    vendor: int
    device: int
    class_code: int
    subsystem_vendor: int
    subsystem: int
    revision: int = 0


def bar_offset(index: int) -> int:
    """Offset of a base address register."""
    return 0x10 + 4 * index


class Header:
    """The header inside a configuration space. There is no INTx pin, no I/O BAR and no expansion ROM."""

    def __init__(self, config: ConfigSpace, identity: Identity) -> None:
        self._config = config
        self._bars: dict[int, tuple[int, bool]] = {}
        config.define(0x00, 2, identity.vendor)
        config.define(0x02, 2, identity.device)
        config.define(COMMAND, 2, 0, writable=sum(Command))
        config.define(STATUS, 2, 0, clearable=sum(Status) & ~Status.CAPABILITIES)
        config.define(0x08, 4, identity.class_code << 8 | identity.revision)
        config.define(0x0C, 1, 0, writable=0xFF)
        config.define(0x2C, 2, identity.subsystem_vendor)
        config.define(0x2E, 2, identity.subsystem)
        config.define(0x3C, 1, 0, writable=0xFF)

    @property
    def command(self) -> Command:
        """The command register."""
        return Command(self._config.get(COMMAND, 2))

    def note(self, bit: Status) -> None:
        """Set a status bit."""
        self._config.put(STATUS, 2, self._config.get(STATUS, 2) | bit)

    def add_bar(self, index: int, size: int, *, wide: bool, prefetchable: bool) -> None:
        """Declare a memory BAR of ``size`` bytes; a ``wide`` one has 64 bits and takes the next slot too.

        A write of all ones reads back as the size mask, because the address bits below the size are
        read-only. An FLR leaves the address alone: clients answer BAR reads from a copy of their own, so a
        guest that restores what differs would never write it again (kernel vfio-pci restores BARs after an
        FLR for the same reason).

        :raises ValueError: not a power of two of at least 16 bytes, too large for 32 bits, or the slot is
        taken.
        """
        if size < 16 or size & (size - 1):
            raise ValueError(f"BAR{index}: {size:#x} bytes is not a power of two of at least 16")
        if not wide and size > 1 << 31:
            raise ValueError(f"BAR{index}: {size:#x} bytes need a 64-bit BAR")
        slots = {index, index + 1} if wide else {index}
        taken = {
            slot for bar, (_, pair) in self._bars.items() for slot in ((bar, bar + 1) if pair else (bar,))
        }
        if slots & taken or not 0 <= min(slots) <= max(slots) < BAR_COUNT:
            raise ValueError(f"BAR{index}: slot taken or outside 0..5")
        self._bars[index] = (size, wide)
        flags = (BAR_64 if wide else 0) | (BAR_PREFETCH if prefetchable else 0)
        width = 8 if wide else 4
        mask = (1 << 8 * width) - size
        self._config.define(bar_offset(index), width, flags, writable=mask, kept=mask)

    def bar_address(self, index: int) -> int:
        """Bus address the guest programmed, 0 while it has not; decoding may be off all the same."""
        _, wide = self._bars[index]
        return self._config.get(bar_offset(index), 8 if wide else 4) & ~BAR_FLAGS
