# SPDX-License-Identifier: Apache-2.0
"""Functions behind the real transport, as a client sees them."""

from __future__ import annotations

import pytest

from emu.gpu.function import build_gpu
from emu.pcie.bus import BusError
from emu.pcie.header import Command, bar_offset
from emu.pcie.hierarchy import Hierarchy
from emu.transport.loop import Loop
from emu.transport.model import ResetKind
from tests.conftest import Connect
from tests.pcie.parts import MSIX_SIZE, VECTORS, Device

RAM = 0x10_0000
VRAM = 0x38_0000_0000
PLAIN = Command.MEMORY | Command.MASTER


def plain() -> Device:
    """A device whose memory no client can map, so that the transport can serve it."""
    return Device(mappable=False)


def test_a_client_sizes_and_places_bars(vfio_client: Connect) -> None:
    device = plain()
    client = vfio_client(device.function)
    client.config_write(bar_offset(4), 4, 0xFFFFFFFF)
    assert client.config_read(bar_offset(4), 4) == (1 << 32) - MSIX_SIZE
    client.config_write(bar_offset(4), 4, 0xFE00_0000)
    client.config_write(0x04, 2, PLAIN)
    assert device.function.bar_address(4) == 0xFE00_0000


def test_a_client_that_writes_the_table_gets_masks_and_pending_bits(vfio_client: Connect) -> None:
    device = plain()
    client = vfio_client(device.function)
    client.enable_msix(VECTORS)
    client.config_write(0x04, 2, PLAIN)
    client.config_write(device.capability(0x11) + 2, 2, 0x8000)
    client.write(4, 16 + 12, b"\x01\0\0\0")
    device.msix.trigger(1)
    assert client.irq_count(1) == 0
    assert client.read(4, MSIX_SIZE // 2, 8) == b"\x02" + bytes(7)
    client.write(4, 16 + 12, bytes(4))
    assert client.irq_count(1) == 1
    assert client.read(4, MSIX_SIZE // 2, 8) == bytes(8)


def test_a_client_that_keeps_the_table_gets_every_message(vfio_client: Connect) -> None:
    device = plain()
    client = vfio_client(device.function)
    client.config_write(0x04, 2, PLAIN)
    client.config_write(device.capability(0x11) + 2, 2, 0x8000)
    device.msix.trigger(0)
    client.enable_msix(VECTORS)
    client.settle()
    assert client.irq_count(0) == 1
    device.msix.trigger(3)
    assert client.irq_count(3) == 1


def test_an_flr_from_the_client_resets_and_keeps_ram_attached(vfio_client: Connect) -> None:
    device = plain()
    kinds: list[ResetKind] = []
    device.function.on_reset(kinds.append)
    client = vfio_client(device.function)
    ram = client.map_ram(0x1000, RAM)
    control = device.capability(0x10) + 8
    client.config_write(control, 2, client.config_read(control, 2) | 0x8000)
    assert kinds == [ResetKind.FLR]
    client.config_write(0x04, 2, PLAIN)
    device.function.bus.write(RAM, b"still there")
    assert ram.read(RAM, 11) == b"still there"


def test_device_reset_and_disconnect_reach_the_listeners(vfio_client: Connect, loop: Loop) -> None:
    device = plain()
    kinds: list[ResetKind] = []
    device.function.on_reset(kinds.append)
    client = vfio_client(device.function)
    client.map_ram(0x1000, RAM)
    client.reset()
    assert kinds == [ResetKind.DEVICE]
    client.close()
    for _ in range(100):
        if device.function.bus.attached:
            loop.step(0.1)
    assert kinds == [ResetKind.DEVICE, ResetKind.LOST]


def test_unmapped_ram_is_out_of_reach_at_once(vfio_client: Connect) -> None:
    device = plain()
    heard: list[tuple[int, int]] = []
    device.function.on_unmap(lambda address, size: heard.append((address, size)))
    client = vfio_client(device.function)
    ram = client.map_ram(0x1000, RAM)
    client.config_write(0x04, 2, PLAIN)
    device.function.bus.write(RAM, b"x")
    client.unmap_ram(ram)
    assert heard == [(RAM, 0x1000)]
    with pytest.raises(BusError, match="nothing is mapped"):
        device.function.bus.write(RAM, b"x")


def test_a_nic_reaches_the_gpu_of_the_same_guest(vfio_client: Connect) -> None:
    hierarchy = Hierarchy()
    gpu = build_gpu("node0.gpu0", hierarchy, serial=2, vram_size=1 << 16)
    nic = Device(hierarchy, "node0.nic0", mappable=False)
    gpu_client, nic_client = vfio_client(gpu.function), vfio_client(nic.function)
    gpu_client.config_write(bar_offset(2), 4, VRAM & 0xFFFFFFFF)
    gpu_client.config_write(bar_offset(3), 4, VRAM >> 32)
    gpu_client.config_write(0x04, 2, Command.MEMORY)
    nic_client.dma_map(VRAM, 1 << 16, None)
    nic_client.config_write(0x04, 2, PLAIN)
    guest = gpu_client.map_region(2)
    guest[0x800:0x804] = b"ring"
    assert nic.function.bus.read(VRAM + 0x800, 4) == b"ring"
    nic.function.bus.write(VRAM + 0x900, b"done")
    assert bytes(guest[0x900:0x904]) == b"done"
    guest.release()
    gpu.memory.close()
