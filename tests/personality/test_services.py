# SPDX-License-Identifier: Apache-2.0
"""Unreliable connections, SEND with invalidate and congestion marks through whole NICs: contract to wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emu.nic.work import CompletionOpcode, ModifyMask, Opcode, QpState, Status, Transport
from emu.personality.vrnic.contract.codes import AdminOpcode, AdminStatus, MrFlags
from emu.personality.vrnic.contract.descriptors import CqeFlags, WqeFlags
from emu.transport.loop import Loop
from emu.transport.model import DeviceModel
from tests.personality.driver import Cq, Driver, Qp
from tests.personality.test_device import Lab, pattern
from tests.vfio_user.client import Client

M = ModifyMask


@pytest.fixture
def lab(loop: Loop, vfio_client: Callable[[DeviceModel], Client]) -> Lab:
    return Lab(loop, vfio_client)


def connect(driver: Driver, qp: Qp, peer: Driver, other: Qp) -> None:
    """RESET to RTS with the attributes that UC has."""
    there = peer.gid(1)
    driver.to_init(qp)
    driver.modify(
        qp,
        M.STATE | M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN,
        state=QpState.RTR,
        path_mtu=3,
        dest_qpn=other.number,
        dest_gid=there.gid,
        dest_mac=there.mac,
        gid_index=1,
        traffic_class=2,
    )
    driver.modify(qp, M.STATE | M.SQ_PSN, state=QpState.RTS)


def uc_pair(lab: Lab) -> tuple[Qp, Cq, Qp, Cq]:
    """A queue pair and its CQ on each node."""
    a, b = lab.a.driver, lab.b.driver
    cq_a, cq_b = a.create_cq(log_size=6), b.create_cq(log_size=6)
    qp_a = a.create_qp(cq_a, transport=Transport.ROCE_UC)
    qp_b = b.create_qp(cq_b, transport=Transport.ROCE_UC)
    connect(a, qp_a, b, qp_b)
    connect(b, qp_b, a, qp_a)
    return qp_a, cq_a, qp_b, cq_b


def test_uc_carries_sends_and_writes_without_an_answer(lab: Lab) -> None:
    qp, cq, peer, peer_cq = uc_pair(lab)
    a, b = lab.a.driver, lab.b.driver
    data = pattern(5000, 5)
    source, target, into = a.allocate(5000), b.allocate(5000), b.allocate(8192)
    lab.a.machine.store(source, data)
    peer.post_receive(b.virtual(into), b.key, 8192)
    peer.ring_receive()
    local: dict[str, Any] = {"length": 5000, "local_address": a.virtual(source), "lkey": a.key}
    qp.post(Opcode.WRITE, remote_address=b.virtual(target), rkey=b.key, **local)
    qp.post(Opcode.SEND, **local)
    qp.ring()
    (received,) = lab.await_cqes(peer_cq)
    assert (received.status, received.length) == (Status.SUCCESS, 5000)
    assert [cqe.status for cqe in lab.await_cqes(cq, 2)] == [Status.SUCCESS] * 2
    assert lab.b.machine.load(target, 5000) == lab.b.machine.load(into, 5000) == data
    assert b.counter("tx_packets") == 0


def test_a_malformed_wqe_of_uc_stops_the_send_queue_alone(lab: Lab) -> None:
    qp, cq, peer, _ = uc_pair(lab)
    a, b = lab.a.driver, lab.b.driver
    qp.post(Opcode.SEND, inline=b"good")
    qp.post(Opcode.READ, flags=WqeFlags.INLINE | WqeFlags.SIGNAL, length=4)
    qp.post(Opcode.SEND, inline=b"flushed")
    qp.ring()
    statuses = [cqe.status for cqe in lab.await_cqes(cq, 3)]
    assert statuses == [Status.SUCCESS, Status.LOC_QP_OP_ERR, Status.WR_FLUSH_ERR]
    seen = a.command(AdminOpcode.QUERY_QP, object=qp.number)
    assert seen.state == QpState.SQE
    # It still receives, flushes what is posted, and goes on once it is in RTS again.
    into = a.allocate(64)
    qp.post_receive(a.virtual(into), a.key, 64)
    qp.ring_receive()
    peer.post(Opcode.SEND, inline=b"hello")
    peer.ring()
    (received,) = lab.await_cqes(cq)
    assert (received.status, received.opcode_phase >> 4) == (Status.SUCCESS, CompletionOpcode.RECV)
    qp.post(Opcode.SEND, inline=b"late")
    qp.ring()
    assert [cqe.status for cqe in lab.await_cqes(cq)] == [Status.WR_FLUSH_ERR]
    a.move(qp, QpState.RTS)
    target = b.allocate(64)
    peer.post_receive(b.virtual(target), b.key, 64)
    peer.ring_receive()
    qp.post(Opcode.SEND, inline=b"again")
    qp.ring()
    assert [cqe.status for cqe in lab.await_cqes(cq)] == [Status.SUCCESS]
    lab.a.client.until(lambda: lab.b.machine.load(target, 5) == b"again")


def test_send_with_invalidate_takes_the_peers_key_out_of_use(lab: Lab) -> None:
    qp, cq, peer, peer_cq = lab.pair()
    b = lab.b.driver
    target = b.allocate(4096, 4096)
    key = b.register(target, 4096, flags=MrFlags.CONTIGUOUS | MrFlags.INVALIDATABLE)
    into = b.allocate(64)
    peer.post_receive(b.virtual(into), b.key, 64)
    peer.ring_receive()
    qp.post(Opcode.SEND_INV, rkey=key, inline=b"bye")
    qp.ring()
    (received,) = lab.await_cqes(peer_cq)
    assert (received.status, received.length) == (Status.SUCCESS, 3)
    assert received.flags & CqeFlags.WITH_INV
    assert received.immediate == key
    lab.await_cqes(cq)
    qp.post(Opcode.WRITE, rkey=key, remote_address=b.virtual(target), inline=b"late")
    qp.ring()
    assert [cqe.status for cqe in lab.await_cqes(cq)] == [Status.REM_ACCESS_ERR]
    assert b.command(AdminOpcode.DEREG_MR, object=key).status == AdminStatus.OK
