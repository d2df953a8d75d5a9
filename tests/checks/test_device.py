# SPDX-License-Identifier: Apache-2.0
"""What the device finds by itself: each rule is broken by a driver of the test, and kept by the same one."""

from __future__ import annotations

from typing import Any

import pytest

from emu.checks.registers import PATIENCE
from emu.checks.rule import Rule
from emu.clock import MS
from emu.nic.work import ModifyMask, Opcode, QpState
from emu.personality.vrnic.contract.codes import AdminOpcode, CqMode, DbrPolicy
from emu.personality.vrnic.contract.descriptors import CQE_SIZE, DoorbellType
from tests.checks.pair import Pair
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Driver

SECOND = 1000 * MS


def test_work_without_a_mistake_is_silent() -> None:
    pair = Pair()
    for _ in range(40):
        pair.post()
        pair.run()
    pair.run(5 * SECOND)
    assert pair.a.rules() == pair.b.rules() == []


def test_a_changed_wqe_is_named_with_its_place() -> None:
    pair = Pair()
    index = pair.post()
    pair.a.machine.settle()
    slot = pair.a.qp.slot(index)
    pair.a.machine.store(slot + 12, b"\xaa")
    pair.run()
    (found,) = pair.a.violations()
    assert (found.rule, found.qpn, found.index) == (Rule.C04_CHANGED, pair.a.qp.number, index)
    assert found.address == slot
    assert "from byte 12 of the slot" in found.text


def test_a_changed_payload_is_named_with_its_address() -> None:
    pair = Pair()
    index = pair.post(512)
    pair.a.machine.settle()
    pair.a.machine.store(pair.a.window + 500, b"\xaa")
    pair.run()
    (found,) = pair.a.violations()
    assert (found.rule, found.index) == (Rule.C05_REUSE, index)
    assert found.address == pair.a.driver.virtual(pair.a.window)


def test_a_payload_that_is_sent_again_must_not_change_meanwhile() -> None:
    pair = Pair(loss=0.9)
    pair.post(4096 * 3)
    for _ in range(400):
        pair.a.machine.store(pair.a.window, pair.clock.now().to_bytes(8, "little"))
        pair.run(MS)
    assert Rule.C05_REUSE in pair.a.rules()
    assert any("sent again" in found.text for found in pair.a.violations())


def test_a_record_that_stays_behind_is_named_when_the_queue_pair_is_idle() -> None:
    pair = Pair()
    pair.post(ring=False)
    pair.a.qp.ring(settle=False)
    pair.run(SECOND)
    (found,) = pair.a.violations()
    assert found.rule is Rule.C08_DBR
    assert "store it before each doorbell" in found.text


def test_a_written_slot_that_nobody_rings_for_is_named() -> None:
    pair = Pair()
    pair.post()
    pair.post(ring=False)
    pair.run(SECOND)
    assert pair.a.rules() == []
    pair.run(2 * SECOND)
    (found,) = pair.a.violations()
    assert (found.rule, found.index) == (Rule.C14_UNRUNG, 1)


def test_a_lost_doorbell_is_named_unless_something_makes_up_for_it() -> None:
    pair = Pair(policy=DbrPolicy.NONE)
    pair.post(ring=False)
    watch = pair.a.machine.nic.checks.watch
    assert watch is not None
    watch.idle.lost(pair.a.qp.number, 1)
    pair.run(SECOND)
    assert pair.a.rules() == [Rule.C13_LOST_DOORBELL]
    watch.idle.lost(pair.a.qp.number, 1)
    pair.a.qp.ring(settle=False)
    pair.run(SECOND)
    assert pair.a.rules() == [Rule.C13_LOST_DOORBELL]


@pytest.mark.parametrize(
    ("byte", "named"), [(0, False), (0xFF, False), (0x5A, False), (0xF1, False), (None, True)]
)
def test_memory_of_a_cq_must_be_clear(byte: int | None, named: bool) -> None:
    machine = BareMachine()
    driver = Driver(machine)
    driver.up()
    at = driver.allocate(CQE_SIZE * 16)
    content = bytes(range(256)) * 4 if byte is None else bytes((byte,)) * (CQE_SIZE * 16)
    if byte == 0x5A:
        content = (bytes(CQE_SIZE - 1) + b"\x5a") * 16
    if byte == 0xF1:
        content = (bytes(range(CQE_SIZE - 1)) + b"\xf1") * 16
    machine.store(at, content)
    driver.command(
        AdminOpcode.CREATE_CQ,
        ctx=driver.ctx,
        eq=driver.eq,
        mode=CqMode.RING,
        log_size=4,
        ring_key=driver.key,
        ring_address=driver.virtual(at),
    )
    assert (machine.nic.checks.last_rule is Rule.C16_UNPREPARED) == named


def test_posting_long_after_an_error_is_named_and_acting_is_not() -> None:
    pair = Pair()
    pair.post(rkey=0xDEAD00)
    pair.run()
    pair.post()
    pair.run(MS)
    assert Rule.C17_IGNORED_ERROR not in pair.a.rules()
    pair.run(SECOND)
    pair.post()
    assert pair.a.rules()[-1] is Rule.C17_IGNORED_ERROR
    count = len(pair.a.rules())
    pair.a.driver.modify(pair.a.qp, ModifyMask.STATE, state=QpState.ERR)
    pair.run(SECOND)
    pair.post()
    assert Rule.C17_IGNORED_ERROR not in pair.a.rules()[count:]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"path_mtu": 2}, "its path MTU is 512"),
        ({"rq_psn": 77}, "77 is expected"),
        ({"dest_gid": bytes(15) + b"\x09"}, "exchange GIDs"),
        ({"dest_qpn": 0xABCDEF}, "which does not exist"),
        ({"max_dest_rd_atomic": 0}, "the responder allows 0"),
    ],
)
def test_ends_that_differ_are_named(values: dict[str, object], text: str) -> None:
    pair = Pair(connect=False)
    a, b = pair.a, pair.b
    a.driver.connect(a.qp, b.driver, b.qp)
    there = a.driver.gid(0)
    fields: dict[str, Any] = {"dest_qpn": a.qp.number, "dest_gid": there.gid, "dest_mac": there.mac}
    fields |= values
    b.driver.to_init(b.qp)
    b.driver.to_rtr(b.qp, **fields)
    b.driver.to_rts(b.qp)
    found = [violation.text for violation in a.violations() + b.violations()]
    assert any(text in line for line in found), found
    assert set(a.rules() + b.rules()) == {Rule.C26_PATH}


def test_a_connection_without_retries_or_timeout_is_named_once_it_matters() -> None:
    pair = Pair(connect=False, loss=0.99)
    a, b = pair.a, pair.b
    b.driver.connect(b.qp, a.driver, a.qp)
    there = b.driver.gid(0)
    a.driver.to_init(a.qp)
    a.driver.to_rtr(a.qp, dest_qpn=b.qp.number, dest_gid=there.gid, dest_mac=there.mac)
    a.driver.to_rts(a.qp, timeout=0)
    assert a.rules() == []
    pair.post()
    pair.run(2 * SECOND)
    assert a.rules() == [Rule.C27_RETRY]
    assert "timeout is 0" in a.violations()[0].text


def test_what_is_left_behind_is_named() -> None:
    pair = Pair()
    pair.post()
    pair.a.driver.command(AdminOpcode.DESTROY_QP, object=pair.a.qp.number)
    pair.a.driver.command(AdminOpcode.FREE_CTX, ctx=pair.a.driver.ctx, force=1)
    first, second = pair.a.violations()
    assert first.rule is second.rule is Rule.C30_LIFECYCLE
    assert "destroyed in RTS" in first.text
    assert "leaves 1 CQs, 1 memory regions, 1 protection domains" in second.text


def test_an_orderly_end_is_silent() -> None:
    pair = Pair()
    pair.post()
    pair.run()
    driver = pair.a.driver
    driver.command(AdminOpcode.DESTROY_QP, object=pair.a.qp.number)
    driver.command(AdminOpcode.DESTROY_CQ, object=pair.a.cq.number)
    driver.command(AdminOpcode.DEREG_MR, object=driver.key)
    driver.command(AdminOpcode.FREE_PD, object=driver.pd)
    driver.command(AdminOpcode.FREE_CTX, ctx=driver.ctx)
    assert pair.a.rules() == []


def test_polling_what_cannot_change_is_named() -> None:
    machine = BareMachine()
    driver = Driver(machine)
    for _ in range(PATIENCE - 1):
        driver.reg("STATUS")
    assert not machine.nic.checks.violations
    driver.reg("STATUS")
    (found,) = machine.nic.checks.violations
    assert found.rule is Rule.C31_SPIN
    assert "STATUS was read" in found.text


def test_reading_in_turns_and_waiting_for_a_command_are_no_spinning() -> None:
    machine = BareMachine()
    driver = Driver(machine)
    driver.up()
    command = driver.build(AdminOpcode.NOP)
    machine.store(driver.commands + 64 * (driver.sequence % 8), command)
    driver.set_reg("ADMIN_DOORBELL", driver.sequence + 1)
    for _ in range(2 * PATIENCE):
        driver.reg("ADMIN_HEAD")
    for _ in range(PATIENCE):
        driver.reg("MAGIC")
        driver.reg("VECTORS")
        driver.reg("PORT_STATE")
    assert machine.nic.checks.last_rule is Rule.NONE


def test_registers_that_are_not_there_are_named() -> None:
    machine = BareMachine()
    machine.read(0, 0x30, 4)
    machine.write(0, 0x118, bytes(4))
    read, write = machine.nic.checks.violations
    assert read.rule is write.rule is Rule.C32_REGISTER
    assert "near it is MAX_MESSAGE" in read.text
    assert "ADMIN_HEAD is read only" in write.text


def test_events_that_nobody_armed_for_are_named() -> None:
    pair = Pair()
    for _ in range(2):
        pair.a.cq.doorbell(DoorbellType.CQ_ARM)
        pair.post()
        pair.run()
        pair.a.cq.poll()
    assert pair.a.rules() == []
    pair.run(3 * SECOND)
    assert pair.a.rules() == [Rule.C33_REARM]


def test_an_armed_event_queue_is_silent() -> None:
    pair = Pair()
    for number in range(1, 3):
        pair.a.cq.doorbell(DoorbellType.CQ_ARM)
        pair.post()
        pair.run()
        pair.a.cq.poll()
        pair.a.machine.write(0, 0x200 + 8 * pair.a.driver.eq, number.to_bytes(4, "little"))
    pair.run(3 * SECOND)
    assert pair.a.rules() == []


def test_work_that_never_completes_is_not_kept_for_ever() -> None:
    pair = Pair()
    for _ in range(100):
        pair.post(signal=False)
        pair.run(MS)
    watch = pair.a.machine.nic.checks.watch
    assert watch is not None
    flight = watch.reuse._flights[pair.a.qp.number]
    assert len(flight.bursts) == len(flight.requests) == len(flight.sums) == 16
    assert pair.a.rules() == []


def test_a_nop_has_nothing_to_compare() -> None:
    pair = Pair()
    pair.post(0, opcode=Opcode.NOP, rkey=0, lkey=0, remote_address=0, local_address=0)
    pair.run()
    assert pair.a.rules() == []
