# SPDX-License-Identifier: Apache-2.0
"""From doorbell to engine: bursts, turns, timers, records; with descriptors unlike the `vrnic` contract's."""

from __future__ import annotations

import pytest

from emu.clock import MS
from emu.nic.record import DbrPolicy
from emu.nic.submission import (
    ARRIVING,
    BACKLOG,
    BUDGET,
    BURST,
    GRACE,
    HOLD,
    LOOKAHEAD,
    POSTPONE,
)
from emu.nic.work import Cause, QpState, Status
from tests.nic.rig import CQE, SLOT, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def fill(rig: Rig, ring: int, log_size: int, first: int, sizes: list[int]) -> int:
    """Write NOPs of several slots; the index after the last."""
    index = first
    for size in sizes:
        at = ring + (index & ((1 << log_size) - 1)) * SLOT
        rig.store(at, bytes([size, 0]) + bytes(14))
        index = (index + size) & 0xFFFFFFFF
    return index


def publish(rig: Rig, record: int, index: int) -> None:
    """Store the send counter, 16 bits of it, big-endian."""
    rig.store(record + 4, (index & 0xFFFF).to_bytes(4, "big"))


def statuses(rig: Rig, address: int, count: int) -> list[tuple[int, int]]:
    """Index and status of the first completions."""
    entries = [rig.load(address + CQE * number, CQE) for number in range(count)]
    return [(int.from_bytes(entry[:4], "big"), entry[4]) for entry in entries]


@pytest.mark.parametrize("start", [0, 0xFFF8, 0xFFFFFFF8])
def test_descriptors_of_several_slots_and_16_bit_counters(rig: Rig, start: int) -> None:
    cq, cqes = rig.create_cq()
    qp, engine, ring, record = rig.create_qp(cq, log_size=5, start=start)
    index = fill(rig, ring, 5, start, [1, 3, 2, 5, 1])
    publish(rig, record, index)
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    offsets = [0, 1, 4, 6, 11]
    assert [request.index for request in engine.posted] == [(start + at) & 0xFFFFFFFF for at in offsets]
    assert qp.completed == index == (start + 12) & 0xFFFFFFFF
    assert statuses(rig, cqes, 5) == [((start + at) & 0xFFFFFFFF, 0) for at in offsets]


def test_a_descriptor_cut_by_the_burst_is_read_again_whole(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, ring, record = rig.create_qp(cq)
    index = fill(rig, ring, 8, 0, [1] * (BURST - 2) + [4, 1])
    publish(rig, record, index)
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    assert [request.slots for request in engine.posted] == [1] * (BURST - 2) + [4, 1]
    assert rig.nic.counters.wqe_fetches == 2


def test_a_doorbell_in_the_middle_of_a_descriptor_is_an_error(rig: Rig) -> None:
    cq, cqes = rig.create_cq()
    qp, _, ring, record = rig.create_qp(cq)
    fill(rig, ring, 8, 0, [1, 4])
    publish(rig, record, 3)
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    assert qp.state is QpState.ERR
    assert statuses(rig, cqes, 2) == [(0, Status.SUCCESS), (1, Status.LOC_QP_OP_ERR)]


def test_a_deep_ring_is_taken_in_pieces(rig: Rig) -> None:
    cq, _ = rig.create_cq(12)
    qp, engine, ring, record = rig.create_qp(cq, log_size=11)
    engine.hold = True
    index = fill(rig, ring, 11, 0, [1] * 2048)
    publish(rig, record, index)
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    assert LOOKAHEAD <= len(engine.posted) < LOOKAHEAD + BURST
    engine.hold = False
    rig.nic.submission.kick(qp)
    rig.settle()
    assert [request.index for request in engine.posted] == list(range(2048))
    assert qp.completed == 2048


def test_queue_pairs_take_turns(rig: Rig) -> None:
    order: list[int] = []
    pairs = []
    for _ in range(3):
        cq, _ = rig.create_cq()
        qp, engine, ring, record = rig.create_qp(cq)
        publish(rig, record, fill(rig, ring, 8, 0, [1] * (2 * BURST)))
        finish = engine.finish

        def note(
            status: Status, cause: Cause = Cause.NONE, qpn: int = qp.number, then: object = finish
        ) -> None:
            order.append(qpn)
            then(status, cause)  # type: ignore[operator]

        engine.finish = note  # type: ignore[method-assign]
        pairs.append(qp)
    for qp in pairs:
        rig.nic.submission.ring(qp, 0)
    rig.settle()
    turns = [order[0]]
    for qpn in order:
        if qpn != turns[-1]:
            turns.append(qpn)
    numbers = [qp.number for qp in pairs]
    assert turns == numbers * (2 * BURST // BUDGET)


def test_many_queue_pairs_leave_the_loop_time_between_turns(rig: Rig) -> None:
    for _ in range(100):
        cq, _ = rig.create_cq(1)
        qp, _, ring, record = rig.create_qp(cq, log_size=1)
        publish(rig, record, fill(rig, ring, 1, 0, [1]))
        rig.nic.submission.ring(qp, 0)
    between: list[int] = []
    rig.clock.call_soon(lambda: between.append(rig.nic.counters.wqes))
    rig.settle()
    assert 0 < between[0] < 100
    assert rig.nic.counters.wqes == 100


def test_a_full_port_holds_work_back(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, ring, record = rig.create_qp(cq)
    rig.port.backlog = BACKLOG
    publish(rig, record, fill(rig, ring, 8, 0, [1]))
    rig.nic.submission.ring(qp, 0)
    rig.clock.run(until=3 * HOLD)
    assert engine.posted == []
    rig.port.backlog = BACKLOG - 1
    rig.clock.run(until=4 * HOLD)
    assert len(engine.posted) == 1


@pytest.mark.parametrize("backlog", [BACKLOG // 2, 0])
def test_no_deadline_passes_while_the_link_is_behind(rig: Rig, backlog: int) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 5 * MS
    rig.nic.submission.kick(qp)
    rig.port.backlog, rig.port.arriving = backlog, 0 if backlog else ARRIVING
    rig.clock.run(until=50 * MS)
    assert engine.expired == []
    rig.port.backlog = rig.port.arriving = 0
    rig.clock.run(until=50 * MS + POSTPONE)
    assert len(engine.expired) == 1


def test_a_link_that_is_always_behind_puts_a_deadline_off_for_a_time_only(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 5 * MS
    rig.nic.submission.kick(qp)
    rig.port.backlog = BACKLOG // 2
    rig.clock.run(until=5 * MS + GRACE + POSTPONE)
    assert len(engine.expired) == 1


def test_the_work_of_a_doorbell_does_not_grow_with_the_number_of_queue_pairs(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    made = [rig.create_qp(cq, log_size=1) for _ in range(200)]
    qp, _, ring, record = made[77]
    publish(rig, record, fill(rig, ring, 1, 0, [1]))
    rig.settle()
    rig.bus.log.clear()
    rig.nic.submission.ring(qp, 0)
    assert rig.clock.run(until=rig.clock.now()) == 1
    assert len(rig.bus.operations("read")) == 2  # record and slot


def test_a_deadline_calls_the_engine_once(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 5_000
    rig.nic.submission.kick(qp)
    rig.clock.run()
    assert engine.expired == [5_000]


def test_a_deadline_that_moved_away_is_kept_at_its_new_time(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 5_000
    rig.nic.submission.kick(qp)
    rig.settle()
    engine.due = 9_000
    rig.nic.submission.kick(qp)
    rig.clock.run()
    assert engine.expired == [9_000]


def test_a_deadline_that_came_nearer_is_met(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 9_000
    rig.nic.submission.kick(qp)
    rig.settle()
    engine.due = 5_000
    rig.nic.submission.kick(qp)
    rig.clock.run()
    assert engine.expired == [5_000]


def test_a_deadline_that_was_given_up_calls_nobody(rig: Rig) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, _ = rig.create_qp(cq)
    engine.due = 5_000
    rig.nic.submission.kick(qp)
    rig.settle()
    engine.due = None
    rig.clock.run()
    assert engine.expired == []


@pytest.mark.parametrize("policy", [DbrPolicy.AUTHORITATIVE, DbrPolicy.RECOVERY])
def test_receives_without_doorbells_come_from_the_record(rig: Rig, policy: DbrPolicy) -> None:
    cq, _ = rig.create_cq()
    qp, engine, _, record = rig.create_qp(cq, policy=policy, start=0xFFFE)
    rig.store(record, (0xFFFE).to_bytes(4, "big"))
    assert engine.host.take_receive() is None
    rig.store(record, (1).to_bytes(4, "big"))
    taken = []
    while (element := engine.host.take_receive()) is not None:
        taken.append(element.index)
    assert taken == [0xFFFE, 0xFFFF, 0x10000]
    assert qp.receive is not None
    assert qp.receive.doorbell == 0x10001
