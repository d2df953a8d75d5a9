# SPDX-License-Identifier: Apache-2.0
"""Unreliable unordered delivery: datagrams through address handles, and every reason to drop one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from emu.clock import MS
from emu.nic.engine import AsyncEvent
from emu.nic.work import (
    AddressHandle,
    Cause,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    SendRequest,
    Status,
    Transport,
)
from emu.uet.headers import UUD_PROLOGUE, standard_request
from emu.uet.path import PeerPath
from emu.wire import uet
from emu.wire.uet_names import PdsType
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import Net, Nic, Qp, losing
from tests.wire.uet_vectors import HEADERS

QKEY = 0x1234567
TOS_TRIMMED = 16 << 2 | 2


def datagrams(nic: Nic, qpn: int, **changes: Any) -> Qp:
    """A UUD queue pair in RTS with 64 KiB under LKEY and RKEY."""
    attributes = QpAttributes(path_mtu=1024, qkey=QKEY)
    qp = Qp(nic, qpn, Transport.UET_UUD, replace(attributes, **changes))
    qp.host.memory(LKEY)
    qp.host.memory(RKEY)
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        qp.modify(state)
    return qp


def handle(here: Nic, there: Nic) -> AddressHandle:
    """From one NIC to another."""
    return AddressHandle(here.mac, there.mac, here.gid, there.gid)


class Rig:
    """Two NICs with a datagram queue pair each; ``send`` posts at a."""

    def __init__(self, *lost: tuple[str, int]) -> None:
        self.net = Net(losing(*lost))
        left, right = self.net.nic("a"), self.net.nic("b")
        self.a, self.b = datagrams(left, 0x101), datagrams(right, 0xABC123)
        self.handle = handle(left, right)
        self.a.host.regions[LKEY].data[:1024] = bytes(range(256)) * 4

    def send(self, length: int = 16, opcode: Opcode = Opcode.SEND, **fields: Any) -> SendRequest:
        """Post a datagram for b, and let everything happen."""
        values = {"handle": self.handle, "dest_qpn": 0xABC123, "qkey": QKEY} | fields
        request = self.a.post(opcode, length, **values)
        self.net.scheduler.run(until=self.net.scheduler.now() + MS)
        return request

    @property
    def dropped(self) -> list[str]:
        """Counters of what b dropped."""
        return [counter for counter, _ in self.b.host.drops]


def test_a_datagram_arrives_with_its_network_header_and_sender() -> None:
    rig = Rig()
    rig.b.post_receive(7, 100, BASE, RKEY)
    rig.send(16, Opcode.SEND_IMM, immediate=0xCAFE, solicited=True)
    assert rig.a.host.statuses == [(0, Status.SUCCESS)]
    (completion,) = rig.b.host.completions
    assert (completion.index, completion.opcode, completion.status) == (7, CompletionOpcode.RECV, 0)
    assert (completion.length, completion.immediate, completion.solicited) == (56, 0xCAFE, True)
    assert (completion.source_qpn, completion.ip_version) == (0x101, 4)
    data = rig.b.host.regions[RKEY].data
    assert data[:20] == bytes(20) and IP(bytes(data[20:40])).src == "10.77.0.1"
    assert data[40:56] == bytes(range(16))
    assert not rig.b.nic.sent, "nobody answers a datagram"


def test_the_bytes_are_those_of_the_layers() -> None:
    rig = Rig()
    rig.send(8)
    (frame,) = rig.a.nic.sent
    layer = Ether(frame)
    assert layer[uet.Uud].type == PdsType.UUD_REQ
    request = layer[uet.StdRequest]
    assert (request.opcode, request.message_id, request.som, request.eom, request.rel) == (7, 0, 1, 1, 1)
    assert (request.pid_on_fep, request.resource_index, request.initiator) == (0xABC, 0x123, 0x101)
    assert (request.memory_key, request.request_length) == (QKEY, 8)
    assert bytes(request.payload) == bytes(range(8))


def test_the_worked_example_reaches_its_queue_pair() -> None:
    net = Net()
    left, right = net.nic("a"), net.nic("b")
    # The example is a datagram of job 0xABCD to PID 5, index 10, with match bits 0.
    right.parameters = replace(right.parameters, job_id=0xABCD)
    right.fep.parameters = right.parameters
    qp = datagrams(right, 0x500A, qkey=0)
    qp.post_receive(0, 64, BASE, RKEY)
    right.deliver(PeerPath(left.mac, right.mac, left.ip, right.ip).frame(2, 0xC000, HEADERS["U16"]))
    (completion,) = qp.host.completions
    assert (completion.length, completion.source_qpn) == (44, 7)
    assert qp.host.regions[RKEY].data[40:44] == bytes.fromhex("55667788")


def test_loss_is_nobody_s_business() -> None:
    rig = Rig(("a", 1))
    for index in range(3):
        rig.b.post_receive(index, 100, BASE, RKEY)
    for length in (1, 2, 3):
        rig.send(length)
    assert rig.a.host.statuses == [(index, Status.SUCCESS) for index in range(3)]
    assert [found.length for found in rig.b.host.completions] == [41, 43]
    assert len(rig.a.nic.sent) == 3 and not rig.a.nic.retransmitted


@pytest.mark.parametrize(
    ("fields", "counter"),
    [
        ({"qkey": 5}, "qkey_viol_cntr"),
        ({"length": 61}, "rx_dropped"),
        ({"length": 60}, None),
        ({"qkey": 0x80000000}, None),
    ],
)
def test_what_does_not_fit_is_dropped_and_counted(fields: dict[str, int], counter: str | None) -> None:
    rig = Rig()
    rig.b.post_receive(0, 100, BASE, RKEY)
    rig.send(**fields)  # type: ignore[arg-type]
    assert rig.dropped == ([] if counter is None else [counter])
    assert len(rig.b.host.completions) == (counter is None)
    if counter is not None:
        # The element stays for the next datagram.
        rig.send(8)
        assert [found.index for found in rig.b.host.completions] == [0]


def test_to_an_address_of_another_port() -> None:
    rig = Rig()
    rig.b.host.addresses = {rig.b.nic.ip}
    for index in range(2):
        rig.b.post_receive(index, 100, BASE, RKEY)
    rig.send()
    rig.send(handle=replace(rig.handle, dest_gid=rig.handle.source_gid))
    assert rig.dropped == ["rx_dropped"] and len(rig.b.host.completions) == 1


def test_without_receive_element() -> None:
    rig = Rig()
    rig.send()
    assert rig.dropped == ["out_of_buffer"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"opcode": 5}, "operation"),
        ({"flags": 0x09}, "several"),
        ({"request_length": 5}, "4 of 5 bytes"),
        ({"job_id": 9}, "job 9"),
        ({"resource_index": 0x124}, "no UUD QP"),
    ],
)
def test_malformed_datagrams_are_named(changes: dict[str, int], reason: str) -> None:
    rig = Rig()
    rig.b.post_receive(0, 100, BASE, RKEY)
    fields = {
        "message_id": 0,
        "job_id": 1,
        "pid": 0xABC,
        "resource_index": 0x123,
        "buffer_offset": 0,
        "initiator": 1,
        "key": QKEY,
        "request_length": 4,
    } | changes
    opcode, flags = fields.pop("opcode", 7), fields.pop("flags", 0x0B)
    body = standard_request(opcode, flags, **fields) + b"four"
    path = PeerPath(rig.a.nic.mac, rig.b.nic.mac, rig.a.nic.ip, rig.b.nic.ip)
    rig.b.nic.deliver(path.frame(2, 0xC000, UUD_PROLOGUE, body))
    (drop,) = rig.b.nic.drops
    assert reason in drop.reason
    assert not rig.b.host.completions


def test_a_trimmed_or_cut_datagram_is_lost() -> None:
    rig = Rig()
    rig.b.post_receive(0, 100, BASE, RKEY)
    rig.send(16)
    rig.b.host.completions.clear()
    path = PeerPath(rig.a.nic.mac, rig.b.nic.mac, rig.a.nic.ip, rig.b.nic.ip)
    for tos, octets in ((TOS_TRIMMED, HEADERS["U16"]), (2, HEADERS["U16"][:20])):
        rig.b.nic.deliver(path.frame(tos, 0xC000, octets))
    assert len(rig.b.nic.drops) == 2 and not rig.b.host.completions


@pytest.mark.parametrize(
    ("opcode", "fields", "status", "cause"),
    [
        (Opcode.WRITE, {}, Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE),
        (Opcode.READ, {}, Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE),
        (Opcode.SEND, {"handle": None}, Status.LOC_QP_OP_ERR, Cause.BAD_FLAGS),
        (Opcode.SEND, {"length": 1025}, Status.LOC_LEN_ERR, Cause.BAD_LENGTH),
        (Opcode.SEND, {"length": 1024}, Status.SUCCESS, Cause.NONE),
    ],
)
def test_what_a_send_element_may_ask_for(
    opcode: Opcode, fields: dict[str, Any], status: Status, cause: Cause
) -> None:
    rig = Rig()
    rig.send(opcode=opcode, **fields)
    rig.send(1)
    first, second = rig.a.host.completions
    assert (first.status, first.cause) == (status, cause)
    if status is Status.SUCCESS:
        assert second.status is Status.SUCCESS
        return
    assert second.status is Status.WR_FLUSH_ERR
    assert [state for state, _ in rig.a.host.moves] == [QpState.SQE]
    # Out of SQE it sends again.
    rig.a.modify(QpState.RTS)
    rig.send(1)
    assert rig.a.host.completions[-1].status is Status.SUCCESS


def test_payload_that_cannot_be_read_stops_the_send_queue() -> None:
    rig = Rig()
    rig.a.host.regions.clear()
    rig.send(8)
    (completion,) = rig.a.host.completions
    assert completion.status is Status.LOC_PROT_ERR
    assert not rig.a.nic.sent


def test_a_receive_element_that_cannot_be_written_ends_the_queue_pair() -> None:
    rig = Rig()
    for index in range(2):
        rig.b.post_receive(index, 100, BASE, 0x99)
    rig.send(8)
    assert rig.b.host.statuses == [(0, Status.LOC_PROT_ERR), (1, Status.WR_FLUSH_ERR)]
    rig.b.post_receive(2, 100)
    assert rig.b.host.statuses[-1] == (2, Status.WR_FLUSH_ERR)
    rig.send(8)
    assert rig.dropped == ["rx_dropped"], "in ERR nothing is received"


def test_a_receive_ring_that_cannot_be_read_ends_the_queue_pair() -> None:
    rig = Rig()
    rig.b.host.broken_ring = True
    rig.send(8)
    assert rig.b.host.events == [AsyncEvent.QP_FATAL]
    assert [state for state, _ in rig.b.host.moves] == [QpState.ERR]


def test_states() -> None:
    rig = Rig()
    rig.a.modify(QpState.SQD)
    assert rig.a.host.events == [AsyncEvent.SQ_DRAINED]
    rig.send(8)
    assert not rig.a.host.completions, "SQD holds work back"
    rig.a.modify(QpState.ERR)
    assert rig.a.host.statuses == [(0, Status.WR_FLUSH_ERR)]
    rig.a.modify(QpState.RESET)
    rig.a.next_index = 0
    rig.a.host.retired = 0
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        rig.a.modify(state)
    rig.b.post_receive(0, 100, BASE, RKEY)
    rig.send(8)
    assert rig.a.host.statuses[-1] == (0, Status.SUCCESS)
    assert rig.b.host.completions
    rig.b.nic.fep.forget_engine(rig.b.host.qpn)
    rig.send(8)
    assert rig.b.nic.drops[-1].reason.startswith("there is no UUD QP")


def test_one_queue_pair_talks_to_many() -> None:
    net = Net()
    nics = [net.nic(name) for name in "abcd"]
    hub = datagrams(nics[0], 1)
    others = [datagrams(nic, 2) for nic in nics[1:]]
    for qp, nic in zip(others, nics[1:], strict=True):
        qp.post_receive(0, 100, BASE, RKEY)
        hub.post(Opcode.SEND, 4, handle=handle(nics[0], nic), dest_qpn=2, qkey=QKEY)
    net.scheduler.run(until=MS)
    assert [len(qp.host.completions) for qp in others] == [1, 1, 1]
