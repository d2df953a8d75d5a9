# SPDX-License-Identifier: Apache-2.0
"""A small function to test with, and what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.pcie.function import Function
from emu.pcie.header import Command, Identity, bar_offset
from emu.pcie.hierarchy import Hierarchy
from emu.pcie.msix import Msix
from emu.transport.dma import DmaMap
from emu.transport.model import CONFIG_REGION

IDENTITY = Identity(
    vendor=0x1234, device=0x5678, class_code=0x020000, subsystem_vendor=0x1234, subsystem=0x9ABC, revision=3
)
SERIAL = 0x0276_72FF_FE00_0001
REGISTER_SIZE = 0x1000
MEMORY_SIZE = 0x4000
MSIX_SIZE = 0x2000
VECTORS = 4


@dataclass
class Registers:
    """Remembers accesses; reads count up from the offset."""

    accesses: list[tuple[str, int, bytes | int]] = field(default_factory=list)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes offset, offset + 1, ..."""
        self.accesses.append(("read", offset, size))
        return bytes((offset + i) & 0xFF for i in range(size))

    def write(self, offset: int, data: bytes) -> None:
        """Remember it."""
        self.accesses.append(("write", offset, data))


class Memory:
    """Memory behind a BAR without a descriptor a client could map."""

    fd = -1

    def __init__(self, size: int) -> None:
        self.size = size
        self.view = memoryview(bytearray(size))


class Sink:
    """Takes MSI-X messages."""

    def __init__(self) -> None:
        self.vectors: list[int] = []

    def trigger(self, vector: int) -> bool:
        """Remember it."""
        self.vectors.append(vector)
        return True


class Device:
    """A function with registers in BAR0, 64-bit memory in BAR2 (if ``mappable``), MSI-X in BAR4."""

    def __init__(
        self, hierarchy: Hierarchy | None = None, name: str = "node0.dev0", *, mappable: bool = True
    ) -> None:
        self.hierarchy = hierarchy or Hierarchy()
        self.registers = Registers()
        self.memory = Memory(MEMORY_SIZE)
        self.sink = Sink()
        self.function = Function(name, IDENTITY, self.hierarchy, serial=SERIAL)
        self.function.add_bar(0, REGISTER_SIZE, self.registers)
        if mappable:
            self.function.add_memory_bar(2, self.memory)
        self.msix: Msix = self.function.add_msix(4, VECTORS, bar_size=MSIX_SIZE)
        self.function.connect(self.sink)

    def write_config(self, offset: int, width: int, value: int) -> None:
        """A configuration write as a client sends it."""
        self.function.region_write(CONFIG_REGION, offset, value.to_bytes(width, "little"))

    def read_config(self, offset: int, width: int) -> int:
        """A configuration read."""
        return int.from_bytes(self.function.region_read(CONFIG_REGION, offset, width), "little")

    def set_command(self, command: Command = Command.MEMORY | Command.MASTER) -> None:
        """Write the command register."""
        self.write_config(0x04, 2, command)

    def place(self, index: int, address: int) -> None:
        """Program a BAR as a kernel does, with two 32-bit writes for a 64-bit one."""
        self.write_config(bar_offset(index), 4, address & 0xFFFFFFFF)
        if index == 2:
            self.write_config(bar_offset(index + 1), 4, address >> 32)

    def capability(self, identity: int) -> int:
        """Offset of a capability, found by walking the chain."""
        at = self.read_config(0x34, 1)
        while at:
            if self.read_config(at, 1) == identity:
                return at
            at = self.read_config(at + 1, 1)
        raise LookupError(f"no capability {identity:#x}")

    def extended_capability(self, identity: int) -> int:
        """Offset of an extended capability, found by walking the chain."""
        at = 0x100
        while at:
            header = self.read_config(at, 4)
            if header & 0xFFFF == identity:
                return at
            at = header >> 20
        raise LookupError(f"no extended capability {identity:#x}")


def ram(address: int, size: int, *, readonly: bool = False) -> tuple[DmaMap, bytearray]:
    """A client's map with one range of RAM, and that RAM."""
    backing = bytearray(size)
    view = memoryview(backing)
    dma = DmaMap()
    dma.add(address, size, view.toreadonly() if readonly else view)
    return dma, backing
