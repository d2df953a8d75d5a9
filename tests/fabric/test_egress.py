# SPDX-License-Identifier: Apache-2.0
"""Queues of a switch's port: order, thresholds, what they count and report; trunks between switches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from emu.clock import NS_PER_S, US, VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.egress import Egress, Queueing
from emu.fabric.flow import flow_hash
from emu.fabric.link import LinkEnd
from emu.fabric.switch import Switch
from emu.nic.work import QpAttributes
from emu.uet.path import PeerPath, addresses
from emu.wire.congestion import dscp_of, mark, trim
from emu.wire.uet_profile import DEFAULT, Profile
from tests.capture.sample import WRITE

RATE = 1_000_000_000
"""One byte a nanosecond."""
CONTROL = DEFAULT.dscp_control << 2 | 2


def mac(number: int) -> bytes:
    return bytes((2, 0, 0, 0, 0, number))


def path(source: int = 1, dest: int = 2, profile: Profile = DEFAULT, v6: bool = False) -> PeerPath:
    ends = [
        bytes.fromhex("fd") + bytes(14) + bytes((end,))
        if v6
        else bytes(10) + b"\xff\xff" + bytes((10, 0, 0, end))
        for end in (source, dest)
    ]
    attributes = QpAttributes(source_gid=ends[0], dest_gid=ends[1])
    return PeerPath(mac(source), mac(dest), *addresses(attributes), profile)


def data(number: int = 0, size: int = 1000, source: int = 1, ev: int = 0xC000) -> bytes:
    """A UET data packet of ``size`` bytes whose last byte is ``number``."""
    body = bytes.fromhex("1188ffff0001000012344321") + bytes(size - 55) + bytes((number,))
    frame = path(source).frame(DEFAULT.dscp_data << 2 | 2, ev, body)
    assert len(frame) == size
    return frame


def control(number: int = 0) -> bytes:
    return path().frame(CONTROL, 0xC000, bytes.fromhex("38000000000100004321123400") + bytes((number,)))


class Port:
    """Queues whose link takes a byte a nanosecond."""

    def __init__(self, **options: Any) -> None:
        self.scheduler = VirtualScheduler()
        self.bus = EventBus()
        self.events: list[Event] = []
        self.bus.subscribe(self.events.append, [Kind.QUEUE, Kind.FRAME_DROP])
        self.sent: list[tuple[int, bytes]] = []
        queueing = Queueing(**{"rate": RATE, **options})
        self.egress = Egress(self.scheduler, self.bus, "b", queueing, self._transmit, last_hop=True)

    def _transmit(self, frame: bytes) -> None:
        self.sent.append((self.scheduler.now(), frame))

    def offer(self, *frames: bytes) -> list[bytes]:
        """Send all at once; what left, in order."""
        for frame in frames:
            self.egress.send(frame)
        self.scheduler.run()
        return [frame for _, frame in self.sent]


def test_frames_leave_at_the_speed_of_the_link() -> None:
    port = Port()
    frames = [data(number) for number in range(5)]
    assert port.offer(*frames) == frames
    assert [time for time, _ in port.sent] == [0, 1000, 2000, 3000, 4000]
    counters = port.egress.counters
    assert (counters.queued, counters.sent, counters.data) == (5, 5, 5)
    assert counters.waited_ns == 10_000
    # The first one had not left when the others came: the clock stood still.
    assert counters.peak == 5000
    assert port.egress.depth == port.egress.waiting == 0


def test_a_late_timer_is_made_up_for() -> None:
    port = Port()
    for number in range(10):
        port.egress.send(data(number))
    port.scheduler.step()
    assert len(port.sent) == 1
    # As a loop that was busy with other things for 5 us.
    port.scheduler._now += 5 * US
    port.scheduler.step()
    assert len(port.sent) == 6


def test_control_overtakes_trimmed_packets_and_these_overtake_data() -> None:
    port = Port()
    cut = trim(data(9))
    assert cut is not None
    assert port.offer(data(0), data(1), cut, control(5)) == [control(5), cut, data(0), data(1)]


def test_a_long_queue_marks_with_growing_probability() -> None:
    port = Port(mark_min=100_000, mark_max=200_000, limit=1 << 20)
    sent = port.offer(*(data() for _ in range(300)))
    marked = [mark(data()) == frame for frame in sent]
    assert not any(marked[:100])
    assert 25 < sum(marked[100:200]) < 75
    assert sum(marked[100:150]) < sum(marked[150:200])
    assert all(marked[201:])
    assert port.egress.counters.marked == sum(marked)
    told = [event for event in port.events if event.kind is Kind.QUEUE]
    assert len(told) == sum(marked)
    assert told[-1].value == 299_000
    assert "marked" in told[-1].text


def test_what_takes_no_part_in_ecn_is_not_marked() -> None:
    port = Port(mark_min=0, mark_max=0)
    plain = mac(2) + mac(1) + b"\x88\xb5" + bytes(100)
    assert port.offer(plain, plain, plain) == [plain] * 3
    assert port.egress.counters.marked == 0


def test_data_above_the_threshold_is_trimmed_and_goes_ahead() -> None:
    port = Port(trim_at=3000)
    frames = [data(number) for number in range(5)]
    cuts = [trim(frame, last_hop=True) for frame in frames[3:]]
    assert port.offer(*frames) == [*cuts, *frames[:3]]
    assert port.egress.counters.trimmed == 2
    assert [(event.kind, event.length, event.value) for event in port.events] == [
        (Kind.QUEUE, 1000, 3000)
    ] * 2


def test_what_cannot_be_trimmed_fills_the_queue_and_is_dropped() -> None:
    port = Port(trim_at=0, limit=2 * len(WRITE))
    assert port.offer(WRITE, WRITE, WRITE) == [WRITE, WRITE]
    assert port.egress.counters.dropped == 1
    (event,) = port.events
    assert (event.kind, event.function, event.frame) == (Kind.FRAME_DROP, "b", WRITE)
    assert "queue full" in event.text


def test_control_has_room_of_its_own() -> None:
    port = Port(limit=3000)
    for number in range(5):
        port.egress.send(data(number))
    assert len(port.offer(control())) == 4
    assert port.sent[0][1] == control()


def test_a_link_that_goes_down_empties_the_queue() -> None:
    port = Port()
    port.egress.send(data())
    port.egress.clear()
    assert port.egress.depth == 0
    assert port.offer() == []
    assert port.egress.counters.dropped == 1
    assert port.offer(data(1)) == [data(1)]


@pytest.mark.parametrize(
    "options",
    [
        {"rate": -1},
        {"limit": 0},
        {"mark_min": 5},
        {"mark_min": 5, "mark_max": 4},
        {"mark_min": -1, "mark_max": 4},
        {"trim_at": 2000, "limit": 1000},
        {"trim_at": -1},
    ],
)
def test_thresholds_out_of_order_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Queueing(**options)


def station(switch: Switch, number: int, queueing: Queueing) -> tuple[LinkEnd, list[bytes]]:
    end = switch.port(f"n{number}", queueing=queueing)
    arrived: list[bytes] = []
    end.attach(arrived.append)
    return end, arrived


@pytest.mark.parametrize("pause", [False, True])
def test_two_senders_at_full_speed_lose_unless_paused(pause: bool) -> None:
    scheduler = VirtualScheduler()
    switch = Switch(scheduler, EventBus())
    queueing = Queueing(rate=RATE, limit=200_000, pause=pause)
    sink, arrived = station(switch, 2, queueing)
    senders = [station(switch, number, queueing)[0] for number in (1, 3)]
    sink.send(mac(1) + mac(2) + b"\x88\xb5" + bytes(50))
    scheduler.run()
    for number in range(1000):
        for source, end in zip((1, 3), senders, strict=True):
            end.send(data(number & 0xFF, source=source))
    scheduler.run()
    (egress,) = switch.egresses("n2")
    lost = egress.counters.dropped
    assert len(arrived) == 2000 - lost
    assert egress.counters.peak <= 200_000
    assert (switch.counters.pauses > 0, lost == 0) == (pause, pause)
    assert switch.snapshot()["n2"]["queue.dropped"] == lost
    # Either way the link carried what it could.
    assert len(arrived) * 1000 * NS_PER_S // RATE <= scheduler.now()


def test_a_port_without_a_speed_has_no_queue() -> None:
    switch = Switch(VirtualScheduler(), EventBus())
    switch.port("a")
    assert switch.egresses("a") == []
    assert not any(name.startswith("queue.") for name in switch.snapshot()["a"])


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("v6", [False, True])
def test_neighbouring_entropy_values_spread_evenly(native: bool, v6: bool) -> None:
    way = path(profile=Profile(over_udp=not native), v6=v6)
    body = bytes.fromhex("1188ffff0001000012344321")
    for first in (0xC000, 0xC123):
        taken = Counter(flow_hash(way.frame(2, first + ev, body)) % 8 for ev in range(64))
        assert taken == dict.fromkeys(range(8), 8)


def test_a_flow_hash_does_not_depend_on_what_changes_on_the_way() -> None:
    frame = data()
    assert flow_hash(mark(frame) or b"") == flow_hash(trim(frame) or b"") == flow_hash(frame)
    assert flow_hash(mac(1) + mac(2) + b"\x88\xb5") == flow_hash(mac(1) + mac(2) + b"\x88\xb5more")
    for odd in (b"", bytes(13), frame[:20], frame[:34]):
        assert 0 <= flow_hash(odd) < 0x10000


class Trunked:
    """Station 1 on the left switch, 2 on the right one; each knows where the other is."""

    def __init__(self, **options: Any) -> None:
        self.scheduler = VirtualScheduler()
        bus = EventBus()
        self.left, self.right = (Switch(self.scheduler, bus, name=name) for name in ("left", "right"))
        self.links = self.left.join(self.right, **options)
        self.sender, _ = station(self.left, 1, Queueing())
        sink, self.arrived = station(self.right, 2, Queueing())
        sink.send(mac(1) + mac(2) + b"\x88\xb5" + bytes(50))
        self.scheduler.run()

    def offer(self, *frames: bytes) -> list[bytes]:
        for frame in frames:
            self.sender.send(frame)
        self.scheduler.run()
        return self.arrived


def test_a_trunk_spreads_flows_and_reorders_between_its_links_only() -> None:
    net = Trunked(links=8, delay_ns=1000, step_ns=5000, queueing=Queueing(rate=RATE))
    frames = [data(number, ev=0xC000 + number % 8) for number in range(64)]
    arrived = net.offer(*frames)
    assert sorted(arrived) == sorted(frames)
    assert arrived != frames
    for ev in range(8):
        assert [frame for frame in arrived if frame[35] == ev] == frames[ev::8]
    snapshot = net.left.snapshot()
    assert [snapshot[f"left-right.{number}"]["out.delivered"] for number in range(8)] == [8] * 8
    assert snapshot["left-right.0"]["queue.sent"] == 8
    assert net.right.addresses() == {"02:00:00:00:00:01": "left", "02:00:00:00:00:02": "n2"}


def test_a_trunk_with_a_broken_link_uses_the_others() -> None:
    net = Trunked(links=2)
    frames = [data(number, ev=0xC000 + number % 2) for number in range(8)]
    net.links[0].set_up(False)
    assert net.offer(*frames) == frames
    assert "02:00:00:00:00:02" in net.left.addresses()
    net.links[1].set_up(False)
    assert "02:00:00:00:00:02" not in net.left.addresses()
    assert net.offer(frames[0]) == frames


def test_switches_are_joined_once_and_to_others() -> None:
    net = Trunked(links=1)
    left, right = net.left, net.right
    with pytest.raises(ValueError, match="port 'right' already"):
        left.join(right)
    with pytest.raises(ValueError, match="cannot join"):
        left.join(left)
    with pytest.raises(KeyError, match="trunk"):
        left.link("right")
    assert dscp_of(control()) == DEFAULT.dscp_control


def test_a_switch_told_not_to_pause_drops_also_without_speeds() -> None:
    scheduler = VirtualScheduler()
    switch = Switch(scheduler, EventBus())
    ends = [
        switch.port(f"n{number}", queue_frames=64, delay_ns=1000 * number, pause=False) for number in (1, 2)
    ]
    ends[1].send(mac(1) + mac(2) + b"\x88\xb5" + bytes(50))
    scheduler.run()
    for number in range(64):
        ends[0].send(data(number))
    scheduler.run(until=scheduler.now() + 1500)
    for number in range(64):
        ends[0].send(data(number))
    scheduler.run()
    assert switch.counters.pauses == 0
    assert switch.link("n2").backward.counters.overflow > 0
