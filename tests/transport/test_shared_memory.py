# SPDX-License-Identifier: Apache-2.0
"""Guest memory through the socket: mapped with descriptors, taken away in use, refused when not shared."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import pytest

from emu.pcie.bus import BusError
from emu.transport.loop import Loop
from tests.conftest import Connect, Serve
from tests.transport.recorder import BAR, Recorder
from tests.vfio_user import Client, ClientError, Disconnected


def mappings() -> int:
    """How many mappings of guest memory this process holds."""
    return Path("/proc/self/maps").read_text().count("memfd:guest-ram")


def test_device_and_guest_see_the_same_bytes(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    ram = client.map_ram(0x10000, 0x8000_0000)
    model.memory_map.write(0x8000_1234, b"from the device")
    assert ram.read(0x8000_1234, 15) == b"from the device"
    ram.write(0x8000_FFFF, b"!")
    assert model.memory_map.read(0x8000_FFFF, 1) == b"!"
    with pytest.raises(BusError):
        model.memory_map.read(0x8000_FFFF, 2)


def test_adjacent_ranges_read_as_one(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    low, high = client.map_ram(0x1000, 0x10000), client.map_ram(0x1000, 0x11000)
    model.memory_map.write(0x10FFC, b"lowshigh")
    assert low.read(0x10FFC, 4) == b"lows"
    assert high.read(0x11000, 4) == b"high"


def test_an_offset_into_the_file_is_honoured(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    ram = client.map_ram(0x4000, 0x10000)
    client.dma_map(0x40000, 0x1000, ram.fd, offset=0x2000)
    ram.write(0x12000, b"same page")
    assert model.memory_map.read(0x40000, 9) == b"same page"


def test_read_only_memory_cannot_be_written(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    ram = client.map_ram(0x1000, 0x10000, writable=False)
    ram.write(0x10000, b"rom")
    assert model.memory_map.read(0x10000, 3) == b"rom"
    with pytest.raises(BusError, match="read-only"):
        model.memory_map.write(0x10000, b"x")


def test_the_model_is_told_of_an_unmap_when_the_range_is_already_gone(vfio_client: Connect) -> None:
    reached: list[bool] = []

    class Looking(Recorder):
        def dma_unmapping(self, address: int, size: int) -> None:
            super().dma_unmapping(address, size)
            reached.append(self.memory_map.find(address) is not None)

    model = Looking()
    client = vfio_client(model)
    client.unmap_ram(client.map_ram(0x1000, 0x10000))
    assert reached == [False]
    assert model.log[-1] == ("unmapping", 0x10000, 0x1000)


def test_a_view_kept_across_an_unmap_is_harmless_and_its_memory_goes_with_it(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    before = mappings()
    ram = client.map_ram(0x1000, 0x10000)
    view = model.memory_map.view(0x10000, 16, writable=True)
    client.unmap_ram(ram)
    view[:4] = b"late"
    assert bytes(view[:4]) == b"late"
    # Ours through the view, and the client's own.
    assert mappings() == before + 2
    del view
    gc.collect()
    assert mappings() == before + 1


def test_a_range_can_come_back_with_other_memory(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    for number in range(4):
        ram = client.map_ram(0x1000, 0x10000)
        ram.write(0x10000, bytes([number]))
        assert model.memory_map.read(0x10000, 1) == bytes([number])
        client.unmap_ram(ram)


def test_more_ranges_than_the_library_was_made_for(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    for number in range(64):
        client.map_ram(0x1000, 0x100000 + 0x10000 * number)
    assert len(model.memory_map) == 64
    model.memory_map.write(0x100000 + 0x10000 * 63, b"last")


def test_another_functions_bar_is_known_but_unreachable(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    client.dma_map(0xFE00_0000, 0x10000, None)
    with pytest.raises(BusError, match="shares no memory"):
        model.memory_map.read(0xFE00_0000, 4)
    client.dma_unmap(0xFE00_0000, 0x10000)
    with pytest.raises(BusError, match="nothing is mapped"):
        model.memory_map.read(0xFE00_0000, 4)


def test_bad_ranges_are_refused_and_leave_no_trace(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    ram = client.map_ram(0x2000, 0x10000)
    attempts = [
        (0x11000, 0x2000, ram.fd, 0),  # overlap
        (0x20000, 0x4000, ram.fd, 0),  # longer than the file
        (0x20000, 0x1000, ram.fd, 0x2000),  # starts at the file's end
        (0x20000, 0x1000, ram.fd, (1 << 64) - 0x1000),  # offset + size wraps
        (0x20000, 0, ram.fd, 0),  # empty
        ((1 << 64) - 0x1000, 0x2000, ram.fd, 0),  # past the last address
    ]
    for address, size, fd, offset in attempts:
        with pytest.raises(ClientError):
            client.dma_map(address, size, fd, offset=offset)
    for address, size in ((0x10000, 0x1000), (0x11000, 0x1000), (0x30000, 0x1000)):
        with pytest.raises(ClientError):
            client.dma_unmap(address, size)
    assert [(entry.start, entry.size) for entry in model.memory_map] == [(0x10000, 0x2000)]
    assert client.read(BAR, 0, 1) == b"\0"


def test_a_descriptor_that_cannot_be_mapped_is_refused(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    reading, writing = os.pipe()
    with pytest.raises(ClientError):
        client.dma_map(0x10000, 0x1000, reading)
    os.close(reading)
    os.close(writing)
    assert len(model.memory_map) == 0


def test_a_guest_without_shared_memory_is_refused_with_the_remedy(
    serve: Serve, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = serve(Recorder("node0.nic0"))
    client = Client(endpoint.path, loop)
    with caplog.at_level(logging.ERROR):
        client.dma_map(0, 0x8000_0000, None)
    with pytest.raises(Disconnected):
        client.read(BAR, 0, 1)
    assert "node0.nic0: QEMU shares no guest memory" in caplog.text
    assert "-object memory-backend-memfd,id=ram,size=SIZE,share=on -M memory-backend=ram" in caplog.text
    client.close()
    client.until_lost(endpoint)
    assert endpoint.counters.refused == 1
