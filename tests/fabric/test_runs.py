# SPDX-License-Identifier: Apache-2.0
"""Frames that travel together: as a whole where nobody has to look, one by one everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from emu.clock import MS, VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.egress import Queueing
from emu.fabric.link import LinkEnd
from emu.fabric.run import FrameRun
from emu.fabric.switch import Switch

LEFT, RIGHT, STRANGER = (bytes((2, 0, 0, 0, 0, last)) for last in (1, 2, 9))
BODY = b"\x88\xb5" + bytes(100)


@dataclass
class Run:
    """A run of frames of the tests."""

    count: int
    source_mac: bytes = LEFT
    dest_mac: bytes = RIGHT
    dest_qpn: int = 7

    @property
    def octets(self) -> int:
        return self.count * (12 + len(BODY))

    def frames(self) -> Iterator[bytes]:
        for number in range(self.count):
            yield self.dest_mac + self.source_mac + BODY[:-1] + bytes((number & 0xFF,))


@dataclass
class Station:
    """A device on the switch: what came, in order, and how."""

    end: LinkEnd
    frames: list[bytes] = field(default_factory=list)
    runs: list[FrameRun] = field(default_factory=list)

    def listen(self, *, runs: bool = True) -> Station:
        """Take what arrives."""
        self.end.attach(self.frames.append)
        if runs:
            self.end.attach_runs(self._take)
        return self

    def _take(self, run: FrameRun) -> None:
        self.runs.append(run)
        self.frames += run.frames()


class Net:
    """Two stations on a switch that knows both."""

    def __init__(self, *, runs: bool = True, **options: Any) -> None:
        self.clock = VirtualScheduler()
        self.events = EventBus()
        self.switch = Switch(self.clock, self.events)
        make = self.switch.port
        self.left = Station(make("left", **options)).listen()
        self.right = Station(make("right", **options)).listen(runs=runs)
        for station, mac in ((self.left, LEFT), (self.right, RIGHT)):
            station.end.send(b"\xff" * 6 + mac + BODY)
        self.settle()
        self.left.frames.clear()
        self.right.frames.clear()

    def settle(self) -> None:
        self.clock.run()

    def send(self, run: Run) -> bool:
        """Send a run as a host does; whether it went whole."""
        whole = self.left.end.send_run(run)
        if not whole:
            for frame in run.frames():
                self.left.end.send(frame)
        self.settle()
        return whole


def test_a_run_arrives_whole_and_counts_as_its_frames() -> None:
    together, single = Net(), Net(runs=False)
    run = Run(40)
    assert together.send(run)
    assert together.right.runs == [run]
    for frame in run.frames():
        single.left.end.send(frame)
    single.settle()
    assert together.right.frames == single.right.frames == list(run.frames())
    assert together.switch.snapshot() == single.switch.snapshot()


def test_a_device_that_takes_no_runs_gets_the_frames() -> None:
    net = Net(runs=False)
    assert net.send(Run(5))
    assert net.right.frames == list(Run(5).frames())
    assert net.switch.link("right").backward.counters.delivered == 5 + 1


@pytest.mark.parametrize(
    "options",
    [
        {"loss": 0.2, "seed": 3},
        {"mark": 0.5},
        {"trim": 0.5},
        {"symbol_errors": 0.1},
        {"jitter_ns": 100},
        {"queueing": Queueing(rate=10**9)},
        {"queue_frames": 9},
    ],
)
def test_links_that_judge_every_frame_get_every_frame(options: dict[str, Any]) -> None:
    net = Net(**options)
    assert not net.send(Run(10))
    assert net.right.runs == []
    if "loss" in options:
        assert 0 < len(net.right.frames) < 10
    elif "queue_frames" not in options:
        assert net.right.frames == list(Run(10).frames())


def test_a_delay_holds_a_run_as_a_whole() -> None:
    net = Net(delay_ns=1 * MS)
    before = net.clock.now()
    assert net.send(Run(3))
    assert net.clock.now() - before == 2 * MS
    assert len(net.right.runs) == 1


def test_order_is_kept_between_runs_and_frames() -> None:
    net = Net()
    first, last = next(Run(1).frames()), LEFT[::-1]
    net.left.end.send(first)
    assert net.left.end.send_run(Run(100))
    net.left.end.send(RIGHT + LEFT + BODY + last)
    assert net.left.end.backlog == 102
    net.settle()
    assert net.left.end.backlog == 0
    assert net.right.frames == [first, *Run(100).frames(), RIGHT + LEFT + BODY + last]


def test_to_an_unknown_station_its_frames_are_flooded() -> None:
    net = Net()
    run = Run(4, dest_mac=STRANGER)
    assert net.send(run)
    assert net.right.runs == [] and net.right.frames == list(run.frames())
    assert net.switch.counters.flooded == 4 + 2


def test_a_link_that_goes_down_loses_every_frame_of_a_run() -> None:
    net = Net()
    drops: list[Event] = []
    net.events.subscribe(drops.append, [Kind.FRAME_DROP])
    assert net.left.end.send_run(Run(6))
    net.switch.link("left").set_up(False)
    assert net.left.end.backlog == 0
    assert len(drops) == 6
    assert not net.left.end.send_run(Run(6))
    assert net.switch.link("left").forward.counters.down == 6
