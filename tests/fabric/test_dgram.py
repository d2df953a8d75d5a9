# SPDX-License-Identifier: Apache-2.0
"""A network device behind a datagram socket: frames both ways, a full socket, nobody there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emu.clock import VirtualScheduler
from emu.fabric.dgram import QUEUE_FRAMES, DatagramDevice
from emu.fabric.port import LinkWatcher, Receiver

FRAME = bytes(range(60))


class Cable:
    """The port: keeps what is sent, plays what arrives."""

    name = "node0.nic0"
    backlog = 0
    arriving = 0
    up = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.arrive: Receiver = lambda frame: None

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def attach(self, receiver: Receiver) -> None:
        self.arrive = receiver

    def watch(self, watcher: LinkWatcher) -> None:
        pass


class VirtualLoop(VirtualScheduler):
    """Virtual time, and readers that the test calls."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def poll(self) -> None:
        for callback in list(self.readers.values()):
            callback()


class Bench:
    """A device and the socket QEMU would have."""

    def __init__(self, folder: Path) -> None:
        self.cable = Cable()
        self.loop = VirtualLoop()
        self.local, self.remote = folder / "here.net", folder / "qemu.net"
        self.device = DatagramDevice(self.cable, self.loop, self.local, self.remote)
        self.guest = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def join(self) -> None:
        self.guest.bind(str(self.remote))

    def received(self) -> list[bytes]:
        frames = []
        try:
            while True:
                frames.append(self.guest.recv(65536))
        except BlockingIOError:
            return frames


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.device.close()
    made.guest.close()


def test_frames_go_both_ways(bench: Bench) -> None:
    bench.join()
    bench.cable.arrive(FRAME)
    bench.cable.arrive(FRAME[:20])
    assert bench.received() == [FRAME, FRAME[:20]]
    for size in (14, 60, 4210):
        bench.guest.sendto(bytes(size), str(bench.local))
    bench.loop.poll()
    assert [len(frame) for frame in bench.cable.sent] == [14, 60, 4210]
    assert (bench.device.counters.to_guest, bench.device.counters.from_guest) == (2, 3)


def test_what_a_full_socket_does_not_take_is_offered_again_in_order(bench: Bench) -> None:
    bench.join()
    frames = [number.to_bytes(4, "big") * 500 for number in range(1500)]
    for frame in frames:
        bench.cable.arrive(frame)
    got = bench.received()
    assert len(got) < len(frames)
    while bench.loop.step():
        got += bench.received()
    assert got == frames
    assert bench.device.counters.overflow == 0


def test_a_guest_that_never_reads_costs_bounded_memory(bench: Bench) -> None:
    bench.join()
    for _ in range(2 * QUEUE_FRAMES):
        bench.cable.arrive(FRAME)
    counters = bench.device.counters
    assert counters.overflow + counters.to_guest + QUEUE_FRAMES == 2 * QUEUE_FRAMES


def test_frames_for_nobody_are_counted(bench: Bench) -> None:
    bench.cable.arrive(FRAME)
    assert bench.device.counters.absent == 1
    bench.join()
    bench.cable.arrive(FRAME)
    assert bench.received() == [FRAME]
    bench.guest.close()
    bench.cable.arrive(FRAME)
    assert bench.device.counters.absent == 2


def test_closing_removes_the_socket_and_stops_everything(bench: Bench) -> None:
    bench.join()
    for _ in range(QUEUE_FRAMES):
        bench.cable.arrive(FRAME)
    bench.device.close()
    bench.device.close()
    assert not bench.local.exists()
    assert bench.loop.readers == {}
    sent = bench.device.counters.to_guest
    bench.cable.arrive(FRAME)
    bench.loop.run()
    assert bench.device.counters.to_guest == sent


def test_an_old_socket_is_replaced_and_a_bad_path_is_an_error(bench: Bench, tmp_path: Path) -> None:
    bench.device.close()
    bench.local.write_text("left behind")
    again = DatagramDevice(bench.cable, bench.loop, bench.local, bench.remote)
    assert bench.local.is_socket()
    again.close()
    with pytest.raises(OSError):
        DatagramDevice(bench.cable, bench.loop, tmp_path / "no" / "folder", bench.remote)
