# SPDX-License-Identifier: Apache-2.0
"""BAR0: every register, and every way to touch one wrongly."""

from __future__ import annotations

import pytest

from emu.checks.rule import Rule
from emu.events import Kind
from emu.personality.vrnic.contract import ABI_VERSION
from emu.personality.vrnic.contract.codes import AdminOpcode, EventType, FatalCause
from emu.personality.vrnic.contract.registers import (
    COUNTER_OFFSET,
    COUNTERS,
    EQ_CONSUMER_OFFSET,
    NIC_REGISTERS,
    Register,
    RegisterAccess,
)
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Driver

RESET, ENABLE = 1, 2


@pytest.fixture
def machine() -> BareMachine:
    return BareMachine()


@pytest.fixture
def driver(machine: BareMachine) -> Driver:
    return Driver(machine)


def by_name(register: Register) -> str:
    return register.name


EXPECTED = {
    "MAGIC": 0x434E5256,
    "ABI_VERSION": ABI_VERSION,
    "VECTORS": 32,
    "DOORBELL_PAGES": 256,
    "MAX_PD": 65536,
    "MAX_MR": 1 << 20,
    "MAX_EQ": 31,
    "MAX_CQ": 1 << 20,
    "MAX_QP": 1 << 20,
    "MAX_LOG_RING": 16,
    "MAX_INLINE": 32,
    "MAX_MESSAGE": 1 << 31,
    "PORT_STATE": 4,
    "PORT_MTU": 4096,
    "PORT_SPEED": 100_000,
    "DOORBELL_MODE": 0,
    "MAC_LOW": 0x00727602,
    "MAC_HIGH": 0x0100,
    "CONTROL": 0,
    "STATUS": 1,
    "FATAL_CAUSE": 0,
    "ADMIN_SQ_BASE": 0,
    "ADMIN_RQ_BASE": 0,
    "ADMIN_LOG_SIZE": 0,
    "ADMIN_DOORBELL": 0,
    "ADMIN_HEAD": 0,
    "CHECK_COUNT": 0,
    "CHECK_ID": 0,
    "CHECK_QPN": 0,
    "CHECK_INDEX": 0,
    "CHECK_SELECT": 0,
    "CHECK_ACTION": 0,
    "CHECK_SELECTED": 0,
}
AFTER_MISUSE = {**EXPECTED, "CHECK_COUNT": 1, "CHECK_ID": Rule.C32_REGISTER}


@pytest.mark.parametrize("register", NIC_REGISTERS, ids=by_name)
def test_every_register_reads_its_power_on_value(driver: Driver, register: Register) -> None:
    assert driver.reg(register.name) == EXPECTED[register.name]
    assert driver.counter("bad_mmio") == 0


@pytest.mark.parametrize(
    "register",
    [register for register in NIC_REGISTERS if register.access is RegisterAccess.RO],
    ids=by_name,
)
def test_a_write_to_a_read_only_register_is_ignored_and_counted(driver: Driver, register: Register) -> None:
    driver.set_reg(register.name, 0xFFFFFFFF)
    assert driver.reg(register.name) == AFTER_MISUSE[register.name]
    assert driver.counter("bad_mmio") == 1


@pytest.mark.parametrize(
    "register", [register for register in NIC_REGISTERS if register.width == 8], ids=by_name
)
def test_an_8_byte_register_can_be_read_in_halves(machine: BareMachine, register: Register) -> None:
    low, high = machine.read(0, register.offset, 4), machine.read(0, register.offset + 4, 4)
    assert low | high << 32 == machine.read(0, register.offset, 8)
    assert machine.nic.counters.bad_mmio == 0


@pytest.mark.parametrize("name", ["ADMIN_SQ_BASE", "ADMIN_RQ_BASE"])
def test_an_address_can_be_written_in_halves(machine: BareMachine, driver: Driver, name: str) -> None:
    offset = next(register.offset for register in NIC_REGISTERS if register.name == name)
    machine.write(0, offset, bytes.fromhex("44332211"))
    machine.write(0, offset + 4, bytes.fromhex("88776655"))
    assert driver.reg(name) == 0x5566778811223344
    machine.write(0, offset, bytes.fromhex("00000000"))
    assert driver.reg(name) == 0x5566778800000000


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (0, 2), (0, 8), (2, 4), (1, 2), (0x2C, 8), (0x100, 16)])
def test_a_read_of_the_wrong_width_or_alignment_gives_zero(
    machine: BareMachine, offset: int, size: int
) -> None:
    assert machine.read(0, offset, size) == 0
    assert machine.nic.counters.bad_mmio == 1


@pytest.mark.parametrize("offset", [0x30, 0x8C, 0x1F8, 0x2F8, 0x7F8, 0x830, 0xFFFC])
def test_offsets_without_a_register_read_zero_and_take_no_write(machine: BareMachine, offset: int) -> None:
    assert machine.read(0, offset, 4) == 0
    machine.write(0, offset, b"\xff" * 4)
    assert machine.nic.counters.bad_mmio == 2


@pytest.mark.parametrize("data", [b"\1", b"\1\0", b"\1" + bytes(7), b""])
def test_a_write_of_the_wrong_width_changes_nothing(
    machine: BareMachine, driver: Driver, data: bytes
) -> None:
    machine.write(0, 0x110, data)
    assert driver.reg("ADMIN_LOG_SIZE") == 0
    assert machine.nic.counters.bad_mmio == 1


def test_counters_follow_the_table(machine: BareMachine) -> None:
    for number, (name, _) in enumerate(COUNTERS):
        setattr(machine.nic.counters, name, 1 << 40 | number)
    for number, (name, _) in enumerate(COUNTERS):
        if name != "mmio_reads":
            assert machine.read(0, COUNTER_OFFSET + 8 * number, 8) == 1 << 40 | number
            assert machine.read(0, COUNTER_OFFSET + 8 * number + 4, 4) == 1 << 8


def test_counters_cannot_be_written(machine: BareMachine) -> None:
    machine.write(0, COUNTER_OFFSET, bytes(8))
    assert machine.nic.counters.bad_mmio == 1


def test_the_port_shows_its_link(machine: BareMachine, driver: Driver) -> None:
    driver.up()
    machine.port.set_link(False)
    assert driver.reg("PORT_STATE") == 1
    machine.port.set_link(True)
    assert driver.reg("PORT_STATE") == 4
    assert [event.type for event in driver.events()] == [EventType.PORT_ERR, EventType.PORT_ACTIVE]


def test_enable_starts_the_admin_queue(driver: Driver) -> None:
    driver.enable()
    assert driver.reg("CONTROL") == ENABLE
    assert driver.reg("STATUS") == 0b011
    driver.command(AdminOpcode.NOP)
    assert driver.reg("ADMIN_HEAD") == 1


def test_admin_registers_are_latched_while_enabled(driver: Driver) -> None:
    driver.enable()
    for name in ("ADMIN_SQ_BASE", "ADMIN_RQ_BASE", "ADMIN_LOG_SIZE"):
        before = driver.reg(name)
        driver.set_reg(name, before + 64)
        assert driver.reg(name) == before
    assert driver.counter("bad_mmio") == 3


def test_disabling_stops_and_enabling_starts_at_zero(driver: Driver) -> None:
    driver.enable()
    driver.command(AdminOpcode.NOP)
    driver.set_reg("CONTROL", 0)
    assert driver.reg("STATUS") == 1
    driver.set_reg("ADMIN_DOORBELL", 1)
    assert driver.counter("bad_mmio") == 1
    driver.enable()
    assert driver.reg("ADMIN_HEAD") == 0
    driver.command(AdminOpcode.NOP)


@pytest.mark.parametrize("value", [4, 0x80000000, 0xFFFFFFFF])
def test_unknown_control_bits_are_refused(driver: Driver, value: int) -> None:
    driver.set_reg("CONTROL", value)
    assert driver.reg("CONTROL") == 0
    assert driver.counter("bad_mmio") == 1


@pytest.mark.parametrize("log_size", [0, 9, 32, 0xFFFFFFFF])
def test_an_impossible_admin_ring_size_is_fatal(driver: Driver, log_size: int) -> None:
    driver.set_reg("ADMIN_SQ_BASE", driver.commands)
    driver.set_reg("ADMIN_RQ_BASE", driver.replies)
    driver.set_reg("ADMIN_LOG_SIZE", log_size)
    driver.set_reg("CONTROL", ENABLE)
    assert driver.reg("STATUS") == 0b101
    assert driver.reg("FATAL_CAUSE") == FatalCause.ADMIN_LOG_SIZE


@pytest.mark.parametrize("name", ["ADMIN_SQ_BASE", "ADMIN_RQ_BASE"])
@pytest.mark.parametrize("address", [0, 0x1000_0020])
def test_a_bad_admin_ring_address_is_fatal(driver: Driver, name: str, address: int) -> None:
    driver.set_reg("ADMIN_SQ_BASE", driver.commands)
    driver.set_reg("ADMIN_RQ_BASE", driver.replies)
    driver.set_reg("ADMIN_LOG_SIZE", 3)
    driver.set_reg(name, address)
    driver.set_reg("CONTROL", ENABLE)
    assert driver.reg("FATAL_CAUSE") == FatalCause.ADMIN_BASE


def test_an_absurd_admin_doorbell_is_fatal_and_says_so_to_the_driver(driver: Driver) -> None:
    driver.up()
    driver.set_reg("ADMIN_DOORBELL", driver.sequence + 9)
    assert driver.reg("STATUS") == 0b101
    assert driver.reg("FATAL_CAUSE") == FatalCause.ADMIN_DOORBELL
    assert [event.type for event in driver.events()] == [EventType.DEVICE_FATAL]


def test_an_older_admin_doorbell_is_fatal(driver: Driver) -> None:
    driver.up()
    driver.set_reg("ADMIN_DOORBELL", driver.sequence - 1)
    assert driver.reg("FATAL_CAUSE") == FatalCause.ADMIN_DOORBELL


def test_an_unreachable_admin_ring_is_fatal(machine: BareMachine, driver: Driver) -> None:
    driver.set_reg("ADMIN_SQ_BASE", 0xDEAD_0000_0000)
    driver.set_reg("ADMIN_RQ_BASE", driver.replies)
    driver.set_reg("ADMIN_LOG_SIZE", 3)
    driver.set_reg("CONTROL", ENABLE)
    driver.set_reg("ADMIN_DOORBELL", 1)
    machine.settle()
    assert driver.reg("FATAL_CAUSE") == FatalCause.ADMIN_DMA
    assert driver.counter("dma_errors") == 1


def test_only_a_reset_ends_fatal(driver: Driver) -> None:
    driver.set_reg("CONTROL", ENABLE)
    assert driver.reg("STATUS") & 4
    driver.set_reg("CONTROL", ENABLE)
    driver.set_reg("CONTROL", 0)
    assert driver.reg("STATUS") == 0b101
    driver.set_reg("CONTROL", RESET)
    assert driver.reg("STATUS") == 1
    assert driver.reg("FATAL_CAUSE") == 0
    driver.up()


def test_reset_returns_every_register_to_its_power_on_value(machine: BareMachine, driver: Driver) -> None:
    driver.up()
    machine.write(2, 0, b"\0")
    machine.nic.gids.set(0, bytes(15) + b"\1")
    driver.set_reg("CONTROL", RESET | ENABLE)
    for name, value in EXPECTED.items():
        assert driver.reg(name) == value, name
    assert machine.nic.counters.admin_commands == 0
    assert machine.nic.gids.get(0) == bytes.fromhex("fe80000000000000007672fffe000001")
    assert set(machine.nic.objects().to_json().values()) == {0}


def test_commands_waiting_at_a_reset_are_dropped(machine: BareMachine, driver: Driver) -> None:
    driver.up()
    machine.store(driver.commands + 64 * (driver.sequence % 8), driver.build(AdminOpcode.ALLOC_CTX))
    driver.set_reg("ADMIN_DOORBELL", driver.sequence + 1)
    driver.set_reg("CONTROL", RESET)
    machine.settle()
    assert machine.nic.objects().contexts == 0


def test_a_consumer_index_of_an_absent_eq_is_ignored(machine: BareMachine) -> None:
    machine.write(0, EQ_CONSUMER_OFFSET + 8, bytes(8))
    assert machine.nic.counters.bad_mmio == 1


def test_a_consumer_index_takes_either_width(machine: BareMachine, driver: Driver) -> None:
    driver.up()
    machine.write(0, EQ_CONSUMER_OFFSET, bytes(4))
    machine.write(0, EQ_CONSUMER_OFFSET + 4, bytes(4))
    assert machine.read(0, EQ_CONSUMER_OFFSET, 8) == 0
    assert machine.nic.counters.bad_mmio == 0


def test_accesses_are_traced_with_their_names(machine: BareMachine, driver: Driver) -> None:
    driver.reg("MAGIC")
    driver.set_reg("ADMIN_LOG_SIZE", 5)
    driver.set_reg("MAGIC", 5)
    assert machine.events.texts(Kind.MMIO_READ) == ["BAR0 0x000: MAGIC is 0x434e5256"]
    assert machine.events.texts(Kind.MMIO_WRITE) == [
        "BAR0 0x110: ADMIN_LOG_SIZE = 0x5",
        "BAR0 0x000: MAGIC = 0x5",
        "BAR0 0x000: ignored: MAGIC is read only",
    ]


def test_the_snapshot_reads_without_counting(machine: BareMachine) -> None:
    rows = {row["name"]: row["value"] for row in machine.registers.snapshot()}
    assert rows == EXPECTED
    assert machine.nic.counters.mmio_reads == 0
