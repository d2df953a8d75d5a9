# SPDX-License-Identifier: Apache-2.0
"""Thousands of contexts, floods, replays and peers that never close: bounded in memory and in work."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from emu.clock import MS, NS_PER_S
from emu.nic.work import Opcode, QpAttributes, QpState, Status, Transport
from emu.uet import Parameters
from emu.uet.headers import PDS_REQUEST, control, prologue
from emu.uet.path import PeerPath
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType
from tests.roce.bench import ALL_ACCESS, LKEY, RKEY
from tests.uet.bench import Net, Nic, Qp, connect, decode, pair
from tests.uet.test_refusals import START, Peer

CONTEXTS = 2000


def crowd(count: int, parameters: Parameters) -> tuple[Net, list[Qp], Nic, Nic]:
    """``count`` queue pairs of two NICs, each pair with addresses, and so contexts, of its own."""
    net = Net()
    a, b = net.nic("a", parameters), net.nic("b", parameters)
    ends = []
    for number in range(count):
        for here, there, side in ((a, b, 1), (b, a, 2)):
            gid = bytes(10) + b"\xff\xff" + bytes((10, side)) + number.to_bytes(2, "big")
            peer = bytes(10) + b"\xff\xff" + bytes((10, 3 - side)) + number.to_bytes(2, "big")
            attributes = QpAttributes(
                access=ALL_ACCESS,
                dest_qpn=number + 1,
                source_mac=here.mac,
                dest_mac=there.mac,
                source_gid=gid,
                dest_gid=peer,
            )
            qp = Qp(here, number + 1, Transport.UET_RUD, attributes)
            qp.host.memory(LKEY, 64)
            qp.host.memory(RKEY, 64)
            for state in (QpState.INIT, QpState.RTR, QpState.RTS):
                qp.modify(state)
            if side == 1:
                ends.append(qp)
    return net, ends, a, b


def test_thousands_of_contexts_come_go_and_come_again() -> None:
    net, ends, a, b = crowd(CONTEXTS, Parameters(max_pdcs=CONTEXTS))
    for turn in range(2):
        for qp in ends:
            qp.post(Opcode.WRITE, 32)
        net.scheduler.run(until=net.scheduler.now() + 100 * MS)
        assert len(a.fep.pdcs) == len(b.fep.pdcs) == CONTEXTS
        assert all(qp.host.statuses[-1] == (turn, Status.SUCCESS) for qp in ends)
        net.scheduler.run(until=net.scheduler.now() + 20 * NS_PER_S)
        assert not a.fep.pdcs and not b.fep.pdcs
    starts: dict[int, list[int]] = {}
    for packet in a.packets():
        if packet.is_request and packet.syn:
            starts.setdefault(packet.spdcid, []).append(packet.start_psn)
    assert len(starts) >= CONTEXTS
    for used in starts.values():
        for first, second in itertools.pairwise(dict.fromkeys(used)):
            assert min((first - second) % (1 << 32), (second - first) % (1 << 32)) > 1 << 16


def test_more_peers_than_contexts_take_turns() -> None:
    """An endpoint with few contexts asks for closes, and everybody is served in the end."""
    parameters = Parameters(max_pdcs=4, max_nack_retx=30, nack_retx_ns=50 * MS)
    net, ends, a, b = crowd(12, parameters)
    a.parameters = replace(parameters, max_pdcs=64)
    a.fep.parameters = a.parameters
    for qp in ends:
        qp.post(Opcode.WRITE, 32)
    net.scheduler.run(until=60 * NS_PER_S)
    assert [qp.host.statuses for qp in ends] == [[(0, Status.SUCCESS)]] * 12
    assert len(b.fep.pdcs) <= 4


def flood(peer: Peer, count: int) -> None:
    """SYN packets of as many sources that never go on."""
    b = peer.right.nic
    for number in range(count):
        source = bytes((11, *number.to_bytes(3, "big")))
        path = PeerPath(bytes((2, 9, *number.to_bytes(4, "big"))), b.mac, source, b.ip)
        header = PDS_REQUEST.pack(prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, 4), -1, START, 7, 0)
        b.deliver(path.frame(2, 0xC000, header, peer.body()))


def test_a_flood_of_syns_is_bounded_and_an_honest_peer_gets_in() -> None:
    peer = Peer(parameters=Parameters(max_pdcs=64))
    fep = peer.right.nic.fep
    flood(peer, 5000)
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 60 * MS)
    contexts = fep.contexts
    assert len(fep.pdcs) == 64 and len(contexts._targets) == 64
    assert len(contexts._paths) <= 1024 and len(contexts._closed) <= 4096
    assert len(contexts._cccs) <= 64 and not fep._ids
    # Nobody went on with what the flood opened.
    peer.write(START)
    assert peer.answers()[-1].is_ack
    assert len(fep.pdcs) == 64


def test_forged_syns_open_nothing_where_the_target_chooses_the_start() -> None:
    peer = Peer(parameters=Parameters(choose_start=True))
    flood(peer, 3000)
    fep = peer.right.nic.fep
    assert not fep.pdcs and not fep.contexts._targets
    assert {packet.word >> 8 for packet in peer.answers()} == {NackCode.NEW_START_PSN}
    # Who hears the answer gets in, with the same bytes of data.
    net, a, b = pair(parameters=Parameters(choose_start=True))
    a.host.memory(LKEY, 1 << 16)[:] = bytes(range(256)) * 256
    a.post(Opcode.WRITE, 20_000)
    a.post(Opcode.READ, 20_000)
    net.scheduler.run(until=1_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert b.host.regions[RKEY].data[:20_000] == (bytes(range(256)) * 256)[:20_000]
    told = [packet for packet in b.nic.packets() if packet.is_nack]
    assert {packet.word >> 8 for packet in told} == {NackCode.NEW_START_PSN}
    (pdc,) = a.nic.fep.pdcs.values()
    assert pdc.start_psn == told[0].payload
    # A target that changes its mind again and again is given up on.
    net, a, b = pair(parameters=Parameters(choose_start=True))
    b.nic.fep.contexts.challenge.starts = lambda key, now: (now & 0xFFFFFFFF, now & 0xFFFFFFFF)  # type: ignore[method-assign]
    a.post(Opcode.WRITE, 20)
    net.scheduler.run(until=1_000 * MS)
    assert a.host.statuses[0][1] is Status.REM_OP_ERR


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
def test_a_replay_of_everything_changes_nothing_but_counters(transport: Transport) -> None:
    net, a, b = pair(transport)
    memory = b.host.regions[RKEY].data
    for _ in range(3):
        a.post(Opcode.WRITE, 3000)
        a.post(Opcode.ATOMIC_ADD, 8, swap_add=1, remote_address=0x10000 + 0x8000)
    net.scheduler.run(until=100 * MS)
    before, atomics = bytes(memory), b.host.atomics
    assert atomics == 3
    frames = list(a.nic.sent)
    for close in (False, True):
        for _ in range(50):
            for frame in frames:
                b.nic.deliver(frame)
        assert bytes(memory) == before and b.host.atomics == atomics
        for pdc in b.nic.fep.pdcs.values():
            assert len(pdc.destination.stored) <= 3 and not pdc.inbound
        assert len(b.nic.fep.pdcs) == (not close)
        if not close:
            net.scheduler.run(until=net.scheduler.now() + 5 * NS_PER_S + 100 * MS)
            assert not b.nic.fep.pdcs
    # Remembered for a while: a context that was closed does not come back by its old packets.
    assert b.host.atomics == atomics


def test_contexts_of_a_peer_that_never_closes_make_room_for_others() -> None:
    peer = Peer(parameters=Parameters(max_pdcs=8))
    for source in range(1, 9):
        peer.write(START, source=source)
        found = [pdc for pdc in peer.right.nic.fep.pdcs.values() if pdc.peer == source]
        peer.write(START + 1, syn=False, dest=found[0].number, source=source)
    assert len(peer.right.nic.fep.pdcs) == 8
    for _ in range(8):
        peer.write(START, source=99)
        peer.net.scheduler.run(until=peer.net.scheduler.now() + 5 * NS_PER_S)
    asked = [packet for packet in peer.answers() if packet.kind == PdsType.CP]
    assert {packet.following for packet in asked} == {CtlType.CLOSE_REQ}
    assert any(pdc.peer == 99 for pdc in peer.right.nic.fep.pdcs.values())


def test_a_reader_that_takes_nothing_fills_no_memory() -> None:
    """Answers to READs wait for the window of the return direction, and only so many."""
    peer = Peer(parameters=Parameters(max_replies=50))
    for number in range(500):
        psn = START + number
        peer.write(psn, opcode=2, request_length=1024, message_id=number & 0xFFFF, clear=-1)
    source = peer.target.source
    # No answer was acknowledged: what waits and what is on the way are both bounded.
    assert len(source.queue) <= 51
    refused = [packet for packet in peer.answers() if packet.is_nack]
    assert not refused or {packet.word >> 8 for packet in refused} == {NackCode.NO_PKT_BUFFER}
    assert len(source.unacked) <= 1024


def test_close_commands_for_nothing_do_nothing() -> None:
    peer = Peer()
    peer.write(START)
    dest = peer.target.number
    for psn in (START - 5, START + 400, START + 100_000):
        peer.deliver(control(CtlType.CLOSE_CMD, 8, psn, 0x1234, dest))
    assert not peer.target.closed
    assert decode(peer.right.nic.sent[0]).is_ack


def test_two_nics_that_open_to_each_other_do_not_mix_up_their_contexts() -> None:
    net = Net()
    a, b = net.nic("a"), net.nic("b")
    left, right = connect(a, b)
    for _ in range(20):
        left.post(Opcode.WRITE, 2000)
        right.post(Opcode.WRITE, 2000)
    net.scheduler.run(until=100 * MS)
    assert len(a.fep.pdcs) == len(b.fep.pdcs) == 2
    for qp in (left, right):
        assert [status for _, status in qp.host.statuses] == [Status.SUCCESS] * 20
