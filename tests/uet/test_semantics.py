# SPDX-License-Identifier: Apache-2.0
"""Operations end to end: what each return code comes from and becomes, order, receive elements, ends."""

from __future__ import annotations

from typing import Any

import pytest

from emu.clock import MS
from emu.nic.engine import AsyncEvent
from emu.nic.work import (
    Access,
    Cause,
    CompletionOpcode,
    Opcode,
    QpState,
    Sge,
    Status,
    Transport,
)
from emu.uet import Parameters
from emu.uet.headers import parse_request, parse_response
from emu.wire.uet_names import RequestOpcode, ReturnCode
from tests.roce.bench import ALL_ACCESS, BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Net, Nic, Qp, connect, decode, losing, pair

BOTH = pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])


def settle(net: Net, milliseconds: int = 2_000) -> None:
    """Let everything happen."""
    net.scheduler.run(until=net.scheduler.now() + milliseconds * MS)


def codes(nic: Nic) -> set[ReturnCode]:
    """Return codes other than success in what ``nic`` sent."""
    found = set()
    for packet in nic.packets():
        header = (
            parse_response(packet.frame, packet.ses, packet.end, packet.following) if packet.is_ack else None
        )
        if header is not None and not header.good:
            found.add(ReturnCode(header.code))
    return found


@BOTH
def test_reads_and_atomics_bring_back_what_is_there(transport: Transport) -> None:
    net, a, b = pair(transport)
    memory = b.host.regions[RKEY].data
    memory[:5000] = bytes(range(250)) * 20
    for length in (1, 16, 17, 1024, 5000):
        a.post(Opcode.READ, length)
        settle(net)
        assert a.host.regions[LKEY].data[:length] == memory[:length]
    memory[:8] = (40).to_bytes(8, "little")
    a.post(Opcode.ATOMIC_ADD, 8, swap_add=2)
    a.post(Opcode.ATOMIC_CAS, 8, compare=42, swap_add=7)
    a.post(Opcode.ATOMIC_CAS, 8, compare=42, swap_add=9)
    settle(net)
    assert int.from_bytes(memory[:8], "little") == 7
    assert int.from_bytes(a.host.regions[LKEY].data[:8], "little") == 7
    assert [status for _, status in a.host.statuses] == [Status.SUCCESS] * 8


REFUSED: list[tuple[Opcode, int, dict[str, Any], dict[str, Any], ReturnCode, Status]] = [
    (Opcode.WRITE, 16, {"rkey": 99}, {}, ReturnCode.BAD_MKEY, Status.REM_ACCESS_ERR),
    (Opcode.WRITE, 16, {"remote_address": 1}, {}, ReturnCode.BAD_ADDR, Status.REM_ACCESS_ERR),
    (Opcode.WRITE, 5000, {"rkey": 99}, {}, ReturnCode.BAD_MKEY, Status.REM_ACCESS_ERR),
    (Opcode.READ, 16, {"rkey": 99}, {}, ReturnCode.BAD_MKEY, Status.REM_ACCESS_ERR),
    (Opcode.READ, 5000, {"remote_address": 1}, {}, ReturnCode.BAD_ADDR, Status.REM_ACCESS_ERR),
    (Opcode.ATOMIC_ADD, 8, {"rkey": 99}, {}, ReturnCode.BAD_MKEY, Status.REM_ACCESS_ERR),
    (
        Opcode.ATOMIC_ADD,
        8,
        {"remote_address": BASE + 4},
        {},
        ReturnCode.AMO_UNALIGNED,
        Status.REM_INV_REQ_ERR,
    ),
    *(
        (opcode, 8, {}, {"access": ALL_ACCESS & ~right}, ReturnCode.PERM_VIOLATION, Status.REM_ACCESS_ERR)
        for opcode, right in (
            (Opcode.WRITE, Access.REMOTE_WRITE),
            (Opcode.READ, Access.REMOTE_READ),
            (Opcode.ATOMIC_CAS, Access.REMOTE_ATOMIC),
        )
    ),
]


@BOTH
@pytest.mark.parametrize(("opcode", "length", "fields", "changes", "code", "status"), REFUSED)
def test_a_refusal_names_its_rule(
    transport: Transport,
    opcode: Opcode,
    length: int,
    fields: dict[str, Any],
    changes: dict[str, Any],
    code: ReturnCode,
    status: Status,
) -> None:
    net, a, b = pair(transport, **changes)
    before = bytes(b.host.regions[RKEY].data)
    a.post(opcode, length, **fields)
    a.post(Opcode.WRITE, 0)
    settle(net)
    assert codes(b.nic) == {code}
    assert a.host.statuses == [(0, status), (1, Status.WR_FLUSH_ERR)]
    assert a.host.completions[0].cause == Cause.REMOTE_NAK
    assert a.host.moves[0][0] is QpState.ERR
    assert b.host.regions[RKEY].data == before
    assert b.host.moves == [], "the target goes on"


def test_the_job_and_the_queue_pair_must_exist() -> None:
    net = Net()
    a, b = net.nic("a", Parameters(job_id=2)), net.nic("b")
    left, _ = connect(a, b)
    left.post(Opcode.WRITE, 1)
    settle(net)
    assert codes(b) == {ReturnCode.BAD_JOB_ID}
    net, left, right = pair()
    right.nic.fep.forget_engine(right.host.qpn)
    left.post(Opcode.WRITE, 1)
    settle(net)
    assert codes(right.nic) == {ReturnCode.BAD_PID}
    net, left, right = pair()
    connect(left.nic, right.nic)
    right.nic.fep.forget_engine(right.host.qpn)
    left.post(Opcode.WRITE, 1)
    settle(net)
    assert codes(right.nic) == {ReturnCode.BAD_INDEX}


def test_another_queue_pair_of_the_peer_may_not_speak_for_it() -> None:
    net, a, b = pair()
    b.modify(QpState.RTS, dest_qpn=5)
    a.post(Opcode.WRITE, 1)
    settle(net)
    assert codes(b.nic) == {ReturnCode.OP_VIOLATION}


def test_a_queue_pair_that_is_not_ready() -> None:
    net, a, b = pair()
    b.modify(QpState.ERR)
    a.post(Opcode.WRITE, 1)
    settle(net)
    assert codes(b.nic) == {ReturnCode.DISABLED}
    assert a.host.statuses == [(0, Status.REM_OP_ERR)]


@BOTH
def test_messages_meet_receive_elements_in_the_order_they_were_sent(transport: Transport) -> None:
    """Whatever the paths do: odd frames take a hundred times as long."""

    def uneven(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        slow = transport is Transport.UET_RUD and number % 2
        return [(LATENCY * (100 if slow else 1), frame)]

    net, a, b = pair(transport, uneven)
    for index in range(6):
        b.post_receive(index, 3000, BASE + 0x1000 * index, RKEY)
    lengths = (2500, 1, 0, 3000, 8, 2049)
    for index, length in enumerate(lengths):
        a.post(Opcode.SEND_IMM if index % 2 else Opcode.SEND, length, immediate=index, solicited=index == 3)
    settle(net)
    assert [(done.index, done.length) for done in b.host.completions] == list(enumerate(lengths))
    assert [done.immediate for done in b.host.completions] == [None, 1, None, 3, None, 5]
    assert [done.solicited for done in b.host.completions] == [False] * 3 + [True] + [False] * 2
    assert {done.opcode for done in b.host.completions} == {CompletionOpcode.RECV}


def test_a_message_never_overtakes_the_writes_before_it() -> None:
    """The write's packets are slow, the announcement is quick."""

    def uneven(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = decode(frame)
        request = (
            parse_request(frame, packet.ses, packet.end, packet.following) if packet.is_request else None
        )
        slow = request is not None and request.request_length == 4000
        return [(MS if slow else LATENCY, frame)]

    for opcode, fence in (
        (Opcode.WRITE_IMM, False),
        (Opcode.SEND, False),
        (Opcode.ATOMIC_ADD, False),
        (Opcode.WRITE, True),
    ):
        net, a, b = pair(Transport.UET_RUD, uneven)
        b.post_receive(0, 8, BASE + 0x8000, RKEY)
        a.host.regions[LKEY].data[:4000] = b"\xaa" * 4000
        a.post(Opcode.WRITE, 4000)
        a.post(opcode, 8, remote_address=BASE + 0x8000, fence=fence)
        net.scheduler.run(until=MS // 2)
        assert not b.host.completions and not b.host.atomics
        assert not any(b.host.regions[RKEY].data[0x8000:0x8008])
        settle(net)
        assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
        assert b.host.regions[RKEY].data[:4000] == b"\xaa" * 4000


def test_a_send_invalidates_a_key_as_its_owner_allowed() -> None:
    net, a, b = pair()
    b.host.memory(0x33)
    b.post_receive(0, 8)
    a.post(Opcode.SEND_INV, 8, rkey=0x33)
    settle(net)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert [done.invalidated for done in b.host.completions] == [0x33]
    assert 0x33 not in b.host.regions
    b.post_receive(1, 8)
    a.post(Opcode.SEND_INV, 8, rkey=0x33)
    settle(net)
    assert codes(b.nic) == {ReturnCode.PERM_VIOLATION}
    assert a.host.statuses[-1] == (1, Status.REM_ACCESS_ERR)
    assert b.host.statuses[-1] == (1, Status.LOC_PROT_ERR)


@BOTH
def test_without_a_receive_element_the_message_is_tried_again(transport: Transport) -> None:
    net, a, b = pair(transport)
    a.post(Opcode.SEND, 2000)
    settle(net, 5)
    assert codes(b.nic) == {ReturnCode.NO_MATCH}
    assert not a.host.completions
    b.post_receive(0, 2000)
    settle(net)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert [done.length for done in b.host.completions] == [2000]
    assert a.host.counts["rnr_nak_retry_err"] == b.host.counts["send_rnr_err"] >= 1


def test_tries_without_a_receive_element_end() -> None:
    net, a, _ = pair(rnr_retry=2)
    a.post(Opcode.SEND, 8)
    settle(net)
    assert a.host.statuses == [(0, Status.RNR_RETRY_EXC_ERR)]
    assert a.host.counts["rnr_nak_retry_err"] == 3


def test_a_send_longer_than_its_element_ends_both() -> None:
    net, a, b = pair()
    b.post_receive(0, 10)
    a.post(Opcode.SEND, 11)
    settle(net)
    assert codes(b.nic) == {ReturnCode.TOO_LONG}
    assert a.host.statuses == [(0, Status.REM_INV_REQ_ERR)]
    assert b.host.statuses == [(0, Status.LOC_LEN_ERR)]
    assert b.host.moves[0][0] is QpState.ERR


def test_an_element_with_a_bad_key_ends_both() -> None:
    net, a, b = pair()
    b.post_receive(0, 10, lkey=99)
    a.post(Opcode.SEND, 5)
    settle(net)
    assert a.host.statuses == [(0, Status.REM_OP_ERR)]
    assert b.host.statuses == [(0, Status.LOC_PROT_ERR)]


def test_local_faults_complete_in_order() -> None:
    for fields, status in (
        ({"opcode": Opcode.WRITE, "length": 8, "sges": [Sge(BASE, 8, 99)]}, Status.LOC_PROT_ERR),
        ({"opcode": Opcode.READ, "length": 8, "sges": [Sge(BASE, 8, 99)]}, Status.LOC_PROT_ERR),
        ({"opcode": Opcode.ATOMIC_ADD, "length": 4}, Status.LOC_QP_OP_ERR),
        ({"opcode": 77, "length": 4}, Status.LOC_QP_OP_ERR),
        ({"opcode": Opcode.WRITE, "length": (1 << 31) + 1}, Status.LOC_LEN_ERR),
    ):
        net, a, _ = pair()
        a.post(Opcode.WRITE, 3000)
        a.post(**fields)
        settle(net)
        assert a.host.statuses == [(0, Status.SUCCESS), (1, status)]


def test_a_queue_pair_in_error_tells_the_target_of_its_half_sent_message() -> None:
    net, a, b = pair(Transport.UET_RUD, path_mtu=256)
    a.host.memory(LKEY, 1 << 21)
    b.host.memory(RKEY, 1 << 21)
    a.post(Opcode.WRITE, 1 << 20)
    net.scheduler.run(until=LATENCY // 2)
    a.modify(QpState.ERR)
    assert a.host.statuses == [(0, Status.WR_FLUSH_ERR)]
    settle(net)
    last = [decode(frame) for frame in a.nic.sent if decode(frame).is_request][-1]
    header = parse_request(last.frame, last.ses, last.end, last.following)
    assert header is not None and header.opcode == RequestOpcode.MSG_ERROR
    (pdc,) = b.nic.fep.pdcs.values()
    assert not pdc.inbound
    a.modify(QpState.RESET)
    settle(net, 20_000)
    assert not a.nic.fep.pdcs and not b.nic.fep.pdcs


def test_draining_and_flushing() -> None:
    net, a, b = pair()
    for index in range(3):
        b.post_receive(index, 8)
    a.post(Opcode.WRITE, 3000)
    a.modify(QpState.SQD)
    a.post(Opcode.WRITE, 1)
    settle(net)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert a.host.events == [AsyncEvent.SQ_DRAINED]
    a.modify(QpState.RTS)
    settle(net)
    assert len(a.host.completions) == 2
    b.modify(QpState.ERR)
    assert b.host.statuses == [(index, Status.WR_FLUSH_ERR) for index in range(3)]


def test_queue_pairs_share_a_context_and_a_destroyed_one_leaves_it_alone() -> None:
    net = Net(losing(("a", 0)))
    a, b = net.nic("a"), net.nic("b")
    pairs = [connect(a, b) for _ in range(3)]
    for left, _ in pairs:
        left.post(Opcode.WRITE, 3000)
    assert len(a.fep.pdcs) == 1
    gone: Qp = pairs[1][0]
    a.fep.forget_engine(gone.host.qpn)
    settle(net)
    for left, right in (pairs[0], pairs[2]):
        assert left.host.statuses == [(0, Status.SUCCESS)]
        assert right.host.regions[RKEY].data[:3000] == left.host.regions[LKEY].data[:3000]
    settle(net, 20_000)
    assert not a.fep.pdcs and not b.fep.pdcs
