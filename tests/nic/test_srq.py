# SPDX-License-Identifier: Apache-2.0
"""Shared receive queues: linked slots, the low-water event, and a queue pair that leaves in error."""

from __future__ import annotations

import pytest

from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.eq import EventQueue
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.record import DoorbellRecord
from emu.nic.srq import SharedReceiveQueue
from emu.nic.work import Cause, ModifyMask, QpAttributes, QpState, ReceiveRequest, Sge, Transport
from emu.pcie.bus import BusError
from tests.nic.rig import SLOT, Rig

LOG_SIZE = 3


class Linked:
    """Byte 0 names the next slot, byte 1 is the length."""

    def shared(self, slot: int, data: bytes) -> tuple[int, list[Sge]]:
        return data[0], [Sge(0, data[1], 7)]


class Bench:
    """A shared receive queue of eight slots linked in a circle, and an event queue for its events."""

    def __init__(self) -> None:
        self.rig = rig = Rig()
        ring, record = rig.memory(SLOT << LOG_SIZE), rig.memory(8)
        self.ring, self.record = rig.address(ring), rig.address(record)
        self.srq = SharedReceiveQueue(rig.nic.platform, 5, rig.pd, ring, LOG_SIZE, SLOT, record, Linked())
        for slot in range(1 << LOG_SIZE):
            self.link(slot, slot + 1)
        self.eq: EventQueue = rig.nic.create_eq(1, 4, rig.memory(SLOT << 4))
        events = (AsyncEvent.SRQ_ERR, AsyncEvent.SRQ_LIMIT_REACHED, AsyncEvent.QP_LAST_WQE_REACHED)
        rig.nic.platform.routes.subscribe(self.eq, events)

    def link(self, slot: int, following: int) -> None:
        self.rig.store(self.ring + slot * SLOT, bytes([following % (1 << LOG_SIZE), 16 + slot]))

    def post(self, total: int) -> None:
        """Software has posted ``total`` elements so far."""
        self.rig.store(self.record, total.to_bytes(4, "big"))

    def create_qp(self) -> QueuePair:
        rig = self.rig
        cq, _ = rig.create_cq()
        qp = rig.nic.create_qp(
            QpConfig(
                pd=rig.pd,
                send_cq=cq,
                recv_cq=cq,
                transport=Transport.ROCE_RC,
                send=rig.memory(SLOT << 4),
                send_log_size=4,
                srq=self.srq,
            )
        )
        rig.to_rts(qp)
        return qp


@pytest.fixture
def bench() -> Bench:
    return Bench()


def index_of(request: ReceiveRequest | None) -> int:
    assert request is not None
    return request.index


def test_elements_come_in_the_order_of_their_links(bench: Bench) -> None:
    bench.link(0, 5)
    bench.link(5, 2)
    bench.post(3)
    taken = [bench.srq.take() for _ in range(4)]
    assert [index_of(request) for request in taken[:3]] == [0, 5, 2]
    assert taken[3] is None
    first = taken[0]
    assert first is not None and (first.length, first.cookie) == (16, 5)


def test_two_queue_pairs_take_turns(bench: Bench) -> None:
    first, second = bench.create_qp(), bench.create_qp()
    bench.post(3)
    assert [index_of(qp.host.take_receive()) for qp in (first, second, first)] == [0, 1, 2]
    assert second.host.take_receive() is None
    bench.post(4)
    assert index_of(second.host.take_receive()) == 3


def test_the_limit_raises_one_event_and_disarms(bench: Bench) -> None:
    bench.post(4)
    bench.srq.arm(3)
    assert bench.eq.producer == 0
    bench.srq.take()
    assert bench.eq.producer == 0
    bench.srq.take()
    assert bench.eq.producer == 1
    bench.srq.take()
    assert (bench.eq.producer, bench.srq.limit) == (1, 0)


def test_a_limit_above_what_is_left_raises_its_event_at_once(bench: Bench) -> None:
    bench.post(2)
    bench.srq.arm(3)
    assert bench.eq.producer == 1


def test_a_queue_pair_in_error_takes_no_more_and_says_so(bench: Bench) -> None:
    qp = bench.create_qp()
    bench.post(2)
    qp.modify(ModifyMask.STATE, QpAttributes(state=QpState.ERR))
    assert qp.host.take_receive() is None
    assert bench.srq.take() is not None
    assert bench.eq.producer == 1


def test_a_record_that_cannot_be_read_is_a_fault_of_the_element(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.post(1)

    def gone(*_: object) -> int:
        raise BusError(0, 8, "gone")

    monkeypatch.setattr(DoorbellRecord, "receive", gone)
    for _ in range(2):
        with pytest.raises(ProtectionError, match="shared receive queue 5") as caught:
            bench.srq.take()
        assert caught.value.cause == Cause.BUS_ERROR
    assert bench.eq.producer == 1, "one SRQ_ERR, however often it is tried"
