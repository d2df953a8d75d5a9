# SPDX-License-Identifier: Apache-2.0
"""Completion queues and event queues as the guest sees them: modes, overruns, arming, wraps, lost memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emu.events import Kind
from emu.nic.work import Cause, Completion, CompletionOpcode, QpState, Status
from emu.personality.vrnic.contract.codes import AdminOpcode, CheckId, CqMode, CqOverrun, EventType
from emu.personality.vrnic.contract.descriptors import EQE_SIZE, DoorbellType
from tests.personality.bare_machine import GID, MAC, BareMachine
from tests.personality.driver import Cq, Driver, Qp

Connect = Callable[[Cq], Qp]


@pytest.fixture
def machine() -> BareMachine:
    return BareMachine()


@pytest.fixture
def driver(machine: BareMachine) -> Driver:
    made = Driver(machine)
    made.up()
    return made


@pytest.fixture
def connect(driver: Driver) -> Connect:
    """A queue pair in RTS that completes to a CQ."""

    def make(cq: Cq) -> Qp:
        qp = driver.create_qp(cq, sq_log_size=6)
        driver.to_init(qp)
        driver.to_rtr(qp, dest_qpn=1, dest_gid=GID, dest_mac=MAC)
        driver.to_rts(qp)
        return qp

    return make


def work(qp: Qp, count: int = 1, *, signal: bool = True) -> None:
    """Do ``count`` NOPs."""
    for _ in range(count):
        qp.post(signal=signal)
    qp.ring()


def receive(machine: BareMachine, qp: Qp, index: int, *, solicited: bool) -> None:
    """A received message, as the engine reports it."""
    machine.engines.made[qp.number].host.complete(
        Completion(qp.number, index, CompletionOpcode.RECV, Status.SUCCESS, solicited=solicited)
    )


class TestRing:
    def test_entries_go_round_with_a_flipping_phase(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(log_size=2)
        qp = connect(cq)
        seen = []
        for _ in range(11):
            work(qp)
            seen += cq.poll()
            cq.doorbell(DoorbellType.CQ_CONSUMER)
        assert [cqe.index for cqe in seen] == list(range(11))
        assert [cqe.producer for cqe in seen] == list(range(11))

    def test_unsignaled_work_leaves_no_entry(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        work(connect(cq), 3, signal=False)
        assert cq.poll() == []
        assert driver.counter("cqes") == 0

    def test_the_commit_word_is_written_last(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        machine.bus.log.clear()
        work(qp)
        assert machine.bus.operations("write") == [(cq.address, 56), (cq.address + 56, 8)]

    @pytest.mark.parametrize("start", [0xFFFFFFFC, 0xFFFFFFFF])
    def test_the_running_index_wraps_at_32_bits(
        self, machine: BareMachine, driver: Driver, connect: Connect, start: int
    ) -> None:
        cq = driver.create_cq(log_size=1)
        qp = connect(cq)
        inside = machine.nic.cqs.items[cq.number]
        inside.producer = inside.consumer = start
        cq.consumer = start
        # Slots as the pass before would have left them.
        for slot in range(2):
            old = (start - 2 + (slot - start) % 2) & 0xFFFFFFFF
            phase = (old >> 1 & 1) ^ 1
            machine.store(cq.address + 64 * slot + 63, bytes([phase]))
        for number in range(8):
            work(qp)
            (cqe,) = cq.poll()
            assert cqe.producer == (start + number) & 0xFFFFFFFF
            cq.doorbell(DoorbellType.CQ_CONSUMER)
        assert driver.counter("cq_overruns") == 0

    def test_an_overrun_breaks_the_cq_and_its_queue_pairs(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(log_size=1)
        qp, other = connect(cq), connect(cq)
        work(qp, 3)
        assert len(cq.poll()) == 2
        assert driver.counter("cq_overruns") == 1
        assert driver.reg("CHECK_ID") == CheckId.C15_CQ_OVERRUN
        assert qp.query().state == other.query().state == QpState.ERR
        events = [(event.type, event.object) for event in driver.events()]
        assert events[0] == (EventType.CQ_ERR, cq.number)
        assert sorted(events[1:]) == [(EventType.QP_FATAL, qp.number), (EventType.QP_FATAL, other.number)]

    def test_a_consumed_entry_makes_room(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(log_size=1)
        qp = connect(cq)
        for _ in range(5):
            work(qp, 2)
            assert len(cq.poll()) == 2
            cq.doorbell(DoorbellType.CQ_CONSUMER)
        assert qp.query().state == QpState.RTS

    def test_overruns_can_be_ignored(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(log_size=1, overrun=CqOverrun.IGNORE)
        qp = connect(cq)
        work(qp, 5)
        assert qp.query().state == QpState.RTS
        assert [cq.entry(slot).index for slot in range(2)] == [4, 3]

    def test_a_consumer_ahead_of_the_producer_is_refused(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        work(connect(cq), 2)
        for kind in (DoorbellType.CQ_CONSUMER, DoorbellType.CQ_ARM):
            cq.doorbell(kind, 3)
        assert driver.reg("CHECK_ID") == CheckId.C19_CONSUMER
        assert driver.counter("doorbells_ignored") == 2

    def test_a_consumer_that_goes_back_is_refused(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        work(connect(cq), 2)
        cq.doorbell(DoorbellType.CQ_CONSUMER, 2)
        cq.doorbell(DoorbellType.CQ_CONSUMER, 1)
        assert driver.reg("CHECK_ID") == CheckId.C19_CONSUMER


class TestCollapsed:
    def test_the_last_entry_is_in_slot_0(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(CqMode.COLLAPSED, 0)
        work(connect(cq), 20)
        entry = cq.entry()
        assert (entry.index, entry.index16, entry.producer) == (19, 19, 19)
        assert driver.counter("cqes") == 20

    def test_it_never_overruns(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(CqMode.COLLAPSED, 1)
        qp = connect(cq)
        work(qp, 40)
        assert qp.query().state == QpState.RTS


class TestCounter:
    def test_successes_and_errors_are_counted_apart(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq(CqMode.COUNTER)
        qp = connect(cq)
        work(qp, 5)
        machine.engines.made[qp.number].hold = True
        work(qp, 3)
        machine.engines.made[qp.number].fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
        successes = int.from_bytes(machine.load(cq.address, 8), "little")
        errors = int.from_bytes(machine.load(cq.address + 8, 8), "little")
        assert (successes, errors) == (5, 3)
        assert machine.load(cq.address + 16, 48) == bytes(48)


class TestArming:
    def test_the_next_completion_raises_one_event(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        cq.doorbell(DoorbellType.CQ_ARM)
        assert driver.events() == []
        work(qp, 3)
        (event,) = driver.events()
        assert (event.type, event.object) == (EventType.COMPLETION, cq.number)
        assert machine.interrupts.fired.count(1) == 1

    def test_an_unarmed_cq_is_silent(self, driver: Driver, connect: Connect) -> None:
        work(connect(driver.create_cq()))
        assert driver.events() == []

    def test_arming_with_unread_entries_fires_at_once(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        work(connect(cq), 2)
        cq.doorbell(DoorbellType.CQ_ARM, 1)
        assert len(driver.events()) == 1

    def test_arming_with_nothing_unread_waits(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        work(connect(cq), 2)
        cq.doorbell(DoorbellType.CQ_ARM, 2)
        assert driver.events() == []

    def test_solicited_arming_passes_over_ordinary_completions(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        cq.doorbell(DoorbellType.CQ_ARM_SOLICITED)
        receive(machine, qp, 0, solicited=False)
        assert driver.events() == []
        receive(machine, qp, 1, solicited=True)
        assert len(driver.events()) == 1

    def test_solicited_arming_sees_a_solicited_entry_that_waits(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        receive(machine, qp, 0, solicited=True)
        receive(machine, qp, 1, solicited=False)
        cq.doorbell(DoorbellType.CQ_ARM_SOLICITED, 1)
        assert driver.events() == []
        cq.doorbell(DoorbellType.CQ_ARM_SOLICITED, 1)
        receive(machine, qp, 2, solicited=True)
        cq.doorbell(DoorbellType.CQ_ARM_SOLICITED, 2)
        assert len(driver.events()) == 2

    def test_an_error_counts_as_solicited(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        machine.engines.made[qp.number].hold = True
        cq.doorbell(DoorbellType.CQ_ARM_SOLICITED)
        work(qp)
        machine.engines.made[qp.number].fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
        assert [event.type for event in driver.events()] == [EventType.COMPLETION]

    def test_a_cq_without_an_eq_can_be_armed_in_vain(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(events=False)
        cq.doorbell(DoorbellType.CQ_ARM)
        work(connect(cq))
        assert driver.counter("eqes") == 0


class TestEventQueue:
    def fire(self, driver: Driver, cq: Cq, qp: Qp, count: int = 1) -> None:
        for _ in range(count):
            cq.consumer = driver.machine.nic.cqs.items[cq.number].producer  # type: ignore[attr-defined]
            cq.doorbell(DoorbellType.CQ_ARM)
            work(qp)

    def test_the_vector_fires_once_until_the_driver_reads(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        self.fire(driver, cq, qp, 3)
        assert machine.interrupts.fired.count(1) == 1
        assert len(driver.events()) == 3
        driver.acknowledge_events()
        assert machine.interrupts.fired.count(1) == 1
        self.fire(driver, cq, qp)
        assert machine.interrupts.fired.count(1) == 2

    def test_an_event_between_reading_and_re_arming_is_not_slept_over(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        self.fire(driver, cq, qp)
        driver.events()
        self.fire(driver, cq, qp)
        driver.acknowledge_events()
        assert machine.interrupts.fired.count(1) == 2

    def test_phases_flip_each_pass(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        for _ in range(40):
            self.fire(driver, cq, qp)
            assert len(driver.events()) == 1
            driver.acknowledge_events()
        assert driver.eq_consumer == 40

    def test_a_full_ring_loses_events_and_counts_them(self, driver: Driver, connect: Connect) -> None:
        cq = driver.create_cq(log_size=6)
        qp = connect(cq)
        self.fire(driver, cq, qp, 20)
        assert len(driver.events()) == 16
        assert driver.counter("eq_overruns") == 4

    def test_a_consumer_index_out_of_range_is_refused(self, driver: Driver) -> None:
        driver.eq_consumer = 5
        driver.acknowledge_events()
        assert driver.reg("CHECK_ID") == CheckId.C19_CONSUMER

    def test_one_that_cannot_be_written_loses_events_quietly(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        machine.bus.map(0x6000_0000, 4096)
        eq = driver.command(AdminOpcode.CREATE_EQ, vector=2, log_size=3, base=0x6000_0000).object
        cq = driver.create_cq(eq=eq)
        qp = connect(cq)
        machine.bus.unmap(0x6000_0000)
        self.fire(driver, cq, qp)
        assert driver.counter("dma_errors") == 1
        assert 2 not in machine.interrupts.fired
        assert qp.query().state == QpState.RTS

    def test_the_commit_word_is_written_last(
        self, machine: BareMachine, driver: Driver, connect: Connect
    ) -> None:
        cq = driver.create_cq()
        qp = connect(cq)
        cq.doorbell(DoorbellType.CQ_ARM)
        machine.bus.log.clear()
        work(qp)
        assert machine.bus.operations("write")[-2:] == [
            (driver.eq_base, EQE_SIZE - 8),
            (driver.eq_base + EQE_SIZE - 8, 8),
        ]


def test_a_cq_that_cannot_be_written_ends_its_queue_pairs(
    machine: BareMachine, driver: Driver, connect: Connect
) -> None:
    machine.bus.map(0x6000_0000, 4096)
    key = driver.register(0x6000_0000, 4096)
    cq = driver.create_cq(ring_key=key, ring_address=driver.virtual(0x6000_0000))
    qp = connect(cq)
    machine.bus.unmap(0x6000_0000)
    work(qp, 3)
    assert qp.query().state == QpState.ERR
    assert [(event.type, event.object) for event in driver.events()] == [
        (EventType.CQ_ERR, cq.number),
        (EventType.QP_FATAL, qp.number),
    ]
    assert driver.counter("dma_errors") == 1


def test_completions_and_interrupts_are_traced(
    machine: BareMachine, driver: Driver, connect: Connect
) -> None:
    cq = driver.create_cq()
    qp = connect(cq)
    cq.doorbell(DoorbellType.CQ_ARM)
    work(qp)
    assert machine.events.texts(Kind.CQE) == [
        f"CQ {cq.number} entry 0: QP {qp.number:#x} NOP index 0 SUCCESS"
    ]
    assert machine.events.texts(Kind.DOORBELL)[0] == f"CQ {cq.number}: CQ_ARM index 0"
    assert machine.events.texts(Kind.EQE) == [f"EQ {driver.eq} entry 0: completion on CQ {cq.number}"]
    assert machine.events.texts(Kind.MSIX)[-1] == f"vector 1 for EQ {driver.eq}"


def test_the_first_error_is_latched(machine: BareMachine, driver: Driver, connect: Connect) -> None:
    qp = connect(driver.create_cq())
    machine.engines.made[qp.number].hold = True
    work(qp, 4)
    machine.engines.made[qp.number].finish(Status.SUCCESS)
    machine.engines.made[qp.number].fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    seen: Any = qp.query()
    assert (seen.first_error_index, seen.first_error_status, seen.first_error_cause) == (
        1,
        Status.RETRY_EXC_ERR,
        Cause.ACK_TIMEOUT,
    )
