# SPDX-License-Identifier: Apache-2.0
"""Unreliable connections: messages in order, whole or not at all, and never an answer."""

from __future__ import annotations

from typing import Any

import pytest

from emu.nic.engine import AsyncEvent
from emu.nic.work import Access, Cause, CompletionOpcode, Opcode, QpState, Sge, Status, Transport
from emu.wire.headers import pack_reth
from emu.wire.opcodes import RcOpcode as Op
from emu.wire.opcodes import TransportClass
from tests.roce.bench import BASE, LKEY, RKEY, Impairment, Pair, losing, pattern, perfect

MTU = 1024
UC = int(TransportClass.UC)


def uc_pair(impair: Impairment = perfect, **changes: Any) -> Pair:
    return Pair(impair, transport=Transport.ROCE_UC, **changes)


def test_a_send_arrives_and_nothing_comes_back() -> None:
    pair = uc_pair()
    pair.local(pair.a)[:2500] = pattern(2500)
    pair.b.post_receive(7, 4096)
    pair.a.post(Opcode.SEND_IMM, 2500, immediate=0x01020304, solicited=True)
    pair.run()
    assert pair.a.trace() == [("SEND FIRST", 100), ("SEND MIDDLE", 101), ("SEND LAST IMM", 102)]
    assert not any(packet.ack_request for packet in pair.a.packets())
    assert pair.b.host.sent == []
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    (received,) = pair.b.host.completions
    assert (received.index, received.length, received.immediate) == (7, 2500, 0x01020304)
    assert received.solicited
    assert pair.local(pair.b)[:2500] == pattern(2500)
    assert pair.a.engine.next_psn == pair.b.engine.expected_psn == 103


def test_writes_land_and_the_one_with_immediate_is_received() -> None:
    pair = uc_pair()
    pair.local(pair.a)[:3000] = pattern(3000)
    pair.b.post_receive(0, 0)
    pair.a.post(Opcode.WRITE, 3000)
    pair.a.post(Opcode.WRITE_IMM, 100, remote_address=BASE + 4096, immediate=9)
    pair.run()
    assert pair.remote(pair.b)[:3000] == pattern(3000)
    assert pair.remote(pair.b)[4096:4196] == pattern(100)
    (received,) = pair.b.host.completions
    assert received.opcode is CompletionOpcode.RECV_WRITE_IMM
    assert (received.length, received.immediate) == (100, 9)


def test_an_element_completes_when_its_last_packet_has_left() -> None:
    pair = uc_pair(losing(*(("a", number) for number in range(10))))
    pair.a.post(Opcode.SEND, 5000)
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    assert pair.a.host.retired == 1
    assert pair.a.engine.deadline() is None


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_message_that_lost_a_packet_leaves_its_receive_element_to_the_next(lost: int) -> None:
    pair = uc_pair(losing(("a", lost)))
    pair.local(pair.a)[:3000] = pattern(3000)
    pair.b.post_receive(0, 4096)
    pair.b.post_receive(1, 4096)
    pair.a.post(Opcode.SEND, 3000)
    pair.a.post(Opcode.SEND, 200)
    pair.run()
    (received,) = pair.b.host.completions
    assert (received.index, received.status, received.length) == (0, Status.SUCCESS, 200)
    assert pair.local(pair.b)[:200] == pattern(200)
    assert pair.a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert pair.b.host.sent == []
    assert pair.b.engine.expected_psn == 104


def test_a_whole_lost_message_is_only_a_gap() -> None:
    pair = uc_pair(losing(("a", 0)))
    pair.b.post_receive(0, 16)
    pair.a.post(Opcode.SEND, 4)
    pair.a.post(Opcode.SEND, 5)
    pair.run()
    assert [completion.length for completion in pair.b.host.completions] == [5]
    assert pair.b.host.counts["out_of_sequence"] == 1


@pytest.mark.parametrize(
    ("changes", "post"),
    [
        ({}, {"rkey": RKEY + 1}),
        ({}, {"remote_address": BASE + (1 << 16) - 1}),
        ({"access": Access.LOCAL_WRITE}, {}),
    ],
    ids=["key", "bounds", "right"],
)
def test_a_write_that_is_not_allowed_is_silent(changes: dict[str, Any], post: dict[str, Any]) -> None:
    pair = uc_pair(**changes)
    before = bytes(pair.remote(pair.b))
    pair.a.post(Opcode.WRITE, 3000, **post)
    pair.run()
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    assert pair.b.host.sent == [] and pair.b.host.events == [] and pair.b.host.moves == []
    assert bytes(pair.remote(pair.b)) == before
    assert len(pair.b.host.drops) == 3


def test_a_message_without_receive_element_is_dropped_and_counted() -> None:
    pair = uc_pair()
    pair.a.post(Opcode.SEND, 2000)
    pair.run()
    assert [counter for counter, _ in pair.b.host.drops] == ["out_of_buffer", "rx_drop_refused"]
    pair.b.post_receive(0, 4096)
    pair.a.post(Opcode.SEND, 10)
    pair.run()
    assert [completion.length for completion in pair.b.host.completions] == [10]


def test_a_message_longer_than_its_receive_element_leaves_it_to_the_next() -> None:
    pair = uc_pair()
    pair.b.post_receive(3, 1500)
    pair.a.post(Opcode.SEND, 2000)
    pair.a.post(Opcode.SEND, 1500)
    pair.run()
    (received,) = pair.b.host.completions
    assert (received.index, received.length) == (3, 1500)


@pytest.mark.parametrize(
    ("opcode", "extension", "size", "outcome"),
    [
        (UC | Op.SEND_ONLY, b"", 8, [8]),
        (UC | Op.WRITE_MIDDLE, b"", MTU, []),
        (UC | Op.WRITE_ONLY, pack_reth(BASE, RKEY, 8), 8, []),
        (UC | Op.SEND_MIDDLE, b"", MTU - 4, []),
    ],
)
def test_another_message_inside_a_send_ends_it(
    opcode: int, extension: bytes, size: int, outcome: list[int]
) -> None:
    pair = uc_pair()
    pair.b.post_receive(0, 4096)
    pair.b.deliver(pair.a.frame(UC | Op.SEND_FIRST, 100, b"", bytes(MTU)))
    pair.b.deliver(pair.a.frame(opcode, 101, extension, bytes(size)))
    assert [completion.length for completion in pair.b.host.completions] == outcome
    pair.b.post_receive(1, 4096)
    pair.b.deliver(pair.a.frame(UC | Op.SEND_ONLY, 102, b"", b"x"))
    assert pair.b.host.completions[-1].index == len(outcome)


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS, Opcode.SEND_INV])
def test_operations_that_need_an_answer_stop_the_send_queue(opcode: Opcode) -> None:
    pair = uc_pair()
    pair.a.post(opcode, 8)
    pair.a.post(Opcode.SEND, 8)
    assert pair.a.host.statuses == [(0, Status.LOC_QP_OP_ERR), (1, Status.WR_FLUSH_ERR)]
    assert pair.a.host.completions[0].cause == Cause.BAD_OPCODE
    assert [state for state, _ in pair.a.host.moves] == [QpState.SQE]


def test_a_stopped_send_queue_still_receives_and_can_go_on() -> None:
    pair = uc_pair()
    pair.a.post(Opcode.SEND, 2000, sges=[Sge(BASE, 2000, LKEY + 7)])
    assert pair.a.host.statuses == [(0, Status.LOC_PROT_ERR)]
    pair.a.modify(QpState.SQE)
    pair.a.post_receive(0, 64)
    pair.b.post(Opcode.SEND, 20)
    pair.run()
    assert pair.a.host.completions[-1].length == 20
    pair.a.modify(QpState.RTS)
    pair.b.post_receive(0, 64)
    pair.a.post(Opcode.SEND, 30)
    pair.run()
    assert pair.b.host.completions[-1].length == 30


def test_a_receive_element_that_cannot_be_written_ends_the_queue_pair() -> None:
    pair = uc_pair()
    pair.b.post_receive(0, 64, lkey=LKEY + 7)
    pair.b.post_receive(1, 64)
    pair.a.post(Opcode.SEND, 8)
    pair.run()
    assert pair.b.host.statuses == [(0, Status.LOC_PROT_ERR), (1, Status.WR_FLUSH_ERR)]
    assert [state for state, _ in pair.b.host.moves] == [QpState.ERR]


def test_a_receive_ring_that_cannot_be_read_ends_the_queue_pair_with_an_event() -> None:
    pair = uc_pair()
    pair.b.host.broken_ring = True
    pair.a.post(Opcode.SEND, 8)
    pair.run()
    assert pair.b.host.events == [AsyncEvent.QP_FATAL]
    assert [state for state, _ in pair.b.host.moves] == [QpState.ERR]


def test_sqd_lets_a_begun_message_leave_and_holds_the_rest() -> None:
    pair = uc_pair()
    pair.a.modify(QpState.SQD)
    assert pair.a.host.events == [AsyncEvent.SQ_DRAINED]
    pair.a.post(Opcode.SEND, 8)
    assert pair.a.host.sent == []
    pair.a.modify(QpState.RTS)
    assert pair.a.trace() == [("SEND ONLY", 100)]


def test_modify_to_error_flushes_both_queues_and_reset_forgets() -> None:
    pair = uc_pair()
    pair.b.post_receive(0, 4096)
    pair.b.deliver(pair.a.frame(UC | Op.SEND_FIRST, 100, b"", bytes(MTU)))
    pair.b.modify(QpState.ERR)
    pair.b.post(Opcode.SEND, 8)
    pair.b.post_receive(1, 8)
    assert [status for _, status in pair.b.host.statuses] == [Status.WR_FLUSH_ERR] * 3
    pair.b.modify(QpState.RESET)
    assert (pair.b.engine.next_psn, pair.b.engine.expected_psn) == (0, 0)
    assert pair.b.engine.idle()


@pytest.mark.parametrize(
    ("opcode", "lies"),
    [
        (int(Op.SEND_ONLY), {}),
        (UC | Op.SEND_ONLY, {"pkey": 0x1234}),
        (UC | Op.SEND_ONLY, {"source_gid": bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])}),
    ],
    ids=["class", "partition", "address"],
)
def test_packets_of_others_are_dropped(opcode: int, lies: dict[str, Any]) -> None:
    pair = uc_pair()
    pair.b.post_receive(0, 64)
    pair.b.deliver(pair.a.frame(opcode, 100, b"", b"x", **lies))
    assert pair.b.host.completions == []
    assert len(pair.b.host.drops) == 1
    assert pair.b.engine.expected_psn == 100


@pytest.mark.parametrize(
    ("second", "psn", "status", "cause"),
    [
        # The message's last packet is missing, then another message begins, or goes on.
        (int(Op.SEND_ONLY), 102, Status.LOC_QP_OP_ERR, Cause.SEQUENCE_RETRIES),
        (int(Op.SEND_MIDDLE), 102, Status.LOC_QP_OP_ERR, Cause.SEQUENCE_RETRIES),
        # No packet is missing, but the message is not finished.
        (int(Op.SEND_ONLY), 101, Status.LOC_QP_OP_ERR, Cause.NONE),
        (int(Op.WRITE_MIDDLE), 101, Status.REM_INV_REQ_ERR, Cause.NONE),
        # The message is longer than the element.
        (int(Op.SEND_MIDDLE), 101, Status.LOC_LEN_ERR, Cause.BAD_LENGTH),
    ],
)
def test_an_element_of_a_shared_queue_ends_with_its_message(
    second: int, psn: int, status: Status, cause: Cause
) -> None:
    pair = uc_pair()
    pair.b.post_receive(0, MTU, shared=True)
    pair.b.post_receive(1, MTU, shared=True)
    pair.b.deliver(pair.a.frame(UC | Op.SEND_FIRST, 100, b"", bytes(MTU)))
    payload = b"tiny" if second == Op.SEND_ONLY else bytes(MTU)
    pair.b.deliver(pair.a.frame(UC | second, psn, b"", payload))
    first, *others = pair.b.host.completions
    assert (first.index, first.status, first.cause) == (0, status, cause)
    # A whole message after it is received as ever: the queue pair goes on.
    taken = [(1, Status.SUCCESS)] if second == Op.SEND_ONLY else []
    assert [(other.index, other.status) for other in others] == taken
    assert pair.b.host.moves == []


def test_a_flush_says_so_of_shared_elements_too() -> None:
    pair = uc_pair()
    pair.b.post_receive(0, MTU, shared=True)
    pair.b.deliver(pair.a.frame(UC | Op.SEND_FIRST, 100, b"", bytes(MTU)))
    pair.b.modify(QpState.ERR)
    assert pair.b.host.statuses == [(0, Status.WR_FLUSH_ERR)]
