# SPDX-License-Identifier: Apache-2.0
"""Unreliable datagrams: address handles, Q_Keys, and the area for the network header."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emu.nic.engine import AsyncEvent
from emu.nic.work import AddressHandle, Cause, Opcode, QpState, Sge, Status, Transport
from emu.wire.headers import DETH, pack_deth
from emu.wire.opcodes import UdOpcode
from tests.roce.bench import BASE, LKEY, Pair, Side, pattern

QKEY = 0x11111111


def ud_pair(**changes: Any) -> Pair:
    changes.setdefault("qkey", QKEY)
    return Pair(transport=Transport.ROCE_UD, **changes)


def handle(side: Side, **changes: Any) -> AddressHandle:
    """From ``side`` to its peer."""
    own = side.attributes
    made = AddressHandle(own.source_mac, own.dest_mac, own.source_gid, own.dest_gid)
    return replace(made, **changes)


def send(pair: Pair, length: int, opcode: Opcode = Opcode.SEND, **fields: Any) -> None:
    fields = {"handle": handle(pair.a), "dest_qpn": 0x12, "qkey": QKEY, **fields}
    pair.a.post(opcode, length, **fields)
    pair.run()


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_datagram_arrives_behind_its_network_header(ipv6: bool) -> None:
    pair = ud_pair(ipv6=ipv6)
    pair.local(pair.a)[:100] = pattern(100)
    pair.b.post_receive(5, 200)
    send(pair, 100, Opcode.SEND_IMM, immediate=77, solicited=True)
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]
    (received,) = pair.b.host.completions
    assert (received.index, received.length, received.immediate) == (5, 140, 77)
    assert (received.source_qpn, received.ip_version) == (0x11, 6 if ipv6 else 4)
    assert received.solicited
    memory, (frame,) = pair.local(pair.b), pair.a.host.sent
    header = frame[14:54] if ipv6 else bytes(20) + frame[14:34]
    assert memory[:40] == header
    assert memory[40:140] == pattern(100)
    assert pair.b.host.sent == []


def test_an_empty_datagram_has_only_the_area() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 40)
    send(pair, 0)
    assert [completion.length for completion in pair.b.host.completions] == [40]


def test_each_element_goes_where_its_handle_says() -> None:
    pair = ud_pair()
    other = bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])
    send(pair, 4, dest_qpn=0x12)
    send(pair, 4, dest_qpn=0x13, handle=handle(pair.a, dest_gid=other, traffic_class=0x68, hop_limit=3))
    send(pair, 4, dest_qpn=0x12)
    first, second, third = pair.a.packets()
    assert [packet.psn for packet in (first, second, third)] == [100, 101, 102]
    assert [packet.dest_qpn for packet in (first, second, third)] == [0x12, 0x13, 0x12]
    assert second.dest_ip == bytes([10, 77, 0, 9])
    assert pair.a.host.sent[1][15] == 0x68 and pair.a.host.sent[1][22] == 3
    assert not any(packet.ack_request for packet in (first, second, third))


def test_the_q_key_is_the_elements_or_the_queue_pairs_own() -> None:
    pair = ud_pair()
    send(pair, 0, qkey=5)
    send(pair, 0, qkey=1 << 31 | 5)
    keys = [DETH.unpack_from(packet.frame, packet.extension) for packet in pair.a.packets()]
    assert keys == [(5, 0x11), (QKEY, 0x11)]


def test_a_queue_pair_may_send_under_another_number() -> None:
    pair = ud_pair(source_qpn=1)
    send(pair, 0)
    (packet,) = pair.a.packets()
    assert DETH.unpack_from(packet.frame, packet.extension) == (QKEY, 1)


def test_a_wrong_q_key_is_dropped_and_counted() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 64)
    send(pair, 4, qkey=QKEY + 1)
    assert pair.b.host.completions == []
    assert [counter for counter, _ in pair.b.host.drops] == ["qkey_viol_cntr"]


def test_a_datagram_without_receive_element_is_dropped_and_counted() -> None:
    pair = ud_pair()
    send(pair, 4)
    assert [counter for counter, _ in pair.b.host.drops] == ["out_of_buffer"]
    assert pair.a.host.statuses == [(0, Status.SUCCESS)]


def test_a_receive_element_that_is_too_small_waits_for_the_next() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 40)
    send(pair, 1)
    assert pair.b.host.completions == [] and len(pair.b.host.drops) == 1
    send(pair, 0)
    assert [(completion.index, completion.length) for completion in pair.b.host.completions] == [(0, 40)]


def test_a_message_longer_than_the_mtu_sends_nothing() -> None:
    pair = ud_pair(path_mtu=1024)
    send(pair, 1025)
    assert pair.a.host.sent == []
    assert pair.a.host.statuses == [(0, Status.LOC_LEN_ERR)]
    assert [state for state, _ in pair.a.host.moves] == [QpState.SQE]


@pytest.mark.parametrize(
    ("opcode", "fields", "cause"),
    [
        (Opcode.WRITE, {}, Cause.BAD_OPCODE),
        (Opcode.READ, {}, Cause.BAD_OPCODE),
        (Opcode.SEND, {"handle": None}, Cause.BAD_FLAGS),
    ],
)
def test_elements_that_cannot_be_sent(opcode: Opcode, fields: dict[str, Any], cause: Cause) -> None:
    pair = ud_pair()
    send(pair, 4, opcode, **fields)
    assert pair.a.host.statuses == [(0, Status.LOC_QP_OP_ERR)]
    assert pair.a.host.completions[0].cause == cause


def test_a_payload_that_cannot_be_read_stops_the_send_queue() -> None:
    pair = ud_pair()
    send(pair, 4, sges=[Sge(BASE, 4, LKEY + 7)])
    send(pair, 4)
    assert pair.a.host.statuses == [(0, Status.LOC_PROT_ERR), (1, Status.WR_FLUSH_ERR)]


def test_inline_payload_and_nops() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 64)
    send(pair, 0, Opcode.NOP, handle=None)
    send(pair, 3, inline=b"abc", sges=[])
    assert pair.a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert pair.local(pair.b)[40:43] == b"abc"


def test_a_receive_element_that_cannot_be_written_ends_the_queue_pair() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 64, lkey=LKEY + 7)
    pair.b.post_receive(1, 64)
    send(pair, 4)
    assert pair.b.host.statuses == [(0, Status.LOC_PROT_ERR), (1, Status.WR_FLUSH_ERR)]
    assert [state for state, _ in pair.b.host.moves] == [QpState.ERR]


def test_a_receive_ring_that_cannot_be_read_ends_the_queue_pair_with_an_event() -> None:
    pair = ud_pair()
    pair.b.host.broken_ring = True
    send(pair, 4)
    assert pair.b.host.events == [AsyncEvent.QP_FATAL]


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.ERR])
def test_nothing_is_received_before_rtr_or_in_error(state: QpState) -> None:
    pair = ud_pair()
    pair.b.modify(QpState.RESET)
    if state is not QpState.RESET:
        pair.b.modify(QpState.INIT)
    pair.b.modify(state)
    send(pair, 4)
    assert pair.b.host.completions == [] and len(pair.b.host.drops) == 1


def test_rtr_receives_and_tells_the_first_time() -> None:
    pair = ud_pair()
    pair.b.modify(QpState.RESET)
    pair.b.modify(QpState.INIT)
    pair.b.modify(QpState.RTR)
    pair.b.post_receive(0, 64)
    pair.b.post_receive(1, 64)
    send(pair, 4)
    send(pair, 4)
    assert pair.b.host.events == [AsyncEvent.COMM_EST]
    assert len(pair.b.host.completions) == 2


def test_a_datagram_longer_than_the_receivers_mtu_is_dropped() -> None:
    pair = ud_pair(path_mtu=256)
    pair.b.post_receive(0, 4096)
    pair.b.deliver(pair.a.frame(UdOpcode.SEND_ONLY, 0, pack_deth(QKEY, 3), bytes(257)))
    assert pair.b.host.completions == [] and len(pair.b.host.drops) == 1


def test_another_partition_is_dropped_and_counted() -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 64)
    pair.b.deliver(pair.a.frame(UdOpcode.SEND_ONLY, 0, pack_deth(QKEY, 3), b"", pkey=0x1234))
    assert [counter for counter, _ in pair.b.host.drops] == ["bad_pkey_cntr"]


@pytest.mark.parametrize("shared", [False, True])
def test_an_element_too_small_stays_unless_its_queue_is_shared(shared: bool) -> None:
    pair = ud_pair()
    pair.b.post_receive(0, 40, shared=shared)
    pair.b.post_receive(1, 100, shared=shared)
    send(pair, 10)
    failed = [(0, Status.LOC_LEN_ERR)] if shared else []
    assert pair.b.host.statuses == failed
    send(pair, 0)
    assert pair.b.host.statuses == [*failed, (1 if shared else 0, Status.SUCCESS)]
    assert pair.b.host.moves == []
