# SPDX-License-Identifier: Apache-2.0
"""A guest for :class:`tests.personality.driver.Driver`, as a vfio-user client."""

from __future__ import annotations

from tests.vfio_user import Client

__all__ = ["ClientMachine"]

MSIX_CONTROL_ENABLE = 0x8000
BAR_BASE = 0xE000_0000


class ClientMachine:
    """RAM announced to the device, memory decoding and bus mastering on, every vector with an eventfd."""

    def __init__(
        self, client: Client, vectors: int, *, ram_base: int = 0x1000_0000, ram_size: int = 4 << 20
    ) -> None:
        self.client = client
        self.ram_base = ram_base
        self.ram_size = ram_size
        self.ram = client.map_ram(ram_size, ram_base)
        client.config_write(0x04, 2, 0x6)
        client.enable_msix(vectors)
        control = self.capability(0x11) + 2
        client.config_write(control, 2, client.config_read(control, 2) | MSIX_CONTROL_ENABLE)

    def read(self, bar: int, offset: int, size: int) -> int:
        """Read a register."""
        return self.client.read_int(bar, offset, size)

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """Write a register, posted as QEMU does."""
        self.client.write_posted(bar, offset, data)

    def load(self, address: int, length: int) -> bytes:
        """Read memory."""
        return self.ram.read(address, length)

    def store(self, address: int, data: bytes) -> None:
        """Write memory."""
        self.ram.write(address, data)

    def settle(self) -> None:
        """Let the device finish what it was told."""
        self.client.settle()

    def interrupts(self, vector: int) -> int:
        """How often a vector fired."""
        return self.client.irq_count(vector)

    def capability(self, identifier: int) -> int:
        """Offset of a capability in configuration space."""
        offset = self.client.config_read(0x34, 1)
        while offset:
            if self.client.config_read(offset, 1) == identifier:
                return offset
            offset = self.client.config_read(offset + 1, 1)
        raise LookupError(f"no capability {identifier:#x}")
