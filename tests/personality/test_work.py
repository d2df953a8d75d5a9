# SPDX-License-Identifier: Apache-2.0
"""Work that cannot be done: malformed descriptors, stale slots, lost memory, errors in the middle, resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.events import Kind
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.receive import FLUSH
from emu.nic.work import Cause, Opcode, QpState, Status
from emu.personality.vrnic.contract.codes import AdminOpcode, CheckId, DbrPolicy, EventType
from emu.roce import create_engine, parse
from tests.personality.bare_machine import GID, MAC, BareMachine
from tests.personality.driver import Cq, Driver, Qp

MakeQp = Callable[..., tuple[Qp, Cq]]
EXTRA = 0x6000_0000


def bring_up() -> tuple[BareMachine, Driver]:
    """A machine and its driver."""
    machine = BareMachine()
    driver = Driver(machine)
    driver.up()
    return machine, driver


def ready_qp(driver: Driver, **values: Any) -> tuple[Qp, Cq]:
    """A queue pair in RTS and its CQ."""
    cq = driver.create_cq(log_size=6)
    qp = driver.create_qp(cq, **values)
    driver.to_init(qp)
    driver.to_rtr(qp, dest_qpn=1, dest_gid=GID, dest_mac=MAC)
    driver.to_rts(qp)
    return qp, cq


@pytest.fixture
def up() -> tuple[BareMachine, Driver]:
    return bring_up()


@pytest.fixture
def machine(up: tuple[BareMachine, Driver]) -> BareMachine:
    return up[0]


@pytest.fixture
def driver(up: tuple[BareMachine, Driver]) -> Driver:
    return up[1]


def outcomes(cq: Cq) -> list[tuple[int, int, int]]:
    """Index, status and cause of each new completion."""
    return [(cqe.index, cqe.status, cqe.cause) for cqe in cq.poll()]


@pytest.mark.parametrize(
    ("broken", "cause", "rule"),
    [
        ({"index": 77}, Cause.INDEX_MISMATCH, CheckId.C01_INDEX),
        ({"qpn": 0x999}, Cause.QPN_MISMATCH, CheckId.C02_OWNER),
        ({"opcode": 99}, Cause.BAD_OPCODE, CheckId.C29_UNSUPPORTED),
        ({"flags": 0x20}, Cause.BAD_FLAGS, CheckId.C29_UNSUPPORTED),
    ],
)
def test_a_malformed_wqe_fails_after_its_elders_and_flushes_its_juniors(
    machine: BareMachine, driver: Driver, broken: dict[str, Any], cause: Cause, rule: CheckId
) -> None:
    qp, cq = ready_qp(driver)
    engine = machine.engines.made[qp.number]
    engine.hold = True
    qp.post()
    qp.post()
    qp.post(**broken)
    qp.post()
    qp.ring()
    assert outcomes(cq) == []
    assert driver.reg("CHECK_ID") == rule
    assert (driver.reg("CHECK_QPN"), driver.reg("CHECK_INDEX")) == (qp.number, 2)
    engine.hold = False
    machine.nic.submission.kick(machine.nic.qps.items[qp.number])
    machine.settle()
    assert outcomes(cq) == [
        (0, Status.SUCCESS, 0),
        (1, Status.SUCCESS, 0),
        (2, Status.LOC_QP_OP_ERR, cause),
        (3, Status.WR_FLUSH_ERR, Cause.FLUSHED),
    ]
    seen = qp.query()
    assert seen.state == QpState.ERR
    assert (seen.fetched_index, seen.completed_index) == (4, 4)
    assert (seen.first_error_index, seen.first_error_cause) == (2, cause)
    assert driver.counter("check_violations") == 1


def test_a_malformed_wqe_waits_while_the_send_queue_drains(machine: BareMachine, driver: Driver) -> None:
    qp, cq = ready_qp(driver)
    engine = machine.engines.made[qp.number]
    engine.hold = True
    qp.post()
    qp.post(opcode=0xEE)
    qp.ring()
    driver.move(qp, QpState.SQD)
    engine.hold = False
    machine.nic.submission.kick(machine.nic.qps.items[qp.number])
    machine.settle()
    engine.host.moved(QpState.SQD, "drained")
    machine.settle()
    assert outcomes(cq) == [(0, Status.SUCCESS, 0)]
    driver.move(qp, QpState.RTS)
    assert outcomes(cq) == [(1, Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE)]


def test_a_slot_not_written_in_this_pass_is_stale(driver: Driver) -> None:
    qp, cq = ready_qp(driver, phase=True, sq_log_size=1)
    for _ in range(2):
        qp.post()
    qp.ring()
    qp.ring(3)
    assert outcomes(cq)[-1] == (2, Status.LOC_QP_OP_ERR, Cause.PHASE_STALE)
    assert driver.reg("CHECK_ID") == CheckId.C03_STALE


def test_an_engine_error_first_turns_a_waiting_malformed_wqe_into_a_flush(
    machine: BareMachine, driver: Driver
) -> None:
    qp, cq = ready_qp(driver)
    engine = machine.engines.made[qp.number]
    engine.hold = True
    qp.post()
    qp.post(opcode=99)
    qp.post()
    qp.ring()
    engine.fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    machine.settle()
    assert outcomes(cq) == [
        (0, Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT),
        (1, Status.WR_FLUSH_ERR, Cause.FLUSHED),
        (2, Status.WR_FLUSH_ERR, Cause.FLUSHED),
    ]


def test_work_rung_in_err_is_flushed(machine: BareMachine, driver: Driver) -> None:
    qp, cq = ready_qp(driver)
    driver.move(qp, QpState.ERR)
    qp.post(signal=False)
    qp.post(opcode=99)
    qp.ring()
    assert outcomes(cq) == [
        (0, Status.WR_FLUSH_ERR, Cause.FLUSHED),
        (1, Status.WR_FLUSH_ERR, Cause.FLUSHED),
    ]
    assert driver.reg("CHECK_COUNT") == 0


def test_a_ring_that_vanished_fails_the_work_in_it(machine: BareMachine, driver: Driver) -> None:
    machine.bus.map(EXTRA, 4096)
    key = driver.register(EXTRA, 4096)
    qp, cq = ready_qp(
        driver, ring_key=key, sq_address=driver.virtual(EXTRA), rq_address=driver.virtual(EXTRA + 2048)
    )
    machine.bus.unmap(EXTRA)
    qp.ring(3)
    assert outcomes(cq) == [
        (0, Status.LOC_PROT_ERR, Cause.BUS_ERROR),
        (1, Status.WR_FLUSH_ERR, Cause.FLUSHED),
        (2, Status.WR_FLUSH_ERR, Cause.FLUSHED),
    ]
    assert qp.query().state == QpState.ERR


class TestReceive:
    def test_elements_are_read_in_a_burst_and_handed_out_in_order(
        self, machine: BareMachine, driver: Driver
    ) -> None:
        qp, _ = ready_qp(driver)
        for number in range(5):
            qp.post_receive(0x1000 * number, 7, 100 + number)
        machine.bus.log.clear()
        qp.ring_receive()
        host = machine.engines.made[qp.number].host
        taken = []
        while (element := host.take_receive()) is not None:
            taken.append((element.index, element.length))
        assert taken == [(number, 100 + number) for number in range(5)]
        assert machine.bus.operations("read") == [(qp.rq_address, 5 * 32)]
        assert machine.engines.made[qp.number].receives_posted == 1

    @pytest.mark.parametrize("start", [0, 0xFFFFFFFD])
    def test_the_ring_goes_round(self, machine: BareMachine, driver: Driver, start: int) -> None:
        qp, cq = ready_qp(driver, rq_log_size=1, start=start)
        engine = machine.engines.made[qp.number]
        for number in range(9):
            qp.post_receive(number, 7, 1)
            qp.ring_receive()
            element = engine.host.take_receive()
            assert element is not None
            assert element.index == (start + number) & 0xFFFFFFFF
            machine.nic.qps.items[qp.number].receive.completed += 1  # type: ignore[union-attr]
        assert cq.poll() == []

    def test_an_element_that_is_malformed_completes_in_error(
        self, machine: BareMachine, driver: Driver
    ) -> None:
        qp, cq = ready_qp(driver)
        qp.post_receive(0, 0, 8, index=9)
        qp.post_receive(0, 0, 8)
        qp.ring_receive()
        host = machine.engines.made[qp.number].host
        with pytest.raises(ProtectionError, match="carries index 9"):
            host.take_receive()
        assert outcomes(cq) == [(0, Status.LOC_QP_OP_ERR, Cause.INDEX_MISMATCH)]
        assert driver.reg("CHECK_ID") == CheckId.C01_INDEX

    def test_a_ring_that_vanished_completes_in_error(self, machine: BareMachine, driver: Driver) -> None:
        machine.bus.map(EXTRA, 4096)
        key = driver.register(EXTRA, 4096)
        qp, cq = ready_qp(
            driver, ring_key=key, sq_address=driver.virtual(EXTRA), rq_address=driver.virtual(EXTRA + 2048)
        )
        machine.bus.unmap(EXTRA)
        qp.ring_receive(2)
        host = machine.engines.made[qp.number].host
        with pytest.raises(ProtectionError, match="receive ring"):
            host.take_receive()
        driver.move(qp, QpState.ERR)
        assert outcomes(cq) == [
            (0, Status.LOC_PROT_ERR, Cause.BUS_ERROR),
            (1, Status.WR_FLUSH_ERR, Cause.FLUSHED),
        ]

    def test_elements_are_flushed_in_err(self, machine: BareMachine, driver: Driver) -> None:
        qp, cq = ready_qp(driver)
        qp.post_receive(0, 0, 8)
        qp.post_receive(0, 0, 8, index=50)
        qp.ring_receive()
        driver.move(qp, QpState.ERR)
        assert outcomes(cq) == [
            (0, Status.WR_FLUSH_ERR, Cause.FLUSHED),
            (1, Status.WR_FLUSH_ERR, Cause.FLUSHED),
        ]

    def test_a_deep_ring_is_flushed_over_several_turns(self) -> None:
        machine = BareMachine(create_engine=create_engine, parse=parse)
        driver = Driver(machine)
        driver.up()
        cq = driver.create_cq(log_size=10)
        qp = driver.create_qp(cq, rq_log_size=10)
        driver.to_init(qp)
        count = 3 * FLUSH
        for _ in range(count):
            qp.post_receive(0, 0, 8)
        qp.ring_receive()
        machine.nic.qps.items[qp.number].enter_error("the test says so")
        assert len(outcomes(cq)) == FLUSH
        machine.settle()
        assert outcomes(cq) == [(index, Status.WR_FLUSH_ERR, Cause.FLUSHED) for index in range(FLUSH, count)]
        driver.move(qp, QpState.RESET)
        assert outcomes(cq) == []

    def test_a_doorbell_too_far_ahead_or_older_is_ignored(self, driver: Driver) -> None:
        qp, _ = ready_qp(driver, rq_log_size=2)
        qp.ring_receive(5)
        assert driver.reg("CHECK_ID") == CheckId.C06_AHEAD
        qp.ring_receive(4)
        qp.ring_receive(3)
        assert driver.reg("CHECK_ID") == CheckId.C07_OLDER
        qp.ring_receive(4)
        assert driver.counter("doorbells_ignored") == 3
        assert qp.query().receive_doorbell == 4

    def test_nothing_can_be_posted_in_reset(self, driver: Driver) -> None:
        qp = driver.create_qp(driver.create_cq())
        qp.ring_receive(1)
        assert driver.reg("CHECK_ID") == CheckId.C21_STATE
        driver.to_init(qp)
        qp.ring_receive(1)
        assert qp.query().receive_doorbell == 1


class TestReset:
    def test_drops_work_and_timers_without_a_trace_in_memory(
        self, machine: BareMachine, driver: Driver
    ) -> None:
        qp, cq = ready_qp(driver, policy=DbrPolicy.RECOVERY)
        engine = machine.engines.made[qp.number]
        engine.hold = True
        engine.due = machine.clock.now() + 1000
        for _ in range(3):
            qp.post()
        qp.ring()
        before = bytes(machine.ram)
        driver.set_reg("CONTROL", 1)
        machine.clock.run()
        assert bytes(machine.ram) == before
        assert engine.expired == []
        assert cq.poll() == []
        assert machine.events.texts(Kind.RESET) == ["CONTROL.RESET"]

    def test_a_doorbell_right_before_it_does_nothing(self, machine: BareMachine, driver: Driver) -> None:
        qp, cq = ready_qp(driver)
        qp.post()
        qp.ring(settle=False)
        driver.set_reg("CONTROL", 1)
        machine.settle()
        assert machine.engines.made[qp.number].posted == []
        assert cq.poll() == []

    def test_what_the_engine_still_says_is_ignored(self, machine: BareMachine, driver: Driver) -> None:
        qp, _ = ready_qp(driver)
        engine = machine.engines.made[qp.number]
        engine.hold = True
        qp.post()
        qp.ring()
        driver.set_reg("CONTROL", 1)
        before = bytes(machine.ram)
        engine.host.send(bytes(60))
        engine.host.moved(QpState.ERR, "late")
        engine.fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
        with pytest.raises(ProtectionError):
            engine.host.read_remote(driver.key, driver.virtual(machine.ram_base), 8)
        assert machine.port.sent == []
        assert bytes(machine.ram) == before

    def test_keys_from_before_stay_invalid(self, machine: BareMachine, driver: Driver) -> None:
        old = driver.key
        driver.set_reg("CONTROL", 1)
        driver.up()
        assert driver.key != old


def test_destroying_a_queue_pair_with_work_in_flight_is_silent(machine: BareMachine, driver: Driver) -> None:
    qp, cq = ready_qp(driver)
    machine.engines.made[qp.number].hold = True
    for _ in range(3):
        qp.post()
    qp.ring()
    driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
    machine.engines.made[qp.number].fail(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    assert cq.poll() == []
    assert driver.events() == []
    driver.command(AdminOpcode.DESTROY_CQ, object=cq.number)


def test_an_engine_failure_reaches_the_guest_as_an_event_only_when_told(
    machine: BareMachine, driver: Driver
) -> None:
    qp, _ = ready_qp(driver)
    machine.engines.made[qp.number].host.raise_event(AsyncEvent.QP_ACCESS_ERR, "a foreign key")
    assert [(event.type, event.object) for event in driver.events()] == [(EventType.QP_ACCESS_ERR, qp.number)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("post"), st.sampled_from(Opcode), st.integers(0, 255)),
            st.tuples(st.just("ring"), st.integers(0, 0xFFFFFFFF), st.integers(-3, 6)),
            st.tuples(st.just("raw"), st.integers(0, 0x3FFF), st.binary(min_size=1, max_size=8)),
            st.tuples(st.just("register"), st.integers(0, 0x900), st.binary(min_size=1, max_size=8)),
            st.tuples(st.just("scribble"), st.integers(0, 15), st.binary(min_size=64, max_size=64)),
        ),
        max_size=40,
    )
)
def test_no_guest_behaviour_raises_or_leaks(steps: list[tuple[Any, ...]]) -> None:
    machine, driver = bring_up()
    qp, _ = ready_qp(driver)
    for what, first, second in steps:
        if what == "post":
            qp.post(first, flags=second & 0xFE)
        elif what == "ring":
            qp.ring((qp.index + second) & 0xFFFFFFFF if second < 5 else first)
        elif what == "raw":
            machine.write(2, first, second)
        elif what == "register":
            machine.write(0, first, second)
        else:
            machine.store(qp.slot(first), second)
        machine.settle()
    driver.set_reg("CONTROL", 1)
    machine.settle()
    assert set(machine.nic.objects().to_json().values()) == {0}
    driver.up()
