# SPDX-License-Identifier: Apache-2.0
"""Queues in user memory, as programs make them that let a GPU post work."""

from __future__ import annotations

import pytest

from emu.clock import VirtualScheduler
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, WqeOpcode
from tests.personality.mlx5.machine import Cq, Machine, Qp, inline, remote

PAGE = 4096
RINGS = 0x20
"""Where the memory starts in its first page."""
CQ_AT, QP_AT, CQ_RECORD, QP_RECORD = PAGE, 2 * PAGE, 0, 64


class Program:
    """One registered piece of memory that holds two rings and their records."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.uid = machine.do(Op.CREATE_UCTX)["uid"]
        self.uar, self.pd = machine.uar(), machine.pd()
        self.eq, _ = machine.eq(vector=1)
        self.memory = machine.allocate(5 * PAGE)
        self.umem = machine.do(
            Op.CREATE_UMEM,
            tail=machine.pages(self.memory, 5 * PAGE),
            umem__num_of_mtt=5,
            umem__page_offset=RINGS,
        )["umem_id"]

    def address(self, offset: int) -> int:
        """Where a byte of the memory is."""
        return self.memory + RINGS + offset

    def cq(self) -> Cq:
        """A completion queue in it."""
        machine, ring = self.machine, self.address(CQ_AT)
        machine.store(ring, (bytes(63) + b"\xf1") * 16)
        number = machine.do(
            Op.CREATE_CQ,
            cq_context__log_cq_size=4,
            cq_context__c_eqn_or_apu_element=self.eq,
            cq_context__uar_page=self.uar,
            cq_context__dbr_umem_valid=1,
            cq_context__dbr_umem_id=self.umem,
            cq_context__dbr_addr=CQ_RECORD,
            cq_umem_valid=1,
            cq_umem_id=self.umem,
            cq_umem_offset=CQ_AT,
        )["cqn"]
        return Cq(machine, number, ring, self.address(CQ_RECORD))

    def qp(self, cq: Cq) -> Qp:
        """A queue pair in it that only sends."""
        machine = self.machine
        number = machine.do(
            Op.CREATE_QP,
            qpc__pd=self.pd,
            qpc__uar_page=self.uar,
            qpc__cqn_snd=cq.number,
            qpc__rq_type=3,
            qpc__log_sq_size=4,
            qpc__dbr_umem_valid=1,
            qpc__dbr_umem_id=self.umem,
            qpc__dbr_addr=QP_RECORD,
            wq_umem_valid=1,
            wq_umem_id=self.umem,
            wq_umem_offset=QP_AT,
        )["qpn"]
        qp = Qp(machine, number, 0, self.address(QP_RECORD), self.uar)
        qp.sends = self.address(QP_AT)
        return qp


@pytest.fixture
def program() -> Program:
    """A program with its memory."""
    return Program(Machine(clock=VirtualScheduler()))


def test_a_write_posted_from_user_memory(program: Program) -> None:
    machine = program.machine
    gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, 1))
    machine.address(0, gid)
    cq = program.cq()
    left, right = program.qp(cq), machine.qp(program.pd, cq, program.uar)
    machine.connect(left, right.number, gid, machine.mac)
    machine.connect(right, left.number, gid, machine.mac)
    target = machine.allocate(PAGE)
    key = machine.mkey(program.pd, target, PAGE)
    for number in range(20):
        left.post(WqeOpcode.RDMA_WRITE, remote(target, key), inline(b"by a GPU %d" % number))
        machine.clock.run(until=machine.clock.now() + 1_000_000)
        done = cq.poll()
        assert done is not None and done.counter == left.sent - 1
    assert machine.load(target, 11) == b"by a GPU 19"


@pytest.mark.parametrize(
    ("field", "value"), [("cq_umem_offset", 0x10000), ("cq_umem_id", 77), ("cq_context__dbr_umem_id", 77)]
)
def test_a_ring_must_lie_in_its_memory(program: Program, field: str, value: int) -> None:
    values = {
        "cq_context__log_cq_size": 4,
        "cq_context__c_eqn_or_apu_element": program.eq,
        "cq_context__uar_page": program.uar,
        "cq_context__dbr_umem_valid": 1,
        "cq_context__dbr_umem_id": program.umem,
        "cq_umem_valid": 1,
        "cq_umem_id": program.umem,
        "cq_umem_offset": CQ_AT,
        field: value,
    }
    reply = program.machine.command(Op.CREATE_CQ, 0, b"", **values)
    assert reply.status in (CommandStatus.BAD_PARAM, CommandStatus.BAD_RESOURCE)
    assert len(program.machine.nic.cqs) == 0


@pytest.mark.parametrize(("pages", "offset"), [(6, 0), (0, 0), (5, PAGE)])
def test_memory_that_its_pages_do_not_cover_is_refused(program: Program, pages: int, offset: int) -> None:
    machine = program.machine
    reply = machine.command(
        Op.CREATE_UMEM,
        tail=machine.pages(program.memory, 5 * PAGE),
        umem__num_of_mtt=pages,
        umem__page_offset=offset,
    )
    assert reply.status is CommandStatus.BAD_PARAM


def test_what_was_made_can_be_taken_down(program: Program) -> None:
    machine = program.machine
    machine.do(Op.DESTROY_UMEM, umem_id=program.umem)
    machine.do(Op.DESTROY_UCTX, uid=program.uid)
    assert machine.command(Op.DESTROY_UMEM, umem_id=program.umem).status is CommandStatus.BAD_RESOURCE
    assert machine.command(Op.DESTROY_UCTX, uid=program.uid).status is CommandStatus.BAD_RESOURCE
