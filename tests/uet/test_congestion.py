# SPDX-License-Identifier: Apache-2.0
"""Congestion control and spraying over a bottleneck, and over links that trim, mark and lose."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from emu.clock import MS, NS_PER_S, US
from emu.events import EventBus
from emu.fabric.egress import Egress, Queueing
from emu.fabric.link import LinkEnd
from emu.fabric.switch import Switch
from emu.nic.work import Opcode, Status, Transport
from emu.uet import NsccConfig, Parameters
from emu.uet.entropy import EntropySelector
from emu.uet.nscc import Nscc
from emu.wire.uet_names import CtlType, NackCode, PdsType
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import Net, Nic, Qp, connect, losing, pair

RATE = 12_500_000_000
BASE_RTT = 12 * US
BDP = RATE * BASE_RTT // NS_PER_S
MTU = 4096
PARAMETERS = Parameters(
    nscc=NsccConfig(base_rtt_ns=BASE_RTT, bytes_per_second=RATE), tail_loss_ns=500 * US, rto_ns=2 * MS
)


class Fabric:
    """NICs of a bench behind a switch whose ports have queues: marking from 0.2 to 0.8 BDP, dropping above 5,
    without trimming.
    """

    def __init__(self) -> None:
        self.net = Net()
        self.net.carry = self._carry  # type: ignore[method-assign]
        self.switch = Switch(self.net.scheduler, EventBus())
        self._ends: dict[str, LinkEnd] = {}

    def nic(self, name: str) -> Nic:
        """A further NIC on a link of its own."""
        nic = self.net.nic(name, PARAMETERS)
        queueing = Queueing(RATE, limit=5 * BDP, mark_min=BDP // 5, mark_max=4 * BDP // 5)
        # Without jitter the packets of one flow would always find the place that the other's do not.
        end = self._ends[name] = self.switch.port(
            name, delay_ns=BASE_RTT // 5, jitter_ns=400, seed=nic.address, queueing=queueing
        )

        def deliver(frame: bytes) -> None:
            # A switch that does not know yet where a NIC is tells all of them.
            if frame[:6] == nic.mac:
                nic.deliver(frame)

        end.attach(deliver)
        return nic

    def queue(self, name: str) -> Egress:
        """The queue before a NIC."""
        (egress,) = self.switch.egresses(name)
        return egress

    def _carry(self, sender: Nic, number: int, frame: bytes) -> None:
        self._ends[sender.name].send(frame)


def incast(senders: int, size: int) -> tuple[Fabric, list[tuple[Qp, Qp]]]:
    """``senders`` NICs that each WRITE ``size`` bytes to one at the same time."""
    fabric = Fabric()
    sink = fabric.nic("sink")
    pairs = [connect(fabric.nic(f"a{index}"), sink, path_mtu=MTU) for index in range(senders)]
    for index, (left, right) in enumerate(pairs):
        left.host.memory(LKEY, size)[:] = random.Random(index).randbytes(size)
        right.host.memory(RKEY, size)
        left.post(Opcode.WRITE, size)
    return fabric, pairs


def finish(net: Net, pairs: list[tuple[Qp, Qp]]) -> int:
    """Run until all is done; when the last was (ns)."""
    while not all(left.host.completions for left, _ in pairs):
        net.scheduler.run(until=net.scheduler.now() + 20 * US)
    for left, right in pairs:
        assert left.host.statuses == [(0, Status.SUCCESS)]
        assert right.host.regions[RKEY].data == left.host.regions[LKEY].data
    return net.scheduler.now()


def waiting(egress: Egress, since: tuple[int, int]) -> float:
    """Mean wait in nanoseconds of the data packets after the moment when the counters were ``since``."""
    return (egress.counters.waited_ns - since[1]) / (egress.counters.data - since[0])


def test_two_flows_share_a_bottleneck_and_keep_its_queue_short() -> None:
    fabric, pairs = incast(2, 2 << 20)
    net, egress = fabric.net, fabric.queue("sink")
    net.scheduler.run(until=100 * US)
    since = egress.counters.data, egress.counters.waited_ns
    net.scheduler.run(until=300 * US)
    sources = [pdc.source for left, _ in pairs for pdc in left.nic.fep.pdcs.values()]
    first, second = (source.nscc.cwnd for source in sources)
    assert abs(first - second) <= 0.1 * max(first, second)
    done = finish(net, pairs)
    assert done <= 1.25 * 2 * (2 << 20) * NS_PER_S / RATE
    assert waiting(egress, since) <= BASE_RTT, "the target for queueing without trimming"
    assert egress.counters.marked > 0
    assert egress.counters.dropped == 0


def test_an_incast_of_sixteen_settles() -> None:
    fabric, pairs = incast(16, 1 << 20)
    net, egress = fabric.net, fabric.queue("sink")
    net.scheduler.run(until=MS)
    since = egress.counters.data, egress.counters.waited_ns
    assert egress.counters.peak > 4 * BDP
    done = finish(net, pairs)
    again = sum(len(left.nic.retransmitted) for left, _ in pairs)
    assert again == egress.counters.dropped > 0, "only what was dropped is sent again"
    assert done <= 5 * 16 * (1 << 20) * NS_PER_S / RATE
    assert waiting(egress, since) <= 2 * BASE_RTT


def test_a_window_follows_marks_and_delay() -> None:
    window = Nscc(PARAMETERS.nscc, MTU)
    assert window.cwnd == window.max_wnd == 1.5 * BDP
    full, now = window.cwnd, 0
    for _ in range(400):
        now += 2 * US
        window.acknowledged(now, 0, newly=4096, marked=True, sample=40 * US)
    shrunk = window.cwnd
    assert MTU <= shrunk < full / 4
    for _ in range(4000):
        now += 2 * US
        window.acknowledged(now, 0, newly=4096, marked=False, sample=BASE_RTT)
    assert shrunk < window.cwnd <= window.max_wnd
    before = window.cwnd
    window.lost(MTU)
    assert window.cwnd == before - MTU
    window.acknowledged(now, 0, newly=0, marked=False, sample=None)
    assert window.cwnd == before - MTU, "nothing new and no sample say nothing"


def test_marked_paths_are_left_out_unless_most_are() -> None:
    selector = EntropySelector(8, 1)
    values = selector.values
    assert len(set(values)) == 8
    assert [selector.pick(0) for _ in range(8)] == values
    selector.bar(values[0], 100)
    assert {selector.pick(50) for _ in range(16)} == set(values[1:])
    assert {selector.pick(100) for _ in range(16)} == set(values)
    for value in values[:5]:
        selector.bar(value, 1000)
    assert {selector.pick(500) for _ in range(16)} == set(values)


def test_links_that_trim_mark_and_lose() -> None:
    """The lab's own switch between two endpoints."""
    net = Net()
    switch = Switch(net.scheduler, EventBus())
    a, b = net.nic("a"), net.nic("b")
    ends = {}
    for nic in (a, b):
        end = ends[nic.name] = switch.port(nic.name, trim=0.05, mark=0.1, loss=0.01, seed=3, delay_ns=1000)
        end.attach(nic.deliver)
    net.carry = lambda sender, number, frame: ends[sender.name].send(frame)  # type: ignore[method-assign]
    left, right = connect(a, b)
    size = 1 << 19
    left.host.memory(LKEY, size)[:] = random.Random(1).randbytes(size)
    right.host.memory(RKEY, size)
    left.post(Opcode.WRITE, size)
    net.scheduler.run(until=10_000 * MS)
    assert left.host.statuses == [(0, Status.SUCCESS)]
    assert right.host.regions[RKEY].data == left.host.regions[LKEY].data
    told = [NackCode(packet.word >> 8) for packet in b.packets() if packet.is_nack]
    assert {NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP} <= set(told)
    assert any(packet.flags & 0x20 for packet in b.packets() if packet.is_ack)
    trimmed = sum(code in (NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP) for code in told)
    assert trimmed <= len(a.retransmitted) <= 1.5 * trimmed


def test_a_full_window_asks_for_the_acknowledgement_that_opens_it() -> None:
    """Windows of few packets, and none of them the last of the work: no timer may be what goes on."""
    for rate in (100_000_000, 1_000_000_000, 3_000_000_000):
        parameters = Parameters(nscc=NsccConfig(base_rtt_ns=BASE_RTT, bytes_per_second=rate))
        net = Net()
        a, b = net.nic("a", parameters), net.nic("b", parameters)
        left, right = connect(a, b)
        left.host.memory(LKEY, 1 << 17)
        right.host.memory(RKEY, 1 << 17)
        left.post(Opcode.WRITE, 1 << 17)
        net.scheduler.run(until=40 * MS)
        assert left.host.statuses == [(0, Status.SUCCESS)]
        assert not a.retransmitted


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
@pytest.mark.parametrize("sender", ["a", "b"])
def test_the_last_packet_or_all_answers_are_missed_soon(transport: Transport, sender: str) -> None:
    """Nothing overtakes the last packet: it alone is asked for, on its own path, long before it would be sent
    again.
    """
    size = 7 * MTU

    def impair(nic: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        end = 1 * MS <= net.scheduler.now() < 1 * MS + 2 * BASE_RTT
        if nic.name == sender and end and (sender == "b" or frame.endswith(b"the end")):
            return []
        return [(BASE_RTT // 2, frame)]

    net, left, right = pair(transport, impair, PARAMETERS)
    left.host.memory(LKEY, size)[:] = bytes(size - 7) + b"the end"
    right.host.memory(RKEY, size)
    left.post(Opcode.WRITE, MTU)
    net.scheduler.run(until=1 * MS)
    left.post(Opcode.WRITE, size)
    net.scheduler.run(until=1 * MS + PARAMETERS.tail_loss_ns // 4)
    assert left.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert len(left.nic.retransmitted) == (sender == "a")
    assert not left.nic.timers
    (asked,) = [packet for packet in left.nic.packets() if packet.kind == PdsType.CP]
    (about,) = [packet for packet in left.nic.packets() if packet.is_request and packet.psn == asked.psn][:1]
    assert asked.following == CtlType.ACK_REQUEST
    assert asked.ev == about.ev


@pytest.mark.parametrize("trimming", [False, True])
def test_a_loss_speaks_of_congestion_unless_switches_trim(trimming: bool) -> None:
    """A path that carried later packets is left out for a while only when its queue may have been full."""
    nscc = NsccConfig(base_rtt_ns=BASE_RTT, bytes_per_second=RATE, trimming=trimming)
    net, left, right = pair(impairment=losing(("a", 2)), parameters=replace(PARAMETERS, nscc=nscc))
    packets = 128
    left.host.memory(LKEY, packets * MTU)
    right.host.memory(RKEY, packets * MTU)
    left.post(Opcode.WRITE, packets * MTU)
    net.scheduler.run(until=10 * MS)
    assert left.host.statuses == [(0, Status.SUCCESS)]
    assert [reason for _, _, reason in left.nic.retransmitted] == ["overtaken on its path"]
    used = Counter(packet.ev for packet in left.nic.packets() if packet.kind == PdsType.RUD_REQ)
    assert (max(used.values()) - min(used.values()) <= 1) == trimming
