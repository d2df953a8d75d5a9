# SPDX-License-Identifier: Apache-2.0
"""RUDI: plain WRITEs and READs, packet by packet, whatever the link does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.clock import MS
from emu.nic.work import Access, Cause, Opcode, Sge, Status, Transport
from emu.uet.headers import nack, rudi, standard_request
from emu.uet.packet import UetPacket
from emu.uet.path import PeerPath
from emu.wire.uet_names import NackCode, NackFlag, NextHeader, PdsType, ReturnCode
from tests.roce.bench import ALL_ACCESS, BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Nic, Qp, decode, pair, perfect

TRIMMED = 16 << 2 | 2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.lists(
        st.tuples(st.sampled_from([Opcode.WRITE, Opcode.READ]), st.sampled_from([0, 1, 16, 1024, 5000])),
        max_size=8,
    ),
)
def test_every_schedule_ends_right(seed: int, loss: float, work: list[tuple[Opcode, int]]) -> None:
    draw = random.Random(seed)

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        copies = (0 if draw.random() < loss else 1) + (draw.random() < loss)
        return [(LATENCY + draw.randrange(50_000), frame) for _ in range(copies)]

    net, a, b = pair(Transport.UET_RUDI, impair)
    a.host.memory(LKEY, 1 << 17)
    outbox, inbox = a.host.regions[LKEY].data, b.host.regions[RKEY].data
    outbox[: 1 << 16] = draw.randbytes(1 << 16)
    # READs fetch from where no WRITE goes, since nothing is ordered.
    inbox[0xC000:] = draw.randbytes(0x4000)
    for index, (opcode, length) in enumerate(work):
        at = 0x1400 * index if opcode is Opcode.WRITE else 0x10000
        remote = at if opcode is Opcode.WRITE else 0xC000
        piece = [Sge(BASE + at, length, LKEY)] if length else []
        a.post(opcode, length, sges=piece, remote_address=BASE + remote)
    net.scheduler.run(until=60_000 * MS)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(work))]
    for index, (opcode, length) in enumerate(work):
        if opcode is Opcode.WRITE:
            at = 0x1400 * index
            assert inbox[at : at + length] == outbox[at : at + length]
        else:
            assert outbox[0x10000 : 0x10000 + length] == inbox[0xC000 : 0xC000 + length]
    assert not a.nic.fep.rudi.outstanding and not b.nic.fep.pdcs
    net.scheduler.run()


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.WRITE_IMM, Opcode.ATOMIC_ADD])
def test_only_idempotent_operations_are_offered(opcode: Opcode) -> None:
    _, a, _ = pair(Transport.UET_RUDI)
    a.post(opcode, 8)
    assert a.host.statuses == [(0, Status.LOC_QP_OP_ERR)]


def test_refusals_name_their_rule() -> None:
    for rkey, access in ((99, ALL_ACCESS), (RKEY, ALL_ACCESS & ~Access.REMOTE_WRITE)):
        net, a, _ = pair(Transport.UET_RUDI, access=access)
        a.post(Opcode.WRITE, 3000, rkey=rkey)
        net.scheduler.run(until=100 * MS)
        assert a.host.statuses == [(0, Status.REM_ACCESS_ERR)]


def test_silence_ends_it() -> None:
    net, a, _ = pair(Transport.UET_RUDI, lambda *_: [])
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=60_000 * MS)
    (completion,) = a.host.completions
    assert (completion.status, completion.cause) == (Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    assert not a.nic.fep.rudi.outstanding


def by_hand(opcode: int = 1, **fields: int) -> tuple[Qp, list[UetPacket]]:
    """A request as nobody sends it, at b; b and what it answered."""
    tos, key, short = fields.get("tos", 2), fields.get("key", RKEY), fields.get("short", 0)
    _, a, b = pair(Transport.UET_RUDI)
    body = standard_request(
        opcode,
        0x0B,
        message_id=1,
        job_id=1,
        pid=b.host.qpn >> 12,
        resource_index=b.host.qpn & 0xFFF,
        buffer_offset=BASE,
        initiator=a.host.qpn,
        key=key,
        request_length=8,
    ) + bytes(range(8))
    path = PeerPath(a.nic.mac, b.nic.mac, a.nic.ip, b.nic.ip)
    header = rudi(PdsType.RUDI_REQ, NextHeader.REQUEST_STD, 0, 77)
    b.nic.deliver(path.frame(tos, 0xC0DE, header, body[:20] if short else body))
    return b, b.nic.packets()


def test_what_cannot_be_repeated_is_refused() -> None:
    for fields in ({"opcode": 5}, {"opcode": 4}, {"key": 1 << 32 | RKEY}):
        b, (answer,) = by_hand(**fields)
        assert answer.kind == PdsType.RUDI_RESP and answer.psn == 77 and answer.ev == 0xC0DE
        assert answer.frame[answer.ses + 1] == ReturnCode.UNSUPPORTED_OP
        assert not any(b.host.regions[RKEY].data)


def test_trimmed_and_malformed_packets_are_refused() -> None:
    for fields, code in (({"tos": TRIMMED}, NackCode.TRIMMED), ({"short": 1}, NackCode.UNEXP_EVENT)):
        _, (answer,) = by_hand(**fields)
        assert answer.is_nack and answer.flags & NackFlag.NT
        assert (answer.word >> 8, answer.psn, answer.spdcid, answer.dpdcid) == (code, 77, 0, 0)


@pytest.mark.parametrize(
    ("code", "status", "resent"),
    [
        (NackCode.TRIMMED, Status.SUCCESS, 1),
        (NackCode.NO_RESOURCE, Status.SUCCESS, 1),
        (NackCode.UNEXP_EVENT, Status.REM_OP_ERR, 0),
    ],
)
def test_a_nack_has_its_consequence(code: NackCode, status: Status, resent: int) -> None:
    refused: list[bytes] = []

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if sender.name == "a" and not refused:
            refused.append(frame)
            return []
        return perfect(sender, number, frame)

    net, a, b = pair(Transport.UET_RUDI, impair)
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=net.scheduler.now() + MS)
    packet = decode(refused[0])
    path = PeerPath(b.nic.mac, a.nic.mac, b.nic.ip, a.nic.ip)
    a.nic.deliver(path.frame(0xB8, packet.ev, nack(code, NackFlag.NT, packet.psn, 0, 0)))
    a.nic.deliver(path.frame(0xB8, packet.ev, nack(code, NackFlag.NT, 999, 0, 0)))
    net.scheduler.run(until=1_000 * MS)
    assert a.host.statuses == [(0, status)]
    assert len(a.nic.retransmitted) == resent
    assert len(a.nic.drops) == 1, "a NACK about nothing changes nothing"


def test_a_reset_forgets() -> None:
    net, a, _ = pair(Transport.UET_RUDI, lambda *_: [])
    a.post(Opcode.WRITE, 8)
    net.scheduler.run(until=MS)
    assert a.nic.fep.rudi.outstanding
    a.nic.fep.reset()
    net.scheduler.run()
    assert not a.nic.fep.rudi.outstanding and not a.host.completions
