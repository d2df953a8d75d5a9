# SPDX-License-Identifier: Apache-2.0
"""UET datagrams through the contract: a UUD queue pair takes the same commands, descriptors and handles as a
RoCE one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.nic.limits import NicLimits
from emu.nic.work import Cause, CompletionOpcode, ModifyMask, Opcode, QpState, Status, Transport
from emu.personality.vrnic.contract.codes import AdminOpcode
from emu.personality.vrnic.contract.descriptors import CqeFlags
from emu.roce import create_engine, parse
from emu.uet import Fep
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Cq, Driver, Qp

M = ModifyMask
QKEY = 0x1234567
HEADER_AREA = 40


class Node:
    """One NIC, its driver and a UUD queue pair in RTS."""

    def __init__(self, switch: Switch, clock: VirtualScheduler, number: int) -> None:
        self.number = number
        self.machine = BareMachine(
            mac=self.mac,
            gid=self.gid,
            clock=clock,
            port=switch.port(f"nic{number}"),
            create_engine=create_engine,
            create_endpoint=partial(Fep, seed=number),
            parse=parse,
            limits=NicLimits(handles=4),
        )
        self.driver = Driver(self.machine)
        self.driver.up()
        self.cq: Cq = self.driver.create_cq(log_size=6)
        self.qp: Qp = self.driver.create_qp(self.cq, transport=Transport.UET_UUD)
        self.driver.modify(self.qp, M.STATE | M.QKEY, state=QpState.INIT, dest_qpn=QKEY)
        self.driver.modify(self.qp, M.STATE, state=QpState.RTR)
        self.driver.modify(self.qp, M.STATE | M.SQ_PSN, state=QpState.RTS)

    @property
    def mac(self) -> bytes:
        """Its MAC address."""
        return bytes((2, 0, 0, 0, 0, self.number))

    @property
    def gid(self) -> bytes:
        """Its GID."""
        return bytes(10) + b"\xff\xff" + bytes((10, 77, 0, self.number))

    def handle(self, peer: Node) -> int:
        """An address handle of a peer."""
        fields = {"pd": self.driver.pd, "dest_gid": peer.gid, "dest_mac": peer.mac}
        return int(self.driver.command(AdminOpcode.CREATE_AH, **fields).object)

    def receive(self, size: int) -> int:
        """Post a receive; where its buffer is."""
        at = self.driver.allocate(size)
        self.qp.post_receive(self.driver.virtual(at), self.driver.key, size)
        self.qp.ring_receive()
        return at

    def send(self, peer: Node, handle: int, opcode: int = Opcode.SEND, **values: Any) -> None:
        """Post and ring one datagram."""
        address = handle | peer.qp.number << 32
        fields: dict[str, Any] = {"remote_address": address, "rkey": QKEY, "inline": b"hello"} | values
        self.qp.post(opcode, **fields)
        self.qp.ring()


def world() -> tuple[VirtualScheduler, Node, Node]:
    """Two nodes on a switch."""
    clock = VirtualScheduler()
    switch = Switch(clock, EventBus())
    return clock, Node(switch, clock, 1), Node(switch, clock, 2)


def test_datagrams_go_by_uet_where_their_handle_says() -> None:
    clock, a, b = world()
    place = b.receive(100)
    a.send(b, a.handle(b), Opcode.SEND_IMM, immediate=77)
    clock.run(until=100 * MS)
    assert [cqe.status for cqe in a.cq.poll()] == [Status.SUCCESS]
    (cqe,) = b.cq.poll()
    assert (cqe.status, cqe.opcode_phase >> 4) == (Status.SUCCESS, CompletionOpcode.RECV)
    assert (cqe.length, cqe.source_qpn, cqe.immediate) == (HEADER_AREA + 5, a.qp.number, 77)
    assert cqe.flags == CqeFlags.WITH_IMM | CqeFlags.GRH
    memory = b.machine.load(place, 46)
    assert memory[:20] == bytes(20) and memory[20] == 0x45
    assert memory[29] == 17 and memory[40:46] == b"hello\0"
    assert a.driver.counter("pdcs_opened") == 0, "datagrams need no context"


def test_what_does_not_fit_is_counted_where_it_is_dropped() -> None:
    clock, a, b = world()
    handle = a.handle(b)
    a.send(b, handle)
    clock.run(until=clock.now() + MS)
    b.receive(44)
    a.send(b, handle, rkey=5)
    a.send(b, handle)
    a.send(b, handle, inline=b"four")
    clock.run(until=100 * MS)
    assert len(a.cq.poll()) == 4
    assert [cqe.length for cqe in b.cq.poll()] == [44]
    counts = [b.driver.counter(name) for name in ("qkey_viol_cntr", "out_of_buffer", "rx_dropped")]
    assert counts == [1, 1, 3]


def test_a_failing_element_stops_the_send_queue_alone() -> None:
    clock, a, b = world()
    a.send(b, 99)
    a.send(b, 99)
    clock.run(until=100 * MS)
    first, second = a.cq.poll()
    assert (first.status, first.cause) == (Status.LOC_QP_OP_ERR, Cause.HANDLE_UNKNOWN)
    assert second.status == Status.WR_FLUSH_ERR
    assert a.qp.query().state == QpState.SQE
    a.receive(100)
    b.send(a, b.handle(a))
    clock.run(until=200 * MS)
    assert [cqe.status for cqe in a.cq.poll()] == [Status.SUCCESS], "it still receives"
