# SPDX-License-Identifier: Apache-2.0
"""The vGPU: identity, registers, memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from emu.gpu.function import Gpu, build_gpu
from emu.pcie.header import Command, bar_offset
from emu.pcie.hierarchy import Hierarchy
from emu.pcie.memory import SharedMemory
from emu.personality.vrnic.contract import ABI_VERSION, identity
from emu.transport.dma import DmaMap
from emu.transport.model import CONFIG_REGION, ResetKind
from tests.pcie.parts import Device

SIZE = 1 << 20
VRAM = 0x38_0000_0000


@pytest.fixture
def hierarchy() -> Hierarchy:
    return Hierarchy()


@pytest.fixture
def gpu(hierarchy: Hierarchy) -> Iterator[Gpu]:
    made = build_gpu("node0.gpu0", hierarchy, serial=7, vram_size=SIZE)
    command = Command.MEMORY | Command.MASTER
    made.function.region_write(CONFIG_REGION, 0x04, command.to_bytes(2, "little"))
    yield made
    made.memory.close()


def test_it_is_a_3d_controller_with_mappable_64_bit_memory(gpu: Gpu) -> None:
    config = gpu.function.region_read(CONFIG_REGION, 0, 64)
    assert config[0:4] == bytes.fromhex("7276026e")
    assert config[9:12] == bytes.fromhex("000203")
    assert config[bar_offset(2)] == 0xC
    vram = gpu.function.regions[1]
    assert (vram.index, vram.size, vram.fd) == (identity.GPU_VRAM_BAR, SIZE, gpu.memory.fd)
    assert os.fstat(gpu.memory.fd).st_size == SIZE
    assert gpu.function.msix_vectors == 0


def test_registers_say_what_it_is(gpu: Gpu) -> None:
    assert gpu.function.region_read(0, 0, 4) == b"VGPU"
    assert gpu.function.region_read(0, 4, 4) == ABI_VERSION.to_bytes(4, "little")
    assert gpu.function.region_read(0, 8, 8) == SIZE.to_bytes(8, "little")
    assert gpu.function.region_read(0, 0x800, 8) == bytes(8)


def test_register_writes_are_ignored_and_counted(gpu: Gpu) -> None:
    gpu.function.region_write(0, 0, b"\0\0\0\0")
    assert gpu.function.region_read(0, 0, 4) == b"VGPU"
    assert gpu.registers.ignored == 1


def test_guest_device_and_peer_see_the_same_memory(gpu: Gpu, hierarchy: Hierarchy) -> None:
    guest = mmap.mmap(gpu.memory.fd, SIZE)
    gpu.function.region_write(CONFIG_REGION, bar_offset(2), VRAM.to_bytes(8, "little"))
    nic = Device(hierarchy, "node0.nic0")
    nic.function.attached(DmaMap())
    nic.set_command()
    guest[0x1000:0x1004] = b"ring"
    assert nic.function.bus.read(VRAM + 0x1000, 4) == b"ring"
    nic.function.bus.write(VRAM + SIZE - 4, b"done")
    assert guest[SIZE - 4 :] == b"done"


@pytest.mark.parametrize("kind", list(ResetKind))
def test_every_reset_clears_the_memory_under_a_guests_map(gpu: Gpu, kind: ResetKind) -> None:
    guest = mmap.mmap(gpu.memory.fd, SIZE)
    guest[:] = b"\xa5" * SIZE
    gpu.function.reset(kind)
    assert guest[:] == bytes(SIZE)
    guest[0:1] = b"\x01"
    assert gpu.memory.view[0] == 1


@pytest.mark.parametrize("size", [0, 2048, 3 << 20, -4096])
def test_memory_sizes_that_no_bar_has_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="not a power of two"):
        SharedMemory("gpu", size)
