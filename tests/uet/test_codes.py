# SPDX-License-Identifier: Apache-2.0
"""Every NACK code, control packet and return code: what provokes it, its bytes, and what comes of it.

What a NACK makes of its source is in :mod:`tests.uet.test_refusals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scapy.layers.l2 import Ether

from emu.clock import MS
from emu.nic.work import (
    Access,
    Cause,
    Opcode,
    QpState,
    ReceiveRequest,
    SendMode,
    Sge,
    Status,
    Transport,
)
from emu.uet import NsccConfig, Parameters
from emu.uet.headers import PDS_REQUEST, STD_SIZE, control, prologue, rendezvous, response
from emu.uet.message import failure_of
from emu.uet.path import PeerPath
from emu.uet.psn import advance
from emu.wire import uet
from emu.wire.uet_names import (
    AckFlag,
    AtomicOp,
    AtomicType,
    CtlType,
    NackCode,
    NextHeader,
    PdsType,
    RequestOpcode,
    ResponseOpcode,
    ReturnCode,
)
from tests.roce.bench import ALL_ACCESS, BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Nic, decode, pair, perfect
from tests.uet.test_refusals import START, TRIMMED, TRIMMED_LASTHOP, Peer

SOURCE = 0x1234
SYN, AR, RETX = 4, 8, 16
WHOLE = 0x0B

# NACK codes


@dataclass(frozen=True)
class Nacked:
    """How a destination comes to send one code: its configuration, and what arrives.

    ``psn`` is what the NACK is about, ``named`` that it carries the destination's PDC id, ``dest`` the
    source's, ``payload`` what it says beside; ``kept`` that the refused packet counts as received anyway.
    """

    provoke: Callable[[Peer], None]
    psn: int = START
    named: bool = True
    payload: int | Callable[[Peer], int] = 0
    dest: int = SOURCE
    transport: Transport = Transport.UET_RUD
    parameters: Parameters = field(default_factory=Parameters)
    kept: bool = False


def opened(peer: Peer, then: Callable[[], None]) -> None:
    """A context first, then something on it."""
    peer.write(START)
    then()


def ask(peer: Peer, psn: int) -> None:
    """An ACK_REQUEST arrives."""
    peer.deliver(control(CtlType.ACK_REQUEST, AR, psn, SOURCE, peer.target.number))


def fill_contexts(peer: Peer) -> None:
    peer.write(START, source=1)
    peer.write(START)


def trim(peer: Peer, tos: int) -> None:
    opened(peer, lambda: peer.write(START + 1, tos=tos))


def read(peer: Peer) -> None:
    """Data that needs room to wait for the window of the return direction."""
    peer.write(START, opcode=RequestOpcode.READ, request_length=512)


def two_errors(peer: Peer) -> None:
    """Answers that must be kept until they are cleared."""
    for psn in (START, START + 1):
        peer.write(psn, key=99, clear=START - 1 - psn)


def two_messages(peer: Peer) -> None:
    opened(peer, lambda: None)
    for number in (1, 2):
        header = PDS_REQUEST.pack(
            prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, SYN), -1, START + number, SOURCE, number
        )
        peer.deliver(header, peer.body(message_id=number, request_length=32, flags=0x09))


def announce(peer: Peer, psn: int, message_id: int, clear: int = -1) -> None:
    """A rendezvous of 3,000 bytes, none of them with it."""
    header = PDS_REQUEST.pack(
        prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, SYN), clear, psn, SOURCE, psn - START
    )
    body = peer.body(opcode=RequestOpcode.RENDEZVOUS_TSEND, message_id=message_id, key=1, request_length=3000)
    peer.deliver(header, body[:STD_SIZE] + rendezvous(0, peer.left.host.qpn, 0, 1 << 32))


def expect(peer: Peer, count: int) -> None:
    """Receive elements for tagged messages."""
    for index in range(count):
        element = ReceiveRequest(index, [Sge(BASE, 4096, RKEY)], tag=1)
        peer.right.host.receives.append(element)


def two_rendezvous(peer: Peer) -> None:
    expect(peer, 2)
    announce(peer, START, 1)
    announce(peer, START + 1, 2, -2)


def cleared(peer: Peer) -> None:
    """The source says that it saw the answer, and then sends the packet again."""
    peer.write(START, key=99)
    peer.write(START + 1, clear=-1)
    peer.write(START, flags=RETX)


def closing(peer: Peer) -> None:
    opened(peer, lambda: None)
    peer.deliver(control(CtlType.CLOSE_CMD, AR, START + 2, SOURCE, peer.target.number))
    peer.write(START + 3)


def close_too_soon(peer: Peer) -> None:
    peer.write(START, opcode=RequestOpcode.READ, request_length=512)
    peer.deliver(control(CtlType.CLOSE_CMD, AR, START + 1, SOURCE, peer.target.number))


def working(peer: Peer) -> None:
    expect(peer, 1)
    announce(peer, START, 1)
    ask(peer, START)


def read_again(peer: Peer) -> None:
    peer.write(START, opcode=RequestOpcode.READ, request_length=8)
    ask(peer, START)


def malformed(peer: Peer) -> None:
    header = PDS_REQUEST.pack(prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, SYN), -1, START, SOURCE, 0)
    peer.deliver(header, bytes(20))


def chosen(peer: Peer) -> int:
    """The start PSN that b would choose."""
    a, b = peer.left.nic, peer.right.nic
    return b.fep.contexts.challenge.starts((a.ip, b.ip, SOURCE), peer.net.scheduler.now())[0]


NACKS: dict[NackCode, Nacked] = {
    NackCode.TRIMMED: Nacked(lambda peer: trim(peer, TRIMMED), START + 1),
    NackCode.TRIMMED_LASTHOP: Nacked(lambda peer: trim(peer, TRIMMED_LASTHOP), START + 1),
    NackCode.NO_PDC_AVAIL: Nacked(fill_contexts, named=False, parameters=Parameters(max_pdcs=1)),
    NackCode.NO_BITMAP: Nacked(fill_contexts, named=False, parameters=Parameters(max_bitmaps=1)),
    NackCode.NO_PKT_BUFFER: Nacked(read, parameters=Parameters(max_replies=0)),
    NackCode.NO_GTD_DEL_AVAIL: Nacked(two_errors, START + 1, parameters=Parameters(max_stored=1)),
    NackCode.NO_SES_MSG_AVAIL: Nacked(two_messages, START + 2, parameters=Parameters(max_messages=1)),
    NackCode.NO_RESOURCE: Nacked(two_rendezvous, START + 1, parameters=Parameters(max_fetches=1)),
    NackCode.PSN_OOR_WINDOW: Nacked(
        lambda peer: opened(peer, lambda: peer.write(START + 5000, syn=False, dest=peer.target.number)),
        START + 5000,
    ),
    NackCode.ROD_OOO: Nacked(
        lambda peer: opened(peer, lambda: peer.write(START + 2)),
        START + 2,
        payload=START + 1,
        transport=Transport.UET_ROD,
    ),
    NackCode.INV_DPDCID: Nacked(lambda peer: peer.write(START, syn=False, dest=77), named=False),
    NackCode.PDC_HDR_MISMATCH: Nacked(
        lambda peer: opened(
            peer, lambda: peer.write(START + 1, syn=False, dest=peer.target.number, source=9)
        ),
        START + 1,
        dest=9,
        named=False,
    ),
    NackCode.CLOSING: Nacked(closing, START + 3),
    NackCode.CLOSING_IN_ERR: Nacked(close_too_soon, START + 1, payload=1),
    NackCode.PKT_NOT_RCVD: Nacked(lambda peer: opened(peer, lambda: ask(peer, START + 1)), START + 1),
    NackCode.GTD_RESP_UNAVAIL: Nacked(cleared, kept=True),
    NackCode.ACK_WITH_DATA: Nacked(read_again, kept=True),
    NackCode.INVALID_SYN: Nacked(
        lambda peer: opened(peer, lambda: peer.write(START + 1, start=START + 1)), START + 1, named=False
    ),
    NackCode.PDC_MODE_MISMATCH: Nacked(
        lambda peer: opened(peer, lambda: peer.write(START + 1, kind=PdsType.ROD_REQ)), START + 1
    ),
    NackCode.NEW_START_PSN: Nacked(
        lambda peer: peer.write(START), named=False, payload=chosen, parameters=Parameters(choose_start=True)
    ),
    NackCode.RCVD_SES_PROCG: Nacked(working, kept=True),
    NackCode.UNEXP_EVENT: Nacked(malformed),
}
NOT_SENT: dict[NackCode, str] = {
    NackCode.TRIMMED_ACK: "reserved since 1.0.3: the requester's timer repairs it",
    NackCode.NO_CCC_AVAIL: "see the tests of receiver credit",
    NackCode.RCVR_INFER_LOSS: "optional: losses are inferred at the source",
    NackCode.EXP_NORMAL: "experimental",
    NackCode.EXP_ERROR: "experimental",
    NackCode.EXP_FATAL: "experimental",
}


def test_every_code_is_provoked_or_has_a_reason() -> None:
    assert not set(NACKS) & set(NOT_SENT)
    assert set(NACKS) | set(NOT_SENT) == set(NackCode)


@pytest.mark.parametrize("code", NACKS, ids=lambda code: code.name)
def test_what_provokes_a_nack_and_its_bytes(code: NackCode) -> None:
    row = NACKS[code]
    peer = Peer(row.transport, row.parameters)
    row.provoke(peer)
    frames = [frame for frame in peer.right.nic.sent if decode(frame).is_nack]
    (frame,) = frames
    layer = Ether(frame)[uet.Nack]
    payload = row.payload(peer) if callable(row.payload) else row.payload
    own = decode(frame).spdcid
    assert (layer.type, layer.nack_code, layer.vendor_code) == (PdsType.NACK, code, 0)
    assert (layer.nack_psn, layer.dpdcid, layer.nack_payload) == (
        row.psn,
        row.dest,
        payload,
    )
    assert bool(own) == row.named
    assert decode(frame).ev == 0xC0DE, "the entropy value of the packet that caused it"
    assert decode(frame).head.dscp == 46
    assert peer.right.nic.counts["nacks_sent"] == 1
    if row.named and code is not NackCode.CLOSING_IN_ERR:
        assert peer.target.destination.has(row.psn) == row.kept


# Control packets


def test_a_noop_takes_a_psn_and_is_acknowledged() -> None:
    for kind in (CtlType.NOOP, CtlType.NEGOTIATION):
        peer = Peer()
        # Both can open a context.
        peer.deliver(control(kind, AR | SYN, START, SOURCE, 0))
        ack = peer.answers()[-1]
        assert (ack.kind, ack.psn, ack.dpdcid, ack.following) == (PdsType.ACK_CC, START, SOURCE, 0)
        peer.write(START + 1)
        assert peer.target.destination.cack == START + 1
        assert not peer.target.rod
    peer = Peer(Transport.UET_ROD)
    peer.deliver(control(CtlType.NOOP, AR | SYN | 0x20, START, SOURCE, 0))
    assert peer.target.rod, "ISROD says which mode it opens"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in CtlType if kind not in (CtlType.NOOP, CtlType.NEGOTIATION)],
    ids=lambda kind: kind.name,
)
def test_no_other_control_packet_opens_a_context(kind: CtlType) -> None:
    peer = Peer()
    peer.deliver(control(kind, AR | SYN, START, SOURCE, 0))
    assert not peer.right.nic.fep.pdcs
    assert peer.right.nic.drops


@pytest.mark.parametrize("kind", list(CtlType), ids=lambda kind: kind.name)
def test_a_control_packet_of_no_context_is_named(kind: CtlType) -> None:
    for flags in (0, AR):
        peer = Peer()
        peer.deliver(control(kind, flags, START, SOURCE, 77))
        assert [drop.counter for drop in peer.right.nic.drops] == ["unknown_pdc"]
        told = [NackCode(packet.word >> 8) for packet in peer.answers()]
        assert told == ([NackCode.INV_DPDCID] if flags else [])


def test_an_ack_request_is_answered_by_the_state_of_its_packet() -> None:
    peer = Peer()
    peer.write(START, key=99)
    ask(peer, START)
    first, second = peer.answers()
    assert first.is_ack and second.is_ack
    assert first.frame[first.ses : first.end] == second.frame[second.ses : second.end], "the stored answer"


def test_a_clear_command_frees_what_was_stored() -> None:
    peer = Peer()
    peer.write(START, key=99)
    assert peer.target.destination.stored and peer.target.destination.cack == START - 1
    peer.deliver(control(CtlType.CLEAR_CMD, 0, 0, SOURCE, peer.target.number, START))
    assert not peer.target.destination.stored and peer.target.destination.cack == START
    assert len(peer.answers()) == 1, "it is never acknowledged"


def test_a_destination_without_room_asks_for_a_clear_and_gets_one() -> None:
    """More answers to keep than it has room for, and a source that would send nothing else."""
    net, a, b = pair(parameters=Parameters(max_stored=1))
    for _ in range(3):
        a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)
        a.post(Opcode.READ, 8)
    net.scheduler.run(until=2_000 * MS)
    assert [status for _, status in a.host.statuses] == [Status.SUCCESS] * 6
    # The atomics go one by one, so the room may suffice; by hand it does not.
    peer = Peer(parameters=Parameters(max_stored=1))
    two_errors(peer)
    (wanted,) = [packet for packet in peer.answers() if packet.kind == PdsType.CP]
    assert (wanted.following, wanted.payload, wanted.dpdcid) == (CtlType.CLEAR_REQ, START, SOURCE)
    net, a, b = pair()
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=MS)
    (pdc,) = a.nic.fep.pdcs.values()
    back = PeerPath(b.nic.mac, a.nic.mac, b.nic.ip, a.nic.ip)
    request = control(CtlType.CLEAR_REQ, 0, 0, pdc.peer, pdc.number, pdc.source.clear)
    a.nic.deliver(back.frame(0xB8, 0xC000, request))
    net.scheduler.run(until=2 * MS)
    last = a.nic.packets()[-1]
    assert (last.kind, last.following, last.payload) == (PdsType.CP, CtlType.CLEAR_CMD, pdc.source.clear)


def test_a_probe_tells_the_base_round_trip_when_more_is_to_follow() -> None:
    nscc = NsccConfig(base_rtt_ns=10 * MS, bytes_per_second=20_000_000)
    net, a, b = pair(parameters=Parameters(nscc=nscc, probe=True))
    a.host.memory(LKEY, 1 << 19)
    b.host.memory(RKEY, 1 << 19)
    a.post(Opcode.WRITE, 1 << 19)
    net.scheduler.run(until=1_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    (probe,) = [packet for packet in a.nic.packets() if packet.kind == PdsType.CP]
    assert (probe.following, probe.psn, probe.flags & AR) == (CtlType.PROBE, 0, AR)
    assert probe.head.dscp == 46 and probe.word
    (answer,) = [packet for packet in b.nic.packets() if packet.is_ack and packet.flags & AckFlag.P]
    assert answer.word == probe.word
    # The SACK begins where the probe says.
    assert advance(answer.psn, answer.sack_offset) == probe.payload
    (pdc,) = a.nic.fep.pdcs.values()
    assert pdc.source.nscc.base_rtt <= 2 * LATENCY
    # A single packet is not worth a probe, nor is a second message.
    a.post(Opcode.WRITE, 1 << 19)
    net.scheduler.run(until=2_000 * MS)
    assert sum(packet.kind == PdsType.CP for packet in a.nic.packets()) == 1


def test_closing_by_either_end() -> None:
    net, a, b = pair()
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=MS)
    (target,) = b.nic.fep.pdcs.values()
    target.ask_close(net.scheduler.now())
    net.scheduler.run(until=2 * MS)
    assert not a.nic.fep.pdcs and not b.nic.fep.pdcs
    kinds = [packet.following for packet in b.nic.packets() if packet.kind == PdsType.CP]
    assert kinds == [CtlType.CLOSE_REQ]
    (close,) = [packet for packet in a.nic.packets() if packet.kind == PdsType.CP]
    assert (close.following, close.flags & AR) == (CtlType.CLOSE_CMD, AR)
    # The request was acknowledged as any packet, the command by the last word.
    final = b.nic.packets()[-1]
    assert final.is_ack and final.psn == close.psn and final.following == NextHeader.NONE


def test_a_target_may_ask_for_the_close_in_an_ack() -> None:
    net, a, b = pair()
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=MS)
    (pdc,) = a.nic.fep.pdcs.values()
    for target in b.nic.fep.pdcs.values():
        target.close_wanted = True
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=2 * MS)
    assert any(packet.flags & AckFlag.REQ_CLOSE for packet in b.nic.packets() if packet.is_ack)
    assert pdc.closed and not b.nic.fep.pdcs
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]


def test_an_epsn_on_the_closing_ack_is_tolerated() -> None:
    """Four bytes more, of a mode that this endpoint does not have."""

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = decode(frame)
        if sender.name == "b" and packet.is_ack and packet.following == NextHeader.NONE:
            word = prologue(PdsType.ACK, 0, 0x40)
            header = PDS_REQUEST.pack(word, 0, packet.psn, packet.spdcid, packet.dpdcid) + bytes(4)
            a, b = net.nics.values()
            frame = PeerPath(b.mac, a.mac, b.ip, a.ip).frame(0xB8, packet.ev, header)
        return perfect(sender, number, frame)

    net, a, b = pair(impairment=impair)
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=20_000 * MS)
    assert not a.nic.fep.pdcs and not b.nic.fep.pdcs


# Return codes


def settle(setup: Callable[[Any, Any], None], **changes: Any) -> tuple[Nic, Status]:
    """Run one element over a pair; the target's NIC and how it ended."""
    parameters = changes.pop("parameters", None)
    net, a, b = pair(parameters=parameters, **changes)
    setup(a, b)
    net.scheduler.run(until=3_000 * MS)
    return b.nic, a.host.completions[0].status


def said(nic: Nic) -> list[uet.Response]:
    """Responses in its ACKs."""
    layers = [Ether(frame) for frame in nic.sent]
    return [layer[uet.Response] for layer in layers if layer.haslayer(uet.Response)]


@dataclass(frozen=True)
class Answered:
    """How a target comes to answer with one code, and what the element becomes."""

    setup: Callable[[Any, Any], None]
    status: Status
    changes: dict[str, Any] | None = None


def rewrite(a: Any, **fields: int) -> None:
    """Change fields of the next request's header on its way out."""
    nic = a.nic
    send = nic.send

    def changed(frame: bytes, qpn: int | None) -> None:
        if decode(frame).is_request:
            layer = Ether(frame)
            for name, value in fields.items():
                setattr(layer[uet.StdRequest], name, value)
            frame = bytes(layer)[: len(frame)]
        send(frame, qpn)

    nic.send = changed


def altered(**fields: int) -> Callable[[Any, Any], None]:
    """A WRITE of 8 bytes with another header."""

    def setup(a: Any, b: Any) -> None:
        rewrite(a, **fields)
        a.post(Opcode.WRITE, 8)

    return setup


def atomic(**fields: int) -> Callable[[Any, Any], None]:
    """An atomic with another extension."""

    def setup(a: Any, b: Any) -> None:
        nic, send = a.nic, a.nic.send

        def changed(frame: bytes, qpn: int | None) -> None:
            layer = Ether(frame)
            if layer.haslayer(uet.Atomic):
                for name, value in fields.items():
                    setattr(layer[uet.Atomic], name, value)
                frame = bytes(layer)
            send(frame, qpn)

        nic.send = changed
        a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)

    return setup


def sending(length: int, room: int | None, **fields: Any) -> Callable[[Any, Any], None]:
    """A SEND for a receive element of ``room`` bytes, if any."""

    def setup(a: Any, b: Any) -> None:
        if room is not None:
            b.post_receive(0, room, lkey=fields.pop("lkey", LKEY))
        a.post(Opcode.SEND, length, **fields)

    return setup


def not_ready(a: Any, b: Any) -> None:
    b.modify(QpState.ERR)
    a.post(Opcode.WRITE, 8)


def short_atomic(a: Any, b: Any) -> None:
    rewrite(a, request_length=4)
    a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)


def cancelled(a: Any, b: Any) -> None:
    """b asks for a deferred message that a has forgotten: the code goes to b."""
    a.post(Opcode.SEND, 8, tag=1, mode=SendMode.DEFERRABLE)
    a.nic.scheduler.run(until=MS)
    a.modify(QpState.ERR)
    a.modify(QpState.RESET)
    for state in (QpState.INIT, QpState.RTR):
        a.modify(state)
    b.host.receives.append(ReceiveRequest(0, [Sge(BASE, 8, LKEY)], tag=1))
    b.engine.receive_posted(a.nic.scheduler.now())


def used_number(a: Any, b: Any) -> None:
    """Two messages with one number."""
    b.post_receive(0, 8)
    b.post_receive(1, 8)
    rewrite(a, memory_key=1)
    a.post(Opcode.SEND, 8)
    a.post(Opcode.SEND, 8)


RETURNED: dict[ReturnCode, Answered] = {
    ReturnCode.BAD_GENERATION: Answered(altered(ri_generation=3), Status.REM_INV_REQ_ERR),
    ReturnCode.DISABLED: Answered(not_ready, Status.REM_OP_ERR),
    ReturnCode.NO_MATCH: Answered(sending(8, None), Status.RNR_RETRY_EXC_ERR, {"rnr_retry": 0}),
    ReturnCode.UNSUPPORTED_OP: Answered(altered(opcode=RequestOpcode.TSEND_ATOMIC), Status.REM_INV_REQ_ERR),
    ReturnCode.UNSUPPORTED_SIZE: Answered(altered(request_length=9), Status.REM_INV_REQ_ERR),
    ReturnCode.AMO_UNSUPPORTED_OP: Answered(atomic(amo_opcode=AtomicOp.MIN), Status.REM_INV_REQ_ERR),
    ReturnCode.AMO_UNSUPPORTED_DT: Answered(atomic(amo_datatype=AtomicType.FLOAT), Status.REM_INV_REQ_ERR),
    ReturnCode.AMO_UNSUPPORTED_SIZE: Answered(short_atomic, Status.REM_INV_REQ_ERR),
    ReturnCode.AMO_UNALIGNED: Answered(
        lambda a, b: a.post(Opcode.ATOMIC_ADD, 8, swap_add=1, remote_address=BASE + 4), Status.REM_INV_REQ_ERR
    ),
    ReturnCode.PERM_VIOLATION: Answered(
        lambda a, b: a.post(Opcode.WRITE, 8),
        Status.REM_ACCESS_ERR,
        {"access": ALL_ACCESS & ~Access.REMOTE_WRITE},
    ),
    ReturnCode.OP_VIOLATION: Answered(altered(initiator=5), Status.REM_INV_REQ_ERR),
    ReturnCode.BAD_INDEX: Answered(altered(resource_index=1), Status.REM_INV_REQ_ERR),
    ReturnCode.BAD_PID: Answered(altered(pid_on_fep=1), Status.REM_INV_REQ_ERR),
    ReturnCode.BAD_JOB_ID: Answered(altered(job_id=2), Status.REM_INV_REQ_ERR),
    ReturnCode.BAD_MKEY: Answered(lambda a, b: a.post(Opcode.WRITE, 8, rkey=99), Status.REM_ACCESS_ERR),
    ReturnCode.BAD_ADDR: Answered(
        lambda a, b: a.post(Opcode.WRITE, 8, remote_address=1), Status.REM_ACCESS_ERR
    ),
    ReturnCode.UNCOR: Answered(sending(8, 8, lkey=99), Status.REM_OP_ERR),
    ReturnCode.TOO_LONG: Answered(sending(9, 8), Status.REM_INV_REQ_ERR),
    ReturnCode.INITIATOR_ERROR: Answered(altered(ie=1), Status.REM_OP_ERR),
    ReturnCode.DROPPED: Answered(used_number, Status.SUCCESS),
}
AT_INITIATOR_ONLY = {
    ReturnCode.NULL: "of responses that delivery makes, which carry no code",
    ReturnCode.OK: "success",
    ReturnCode.CANCELLED: "of a deferred message that was given up: below",
    ReturnCode.DISABLED_GEN: "generations are not used",
    ReturnCode.AT_INVALID: "there is no address translation service",
    ReturnCode.AT_PERM: "as before",
    ReturnCode.AT_ATS_ERROR: "as before",
    ReturnCode.AT_NO_TRANS: "as before",
    ReturnCode.AT_OUT_OF_RANGE: "as before",
    ReturnCode.HOST_POISONED: "guest memory is never poisoned",
    ReturnCode.HOST_UNSUCCESS_CMPL: "as before",
    ReturnCode.AMO_FP_NAN: "there are no floating point atomics",
    ReturnCode.AMO_FP_UNDERFLOW: "as before",
    ReturnCode.AMO_FP_OVERFLOW: "as before",
    ReturnCode.AMO_FP_INEXACT: "as before",
    ReturnCode.UNDELIVERABLE: "whoever finds a target can deliver",
    ReturnCode.UNCOR_TRNSNT: "memory errors are final",
}


def test_every_return_code_is_provoked_or_has_a_reason() -> None:
    assert not set(RETURNED) & set(AT_INITIATOR_ONLY)
    assert set(RETURNED) | set(AT_INITIATOR_ONLY) == set(ReturnCode)


@pytest.mark.parametrize("code", RETURNED, ids=lambda code: code.name)
def test_what_provokes_a_return_code_and_its_bytes(code: ReturnCode) -> None:
    row = RETURNED[code]
    nic, status = settle(row.setup, **(row.changes or {}))
    assert status is row.status
    found = [layer for layer in said(nic) if layer.return_code == code]
    assert found, [layer.return_code for layer in said(nic)]
    layer = found[0]
    assert (layer.opcode, layer.list, layer.ver) == (ResponseOpcode.RESPONSE, 0, 0)
    assert layer.message_id in (1, 2)


def test_a_deferred_message_that_was_given_up_is_cancelled() -> None:
    net, a, b = pair()
    cancelled(a, b)
    net.scheduler.run(until=100 * MS)
    assert [layer.return_code for layer in said(a.nic)] == [ReturnCode.CANCELLED]


STATUSES = {
    Status.REM_ACCESS_ERR: range(0x08, 0x0D),
    Status.REM_INV_REQ_ERR: range(0x0F, 0x13),
    Status.REM_OP_ERR: (0x03, 0x04, 0x0D, 0x0E, 0x13, 0x14, 0x15, 0x16, 0x1E, 0x1F, 0x20, 0x21, 0x23, 0x24),
}


@pytest.mark.parametrize(
    ("status", "code"), [(status, code) for status, row in STATUSES.items() for code in row]
)
def test_what_a_code_is_for_the_initiator(status: Status, code: int) -> None:
    """A hand-made target answers with it."""
    assert failure_of(code).status is status

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = decode(frame)
        if sender.name == "b" and packet.is_ack and packet.following == NextHeader.RESPONSE:
            answer = response(ResponseOpcode.RESPONSE, code, 1, 1)
            frame = frame[: packet.ses] + answer
        return perfect(sender, number, frame)

    net, a, _ = pair(impairment=impair)
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=100 * MS)
    (completion,) = a.host.completions
    assert (completion.status, completion.cause) == (status, Cause.REMOTE_NAK)
    assert a.host.moves[0][0] is QpState.ERR
    assert ReturnCode(code).name in a.host.moves[0][1]


@pytest.mark.parametrize("code", [0x25, 0x2F, 0x31, 0x37, 0x38, 0x3E, 0x3F])
def test_codes_without_a_name_fail_the_element(code: int) -> None:
    failure = failure_of(code)
    assert failure.status is Status.REM_OP_ERR and f"{code:#04x}" in failure.reason


# Addressing


def test_an_absolute_request_is_found_without_its_job() -> None:
    nic, status = settle(altered(rel=0, job_id=7))
    assert status is Status.SUCCESS and not any(layer.return_code > 1 for layer in said(nic))
    net, a, _ = pair(parameters=replace(Parameters(), relative=False))
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert not Ether(a.nic.sent[0])[uet.StdRequest].rel


def test_a_stale_generation_is_told_the_current_one() -> None:
    nic, _ = settle(altered(ri_generation=3))
    (layer,) = [layer for layer in said(nic) if layer.return_code == ReturnCode.BAD_GENERATION]
    assert layer.ri_generation == 0
