# SPDX-License-Identifier: Apache-2.0
"""Admin commands: each one good, each field refused with its offset, ownership, order of destruction."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from emu.clock import MS, VirtualScheduler
from emu.events import Kind
from emu.nic.limits import NicLimits
from emu.nic.work import Access, ModifyMask, QpState, Transport
from emu.personality.vrnic.contract import commands
from emu.personality.vrnic.contract.codes import (
    AdminOpcode,
    AdminStatus,
    CqMode,
    CqOverrun,
    DbrPolicy,
    MrFlags,
)
from emu.personality.vrnic.contract.commands import COMMANDS, NO_EQ, NO_RECEIVE_RING, GidCommand, RegMr
from tests.personality.bare_machine import GID, MAC, BareMachine
from tests.personality.driver import ALL, Driver, Refused, offset_of

PEER: dict[str, Any] = {"dest_qpn": 0x200, "dest_gid": GID, "dest_mac": MAC}
NOTHING = {"contexts": 0, "pds": 0, "mrs": 0, "eqs": 0, "cqs": 0, "qps": 0, "ahs": 0}


@pytest.fixture
def machine() -> BareMachine:
    return BareMachine()


@pytest.fixture
def driver(machine: BareMachine) -> Driver:
    made = Driver(machine)
    made.up()
    return made


def refusal(driver: Driver, opcode: AdminOpcode, **values: Any) -> tuple[AdminStatus, str]:
    """Status and field name of a command that must be refused; the device must not have changed."""
    before = driver.objects()
    with pytest.raises(Refused) as caught:
        driver.command(opcode, **values)
    assert driver.objects() == before
    layout = COMMANDS[opcode][0]
    names = {offset_of(layout, part.name): part.name for part in layout.subcons}
    return caught.value.status, names[caught.value.offset]


def test_every_opcode_has_a_handler(driver: Driver) -> None:
    for opcode in AdminOpcode:
        reply = COMMANDS[AdminOpcode.NOP][1].parse(driver.submit(driver.build(opcode)))
        assert reply.status != AdminStatus.BAD_OPCODE
        assert reply.sequence == driver.sequence


def test_an_unknown_opcode_is_refused(driver: Driver) -> None:
    reply = commands.Reply.parse(driver.submit(struct.pack("<HHI56x", 0x7777, 0, 1)))
    assert (reply.status, reply.refused, reply.sequence) == (AdminStatus.BAD_OPCODE, 0, driver.sequence)
    assert driver.counter("admin_errors") == 1


@pytest.mark.parametrize("opcode", list(AdminOpcode))
def test_command_flags_must_be_zero(driver: Driver, opcode: AdminOpcode) -> None:
    assert refusal(driver, opcode, command_flags=1) == (AdminStatus.BAD_FIELD, "command_flags")


@pytest.mark.parametrize(
    "opcode", [code for code in AdminOpcode if COMMANDS[code][0] is not commands.Command]
)
def test_reserved_fields_must_be_zero(driver: Driver, opcode: AdminOpcode) -> None:
    layout = COMMANDS[opcode][0]
    for part in layout.subcons:
        if part.name.startswith("reserved"):
            command = bytearray(driver.build(opcode))
            command[offset_of(layout, part.name)] = 1
            reply = commands.Reply.parse(driver.submit(bytes(command)))
            assert (reply.status, reply.refused) == (AdminStatus.BAD_FIELD, offset_of(layout, part.name))


def test_replies_come_in_order_with_one_interrupt_a_burst(machine: BareMachine, driver: Driver) -> None:
    fired = machine.interrupts.fired.count(0)
    start = driver.sequence
    for number in range(8):
        slot = (start + number) % 8
        machine.store(driver.commands + 64 * slot, driver.build(AdminOpcode.NOP))
    machine.bus.log.clear()
    driver.set_reg("ADMIN_DOORBELL", start + 8)
    machine.settle()
    replies = [
        commands.Reply.parse(machine.load(driver.replies + 64 * ((start + n) % 8), 64)) for n in range(8)
    ]
    assert [reply.sequence for reply in replies] == [start + n + 1 for n in range(8)]
    assert machine.interrupts.fired.count(0) == fired + 1
    assert len(machine.bus.operations("read")) == 2


class SlowClock(VirtualScheduler):
    """Each look at the clock takes a millisecond, as a command with a long page list does."""

    def now(self) -> int:
        """Virtual time, later each time."""
        self._now += MS
        return self._now


def test_a_long_burst_leaves_the_loop_to_others_in_between() -> None:
    machine = BareMachine(clock=SlowClock())
    driver = Driver(machine)
    driver.enable()
    heads: list[int] = []

    def look() -> None:
        heads.append(machine.admin.head)
        if machine.admin.head < 8:
            machine.clock.call_soon(look)

    for slot in range(8):
        machine.store(driver.commands + 64 * slot, driver.build(AdminOpcode.NOP))
    driver.set_reg("ADMIN_DOORBELL", 8)
    machine.clock.call_soon(look)
    machine.clock.run()
    assert len(heads) > 2 and heads == sorted(set(heads)) and heads[-1] == 8
    replies = [commands.Reply.parse(machine.load(driver.replies + 64 * slot, 64)) for slot in range(8)]
    assert [reply.sequence for reply in replies] == [slot + 1 for slot in range(8)]


def test_the_commit_word_of_a_reply_is_written_last(machine: BareMachine, driver: Driver) -> None:
    slot = driver.replies + 64 * (driver.sequence % 8)
    machine.bus.log.clear()
    driver.command(AdminOpcode.NOP)
    assert machine.bus.operations("write") == [(slot + 8, 56), (slot, 8)]


def test_commands_are_traced_with_their_outcome(machine: BareMachine, driver: Driver) -> None:
    driver.command(AdminOpcode.NOP, tag=7)
    refusal(driver, AdminOpcode.FREE_PD, object=0x99)
    texts = machine.events.texts(Kind.COMMAND)
    assert "NOP tag 0x7 OK" in texts
    assert "FREE_PD tag 0x0 BAD_OBJECT: there is no protection domain 0x99" in texts


class TestContexts:
    def test_each_has_a_doorbell_page_of_its_own(self, driver: Driver) -> None:
        pages = [driver.command(AdminOpcode.ALLOC_CTX).ctx for _ in range(5)]
        assert len({driver.ctx, *pages}) == 6
        assert 0 not in pages

    def test_they_run_out(self, driver: Driver) -> None:
        for _ in range(254):
            driver.command(AdminOpcode.ALLOC_CTX)
        assert refusal(driver, AdminOpcode.ALLOC_CTX)[0] is AdminStatus.NO_RESOURCE

    def test_one_that_owns_something_is_busy(self, driver: Driver) -> None:
        assert refusal(driver, AdminOpcode.FREE_CTX, ctx=driver.ctx) == (AdminStatus.BUSY, "ctx")

    def test_force_destroys_what_it_owns(self, driver: Driver) -> None:
        cq = driver.create_cq()
        driver.create_qp(cq, policy=DbrPolicy.STRICT)
        driver.create_qp(cq)
        driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx)
        driver.command(AdminOpcode.FREE_CTX, ctx=driver.ctx, force=1)
        assert driver.objects() == NOTHING | {"eqs": 1}
        driver.command(AdminOpcode.DESTROY_EQ, object=driver.eq)
        assert driver.objects() == NOTHING

    def test_an_empty_one_needs_no_force(self, driver: Driver) -> None:
        before = driver.objects()
        driver.command(AdminOpcode.FREE_CTX, ctx=driver.command(AdminOpcode.ALLOC_CTX).ctx)
        assert driver.objects() == before

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"ctx": 200}, (AdminStatus.BAD_OBJECT, "ctx")),
            ({"ctx": 0}, (AdminStatus.BAD_OBJECT, "ctx")),
            ({"force": 2}, (AdminStatus.BAD_FIELD, "force")),
        ],
    )
    def test_bad_fields(
        self, driver: Driver, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        assert refusal(driver, AdminOpcode.FREE_CTX, **({"ctx": driver.ctx} | values)) == expected


class TestProtectionDomains:
    def test_made_and_freed(self, driver: Driver) -> None:
        pd = driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx).object
        driver.command(AdminOpcode.FREE_PD, object=pd)
        assert refusal(driver, AdminOpcode.FREE_PD, object=pd) == (AdminStatus.BAD_OBJECT, "object")

    def test_one_with_a_region_is_busy(self, driver: Driver) -> None:
        assert refusal(driver, AdminOpcode.FREE_PD, object=driver.pd) == (AdminStatus.BUSY, "object")

    def test_the_owner_must_exist(self, driver: Driver) -> None:
        assert refusal(driver, AdminOpcode.ALLOC_PD, ctx=99) == (AdminStatus.BAD_OBJECT, "ctx")

    def test_they_run_out(self) -> None:
        driver = Driver(BareMachine(limits=NicLimits(pds=1)))
        driver.up()
        assert refusal(driver, AdminOpcode.ALLOC_PD, ctx=driver.ctx)[0] is AdminStatus.NO_RESOURCE


class TestMemoryRegions:
    def region(self, driver: Driver, **values: Any) -> dict[str, Any]:
        base = driver.machine.ram_base
        listed = driver.allocate(64)
        driver.machine.store(listed, struct.pack("<3Q", base, base + 0x2000, base + 0x1000))
        fields: dict[str, Any] = {
            "pd": driver.pd,
            "access": ALL,
            "kind": 1,
            "page_shift": 12,
            "flags": 0,
            "page_count": 3,
            "address": 0x7000_0010,
            "length": 0x2FF0,
            "pages": listed,
        }
        return fields | values

    def test_a_page_list_gives_the_pages_in_its_order(self, machine: BareMachine, driver: Driver) -> None:
        key = driver.command(AdminOpcode.REG_MR, **self.region(driver)).object
        region = machine.nic.keys.get(key, "key")
        base = machine.ram_base
        assert region.translate(0x7000_0010, 0x2FF0) == [
            (base + 0x10, 0xFF0),
            (base + 0x2000, 0x1000),
            (base + 0x1000, 0x1000),
        ]
        assert not region.atomic_capable
        assert region.kind == 1

    def test_an_indirect_list_is_followed(self, machine: BareMachine, driver: Driver) -> None:
        pages = [(1 << 40) + 0x2000 * number for number in range(600)]
        blocks = [driver.allocate(4096), driver.allocate(4096)]
        machine.store(blocks[0], struct.pack("<512Q", *pages[:512]))
        machine.store(blocks[1], struct.pack("<88Q", *pages[512:]))
        listed = driver.allocate(16)
        machine.store(listed, struct.pack("<2Q", *blocks))
        key = driver.command(
            AdminOpcode.REG_MR,
            **self.region(
                driver,
                flags=MrFlags.INDIRECT,
                pages=listed,
                page_count=600,
                address=0x7000_0000,
                length=600 * 4096,
            ),
        ).object
        pieces = machine.nic.keys.get(key, "key").translate(0x7000_0000, 600 * 4096)
        assert pieces == [(page, 4096) for page in pages]

    def test_scattered_pages_of_all_regions_are_bounded(self) -> None:
        driver = Driver(BareMachine(limits=NicLimits(mr_pieces=6)))
        driver.up()  # its region over all of memory is one piece
        key = driver.command(AdminOpcode.REG_MR, **self.region(driver)).object
        assert refusal(driver, AdminOpcode.REG_MR, **self.region(driver))[0] is AdminStatus.NO_RESOURCE
        driver.command(AdminOpcode.DEREG_MR, object=key)
        driver.command(AdminOpcode.REG_MR, **self.region(driver))

    def test_big_pages(self, machine: BareMachine, driver: Driver) -> None:
        listed = driver.allocate(16)
        machine.store(listed, struct.pack("<2Q", 0x4000_0000, 0x8000_0000))
        key = driver.command(
            AdminOpcode.REG_MR,
            **self.region(driver, page_shift=21, page_count=2, pages=listed, address=0x1F_FFFF, length=2),
        ).object
        assert machine.nic.keys.get(key, "key").translate(0x1F_FFFF, 2) == [
            (0x401F_FFFF, 1),
            (0x8000_0000, 1),
        ]

    def test_each_reuse_of_an_index_changes_the_key(self) -> None:
        driver = Driver(BareMachine(limits=NicLimits(mrs=1)))
        driver.enable()
        driver.ctx = driver.command(AdminOpcode.ALLOC_CTX).ctx
        driver.pd = driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx).object
        keys = []
        for _ in range(20):
            key = driver.register(driver.machine.ram_base, 4096)
            driver.command(AdminOpcode.DEREG_MR, object=key)
            keys.append(key)
        assert len({key & 0xFF for key in keys}) == 20 or len({key >> 8 for key in keys}) > 1
        assert len(set(keys)) == 20

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"pd": 77}, (AdminStatus.BAD_OBJECT, "pd")),
            ({"access": 0x10}, (AdminStatus.BAD_FIELD, "access")),
            ({"access": Access.REMOTE_WRITE}, (AdminStatus.BAD_FIELD, "access")),
            ({"access": Access.REMOTE_ATOMIC}, (AdminStatus.BAD_FIELD, "access")),
            ({"kind": 2}, (AdminStatus.BAD_FIELD, "kind")),
            ({"page_shift": 11}, (AdminStatus.BAD_FIELD, "page_shift")),
            ({"page_shift": 22}, (AdminStatus.BAD_FIELD, "page_shift")),
            ({"flags": 32}, (AdminStatus.BAD_FIELD, "flags")),
            ({"flags": MrFlags.INDIRECT | MrFlags.CONTIGUOUS}, (AdminStatus.BAD_FIELD, "flags")),
            ({"page_count": 2}, (AdminStatus.BAD_FIELD, "page_count")),
            ({"page_count": 4}, (AdminStatus.BAD_FIELD, "page_count")),
            ({"flags": MrFlags.CONTIGUOUS}, (AdminStatus.BAD_FIELD, "page_count")),
            ({"length": 0}, (AdminStatus.BAD_FIELD, "length")),
            ({"address": (1 << 64) - 16, "length": 17}, (AdminStatus.BAD_FIELD, "length")),
            ({"page_count": 0xFFFFFFFF, "length": 0xFFFFFFFF << 12}, (AdminStatus.BAD_FIELD, "page_count")),
            ({"pages": 0xDEAD_0000_0000}, (AdminStatus.DMA_ERROR, "pages")),
            (
                {"flags": MrFlags.CONTIGUOUS, "page_count": 0, "pages": (1 << 64) - 1},
                (AdminStatus.BAD_FIELD, "pages"),
            ),
        ],
    )
    def test_bad_fields(
        self, driver: Driver, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        assert refusal(driver, AdminOpcode.REG_MR, **self.region(driver, **values)) == expected

    def test_a_page_off_its_alignment_is_refused(self, machine: BareMachine, driver: Driver) -> None:
        fields = self.region(driver)
        machine.store(fields["pages"] + 8, struct.pack("<Q", 0x1234))
        assert refusal(driver, AdminOpcode.REG_MR, **fields) == (AdminStatus.BAD_FIELD, "pages")

    def test_one_that_holds_a_ring_is_busy(self, driver: Driver) -> None:
        cq = driver.create_cq()
        assert refusal(driver, AdminOpcode.DEREG_MR, object=driver.key) == (AdminStatus.BUSY, "object")
        driver.command(AdminOpcode.DESTROY_CQ, object=cq.number)
        driver.command(AdminOpcode.DEREG_MR, object=driver.key)

    def test_a_freed_key_is_gone(self, driver: Driver) -> None:
        driver.command(AdminOpcode.DEREG_MR, object=driver.key)
        assert refusal(driver, AdminOpcode.DEREG_MR, object=driver.key) == (AdminStatus.BAD_OBJECT, "object")


class TestEventQueues:
    def fields(self, driver: Driver, **values: Any) -> dict[str, Any]:
        return {"vector": 2, "log_size": 1, "base": driver.allocate(64)} | values

    def test_made_and_destroyed(self, driver: Driver) -> None:
        eq = driver.command(AdminOpcode.CREATE_EQ, **self.fields(driver)).object
        driver.command(AdminOpcode.DESTROY_EQ, object=eq)
        assert refusal(driver, AdminOpcode.DESTROY_EQ, object=eq) == (AdminStatus.BAD_OBJECT, "object")

    def test_one_that_serves_a_cq_is_busy(self, driver: Driver) -> None:
        driver.create_cq()
        assert refusal(driver, AdminOpcode.DESTROY_EQ, object=driver.eq) == (AdminStatus.BUSY, "object")

    def test_they_run_out(self, driver: Driver) -> None:
        for _ in range(30):
            driver.command(AdminOpcode.CREATE_EQ, **self.fields(driver))
        assert refusal(driver, AdminOpcode.CREATE_EQ, **self.fields(driver))[0] is AdminStatus.NO_RESOURCE

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"vector": 0}, (AdminStatus.BAD_FIELD, "vector")),
            ({"vector": 32}, (AdminStatus.BAD_FIELD, "vector")),
            ({"log_size": 0}, (AdminStatus.BAD_FIELD, "log_size")),
            ({"log_size": 17}, (AdminStatus.BAD_FIELD, "log_size")),
            ({"base": 0x1000_0020}, (AdminStatus.BAD_FIELD, "base")),
            ({"base": 0}, (AdminStatus.BAD_FIELD, "base")),
            ({"base": 0x7777_0000}, (AdminStatus.DMA_ERROR, "base")),
            ({"base": 0x1010_0000 - 0x20 * 2, "log_size": 2}, (AdminStatus.DMA_ERROR, "base")),
        ],
    )
    def test_bad_fields(
        self, driver: Driver, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        assert refusal(driver, AdminOpcode.CREATE_EQ, **self.fields(driver, **values)) == expected


class TestCompletionQueues:
    @pytest.mark.parametrize("mode", list(CqMode))
    @pytest.mark.parametrize("overrun", list(CqOverrun))
    def test_made_and_destroyed(self, driver: Driver, mode: CqMode, overrun: CqOverrun) -> None:
        cq = driver.create_cq(mode, 3, overrun)
        driver.command(AdminOpcode.DESTROY_CQ, object=cq.number)
        assert driver.objects()["cqs"] == 0

    def test_one_without_an_eq(self, driver: Driver) -> None:
        cq = driver.create_cq(events=False)
        assert driver.objects()["cqs"] == 1
        # Nothing ties the EQ down, as a CQ that reports to it would.
        driver.command(AdminOpcode.DESTROY_EQ, object=driver.eq)
        driver.command(AdminOpcode.DESTROY_CQ, object=cq.number)
        assert driver.objects()["eqs"] == driver.objects()["cqs"] == 0

    def test_one_that_serves_a_qp_is_busy(self, driver: Driver) -> None:
        cq, other = driver.create_cq(), driver.create_cq()
        qp = driver.create_qp(cq, other)
        for number in (cq.number, other.number):
            assert refusal(driver, AdminOpcode.DESTROY_CQ, object=number) == (AdminStatus.BUSY, "object")
        driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
        for number in (cq.number, other.number):
            driver.command(AdminOpcode.DESTROY_CQ, object=number)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"ctx": 9}, (AdminStatus.BAD_OBJECT, "ctx")),
            ({"eq": 5}, (AdminStatus.BAD_OBJECT, "eq")),
            ({"mode": 3}, (AdminStatus.BAD_FIELD, "mode")),
            ({"overrun": 2}, (AdminStatus.BAD_FIELD, "overrun")),
            ({"log_size": 17}, (AdminStatus.BAD_FIELD, "log_size")),
            ({"log_size": 255}, (AdminStatus.BAD_FIELD, "log_size")),
            ({"log_size": 16}, (AdminStatus.BAD_FIELD, "ring_address")),
            ({"ring_key": 0}, (AdminStatus.BAD_OBJECT, "ring_key")),
            ({"ring_address": 32}, (AdminStatus.BAD_FIELD, "ring_address")),
            ({"ring_address": 0}, (AdminStatus.BAD_FIELD, "ring_address")),
            ({"ring_address": (1 << 64) - 64}, (AdminStatus.BAD_FIELD, "ring_address")),
        ],
    )
    def test_bad_fields(
        self, driver: Driver, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        fields: dict[str, Any] = {
            "ctx": driver.ctx,
            "eq": NO_EQ,
            "log_size": 2,
            "ring_key": driver.key,
            "ring_address": driver.virtual(driver.allocate(256)),
        }
        assert refusal(driver, AdminOpcode.CREATE_CQ, **(fields | values)) == expected

    def test_a_ring_needs_local_write(self, driver: Driver) -> None:
        key = driver.register(driver.machine.ram_base, 4096, access=Access.REMOTE_READ)
        with pytest.raises(Refused) as caught:
            driver.create_cq(ring_key=key, ring_address=driver.virtual(driver.machine.ram_base))
        assert caught.value.offset == offset_of(commands.CreateCq, "ring_key")

    def test_a_ring_in_another_contexts_memory_is_refused(self, driver: Driver) -> None:
        stranger = driver.command(AdminOpcode.ALLOC_CTX).ctx
        with pytest.raises(Refused) as caught:
            driver.create_cq(ctx=stranger)
        assert caught.value.status is AdminStatus.NOT_OWNER
        assert caught.value.offset == offset_of(commands.CreateCq, "ring_key")


class TestQueuePairs:
    def test_made_and_destroyed(self, driver: Driver) -> None:
        qp = driver.create_qp(driver.create_cq(), policy=DbrPolicy.RECOVERY)
        assert qp.query().state == QpState.RESET
        driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
        assert refusal(driver, AdminOpcode.DESTROY_QP, object=qp.number) == (AdminStatus.BAD_OBJECT, "object")
        assert refusal(driver, AdminOpcode.QUERY_QP, object=qp.number) == (AdminStatus.BAD_OBJECT, "object")

    def test_one_without_a_receive_ring(self, driver: Driver) -> None:
        qp = driver.create_qp(driver.create_cq(), rq_log_size=NO_RECEIVE_RING)
        assert qp.query().state == QpState.RESET
        ignored = driver.counter("doorbells_ignored")
        qp.ring_receive(1)
        assert driver.counter("doorbells_ignored") == ignored + 1
        assert qp.query().receive_doorbell == 0

    def test_numbers_are_not_reused_at_once(self, driver: Driver) -> None:
        cq = driver.create_cq()
        numbers = []
        for _ in range(10):
            qp = driver.create_qp(cq)
            driver.command(AdminOpcode.DESTROY_QP, object=qp.number)
            numbers.append(qp.number)
        assert len(set(numbers)) == 10

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"ctx": 9}, (AdminStatus.BAD_OBJECT, "ctx")),
            ({"pd": 9}, (AdminStatus.BAD_OBJECT, "pd")),
            ({"send_cq": 99}, (AdminStatus.BAD_OBJECT, "send_cq")),
            ({"recv_cq": 99}, (AdminStatus.BAD_OBJECT, "recv_cq")),
            ({"transport": 77}, (AdminStatus.BAD_FIELD, "transport")),
            ({"transport": Transport.UET_RUD}, (AdminStatus.UNSUPPORTED, "transport")),
            ({"sq_log_size": 0}, (AdminStatus.BAD_FIELD, "sq_log_size")),
            ({"sq_log_size": 17}, (AdminStatus.BAD_FIELD, "sq_log_size")),
            ({"rq_log_size": 17}, (AdminStatus.BAD_FIELD, "rq_log_size")),
            ({"dbr_policy": 4}, (AdminStatus.BAD_FIELD, "dbr_policy")),
            ({"ring_key": 0x1234}, (AdminStatus.BAD_OBJECT, "ring_key")),
            ({"sq_address": 32}, (AdminStatus.BAD_FIELD, "sq_address")),
            ({"sq_address": 0}, (AdminStatus.BAD_FIELD, "sq_address")),
            ({"rq_address": 16}, (AdminStatus.BAD_FIELD, "rq_address")),
            ({"rq_address": 1 << 63}, (AdminStatus.BAD_FIELD, "rq_address")),
            ({"dbr_policy": 3, "dbr_address": 4}, (AdminStatus.BAD_FIELD, "dbr_address")),
            ({"dbr_policy": 1, "dbr_address": 0}, (AdminStatus.BAD_FIELD, "dbr_address")),
            ({"flags": 4}, (AdminStatus.BAD_FIELD, "flags")),
        ],
    )
    def test_bad_fields(
        self, driver: Driver, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        cq = driver.create_cq()
        fields: dict[str, Any] = {
            "ctx": driver.ctx,
            "pd": driver.pd,
            "send_cq": cq.number,
            "recv_cq": cq.number,
            "sq_log_size": 2,
            "rq_log_size": 2,
            "ring_key": driver.key,
            "sq_address": driver.virtual(driver.allocate(256)),
            "rq_address": driver.virtual(driver.allocate(256)),
            "dbr_address": driver.virtual(driver.allocate(8)),
        }
        assert refusal(driver, AdminOpcode.CREATE_QP, **(fields | values)) == expected

    @pytest.mark.parametrize("field", ["pd", "send_cq", "recv_cq", "ring_key"])
    def test_objects_of_another_owner_are_refused(self, driver: Driver, field: str) -> None:
        """Another context's PD or CQ, and a ring in memory of another PD."""
        cq = driver.create_cq()
        stranger = driver.command(AdminOpcode.ALLOC_CTX).ctx
        if field == "ring_key":
            value = driver.register(
                driver.machine.ram_base,
                driver.machine.ram_size,
                pd=driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx).object,
            )
        else:
            value = driver.command(AdminOpcode.ALLOC_PD, ctx=stranger).object
        values: dict[str, Any]
        send_cq, recv_cq, values = cq, cq, {field: value}
        if field.endswith("cq"):
            key = driver.register(driver.machine.ram_base, driver.machine.ram_size, pd=value)
            foreign = driver.create_cq(ctx=stranger, ring_key=key)
            send_cq, recv_cq, values = (foreign, cq, {}) if field == "send_cq" else (cq, foreign, {})
        before = driver.objects()
        with pytest.raises(Refused) as caught:
            driver.create_qp(send_cq, recv_cq, **values)
        assert caught.value.status is AdminStatus.NOT_OWNER
        assert caught.value.offset == offset_of(commands.CreateQp, field)
        assert driver.objects() == before

    def test_query_shows_the_indices(self, driver: Driver) -> None:
        qp = driver.create_qp(driver.create_cq(), start=0xFFFFFFFE)
        driver.to_init(qp)
        driver.to_rtr(qp, **PEER)
        driver.to_rts(qp)
        for _ in range(3):
            qp.post()
        qp.ring()
        qp.post_receive(0, 0, 0)
        qp.ring_receive()
        seen = qp.query()
        assert (seen.state, seen.transport) == (QpState.RTS, Transport.ROCE_RC)
        assert (seen.doorbell_index, seen.fetched_index, seen.completed_index) == (1, 1, 1)
        assert (seen.receive_doorbell, seen.receive_index) == (0xFFFFFFFF, 0xFFFFFFFE)
        assert (seen.next_psn, seen.expected_psn) == (0x111, 0x222)
        assert seen.first_error_status == 0


class TestModify:
    @pytest.fixture
    def cq_and_qp(self, driver: Driver) -> Any:
        return driver.create_qp(driver.create_cq())

    def test_the_way_to_rts_hands_the_attributes_to_the_engine(
        self, machine: BareMachine, driver: Driver, cq_and_qp: Any
    ) -> None:
        qp = cq_and_qp
        driver.to_init(qp, access=Access.REMOTE_READ)
        driver.to_rtr(
            qp,
            **PEER,
            rq_psn=0xABCDEF,
            path_mtu=5,
            hop_limit=3,
            traffic_class=0x68,
            udp_source_port=0xC001,
            max_dest_rd_atomic=2,
            min_rnr_timer=12,
        )
        driver.to_rts(qp, sq_psn=0x123456, timeout=14, retry_cnt=5, rnr_retry=6, max_rd_atomic=16)
        attributes = machine.engines.made[qp.number].attributes
        assert attributes.access == Access.REMOTE_READ
        assert (attributes.dest_qpn, attributes.dest_gid, attributes.dest_mac) == (0x200, GID, MAC)
        assert (attributes.source_gid, attributes.source_mac) == (GID, MAC)
        assert (attributes.rq_psn, attributes.sq_psn) == (0xABCDEF, 0x123456)
        assert (attributes.path_mtu, attributes.hop_limit) == (4096, 3)
        assert (attributes.traffic_class, attributes.udp_source_port) == (0x68, 0xC001)
        assert (attributes.max_dest_rd_atomic, attributes.min_rnr_timer) == (2, 12)
        assert (attributes.timeout, attributes.retry_cnt, attributes.rnr_retry) == (14, 5, 6)
        assert attributes.max_rd_atomic == 16
        assert machine.engines.made[qp.number].modifications == [
            (QpState.RESET, QpState.INIT),
            (QpState.INIT, QpState.RTR),
            (QpState.RTR, QpState.RTS),
        ]

    def test_hop_limit_zero_reads_as_64(self, machine: BareMachine, driver: Driver, cq_and_qp: Any) -> None:
        driver.to_init(cq_and_qp)
        driver.to_rtr(cq_and_qp, **PEER)
        assert machine.engines.made[cq_and_qp.number].attributes.hop_limit == 64

    def test_init_takes_port_and_pkey_index_too(self, driver: Driver, cq_and_qp: Any) -> None:
        mask = ModifyMask.STATE | ModifyMask.ACCESS_FLAGS | ModifyMask.PORT | ModifyMask.PKEY_INDEX
        driver.modify(cq_and_qp, mask, state=QpState.INIT)
        assert cq_and_qp.query().state == QpState.INIT

    @pytest.mark.parametrize("target", [QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE, QpState.ERR])
    def test_reset_leads_to_init_only(self, driver: Driver, cq_and_qp: Any, target: QpState) -> None:
        status, field = refusal(
            driver, AdminOpcode.MODIFY_QP, qpn=cq_and_qp.number, mask=ModifyMask.STATE, state=target
        )
        assert (status, field) == (AdminStatus.BAD_STATE, "state")
        assert cq_and_qp.query().state == QpState.RESET

    def test_a_missing_attribute_changes_nothing(self, driver: Driver, cq_and_qp: Any) -> None:
        result = refusal(
            driver, AdminOpcode.MODIFY_QP, qpn=cq_and_qp.number, mask=ModifyMask.STATE, state=QpState.INIT
        )
        assert result == (AdminStatus.BAD_STATE, "mask")
        assert cq_and_qp.query().state == QpState.RESET

    def test_an_attribute_the_step_does_not_take_is_refused(self, driver: Driver, cq_and_qp: Any) -> None:
        mask = ModifyMask.STATE | ModifyMask.ACCESS_FLAGS | ModifyMask.SQ_PSN
        result = refusal(driver, AdminOpcode.MODIFY_QP, qpn=cq_and_qp.number, mask=mask, state=QpState.INIT)
        assert result == (AdminStatus.BAD_FIELD, "mask")

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"path_mtu": 0}, "path_mtu"),
            ({"path_mtu": 6}, "path_mtu"),
            ({"dest_qpn": 1 << 24}, "dest_qpn"),
            ({"rq_psn": 1 << 24}, "rq_psn"),
            ({"max_dest_rd_atomic": 17}, "max_dest_rd_atomic"),
            ({"min_rnr_timer": 32}, "min_rnr_timer"),
            ({"gid_index": 16}, "gid_index"),
            ({"gid_index": 1}, "gid_index"),
            ({"dest_gid": bytes(16)}, "dest_gid"),
            ({"dest_mac": bytes(6)}, "dest_mac"),
            ({"dest_mac": b"\x01" + bytes(5)}, "dest_mac"),
        ],
    )
    def test_bad_values_on_the_way_to_rtr(
        self, driver: Driver, cq_and_qp: Any, values: dict[str, Any], field: str
    ) -> None:
        driver.to_init(cq_and_qp)
        with pytest.raises(Refused) as caught:
            driver.to_rtr(cq_and_qp, **(PEER | values))
        assert caught.value.status is AdminStatus.BAD_FIELD
        assert caught.value.offset == offset_of(commands.ModifyQp, field)
        assert cq_and_qp.query().state == QpState.INIT

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"timeout": 32}, "timeout"),
            ({"retry_cnt": 8}, "retry_cnt"),
            ({"rnr_retry": 8}, "rnr_retry"),
            ({"sq_psn": 1 << 24}, "sq_psn"),
            ({"max_rd_atomic": 17}, "max_rd_atomic"),
        ],
    )
    def test_bad_values_on_the_way_to_rts(
        self, driver: Driver, cq_and_qp: Any, values: dict[str, Any], field: str
    ) -> None:
        driver.to_init(cq_and_qp)
        driver.to_rtr(cq_and_qp, **PEER)
        with pytest.raises(Refused) as caught:
            driver.to_rts(cq_and_qp, **values)
        assert caught.value.status is AdminStatus.BAD_FIELD
        assert caught.value.offset == offset_of(commands.ModifyQp, field)

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({"qpn": 7}, (AdminStatus.BAD_OBJECT, "qpn")),
            ({"mask": 1 << 2}, (AdminStatus.BAD_FIELD, "mask")),
            ({"mask": 1, "state": 7}, (AdminStatus.BAD_FIELD, "state")),
            ({"mask": 0x9, "state": 1, "access": 0x10}, (AdminStatus.BAD_FIELD, "access")),
        ],
    )
    def test_other_bad_fields(
        self, driver: Driver, cq_and_qp: Any, values: dict[str, int], expected: tuple[AdminStatus, str]
    ) -> None:
        assert refusal(driver, AdminOpcode.MODIFY_QP, **({"qpn": cq_and_qp.number} | values)) == expected

    def test_reset_starts_over_at_the_first_index(self, driver: Driver, cq_and_qp: Any) -> None:
        qp = cq_and_qp
        driver.to_init(qp)
        driver.to_rtr(qp, **PEER)
        driver.to_rts(qp)
        qp.post()
        qp.ring()
        driver.move(qp, QpState.RESET)
        seen = qp.query()
        assert (seen.doorbell_index, seen.fetched_index, seen.completed_index) == (0, 0, 0)
        driver.to_init(qp)

    def test_a_draining_queue_takes_only_an_end(
        self, machine: BareMachine, driver: Driver, cq_and_qp: Any
    ) -> None:
        qp = cq_and_qp
        driver.to_init(qp)
        driver.to_rtr(qp, **PEER)
        driver.to_rts(qp)
        driver.move(qp, QpState.SQD)
        with pytest.raises(Refused) as caught:
            driver.move(qp, QpState.RTS)
        assert caught.value.status is AdminStatus.BAD_STATE
        machine.engines.made[qp.number].host.moved(QpState.SQD, "drained")
        driver.move(qp, QpState.RTS)


class TestGids:
    def test_query_gives_gid_and_mac(self, driver: Driver) -> None:
        reply = driver.command(AdminOpcode.QUERY_GID, gid_index=0)
        assert (reply.gid, reply.mac) == (GID, MAC)
        assert driver.command(AdminOpcode.QUERY_GID, gid_index=15).gid == bytes(16)

    def test_set_changes_an_entry(self, driver: Driver) -> None:
        gid = bytes(10) + b"\xff\xff" + bytes((10, 1, 2, 3))
        driver.command(AdminOpcode.SET_GID, gid_index=3, gid=gid)
        assert driver.command(AdminOpcode.QUERY_GID, gid_index=3).gid == gid

    @pytest.mark.parametrize("opcode", [AdminOpcode.QUERY_GID, AdminOpcode.SET_GID])
    def test_the_index_must_be_in_the_table(self, driver: Driver, opcode: AdminOpcode) -> None:
        assert refusal(driver, opcode, gid_index=16) == (AdminStatus.BAD_FIELD, "gid_index")

    def test_a_multicast_gid_is_refused(self, driver: Driver) -> None:
        result = refusal(driver, AdminOpcode.SET_GID, gid_index=1, gid=b"\xff" + bytes(15))
        assert result == (AdminStatus.BAD_FIELD, "gid")


def test_query_objects_counts(driver: Driver) -> None:
    cq = driver.create_cq()
    driver.create_qp(cq)
    driver.create_qp(cq)
    assert driver.objects() == {"contexts": 1, "pds": 1, "mrs": 1, "eqs": 1, "cqs": 1, "qps": 2, "ahs": 0}


def test_field_names_of_refusals_exist_in_their_commands() -> None:
    assert offset_of(RegMr, "page_count") == 20
    assert offset_of(GidCommand, "gid") == 16
