# SPDX-License-Identifier: Apache-2.0
"""BAR2: who may ring what, which indices count, and what the doorbell record has to do with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emu.events import Kind
from emu.nic.engine import AsyncEvent
from emu.nic.submission import RECOVERY_DELAY
from emu.nic.work import QpState, Status
from emu.personality.vrnic.contract.codes import AdminOpcode, CheckId, DbrPolicy
from emu.personality.vrnic.contract.commands import NO_RECEIVE_RING
from emu.personality.vrnic.contract.descriptors import DOORBELL_VALID, DoorbellOffset, DoorbellType
from tests.personality.bare_machine import GID, MAC, BareMachine
from tests.personality.driver import Driver, Qp

PAGE = 4096


@pytest.fixture
def machine() -> BareMachine:
    return BareMachine()


@pytest.fixture
def driver(machine: BareMachine) -> Driver:
    made = Driver(machine)
    made.up()
    return made


MakeQp = Callable[..., Qp]


@pytest.fixture
def make_qp(driver: Driver) -> MakeQp:
    """A queue pair in RTS."""

    def make(**values: object) -> Qp:
        qp = driver.create_qp(driver.create_cq(), **values)  # type: ignore[arg-type]
        driver.to_init(qp)
        driver.to_rtr(qp, dest_qpn=1, dest_gid=GID, dest_mac=MAC)
        driver.to_rts(qp)
        return qp

    return make


def violation(driver: Driver) -> tuple[int, int, int]:
    """Rule, QPN and index of the last violation."""
    return driver.reg("CHECK_ID"), driver.reg("CHECK_QPN"), driver.reg("CHECK_INDEX")


def test_a_doorbell_covers_every_slot_before_its_index(
    machine: BareMachine, driver: Driver, make_qp: MakeQp
) -> None:
    qp = make_qp()
    for _ in range(5):
        qp.post()
    qp.ring(2)
    assert [request.index for request in machine.engines.made[qp.number].posted] == [0, 1]
    qp.ring(5)
    assert [request.index for request in machine.engines.made[qp.number].posted] == [0, 1, 2, 3, 4]
    assert driver.counter("doorbells") == 2
    assert machine.events.texts(Kind.DOORBELL) == [
        f"QP {qp.number:#x}: doorbell index 2 covers slots 0..1",
        f"QP {qp.number:#x}: doorbell index 5 covers slots 2..4",
    ]


def test_one_burst_reads_the_whole_span(machine: BareMachine, driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    for _ in range(7):
        qp.post(signal=False)
    machine.bus.log.clear()
    qp.ring()
    assert machine.bus.operations("read") == [(qp.sq_address, 7 * 64)]
    assert driver.counter("wqe_fetches") == 1
    assert driver.counter("wqes") == 7


@pytest.mark.parametrize("start", [0, 5, 0xFFFFFFF9, 0xFFFFFFFF])
@pytest.mark.parametrize("phase", [False, True])
def test_rings_go_round_from_any_start_index(
    machine: BareMachine, make_qp: MakeQp, start: int, phase: bool
) -> None:
    qp = make_qp(sq_log_size=2, start=start, phase=phase)
    for _ in range(20):
        qp.post(signal=False)
        qp.post(signal=False)
        qp.post(signal=False)
        qp.ring()
    posted = machine.engines.made[qp.number].posted
    assert [request.index for request in posted] == [(start + number) & 0xFFFFFFFF for number in range(60)]
    assert machine.nic.counters.check_violations == 0


def test_a_repeated_doorbell_is_ignored_without_blame(driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    qp.post()
    qp.ring()
    qp.ring()
    assert driver.counter("doorbells_ignored") == 1
    assert driver.reg("CHECK_COUNT") == 0


def test_an_older_doorbell_is_ignored(machine: BareMachine, driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    for _ in range(3):
        qp.post()
    qp.ring(3)
    qp.ring(2)
    assert violation(driver) == (CheckId.C07_OLDER, qp.number, 2)
    assert driver.counter("doorbells_ignored") == 1
    assert qp.query().doorbell_index == 3
    assert qp.query().state == QpState.RTS


def test_a_doorbell_more_than_a_ring_ahead_of_completion_is_ignored(
    machine: BareMachine, driver: Driver, make_qp: MakeQp
) -> None:
    qp = make_qp(sq_log_size=2)
    machine.engines.made[qp.number].hold = True
    for _ in range(4):
        qp.post()
    qp.ring(4)
    qp.ring(5)
    assert violation(driver) == (CheckId.C06_AHEAD, qp.number, 5)
    assert qp.query().doorbell_index == 4
    machine.engines.made[qp.number].finish(Status.SUCCESS)
    qp.post()
    qp.ring(5)
    assert qp.query().doorbell_index == 5


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.RTR])
def test_work_rung_before_rts_is_ignored(machine: BareMachine, driver: Driver, state: QpState) -> None:
    qp = driver.create_qp(driver.create_cq())
    if state is not QpState.RESET:
        driver.to_init(qp)
    if state is QpState.RTR:
        driver.to_rtr(qp, dest_qpn=1, dest_gid=GID, dest_mac=MAC)
    qp.post()
    qp.ring()
    assert violation(driver) == (CheckId.C21_STATE, qp.number, 1)
    assert machine.engines.made[qp.number].posted == []


def test_work_rung_while_draining_waits(machine: BareMachine, driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    driver.move(qp, QpState.SQD)
    machine.engines.made[qp.number].host.moved(QpState.SQD, "drained")
    qp.post()
    qp.ring()
    assert machine.engines.made[qp.number].posted == []
    driver.move(qp, QpState.RTS)
    machine.settle()
    assert len(machine.engines.made[qp.number].posted) == 1


def test_a_doorbell_through_another_contexts_page_is_ignored(
    machine: BareMachine, driver: Driver, make_qp: MakeQp
) -> None:
    qp = make_qp()
    stranger = driver.command(AdminOpcode.ALLOC_CTX).ctx
    qp.post()
    for page in (stranger, 0, 255):
        value = driver.doorbell_value(DoorbellType.SQ, qp.number, 1)
        driver.ring(page, DoorbellOffset.SQ, value)
        assert violation(driver)[:2] == (CheckId.C02_OWNER, qp.number)
        driver.ring(page, DoorbellOffset.RQ, driver.doorbell_value(DoorbellType.RQ, qp.number, 1))
    assert driver.counter("doorbells_ignored") == 6
    assert machine.engines.made[qp.number].posted == []
    assert qp.query().receive_doorbell == 0


def test_a_foreign_page_cannot_touch_a_cq(driver: Driver) -> None:
    cq = driver.create_cq()
    stranger = driver.command(AdminOpcode.ALLOC_CTX).ctx
    cq.doorbell(DoorbellType.CQ_ARM, page=stranger)
    cq.doorbell(DoorbellType.CQ_CONSUMER, page=stranger)
    assert driver.counter("doorbells_ignored") == 2
    assert driver.reg("CHECK_ID") == CheckId.C02_OWNER


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_narrow_store_is_no_doorbell(
    machine: BareMachine, driver: Driver, make_qp: MakeQp, size: int
) -> None:
    qp = make_qp()
    qp.post()
    value = driver.doorbell_value(DoorbellType.SQ, qp.number, 1).to_bytes(8, "little")
    for offset in range(0, 8, size):
        machine.write(2, driver.ctx * PAGE + offset, value[offset : offset + size])
    machine.settle()
    assert driver.reg("CHECK_ID") == CheckId.C12_WIDTH
    assert driver.counter("doorbells_ignored") == 8 // size
    assert machine.engines.made[qp.number].posted == []


def test_a_misaligned_store_is_no_doorbell(machine: BareMachine, driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    value = driver.doorbell_value(DoorbellType.SQ, qp.number, 1).to_bytes(8, "little")
    machine.write(2, driver.ctx * PAGE + 4, value)
    assert driver.reg("CHECK_ID") == CheckId.C12_WIDTH


def test_swapped_halves_are_recognised(driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    value = driver.doorbell_value(DoorbellType.SQ, qp.number, 1)
    driver.ring(driver.ctx, DoorbellOffset.SQ, value >> 32 | (value & 0xFFFFFFFF) << 32)
    assert driver.reg("CHECK_ID") == CheckId.C11_BYTE_ORDER


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (DoorbellOffset.SQ, DOORBELL_VALID | 1 << 56),
        (DoorbellOffset.SQ, DOORBELL_VALID | 1 << 60),
        (DoorbellOffset.RQ, DOORBELL_VALID),
        (DoorbellOffset.CQ_ARM, DOORBELL_VALID | 2 << 56),
        (DoorbellOffset.CQ_CONSUMER, DOORBELL_VALID | 3 << 56),
        (0x18, DOORBELL_VALID),
        (0x418, DOORBELL_VALID),
        (0xFF8, DOORBELL_VALID),
    ],
)
def test_a_type_or_offset_that_does_not_exist_is_ignored(
    driver: Driver, make_qp: MakeQp, offset: int, value: int
) -> None:
    qp = make_qp()
    driver.ring(driver.ctx, offset, value | qp.number << 32 | 1)
    assert driver.reg("CHECK_ID") == CheckId.C29_UNSUPPORTED
    assert driver.counter("doorbells_ignored") == 1


@pytest.mark.parametrize("offset", [at for at in DoorbellOffset if at is not DoorbellOffset.HINTS])
def test_a_doorbell_for_nothing_is_ignored(driver: Driver, offset: DoorbellOffset) -> None:
    kind = DoorbellType[offset.name]
    driver.ring(driver.ctx, offset, driver.doorbell_value(kind, 0xABCDEF, 1))
    assert driver.reg("CHECK_ID") == CheckId.C02_OWNER


def test_a_destroyed_queue_pair_cannot_be_rung(driver: Driver, make_qp: MakeQp) -> None:
    qp = make_qp()
    driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
    qp.ring(1)
    assert violation(driver)[:2] == (CheckId.C02_OWNER, qp.number)


def test_doorbells_read_as_zero(machine: BareMachine, driver: Driver) -> None:
    assert machine.read(2, PAGE, 8) == 0
    assert driver.counter("bad_mmio") == 1


def test_a_queue_pair_without_a_receive_ring_takes_no_receive_doorbell(
    driver: Driver, make_qp: MakeQp
) -> None:
    qp = make_qp(rq_log_size=NO_RECEIVE_RING)
    qp.ring_receive(1)
    assert driver.reg("CHECK_ID") == CheckId.C29_UNSUPPORTED


class TestDoorbellRecord:
    def test_without_a_policy_it_is_not_read(self, machine: BareMachine, make_qp: MakeQp) -> None:
        qp = make_qp(policy=DbrPolicy.NONE)
        qp.post()
        qp.record(send=0x77)
        qp.ring()
        assert qp.query().doorbell_index == 1

    def test_strict_accepts_a_doorbell_up_to_the_record(self, driver: Driver, make_qp: MakeQp) -> None:
        qp = make_qp(policy=DbrPolicy.STRICT)
        qp.post()
        qp.post()
        qp.record(send=2)
        qp.ring(1)
        qp.ring(2)
        assert qp.query().doorbell_index == 2
        assert driver.reg("CHECK_COUNT") == 0

    def test_strict_ignores_a_doorbell_ahead_of_the_record(
        self, machine: BareMachine, driver: Driver, make_qp: MakeQp
    ) -> None:
        qp = make_qp(policy=DbrPolicy.STRICT)
        qp.post()
        qp.ring()
        assert violation(driver) == (CheckId.C08_DBR, qp.number, 1)
        assert machine.engines.made[qp.number].posted == []
        qp.record(send=1)
        qp.ring()
        assert len(machine.engines.made[qp.number].posted) == 1

    def test_strict_watches_the_receive_dword_too(self, driver: Driver, make_qp: MakeQp) -> None:
        qp = make_qp(policy=DbrPolicy.STRICT)
        qp.post_receive(0, 0, 0)
        qp.record(send=1)
        qp.ring_receive()
        assert violation(driver) == (CheckId.C08_DBR, qp.number, 1)
        qp.record(receive=1)
        qp.ring_receive()
        assert qp.query().receive_doorbell == 1

    def test_authoritative_makes_the_doorbell_a_hint(self, machine: BareMachine, make_qp: MakeQp) -> None:
        qp = make_qp(policy=DbrPolicy.AUTHORITATIVE)
        for _ in range(3):
            qp.post()
        qp.record(send=3)
        qp.ring(0xDEAD)
        assert [request.index for request in machine.engines.made[qp.number].posted] == [0, 1, 2]

    def test_recovery_finds_what_a_lost_doorbell_would_have_told(
        self, machine: BareMachine, make_qp: MakeQp
    ) -> None:
        qp = make_qp(policy=DbrPolicy.RECOVERY)
        for _ in range(4):
            qp.post()
        qp.ring(1)
        qp.record(send=4)
        assert len(machine.engines.made[qp.number].posted) == 1
        machine.clock.run(until=machine.clock.now() + RECOVERY_DELAY)
        machine.settle()
        assert len(machine.engines.made[qp.number].posted) == 4

    def test_a_doorbell_the_record_outran_is_late_and_breaks_no_rule(
        self, machine: BareMachine, driver: Driver, make_qp: MakeQp
    ) -> None:
        qp = make_qp(policy=DbrPolicy.RECOVERY)
        for _ in range(5):
            qp.post()
        qp.ring(2)
        qp.record(send=4)
        machine.clock.run(until=machine.clock.now() + RECOVERY_DELAY)
        assert qp.query().doorbell_index == 4
        qp.ring(3)
        # A repetition is none either, late or not.
        qp.ring(3)
        assert machine.nic.counters.check_violations == 0
        qp.ring(2)
        assert machine.nic.counters.check_violations == 1
        assert violation(driver) == (CheckId.C07_OLDER, qp.number, 2)
        qp.ring(5)
        qp.ring(4)
        assert machine.nic.counters.check_violations == 2

    def test_recovery_ignores_an_absurd_record(self, machine: BareMachine, make_qp: MakeQp) -> None:
        qp = make_qp(policy=DbrPolicy.RECOVERY, sq_log_size=2)
        qp.post()
        qp.record(send=0x1000)
        qp.ring()
        machine.clock.run(until=machine.clock.now() + 10 * RECOVERY_DELAY)
        assert qp.query().doorbell_index == 1

    @pytest.mark.parametrize("policy", [DbrPolicy.AUTHORITATIVE, DbrPolicy.RECOVERY])
    def test_receives_need_no_doorbell_where_the_record_counts(
        self, machine: BareMachine, make_qp: MakeQp, policy: DbrPolicy
    ) -> None:
        qp = make_qp(policy=policy)
        host = machine.engines.made[qp.number].host
        assert host.take_receive() is None
        qp.post_receive(0x100, 0, 8)
        qp.record(receive=1)
        element = host.take_receive()
        assert element is not None
        assert (element.index, element.length) == (0, 8)
        assert host.take_receive() is None

    @pytest.mark.parametrize("policy", [DbrPolicy.STRICT, DbrPolicy.AUTHORITATIVE])
    def test_an_unreachable_record_ends_the_queue_pair(
        self, machine: BareMachine, driver: Driver, make_qp: MakeQp, policy: DbrPolicy
    ) -> None:
        extra = 0x6000_0000
        machine.bus.map(extra, 4096)
        key = driver.register(extra, 4096)
        qp = make_qp(
            policy=policy,
            ring_key=key,
            sq_log_size=1,
            rq_log_size=1,
            sq_address=driver.virtual(extra),
            rq_address=driver.virtual(extra + 1024),
            dbr_address=driver.virtual(extra + 2048),
        )
        machine.bus.unmap(extra)
        qp.ring(1)
        assert qp.query().state == QpState.ERR
        assert [event.type for event in driver.events()] == [AsyncEvent.QP_FATAL]
