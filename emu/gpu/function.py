# SPDX-License-Identifier: Apache-2.0
"""The vGPU: a 3D controller with memory behind a BAR, and nothing else.

It does no work of its own. Guest code keeps rings, doorbell records, completion queues and payload in its
memory, and the NIC of the same guest reaches it by bus address. It has no interrupts: nothing in it ever
finishes.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.gpu.registers import GpuRegisters
from emu.pcie.function import Function
from emu.pcie.header import Identity
from emu.pcie.hierarchy import Hierarchy
from emu.pcie.memory import SharedMemory
from emu.personality.vrnic.contract import identity

__all__ = ["Gpu", "build_gpu"]

IDENTITY = Identity(
    vendor=identity.VENDOR_ID,
    device=identity.GPU_DEVICE_ID,
    class_code=identity.GPU_CLASS,
    subsystem_vendor=identity.VENDOR_ID,
    subsystem=identity.SUBSYSTEM_ID,
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A vGPU's parts: the function to serve, its memory, its registers."""

    function: Function
    memory: SharedMemory
    registers: GpuRegisters


def build_gpu(
    name: str, hierarchy: Hierarchy, *, serial: int, vram_size: int = identity.GPU_VRAM_DEFAULT
) -> Gpu:
    """A vGPU called ``name`` ("node0.gpu0") with ``vram_size`` bytes of memory (power of two, at least 4096).

    Every reset clears the memory, so that nothing of one guest or process is left for the next.

    :raises ValueError: ``vram_size`` is not such a number.
    """
    memory = SharedMemory(name, vram_size)
    registers = GpuRegisters(vram_size)
    function = Function(name, IDENTITY, hierarchy, serial=serial)
    function.add_bar(identity.GPU_REGISTER_BAR, identity.GPU_REGISTER_SIZE, registers)
    function.add_memory_bar(identity.GPU_VRAM_BAR, memory)
    function.on_reset(lambda _kind: memory.clear())
    return Gpu(function, memory, registers)
