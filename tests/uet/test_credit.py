# SPDX-License-Identifier: Apache-2.0
"""Receiver credit: accounts, the pacer, the bytes, and incast with it; contexts that PDCs share.

The numbers are this project's model, not the specification's.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import pytest
from scapy.layers.l2 import Ether

from emu.clock import MS, US
from emu.nic.work import Opcode, Status, Transport
from emu.uet import NsccConfig, Parameters
from emu.uet.headers import CC_STATE, PDS_REQUEST, control, prologue
from emu.uet.rccc import CreditSource
from emu.wire import uet
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import Nic, Qp, connect, pair, perfect
from tests.uet.test_congestion import BASE_RTT, BDP, MTU, PARAMETERS, RATE, Fabric, finish
from tests.uet.test_refusals import START, TRIMMED_LASTHOP, Peer

SLOW = NsccConfig(base_rtt_ns=BASE_RTT, bytes_per_second=RATE)
RCCC = Parameters(nscc=SLOW, congestion="rccc", tail_loss_ns=500 * US, rto_ns=2 * MS)
Mode = Literal["rccc", "both"]
MODES = pytest.mark.parametrize("mode", ["rccc", "both"])
CYCLE = 1 << 24


def test_an_account_is_paid_in_and_overdrawn_by_one_packet_at_most() -> None:
    account = CreditSource(256, 10_000)
    assert account.allows()
    for _ in range(3):
        account.spend(4000)
    assert not account.allows(), "what may be sent unasked is spent"
    account = CreditSource(256, 10_000)
    account.spend(4000)
    account.heard()
    assert not account.allows(), "the first answer ends it"
    assert account.update(16) and account.allows()
    account.spend(4000)
    assert account.allows()
    account.spend(4000)
    assert not account.allows()
    assert not account.update(16), "an old value pays nothing"
    assert not account.update(15)


def test_targets_are_what_is_wanted_beyond_what_is_there_and_wrap() -> None:
    account = CreditSource(256, 100_000)
    assert account.target(1000) == 4
    assert account.target(1 << 30) == -(-100_000 // 256), "a window's worth at most"
    account.update(10)
    assert account.target(2560) == 10 and account.target(2561) == 11
    for step in range(10, CYCLE + 1000, CYCLE // 4):
        account.update(step % CYCLE)
    assert account.update((CYCLE + 2000) % CYCLE)
    account.spend(1 << 40)
    assert account.target(100_000) < CYCLE


def syn(peer: Peer, psn: int, number: int, target: int, tos: int = 2, source: int = 0x1234) -> None:
    """A request with congestion state arrives."""
    header = PDS_REQUEST.pack(
        prologue(PdsType.RUD_CC_REQ, NextHeader.REQUEST_STD, 4), -1, psn, source, psn - START
    )
    peer.deliver(header + CC_STATE.pack(number << 24 | target), peer.body(), tos)


def credit(peer: Peer) -> list[int]:
    """Values of the CREDIT packets that b sent."""
    packets = [packet for packet in peer.answers() if packet.kind == PdsType.CP]
    assert {packet.following for packet in packets} <= {CtlType.CREDIT}
    return [packet.payload for packet in packets]


def test_demand_is_met_at_the_pace_of_the_link_and_a_stock_beyond() -> None:
    parameters = replace(RCCC, congestion="both")
    peer = Peer(parameters=parameters)
    syn(peer, START, 7, 100)
    start = peer.net.scheduler.now()
    peer.net.scheduler.run(until=start + 2 * MS)
    values = credit(peer)
    # Six packets' worth are asked for; then as much as the link holds comes unasked, and no more.
    assert values == sorted(values) and values[5] >= 100 > values[4]
    assert values[-1] * 256 <= 100 * 256 + BDP + 3 * 4352
    assert len(set(values)) == len(values)
    rate = 6 * 4256 / (6 * 4256 / (0.99 * RATE))
    assert rate < RATE
    (account,) = peer.right.nic.fep.pacer.accounts.values()
    assert not account.queued


def test_trimmed_packets_come_first() -> None:
    peer = Peer(parameters=replace(RCCC, congestion="both"))
    syn(peer, START, 1, 4000, source=1)
    syn(peer, START, 2, 4000, source=2)
    order = []
    pacer = peer.right.nic.fep.pacer
    give = pacer._give

    def spy() -> object:
        account = give()
        if account is not None:
            order.append(account.key[2])
        return account

    pacer._give = spy  # type: ignore[method-assign, assignment]
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 3 * US)
    fair = list(order)
    syn(peer, START + 1, 2, 4000, tos=TRIMMED_LASTHOP, source=2)
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 3 * US)
    assert abs(fair.count(1) - fair.count(2)) <= 1
    after = order[len(fair) :]
    assert after and 2 in after[:2]


def test_the_bytes_of_requests_and_acks() -> None:
    net, a, b = pair(parameters=RCCC)
    a.host.memory(LKEY, 1 << 18)
    b.host.memory(RKEY, 1 << 18)
    a.post(Opcode.WRITE, 1 << 18)
    net.scheduler.run(until=100 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    first = Ether(a.nic.sent[0])[uet.Request]
    assert (first.type, first.ccc_id) == (PdsType.RUD_CC_REQ, 1)
    # Everything still to be sent, in quanta, but no more than a window.
    assert first.credit_target == -(-int(1.5 * BDP) // 256)
    acks = [Ether(frame)[uet.Ack] for frame in b.nic.sent if Ether(frame).haslayer(uet.Ack)]
    assert {ack.cc_type for ack in acks} == {1}
    values = [ack.credit for ack in acks]
    assert values == sorted(values) and values[-1] > 0
    told = [
        packet
        for packet in b.nic.packets()
        if packet.kind == PdsType.CP and packet.following == CtlType.CREDIT
    ]
    assert told, "what no ACK carries goes by itself"


@MODES
@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
def test_work_of_every_kind_runs_on_credit(mode: Mode, transport: Transport) -> None:
    draw = random.Random(4)

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [] if draw.random() < 0.02 else perfect(sender, number, frame)

    net, a, b = pair(transport, impair, replace(RCCC, congestion=mode))
    size = 1 << 18
    payload = draw.randbytes(size)
    a.host.memory(LKEY, size)[:] = payload
    b.host.memory(RKEY, size)
    a.post(Opcode.WRITE, size)
    net.scheduler.run(until=1_000 * MS)
    assert b.host.regions[RKEY].data == payload
    a.host.regions[LKEY].data[:] = bytes(size)
    a.post(Opcode.READ, size)
    a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)
    net.scheduler.run(until=3_000 * MS)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(3)]
    assert a.host.regions[LKEY].data[8:] == payload[8:]
    net.scheduler.run(until=20_000 * MS)
    assert not a.nic.fep.pdcs and not a.nic.fep.pacer.accounts and not b.nic.fep.pacer.accounts


def test_without_credit_a_source_asks_and_asks_again() -> None:
    """All credit is lost for a while."""

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        layer = Ether(frame)
        told = layer.haslayer(uet.Control) and layer[uet.Control].ctl_type == CtlType.CREDIT
        if sender.name == "b" and net.scheduler.now() < 5 * MS and (told or layer.haslayer(uet.Ack)):
            return []
        return perfect(sender, number, frame)

    net, a, b = pair(parameters=replace(RCCC, max_rto=15), impairment=impair)
    size = 1 << 19
    a.host.memory(LKEY, size)
    b.host.memory(RKEY, size)
    a.post(Opcode.WRITE, size)
    net.scheduler.run(until=1_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]


def test_incast_on_credit_keeps_the_queue_short() -> None:
    """Eight senders: behind what they send unasked the queue before the sink is short, and little is lost."""
    fabric = Fabric()
    sink = fabric.nic("sink")
    nics = [fabric.nic(f"a{index}") for index in range(8)]
    parameters = replace(PARAMETERS, congestion="rccc", nscc=replace(PARAMETERS.nscc, bytes_per_second=RATE))
    for nic in (sink, *nics):
        # The bench made them with NSCC.
        nic.parameters = parameters
        nic.fep = type(nic.fep)(nic, parameters, seed=nic.address)
    pairs: list[tuple[Qp, Qp]] = []
    size = 1 << 20
    for index, nic in enumerate(nics):
        left, right = connect(nic, sink, path_mtu=MTU)
        left.host.memory(LKEY, size)[:] = random.Random(index).randbytes(size)
        right.host.memory(RKEY, size)
        left.post(Opcode.WRITE, size)
        pairs.append((left, right))
    net, egress = fabric.net, fabric.queue("sink")
    net.scheduler.run(until=MS)
    dropped = egress.counters.dropped
    since = egress.counters.data, egress.counters.waited_ns
    done = finish(net, pairs)
    assert egress.counters.dropped == dropped, "credit never fills the queue"
    waited = (egress.counters.waited_ns - since[1]) / max(1, egress.counters.data - since[0])
    assert waited <= 2 * BASE_RTT
    assert done <= 3 * 8 * size * 1_000_000_000 / RATE


def test_too_many_contexts_are_refused() -> None:
    peer = Peer(parameters=replace(RCCC, max_cccs=1))
    syn(peer, START, 1, 10, source=1)
    syn(peer, START, 2, 10, source=2)
    layer = Ether(peer.right.nic.sent[-1])[uet.Nack]
    assert (layer.nack_code, layer.nack_psn, layer.spdcid, layer.dpdcid) == (
        NackCode.NO_CCC_AVAIL,
        START,
        0,
        2,
    )
    syn(peer, START, 1, 10, source=3)
    assert len(peer.right.nic.fep.pdcs) == 2, "another PDC of a known one is welcome"


def test_credit_on_a_context_without_is_named() -> None:
    for kind in (CtlType.CREDIT, CtlType.CREDIT_REQ):
        peer = Peer()
        peer.write(START)
        peer.deliver(control(kind, 0, 0, 0x1234, peer.target.number, 77))
        assert any("credit" in reason for _, reason in peer.right.nic.noted)


# Sharing


def test_contexts_of_one_peer_share_a_window_and_wake_each_other() -> None:
    """RUD and ROD to the same NIC: two PDCs, one CCC."""
    parameters = Parameters(nscc=NsccConfig(base_rtt_ns=BASE_RTT, bytes_per_second=400_000_000))
    net, a, b = pair(parameters=parameters)
    c, d = connect(a.nic, b.nic, Transport.UET_ROD)
    size = 1 << 16
    for left, right in ((a, b), (c, d)):
        left.host.memory(LKEY, size)[:] = random.Random(1).randbytes(size)
        right.host.memory(RKEY, size)
        left.post(Opcode.WRITE, size)
    first, second = a.nic.fep.pdcs.values()
    shared = first.source.ccc
    assert shared is second.source.ccc and shared.members == {first, second}
    most = 0
    while not (a.host.completions and c.host.completions):
        net.scheduler.run(until=net.scheduler.now() + US)
        assert shared.inflight == first.source.inflight + second.source.inflight
        most = max(most, shared.inflight)
        assert net.scheduler.now() < 100 * MS
    # The window as it began; it shrinks as shorter round trips are seen.
    assert 0 < most <= 1.5 * 4800 + 1200
    assert shared.inflight == 0
    assert not a.nic.retransmitted
    net.scheduler.run(until=20_000 * MS)
    assert not a.nic.fep.pdcs and not shared.members and not a.nic.fep.contexts._cccs


def test_a_context_that_ends_takes_its_bytes_off_the_shared_window() -> None:
    net, a, b = pair(impairment=lambda *_: [])
    c, _ = connect(a.nic, b.nic, Transport.UET_ROD)
    a.post(Opcode.WRITE, 4000)
    c.post(Opcode.WRITE, 4000)
    net.scheduler.run(until=US)
    first, second = a.nic.fep.pdcs.values()
    assert first.source.ccc.inflight == first.source.inflight + second.source.inflight > 0
    net.scheduler.run(until=60_000 * MS)
    assert not a.nic.fep.pdcs and first.source.ccc.inflight == 0
