# SPDX-License-Identifier: Apache-2.0
"""Register file of the vGPU (BAR0): constants a driver identifies it by."""

from __future__ import annotations

from emu.personality.vrnic.contract import ABI_VERSION
from emu.personality.vrnic.contract.registers import GPU_MAGIC, GPU_REGISTERS

__all__ = ["GpuRegisters"]


class GpuRegisters:
    """Handler of BAR0. Everything is read-only: ``ignored`` counts writes, and other offsets read 0."""

    def __init__(self, vram_size: int) -> None:
        self.ignored = 0
        self._values = {"GPU_MAGIC": GPU_MAGIC, "GPU_ABI_VERSION": ABI_VERSION, "GPU_VRAM_SIZE": vram_size}
        self._image = bytearray(max(register.offset + register.width for register in GPU_REGISTERS))
        for register in GPU_REGISTERS:
            span = slice(register.offset, register.offset + register.width)
            self._image[span] = self._values[register.name].to_bytes(register.width, "little")

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the register file, little-endian."""
        data = bytes(self._image[offset : offset + size])
        return data + bytes(size - len(data))

    def snapshot(self) -> list[dict[str, object]]:
        """Every register with its value."""
        return [
            {
                "offset": register.offset,
                "name": register.name,
                "value": self._values[register.name],
                "meaning": register.meaning,
            }
            for register in GPU_REGISTERS
        ]

    def write(self, offset: int, data: bytes) -> None:
        """Ignored and counted: no register of a vGPU can be written."""
        self.ignored += 1
