# SPDX-License-Identifier: Apache-2.0
"""Priority flow control: its frames, a port that obeys them, and a switch that loses nothing by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Ether

from emu.clock import US, VirtualScheduler
from emu.events import EventBus, Kind
from emu.fabric.egress import Queueing
from emu.fabric.link import Link
from emu.fabric.pfc import HELD_FREE, LINE_RATE, PfcPort
from emu.fabric.switch import CROWD_FRAMES, Switch
from emu.wire.pause import PRIORITIES, pack_pause, parse_pause, priority_of
from tests.nic.fakes import Recorder

A, B, C = (bytes((2, 0, 0, 0, 0, number)) for number in (1, 2, 3))
GROUP = bytes.fromhex("0180c2000001")
QUANTUM_NS = 512 / 8 * 1_000_000_000 / LINE_RATE


def ip_frame(dscp: int, number: int = 0, dest: bytes = B, source: bytes = A, size: int = 100) -> bytes:
    """An IPv4 frame that carries ``number``."""
    header = bytes((0x45, dscp << 2)) + size.to_bytes(2, "big") + bytes(16)
    return (dest + source + b"\x08\x00" + header + number.to_bytes(4, "big")).ljust(size, b"\0")


@given(st.dictionaries(st.integers(0, PRIORITIES - 1), st.integers(0, 0xFFFF)))
def test_frames_are_what_scapy_makes_of_them(quanta: dict[int, int]) -> None:
    frame = pack_pause(A, quanta)
    assert (len(frame), frame[:6], frame[6:12]) == (60, GROUP, A)
    assert parse_pause(frame) == quanta
    seen = Ether(frame)[MACControlClassBasedFlowControl]
    for priority in range(PRIORITIES):
        assert getattr(seen, f"c{priority}_enabled") == (priority in quanta)
        assert getattr(seen, f"c{priority}_pause_time") == quanta.get(priority, 0)


@given(st.binary(max_size=80))
def test_anything_else_is_no_pause(data: bytes) -> None:
    for frame in (data, GROUP + A + b"\x88\x08" + data):
        quanta = parse_pause(frame)
        assert quanta is None or frame[14:16] == b"\x01\x01"


@pytest.mark.parametrize(
    ("frame", "priority"),
    [
        (ip_frame(26), 3),
        (ip_frame(48), 6),
        (ip_frame(0), 0),
        (B + A + b"\x81\x00\xa0\x05" + ip_frame(26)[12:], 5),
        (B + A + b"\x08\x06" + bytes(40), 0),
        (B + A + b"\x81\x00", 0),
    ],
)
def test_priority_of_a_frame(frame: bytes, priority: int) -> None:
    assert priority_of(frame) == priority


class Cable:
    """A link whose near end obeys pauses; what arrives at each end."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualScheduler()
        self.link = Link(self.clock, EventBus(), "nic", **options)
        self.port = PfcPort(self.link.near, self.clock)
        self.at_switch: list[bytes] = []
        self.at_nic: list[bytes] = []
        self.link.far.attach(self.at_switch.append)
        self.port.attach(self.at_nic.append)

    def pause(self, **quanta: int) -> None:
        self.link.far.send(pack_pause(C, {int(name[1:]): value for name, value in quanta.items()}))
        self.settle()

    def settle(self, ns: int = 0) -> None:
        self.clock.run(until=self.clock.now() + ns)


def test_only_the_paused_priority_waits_and_keeps_its_order() -> None:
    cable = Cable()
    cable.pause(p3=1000)
    frames = [ip_frame(dscp, number) for number, dscp in enumerate((26, 0, 27, 48, 26))]
    for frame in frames:
        cable.port.send(frame)
    cable.settle()
    assert cable.at_switch == [frames[1], frames[3]]
    assert (cable.port.held, cable.port.paused(3), cable.port.paused(0)) == (3, True, False)
    assert cable.at_nic == [], "the pause itself goes no further"
    cable.settle(int(1000 * QUANTUM_NS) - 10)
    assert len(cable.at_switch) == 2
    cable.settle(20)
    assert cable.at_switch[2:] == [frames[0], frames[2], frames[4]]
    assert cable.port.counters.snapshot() == {
        "pause_malformed": 0,
        "rx_prio3_pause": 1,
        "rx_prio3_resume": 1,
        "rx_prio3_held": 3,
    }


def test_a_time_of_zero_ends_a_pause_at_once_and_another_extends_it() -> None:
    cable = Cable()
    cable.pause(p3=100, p5=100)
    cable.settle(int(90 * QUANTUM_NS))
    cable.pause(p3=100)
    cable.port.send(ip_frame(26))
    cable.port.send(ip_frame(40))
    cable.settle(int(50 * QUANTUM_NS))
    assert [priority_of(frame) for frame in cable.at_switch] == [5]
    cable.pause(p3=0)
    assert [priority_of(frame) for frame in cable.at_switch] == [5, 3]
    # An end without a pause means nothing.
    cable.pause(p7=0)
    assert cable.port.counters.resumed[7] == 0


def test_a_sender_is_held_back_only_once_much_waits() -> None:
    cable = Cable()
    cable.pause(p3=0xFFFF)
    for number in range(HELD_FREE + 5):
        cable.port.send(ip_frame(26, number))
    assert cable.port.backlog == 5
    cable.settle(400 * US)
    assert len(cable.at_switch) == HELD_FREE + 5
    assert cable.port.backlog == 0


def test_a_pause_ends_with_its_link() -> None:
    cable = Cable()
    cable.pause(p3=0xFFFF)
    cable.port.send(ip_frame(26))
    cable.link.set_up(False)
    cable.settle()
    assert (cable.port.held, cable.link.forward.counters.down) == (0, 1)
    cable.link.set_up(True)
    cable.port.send(ip_frame(26))
    cable.settle()
    assert len(cable.at_switch) == 1


@given(st.lists(st.binary(max_size=70), max_size=20))
def test_garbage_in_mac_control_changes_only_counters(bodies: list[bytes]) -> None:
    cable = Cable()
    for body in bodies:
        frame = GROUP + C + b"\x88\x08" + body
        if parse_pause(frame) is None:
            cable.link.far.send(frame)
    cable.port.send(ip_frame(26))
    cable.settle()
    assert len(cable.at_switch) == 1
    assert cable.at_nic == []
    assert sum(cable.port.counters.paused) == 0


def incast(*, pfc: bool, dscps: tuple[int, int] = (26, 0)) -> tuple[Switch, dict[bytes, list[int]], Recorder]:
    """A sends much to slow B in one priority, and a little to fast C in another."""
    clock, bus = VirtualScheduler(), EventBus()
    switch = Switch(clock, bus)
    recorder = Recorder(bus)
    slow = Queueing(rate=LINE_RATE // 100, limit=256 << 10, pause=True)
    got: dict[bytes, list[tuple[int, int]]] = {B: [], C: []}
    ports = {
        A: switch.port("a", pfc=pfc),
        B: switch.port("b", pfc=pfc, queueing=slow),
        C: switch.port("c", pfc=pfc),
    }
    for mac, port in ports.items():
        used = switch.obeying(port.name) if pfc else port
        if mac == A:
            sender = used
        else:
            used.attach(
                lambda frame, mac=mac: got[mac].append((int.from_bytes(frame[34:38], "big"), clock.now()))  # type: ignore[misc]
            )
            used.send(ip_frame(0, dest=A, source=mac))
    clock.run()
    for seen in got.values():
        seen.clear()
    to_b = [ip_frame(dscps[0], number, B, size=1000) for number in range(400)]
    to_c = [ip_frame(dscps[1], number, C) for number in range(100)]

    # As an adapter does that waits for its port: a little at a time.
    def feed() -> None:
        for queue in (to_b, to_c) if len(to_b) % 4 == 0 else (to_b,):
            if queue and sender.backlog < CROWD_FRAMES:
                sender.send(queue.pop(0))
        if to_b or to_c:
            clock.call_at(clock.now() + 200, feed)

    feed()
    clock.run()
    return switch, {mac: [at for _, at in seen] for mac, seen in got.items()}, recorder


def test_a_crowded_port_pauses_the_priority_that_crowds_it_and_no_other() -> None:
    switch, arrivals, recorder = incast(pfc=True)
    assert (len(arrivals[B]), len(arrivals[C])) == (400, 100)
    counters = switch.snapshot()
    assert counters["b"]["queue.dropped"] == counters["b"]["out.overflow"] == 0
    assert counters["a"]["rx_prio3_pause"] >= 1
    assert "rx_prio0_pause" not in counters["a"]
    assert counters["a"]["rx_prio3_held"] > 0
    # The other priority did not wait for the slow port, which needs 3.2 ms for its share.
    assert max(arrivals[C]) < 100 * US < 3_000 * US < max(arrivals[B])
    pauses = [event for event in recorder.events if event.kind is Kind.FRAME_IN]
    assert pauses
    assert {event.function for event in pauses} == {"a"}
    assert all(set(parse_pause(event.frame or b"") or ()) == {3} for event in pauses)


def test_in_the_same_priority_everything_waits() -> None:
    _, arrivals, _ = incast(pfc=True, dscps=(26, 26))
    assert (len(arrivals[B]), len(arrivals[C])) == (400, 100)
    assert max(arrivals[C]) > 100 * US


def test_without_it_the_whole_port_is_held_back() -> None:
    switch, arrivals, _ = incast(pfc=False)
    assert (len(arrivals[B]), len(arrivals[C])) == (400, 100)
    assert max(arrivals[C]) > 100 * US
    assert switch.counters.pauses > 0


def test_only_ports_that_have_it_obey() -> None:
    switch = Switch(VirtualScheduler(), EventBus())
    switch.port("a")
    for name in ("a", "nobody"):
        with pytest.raises(KeyError):
            switch.obeying(name)
