# SPDX-License-Identifier: Apache-2.0
"""One served function: attach, regions, interrupts, reset, and clients that come and go."""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from emu.events import EventBus, Kind
from emu.transport.context import Endpoint, EndpointError
from emu.transport.loop import Loop
from emu.transport.model import CONFIG_REGION, RegionSpec, ResetKind
from tests.conftest import Connect, Serve
from tests.transport.recorder import BAR, BAR_SIZE, VRAM, VRAM_SIZE, Recorder
from tests.vfio_user import Client, ClientError, Disconnected


def test_the_client_learns_regions_and_vectors(vfio_client: Connect) -> None:
    client = vfio_client(Recorder(vectors=12))
    flags, regions, irqs = client.device_info()
    assert flags & 0x3 == 0x3  # reset supported, PCI
    assert regions > CONFIG_REGION and irqs == 5
    assert client.region_info(BAR).size == BAR_SIZE
    assert not client.region_info(BAR).mappable
    assert client.region_info(CONFIG_REGION).size == 4096
    assert client.region_info(1).size == 0
    assert client.irq_info() == 12


@pytest.mark.parametrize("region", [BAR, CONFIG_REGION])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 9, 64, 4096])
def test_every_size_reads_back_what_was_written(vfio_client: Connect, region: int, size: int) -> None:
    model = Recorder()
    client = vfio_client(model)
    data = bytes(1 + i % 255 for i in range(size))
    for offset in (0, 1, 4096 - size):
        if offset + size > 4096:
            continue
        client.write(region, offset, data)
        assert client.read(region, offset, size) == data
        assert model.log[-2:] == [("write", region, offset, data), ("read", region, offset, size)]


def test_posted_writes_arrive_once_each_and_in_order_before_a_read(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    count = 1000  # several times the batch
    for number in range(count):
        client.write_posted(BAR, 8 * (number % 16), number.to_bytes(8, "little"))
    assert client.read(BAR, 8 * ((count - 1) % 16), 8) == (count - 1).to_bytes(8, "little")
    values = [int.from_bytes(entry[3], "little") for entry in model.happened("write")]  # type: ignore[arg-type]
    assert values == list(range(count))


def test_small_and_large_writes_keep_their_order(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    for data in (b"12345678", b"x" * 40, b"abcd", b"y" * 9, b"z"):
        client.write_posted(BAR, 0, data)
    client.settle()
    assert [entry[3] for entry in model.happened("write")] == [
        b"12345678",
        b"x" * 40,
        b"abcd",
        b"y" * 9,
        b"z",
    ]


def test_a_busy_client_does_not_keep_another_waiting(vfio_client: Connect) -> None:
    busy, quiet = Recorder("node0.busy"), Recorder("node1.quiet")
    first, second = vfio_client(busy), vfio_client(quiet)
    first.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 212992)
    for number in range(400):
        first.write_posted(BAR, 0, number.to_bytes(4, "little"))
    second.write_posted(BAR, 0, b"me")
    assert not busy.happened("write")
    first.loop.step(0)
    assert quiet.happened("write")
    assert 0 < len(busy.happened("write")) < 400


def test_a_mappable_region_is_shared_memory(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    info = client.region_info(VRAM)
    assert info.mappable and info.areas == [(0, VRAM_SIZE)]
    for fd in info.fds:
        os.close(fd)
    view = client.map_region(VRAM)
    os.pwrite(model.vram, b"from the device", 0x100)
    assert bytes(view[0x100:0x10F]) == b"from the device"
    view[0x200:0x205] = b"guest"
    assert os.pread(model.vram, 5, 0x200) == b"guest"
    assert model.happened("write") == []


def test_an_access_out_of_bounds_is_an_error_and_never_reaches_the_model(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    for region, offset, size in ((BAR, BAR_SIZE - 4, 8), (BAR, 1 << 63, 4), (1, 0, 4), (99, 0, 4)):
        with pytest.raises(ClientError):
            client.read(region, offset, size)
        with pytest.raises(ClientError):
            client.write(region, offset, bytes(size))
    assert model.log == [("attached",)]
    assert client.read(BAR, 0, 4) == bytes(4)


# Interrupts.


def test_a_vector_with_an_eventfd_fires_once_per_trigger(vfio_client: Connect) -> None:
    model = Recorder(vectors=20)
    client = vfio_client(model)
    client.enable_msix(20)
    assert model.interrupt(0) and model.interrupt(19) and model.interrupt(19)
    assert [client.irq_count(vector) for vector in (0, 1, 19)] == [1, 0, 2]


def test_a_vector_without_eventfd_stays_pending_until_there_is_one(serve: Serve, loop: Loop) -> None:
    model = Recorder()
    endpoint = serve(model)
    client = Client(endpoint.path, loop)
    assert model.interrupt(3) is False
    assert model.interrupt(3) is False
    client.enable_msix(3)
    client.settle()
    client.enable_msix(2, start=3)
    client.settle()
    assert client.irq_count(3) == 1
    assert client.irq_count(4) == 0
    assert endpoint.counters.unmapped_vectors == 1
    client.close()


def test_a_device_reset_drops_pending_vectors(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    model.interrupt(1)
    client.reset()
    client.enable_msix(2)
    client.settle()
    assert client.irq_count(1) == 0


def test_disabled_vectors_and_absent_ones_are_ignored(vfio_client: Connect) -> None:
    model = Recorder(vectors=2)
    client = vfio_client(model)
    client.enable_msix(2)
    client.disable_msix()
    assert model.interrupt(0) is False
    for vector in (2, -1, 1 << 40):
        assert model.interrupt(vector) is False


# Reset, lost clients, several clients.


def test_a_device_reset_reaches_the_model_after_the_writes_before_it(vfio_client: Connect) -> None:
    model = Recorder()
    client = vfio_client(model)
    client.write_posted(BAR, 0, b"before")
    client.reset()
    assert [entry[0] for entry in model.log] == ["attached", "write", "reset"]
    assert model.log[-1] == ("reset", ResetKind.DEVICE)


def test_a_killed_client_is_a_reset_and_the_next_one_starts_clean(serve: Serve, loop: Loop) -> None:
    model = Recorder()
    endpoint = serve(model)
    for number in range(5):
        client = Client(endpoint.path, loop)
        assert endpoint.attached
        ram = client.map_ram(0x2000, 0x10000)
        client.enable_msix(4)
        ram.write(0x10000, bytes([number]))
        assert model.memory_map.read(0x10000, 1) == bytes([number])
        assert model.interrupt(1)
        client.write_posted(BAR, 0, b"last")
        client.close()
        client.until_lost(endpoint)
        assert model.log[-3:] == [
            ("write", BAR, 0, b"last"),
            ("unmapping", 0x10000, 0x2000),
            ("reset", ResetKind.LOST),
        ]
        assert len(model.memory_map) == 0
        assert model.interrupt(1) is False
    assert (endpoint.counters.attached, endpoint.counters.lost) == (5, 5)


def test_a_client_that_takes_over_at_once_finds_the_old_one_gone(serve: Serve, loop: Loop) -> None:
    model = Recorder()
    endpoint = serve(model)
    first = Client(endpoint.path, loop)
    first.close()
    second = Client(endpoint.path, loop)
    assert second.read(BAR, 0, 1) == b"\0"
    assert [entry[0] for entry in model.log[:3]] == ["attached", "reset", "attached"]
    assert endpoint.counters.refused == 0
    second.close()


def test_a_second_client_is_turned_away_and_the_first_keeps_working(
    serve: Serve, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = serve(Recorder())
    first = Client(endpoint.path, loop)
    with caplog.at_level(logging.WARNING), pytest.raises(Disconnected):
        Client(endpoint.path, loop)
    assert "already has a client" in caplog.text
    assert endpoint.counters.refused == 1
    assert first.read(BAR, 0, 1) == b"\0"
    first.close()


def test_the_server_can_drop_a_client(serve: Serve, loop: Loop) -> None:
    model = Recorder()
    endpoint = serve(model)
    client = Client(endpoint.path, loop)
    endpoint.disconnect()
    with pytest.raises(Disconnected):
        client.read(BAR, 0, 1)
    client.until_lost(endpoint)
    assert model.log[-1] == ("reset", ResetKind.LOST)
    client.close()


def test_attach_and_loss_are_events(loop: Loop, tmp_path: Path) -> None:
    bus = EventBus()
    seen: list[tuple[str, str]] = []
    bus.subscribe(lambda event: seen.append((event.function, event.text)), [Kind.STATE])
    endpoint = Endpoint(Recorder("node1.nic0"), str(tmp_path / "s"), loop, bus)
    Client(endpoint.path, loop).close()
    loop.step(0)
    assert seen == [("node1.nic0", "client attached"), ("node1.nic0", "client lost")]
    endpoint.close()


# A model that misbehaves.


class Broken(Recorder):
    """Raises in every call."""

    def region_read(self, index: int, offset: int, size: int) -> bytes:
        if offset == 0x10:
            return b"too long for sure"
        raise ZeroDivisionError("read")

    def region_write(self, index: int, offset: int, data: bytes) -> None:
        super().region_write(index, offset, data)
        raise ZeroDivisionError("write")

    def reset(self, kind: ResetKind) -> None:
        super().reset(kind)
        raise ZeroDivisionError("reset")

    def dma_unmapping(self, address: int, size: int) -> None:
        raise ZeroDivisionError("unmapping")


def test_a_model_that_raises_is_counted_and_reads_as_ones(
    serve: Serve, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    model = Broken()
    endpoint = serve(model)
    client = Client(endpoint.path, loop)
    with caplog.at_level(logging.ERROR):
        assert client.read(BAR, 0, 4) == b"\xff" * 4
        assert client.read(BAR, 0x10, 4) == b"\xff" * 4
        client.write(BAR, 0x20, b"one")
        client.write(BAR, 0x20, b"a longer write")
        client.unmap_ram(client.map_ram(0x1000, 0x10000))
        client.reset()
    assert endpoint.counters.faults == 6
    assert "node0.fake0: read of 4 bytes at 0x0 of region 0 failed: ZeroDivisionError('read')" in caplog.text
    assert len(model.happened("write")) == 2
    assert len(model.memory_map) == 0
    client.close()


def test_a_model_may_close_its_endpoint_inside_a_callback(serve: Serve, loop: Loop) -> None:
    model = Recorder()
    endpoint = serve(model)
    client = Client(endpoint.path, loop)
    closing = model.region_write

    def close(index: int, offset: int, data: bytes) -> None:
        closing(index, offset, data)
        endpoint.close()

    model.region_write = close  # type: ignore[method-assign]
    client.write_posted(BAR, 0, b"bye")
    client.until_lost(endpoint)
    assert model.log[-2:] == [("write", BAR, 0, b"bye"), ("reset", ResetKind.LOST)]
    assert not os.path.exists(endpoint.path)
    client.close()


# The socket file.


def test_the_socket_is_private_and_goes_with_the_endpoint(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "nic.sock"
    model = Recorder()
    umask = os.umask(0)
    os.umask(umask)
    endpoint = Endpoint(model, str(path), loop)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.umask(umask) == umask
    endpoint.close()
    endpoint.close()
    assert not path.exists()
    assert model.log == []


def test_a_stale_socket_is_replaced(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "nic.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    endpoint = Endpoint(Recorder(), path, loop)
    client = Client(path, loop)
    assert client.read(BAR, 0, 1) == b"\0"
    client.close()
    endpoint.close()


def test_a_socket_somebody_listens_on_is_left_alone(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())
    with pytest.raises(EndpointError, match="another server listens"):
        Endpoint(Recorder(), endpoint.path, loop)
    client = Client(endpoint.path, loop)
    assert client.read(BAR, 0, 1) == b"\0"
    client.close()


def test_a_file_that_is_no_socket_is_left_alone(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    with pytest.raises(EndpointError, match="is no socket"):
        Endpoint(Recorder(), str(path), loop)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 108, "the system takes 107"),
        ("missing/nic.sock", "cannot listen on"),
        ("file/nic.sock", "cannot use"),
    ],
)
def test_a_path_that_cannot_be_a_socket_is_named(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(EndpointError, match=message):
        Endpoint(Recorder(), name, loop)


def test_a_path_of_the_longest_length_works(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint = Endpoint(Recorder(), "x" * 107, loop)
    client = Client(endpoint.path, loop)
    client.close()
    endpoint.close()


def test_a_region_the_library_cannot_serve_is_named(loop: Loop, tmp_path: Path) -> None:
    class Odd(Recorder):
        @property
        def regions(self) -> tuple[RegionSpec, ...]:
            return (RegionSpec(12, 4096),)

    path = tmp_path / "s"
    with pytest.raises(EndpointError, match=r"node0\.fake0: region 12 cannot be served: Invalid argument"):
        Endpoint(Odd(), str(path), loop)
    assert not path.exists()


def test_nothing_leaks_over_many_clients(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())

    def descriptors_after(clients: int) -> int:
        for _ in range(clients):
            client = Client(endpoint.path, loop)
            client.map_ram(0x1000, 0x10000)
            client.enable_msix(12)
            client.close()
            client.until_lost(endpoint)
        return len(os.listdir("/proc/self/fd"))

    assert descriptors_after(1) == descriptors_after(20)
