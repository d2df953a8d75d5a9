# SPDX-License-Identifier: Apache-2.0
"""XRC domains: initiators on one NIC, targets and shared receive queues on the other."""

from __future__ import annotations

import struct

import pytest

from emu.clock import MS
from emu.events import Kind
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, CqeOpcode, CqeSyndrome, WqeOpcode
from emu.wire.opcodes import TransportClass
from tests.personality.mlx5.machine import Cq, Qp, data, inline, remote
from tests.personality.mlx5.test_data import PAYLOAD, Pair, Side

XRC, SHARED = 3, 1


class Queue:
    """A shared receive queue of a domain, with 8 slots and a CQ of its own."""

    def __init__(self, side: Side, xrcd: int, pd: int | None = None) -> None:
        machine = side.machine
        self.side = side
        self.pd = side.pd if pd is None else pd
        self.cq: Cq = machine.cq(side.eq, side.uar)
        self.ring, self.record = machine.allocate(4096), machine.allocate(64)
        for slot in range(8):
            machine.store(self.ring + slot * 64, struct.pack(">HH12x", 0, slot + 1))
        self.number = machine.do(
            Op.CREATE_XRC_SRQ,
            0,
            machine.pages(self.ring, 4096),
            xrc_srq_context_entry__log_xrc_srq_size=3,
            xrc_srq_context_entry__log_rq_stride=2,
            xrc_srq_context_entry__xrcd=xrcd,
            xrc_srq_context_entry__cqn=self.cq.number,
            xrc_srq_context_entry__pd=self.pd,
            xrc_srq_context_entry__db_record_addr_h=self.record >> 32,
            xrc_srq_context_entry__db_record_addr_l=(self.record & 0xFFFFFFFF) >> 2,
        )["xrc_srqn"]
        self.posted = 0

    def post(self, length: int, address: int, key: int) -> None:
        """Post one receive."""
        machine = self.side.machine
        slot = self.ring + (self.posted % 8) * 64
        machine.store(slot + 16, data(address, length, key) + data(0, 0, 0x100))
        self.posted += 1
        machine.store(self.record, self.posted.to_bytes(4, "big"))


class Domain:
    """Side b has a domain with a target, side a an initiator connected to it."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        a, b = pair.a, pair.b
        self.xrcd = b.machine.do(Op.ALLOC_XRCD)["xrcd"]
        self.kernel_pd = b.machine.pd()
        # As drivers make them: a target has no sends, and a domain of protection that is not the queues'.
        self.target: Qp = b.machine.qp(
            self.kernel_pd, b.cq, b.uar, service=XRC, rq_type=SHARED, no_sq=1, xrcd=self.xrcd
        )
        other = a.machine.do(Op.ALLOC_XRCD)["xrcd"]
        self.initiator: Qp = a.machine.qp(a.pd, a.cq, a.uar, service=XRC, rq_type=SHARED, xrcd=other)
        self.initiator.sends = self.initiator.receives
        a.machine.connect(self.initiator, self.target.number, b.gid, b.mac)
        b.machine.connect(self.target, self.initiator.number, a.gid, a.mac)

    def post(self, opcode: int, srq: int, *segments: bytes, immediate: int = 0) -> None:
        """Post an element for a shared receive queue."""
        self.initiator.post(opcode, struct.pack(">I12x", srq), *segments, immediate=immediate)

    def run(self, duration: int = 100 * MS) -> None:
        """Let virtual time pass."""
        self.pair.run(duration)


@pytest.fixture
def domain() -> Domain:
    return Domain(Pair())


def test_messages_go_to_the_queue_they_name_and_complete_there(domain: Domain) -> None:
    a, b = domain.pair.a, domain.pair.b
    first, second = Queue(b, domain.xrcd), Queue(b, domain.xrcd)
    first.post(4096, b.memory, b.key)
    second.post(4096, b.memory + 4096, b.key)
    second.post(4096, b.memory + 8192, b.key)
    a.fill(PAYLOAD)
    domain.post(WqeOpcode.SEND, second.number, data(a.memory, 3000, a.key))
    domain.post(WqeOpcode.SEND_IMM, first.number, inline(b"one"), immediate=0xABCD)
    domain.post(WqeOpcode.SEND, second.number, inline(b"three"))
    domain.run()
    assert b.held(3000, 4096) == PAYLOAD[:3000]
    assert (b.held(3), b.held(5, 8192)) == (b"one", b"three")
    got = first.cq.poll()
    assert got is not None
    assert (got.opcode, got.word, got.qpn) == (CqeOpcode.RESPONDER_SEND_IMM, 0xABCD, domain.target.number)
    entry = b.machine.load(second.cq.ring, 64)
    assert int.from_bytes(entry[32:36], "big") == second.number
    assert [done and (done.length, done.counter) for done in (second.cq.poll(), second.cq.poll())] == [
        (3000, 0),
        (5, 1),
    ]
    assert b.cq.poll() is None
    assert [done and done.opcode for done in (a.cq.poll(), a.cq.poll(), a.cq.poll())] == [0, 0, 0]


def test_the_wire_carries_the_class_and_the_queue(domain: Domain) -> None:
    a, b = domain.pair.a, domain.pair.b
    queue = Queue(b, domain.xrcd)
    queue.post(64, b.memory, b.key)
    domain.post(WqeOpcode.SEND, queue.number, inline(b"abcd"))
    domain.run()
    sent = [event.frame for event in a.machine.events.events if event.kind is Kind.FRAME_OUT]
    answers = [event.frame for event in b.machine.events.events if event.kind is Kind.FRAME_OUT]
    assert sent[-1] is not None and answers[-1] is not None
    bth = 14 + 20 + 8
    assert sent[-1][bth] == TransportClass.XRC | 0x04
    assert sent[-1][bth + 12 : bth + 20] == queue.number.to_bytes(4, "big") + b"abcd"
    assert answers[-1][bth] == TransportClass.XRC | 0x11


def test_keys_are_of_the_named_queues_domain(domain: Domain) -> None:
    a, b = domain.pair.a, domain.pair.b
    mine = Queue(b, domain.xrcd)
    strange = Queue(b, domain.xrcd, pd=b.machine.pd())
    b.fill(PAYLOAD)
    domain.post(WqeOpcode.RDMA_WRITE, mine.number, remote(b.memory + 8192, b.key), inline(b"hello"))
    domain.post(WqeOpcode.RDMA_READ, mine.number, remote(b.memory, b.key), data(a.memory, 5000, a.key))
    result = data(a.memory + 8192, 8, a.key)
    operands = struct.pack(">QQ", 7, 0)
    domain.post(WqeOpcode.ATOMIC_FA, mine.number, remote(b.memory + 16384, b.key), operands, result)
    domain.run()
    assert b.held(5, 8192) == b"hello"
    assert a.held(5000) == PAYLOAD[:5000]
    assert b.held(8, 16384) == (7).to_bytes(8, "little")
    assert [done and done.syndrome for done in (a.cq.poll(), a.cq.poll(), a.cq.poll())] == [0, 0, 0]
    domain.post(WqeOpcode.RDMA_WRITE, strange.number, remote(b.memory, b.key), inline(b"no"))
    domain.run()
    done = a.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.REMOTE_ACCESS


def test_an_immediate_takes_an_element_of_the_named_queue(domain: Domain) -> None:
    a, b = domain.pair.a, domain.pair.b
    queue = Queue(b, domain.xrcd)
    domain.post(WqeOpcode.RDMA_WRITE_IMM, queue.number, remote(b.memory, b.key), inline(b"data"), immediate=5)
    domain.run(MS)
    assert b.machine.nic.counters.send_rnr_err
    assert a.cq.poll() is None
    queue.post(16, b.memory + 64, b.key)
    domain.run()
    got = queue.cq.poll()
    assert got is not None and (got.opcode, got.word) == (CqeOpcode.RESPONDER_WRITE_IMM, 5)


@pytest.mark.parametrize("opcode", [WqeOpcode.SEND, WqeOpcode.RDMA_WRITE])
def test_a_queue_outside_the_domain_is_refused(domain: Domain, opcode: int) -> None:
    a, b = domain.pair.a, domain.pair.b
    outside = Queue(b, b.machine.do(Op.ALLOC_XRCD)["xrcd"])
    outside.post(64, b.memory, b.key)
    head = (remote(b.memory, b.key),) if opcode == WqeOpcode.RDMA_WRITE else ()
    domain.post(opcode, outside.number, *head, inline(b"x"))
    domain.run()
    done = a.cq.poll()
    assert done is not None
    assert done.syndrome in (CqeSyndrome.REMOTE_OPERATION, CqeSyndrome.REMOTE_ACCESS)
    assert outside.cq.poll() is None
    assert b.held(1) == b"\0"


def test_an_initiator_is_sent_nothing(domain: Domain) -> None:
    """Its own NIC refuses requests, whatever queue they name."""
    a, b = domain.pair.a, domain.pair.b
    back = b.machine.qp(b.pd, b.cq, b.uar, service=XRC, rq_type=SHARED, xrcd=domain.xrcd)
    back.sends = back.receives
    lone = a.machine.qp(
        a.pd, a.cq, a.uar, service=XRC, rq_type=SHARED, xrcd=a.machine.do(Op.ALLOC_XRCD)["xrcd"]
    )
    a.machine.connect(lone, back.number, b.gid, b.mac)
    b.machine.connect(back, lone.number, a.gid, a.mac)
    back.post(WqeOpcode.SEND, struct.pack(">I12x", 1), inline(b"x"))
    domain.run()
    done = b.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.REMOTE_OPERATION


def test_loss_is_repaired() -> None:
    domain = Domain(Pair(loss=0.1))
    a, b = domain.pair.a, domain.pair.b
    queue = Queue(b, domain.xrcd)
    for number in range(8):
        queue.post(1024, b.memory + number * 1024, b.key)
    a.fill(PAYLOAD[:8192])
    for number in range(8):
        domain.post(WqeOpcode.SEND, queue.number, data(a.memory + number * 1024, 1024, a.key))
    domain.run(20_000 * MS)
    assert b.held(8192) == PAYLOAD[:8192]
    assert b.machine.nic.counters.rx_packets


def test_domains_and_their_parts_end_in_order(domain: Domain) -> None:
    b = domain.pair.b
    queue = Queue(b, domain.xrcd)
    machine = b.machine
    assert machine.command(Op.DEALLOC_XRCD, xrcd=domain.xrcd).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DESTROY_CQ, cqn=queue.cq.number).status is CommandStatus.RESOURCE_BUSY
    machine.do(Op.DESTROY_XRC_SRQ, xrc_srqn=queue.number)
    machine.do(Op.DESTROY_CQ, cqn=queue.cq.number)
    assert machine.command(Op.DEALLOC_XRCD, xrcd=domain.xrcd).status is CommandStatus.RESOURCE_BUSY
    machine.do(Op.DESTROY_QP, qpn=domain.target.number)
    machine.do(Op.DEALLOC_XRCD, xrcd=domain.xrcd)


@pytest.mark.parametrize("field", ["xrcd", "cqn", "pd"])
def test_a_queue_of_what_is_not_there_is_refused(domain: Domain, field: str) -> None:
    b = domain.pair.b
    values = {"log_xrc_srq_size": 3, "log_rq_stride": 2, "xrcd": domain.xrcd, "cqn": b.cq.number, "pd": b.pd}
    named = {f"xrc_srq_context_entry__{name}": value for name, value in {**values, field: 0xABCD}.items()}
    pages = b.machine.pages(b.machine.allocate(4096), 4096)
    assert b.machine.command(Op.CREATE_XRC_SRQ, 0, pages, **named).status is CommandStatus.BAD_RESOURCE
    assert b.machine.command(Op.DEALLOC_XRCD, xrcd=domain.xrcd).status is CommandStatus.RESOURCE_BUSY
    assert not len(b.machine.device.srqs)


def test_a_queue_that_runs_low_says_so(domain: Domain) -> None:
    b = domain.pair.b
    _, ring = b.machine.eq(vector=0, mask=1 << 0x14)
    queue = Queue(b, domain.xrcd)
    for _ in range(2):
        queue.post(64, b.memory, b.key)
    b.machine.do(Op.ARM_XRC_SRQ, xrc_srqn=queue.number, lwm=2)
    domain.post(WqeOpcode.SEND, queue.number, inline(b"x"))
    domain.run()
    entry = b.machine.load(ring, 64)
    assert (entry[1], int.from_bytes(entry[56:60], "big")) == (0x14, queue.number)
