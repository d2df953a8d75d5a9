# SPDX-License-Identifier: Apache-2.0
"""Doorbell blocks, and doorbell pages that are memory."""

from __future__ import annotations

import pytest

from emu.checks.rule import Rule
from emu.clock import MS
from emu.personality.vrnic.blocks import BLOCKS
from emu.personality.vrnic.contract.codes import AdminOpcode
from emu.personality.vrnic.contract.descriptors import DoorbellOffset, DoorbellType
from emu.personality.vrnic.contract.identity import (
    DOORBELL_BLOCK_BASE,
    DOORBELL_BLOCK_SIZE,
    DOORBELL_PAGE_SIZE,
)
from emu.personality.vrnic.mapped import MappedDoorbells
from tests.personality.bare_machine import GID, MAC, BareMachine
from tests.personality.driver import Driver, Qp


def ready(machine: BareMachine) -> tuple[Driver, Qp]:
    """A driver and a queue pair in RTS."""
    driver = Driver(machine)
    driver.up()
    qp = driver.create_qp(driver.create_cq())
    driver.to_init(qp)
    driver.to_rtr(qp, dest_qpn=0x200, dest_gid=GID, dest_mac=MAC)
    driver.to_rts(qp)
    return driver, qp


def block_of(machine: BareMachine, qp: Qp) -> int:
    """Offset of the queue pair's block in the doorbell BAR."""
    (found,) = [
        offset
        for offset in machine.blocks.live()
        if machine.blocks.owner(offset // DOORBELL_PAGE_SIZE, offset % DOORBELL_PAGE_SIZE) == qp.number
    ]
    return found


def test_a_block_rings_its_queue_pair() -> None:
    machine = BareMachine()
    _, qp = ready(machine)
    at = block_of(machine, qp)
    assert at % DOORBELL_PAGE_SIZE >= DOORBELL_BLOCK_BASE
    machine.write(
        2, at + DoorbellOffset.SQ, Driver.doorbell_value(DoorbellType.SQ, qp.number, 1).to_bytes(8, "little")
    )
    assert machine.nic.counters.doorbells == 1
    assert machine.nic.qps.items[qp.number].doorbell == 1


def test_a_foreign_block_is_refused_by_name() -> None:
    machine = BareMachine()
    driver, qp = ready(machine)
    other = driver.create_qp(driver.create_cq())
    at = block_of(machine, other)
    machine.write(2, at, Driver.doorbell_value(DoorbellType.SQ, qp.number, 1).to_bytes(8, "little"))
    assert machine.nic.checks.last_rule is Rule.C02_OWNER
    assert machine.nic.counters.doorbells == 0


def test_blocks_run_out_and_come_back() -> None:
    machine = BareMachine()
    driver, qp = ready(machine)
    cq = driver.create_cq()
    made = [driver.create_qp(cq) for _ in range(BLOCKS)]
    assert len(machine.blocks.live()) == BLOCKS
    assert not machine.blocks.free(driver.ctx)
    driver.command(AdminOpcode.DESTROY_QP, object=made[0].number)
    assert machine.blocks.free(driver.ctx)
    machine.reset()
    assert machine.blocks.live() == []
    assert qp.number not in machine.nic.qps.items


@pytest.fixture
def mapped() -> tuple[BareMachine, MappedDoorbells]:
    """A NIC whose pages are memory beside the trapped ones of the test."""
    machine = BareMachine()
    pages = MappedDoorbells("pages", 1 << 20, machine.blocks, machine.doorbells, machine.clock)
    return machine, pages


def test_a_stored_value_is_seen_soon_and_once(mapped: tuple[BareMachine, MappedDoorbells]) -> None:
    machine, pages = mapped
    _, qp = ready(machine)
    at = block_of(machine, qp)
    pages.memory.view[at : at + 8] = Driver.doorbell_value(DoorbellType.SQ, qp.number, 2).to_bytes(
        8, "little"
    )
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    assert machine.nic.qps.items[qp.number].doorbell == 2
    assert machine.nic.counters.doorbells == 1
    machine.clock.run(until=machine.clock.now() + 5 * MS)
    assert machine.nic.counters.doorbells == 1


def test_of_several_values_the_last_counts(mapped: tuple[BareMachine, MappedDoorbells]) -> None:
    machine, pages = mapped
    _, qp = ready(machine)
    at = block_of(machine, qp)
    for index in (1, 2, 3):
        pages.memory.view[at : at + 8] = Driver.doorbell_value(DoorbellType.SQ, qp.number, index).to_bytes(
            8, "little"
        )
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    assert machine.nic.qps.items[qp.number].doorbell == 3
    assert machine.nic.counters.doorbells == 1


def test_the_start_of_a_page_is_not_looked_at(mapped: tuple[BareMachine, MappedDoorbells]) -> None:
    machine, pages = mapped
    driver, qp = ready(machine)
    at = driver.ctx * DOORBELL_PAGE_SIZE
    pages.memory.view[at : at + 8] = Driver.doorbell_value(DoorbellType.SQ, qp.number, 1).to_bytes(
        8, "little"
    )
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    assert machine.nic.counters.doorbells == 0


def test_garbage_in_a_block_is_named_and_harms_nobody(mapped: tuple[BareMachine, MappedDoorbells]) -> None:
    machine, pages = mapped
    _, qp = ready(machine)
    at = block_of(machine, qp)
    pages.memory.view[at : at + DOORBELL_BLOCK_SIZE] = bytes(range(1, 1 + DOORBELL_BLOCK_SIZE))
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    assert machine.nic.counters.doorbells == 0
    assert machine.nic.counters.check_violations >= len(DoorbellOffset)


def test_a_look_costs_nothing_once_nobody_has_a_block(mapped: tuple[BareMachine, MappedDoorbells]) -> None:
    machine, pages = mapped
    driver, qp = ready(machine)
    driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    looks = pages.looks
    machine.clock.run(until=machine.clock.now() + 100 * MS)
    assert pages.looks == looks
    again = driver.create_qp(driver.create_cq())
    machine.clock.run(until=machine.clock.now() + 1 * MS)
    assert pages.looks > looks
    # What its predecessor left there is not its own.
    assert machine.nic.qps.items[again.number].doorbell == 0
