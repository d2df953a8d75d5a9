# SPDX-License-Identifier: Apache-2.0
"""Datagram queue pairs of the contract: address handles, Q_Keys, groups; and 4-byte atomics beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.nic.limits import NicLimits
from emu.nic.work import Cause, CompletionOpcode, ModifyMask, Opcode, QpState, Status, Transport
from emu.personality.vrnic.contract.codes import AdminOpcode, AdminStatus, EventType
from emu.personality.vrnic.contract.commands import CreateAh, ModifyQp, MulticastCommand
from emu.personality.vrnic.contract.descriptors import CqeFlags, WqeFlags
from emu.roce import create_engine, parse
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Cq, Driver, Qp, Refused, offset_of

M = ModifyMask
QKEY = 0x0BAD_CAFE & 0x7FFF_FFFF
HEADER_AREA = 40
GROUP = bytes(10) + b"\xff\xff" + bytes((239, 9, 8, 7))
GROUP_MAC = bytes.fromhex("01005e090807")
EVERY_MEMBER = 0xFFFFFF


@dataclass
class Node:
    """One NIC and its driver."""

    number: int
    machine: BareMachine
    driver: Driver

    @property
    def mac(self) -> bytes:
        return bytes((2, 0, 0, 0, 0, self.number))

    @property
    def ip(self) -> bytes:
        return bytes((10, 77, 0, self.number))

    @property
    def gid(self) -> bytes:
        return bytes(10) + b"\xff\xff" + self.ip

    def queue_pair(self, **values: Any) -> tuple[Qp, Cq]:
        """A datagram queue pair in RTS and its CQ."""
        driver = self.driver
        cq = driver.create_cq(log_size=6)
        qp = driver.create_qp(cq, transport=Transport.ROCE_UD, **values)
        driver.modify(qp, M.STATE | M.QKEY, state=QpState.INIT, dest_qpn=QKEY)
        driver.modify(qp, M.STATE, state=QpState.RTR)
        driver.modify(qp, M.STATE | M.SQ_PSN, state=QpState.RTS)
        return qp, cq

    def handle(self, **values: Any) -> int:
        """An address handle."""
        fields = {"pd": self.driver.pd} | values
        return int(self.driver.command(AdminOpcode.CREATE_AH, **fields).object)

    def receive(self, qp: Qp, size: int) -> int:
        """Post a receive of ``size`` bytes; where it is."""
        at = self.driver.allocate(size)
        qp.post_receive(self.driver.virtual(at), self.driver.key, size)
        qp.ring_receive()
        return at


class World:
    """Three NICs on a switch, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualScheduler()
        switch = Switch(self.clock, EventBus())
        self.nodes = []
        for number in (1, 2, 3):
            node = Node(number, self._machine(switch, number), None)  # type: ignore[arg-type]
            node.driver = Driver(node.machine)
            node.driver.up()
            self.nodes.append(node)
        self.a, self.b, self.c = self.nodes

    def _machine(self, switch: Switch, number: int) -> BareMachine:
        return BareMachine(
            mac=bytes((2, 0, 0, 0, 0, number)),
            gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number)),
            clock=self.clock,
            port=switch.port(f"nic{number}"),
            create_engine=create_engine,
            parse=parse,
            limits=NicLimits(handles=4),
        )

    def run(self) -> None:
        self.clock.run(until=self.clock.now() + 100 * MS)


@pytest.fixture
def world() -> World:
    return World()


def send(qp: Qp, handle: int, qpn: int, opcode: int = Opcode.SEND, **values: Any) -> None:
    """Post and ring one datagram."""
    fields: dict[str, Any] = {"remote_address": handle | qpn << 32, "rkey": QKEY, "inline": b"hello"} | values
    qp.post(opcode, **fields)
    qp.ring()


def test_a_datagram_goes_where_its_handle_says(world: World) -> None:
    a, b, c = world.nodes
    qp, cq = a.queue_pair()
    peers = [node.queue_pair() for node in (b, c)]
    places = [node.receive(peer, 100) for node, (peer, _) in zip((b, c), peers, strict=True)]
    for node, (peer, _) in zip((b, c), peers, strict=True):
        handle = a.handle(dest_gid=node.gid, dest_mac=node.mac, traffic_class=0x68, hop_limit=node.number)
        send(qp, handle, peer.number, Opcode.SEND_IMM, immediate=node.number, flags=WqeFlags.SOLICITED)
    world.run()
    assert [cqe.status for cqe in cq.poll()] == [Status.SUCCESS] * 2
    for node, (_, peer_cq), place in zip((b, c), peers, places, strict=True):
        (cqe,) = peer_cq.poll()
        assert (cqe.status, cqe.opcode_phase >> 4) == (Status.SUCCESS, CompletionOpcode.RECV)
        assert (cqe.length, cqe.source_qpn, cqe.immediate) == (HEADER_AREA + 5, qp.number, node.number)
        assert cqe.flags == CqeFlags.WITH_IMM | CqeFlags.SOLICITED | CqeFlags.GRH
        memory = node.machine.load(place, 64)
        assert memory[:20] == bytes(20)
        assert (memory[20], memory[21], memory[28]) == (0x45, 0x68, node.number)
        assert memory[32:40] == a.ip + node.ip
        assert memory[40:46] == b"hello\0"


def test_payload_comes_from_memory_too_and_up_to_the_ports_mtu(world: World) -> None:
    a, b, _ = world.nodes
    qp, cq = a.queue_pair()
    peer, peer_cq = b.queue_pair()
    source = a.driver.allocate(8192)
    a.machine.store(source, bytes(range(256)) * 16)
    handle = a.handle(dest_gid=b.gid, dest_mac=b.mac)
    place = b.receive(peer, 8192)
    fields: dict[str, Any] = {"local_address": a.driver.virtual(source), "lkey": a.driver.key}
    qp.post(Opcode.SEND, remote_address=handle | peer.number << 32, rkey=QKEY, length=4096, **fields)
    qp.post(Opcode.SEND, remote_address=handle | peer.number << 32, rkey=QKEY, length=4097, **fields)
    qp.ring()
    world.run()
    assert [cqe.status for cqe in cq.poll()] == [Status.SUCCESS, Status.LOC_LEN_ERR]
    assert [cqe.length for cqe in peer_cq.poll()] == [HEADER_AREA + 4096]
    assert b.machine.load(place + HEADER_AREA, 4096) == bytes(range(256)) * 16


def test_what_does_not_fit_is_dropped_and_counted(world: World) -> None:
    a, b, _ = world.nodes
    qp, cq = a.queue_pair()
    peer, peer_cq = b.queue_pair()
    handle = a.handle(dest_gid=b.gid, dest_mac=b.mac)
    send(qp, handle, peer.number, rkey=QKEY + 1)
    send(qp, handle, peer.number)
    world.run()
    b.receive(peer, HEADER_AREA + 4)
    send(qp, handle, peer.number)
    send(qp, handle, peer.number, inline=b"four")
    # Bit 31 stands for the sender's own Q_Key, here the right one.
    b.receive(peer, HEADER_AREA + 4)
    send(qp, handle, peer.number, inline=b"same", rkey=1 << 31)
    world.run()
    assert len(cq.poll()) == 5
    assert [cqe.length for cqe in peer_cq.poll()] == [HEADER_AREA + 4] * 2
    counts = [b.driver.counter(name) for name in ("qkey_viol_cntr", "out_of_buffer", "rx_dropped")]
    assert counts == [1, 1, 3]


@pytest.mark.parametrize("wrong", ["never made", "destroyed", "of another domain", "nothing"])
def test_a_handle_that_is_not_the_domains_stops_the_send_queue(world: World, wrong: str) -> None:
    a, b, _ = world.nodes
    qp, cq = a.queue_pair()
    handle = a.handle(dest_gid=b.gid, dest_mac=b.mac)
    if wrong == "never made":
        handle += 1
    elif wrong == "destroyed":
        a.driver.command(AdminOpcode.DESTROY_AH, object=handle)
    elif wrong == "of another domain":
        pd = a.driver.command(AdminOpcode.ALLOC_PD, ctx=a.driver.ctx).object
        handle = a.handle(pd=pd, dest_gid=b.gid, dest_mac=b.mac)
    else:
        handle = 0
    send(qp, handle, 0x100)
    send(qp, handle, 0x100)
    world.run()
    first, second = cq.poll()
    assert (first.status, first.cause) == (Status.LOC_QP_OP_ERR, Cause.HANDLE_UNKNOWN)
    assert second.status == Status.WR_FLUSH_ERR
    assert qp.query().state == QpState.SQE
    assert a.driver.counter("tx_packets") == 0


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ, Opcode.ATOMIC_ADD, Opcode.SEND_INV])
def test_datagrams_have_sends_only(world: World, opcode: Opcode) -> None:
    a, b, _ = world.nodes
    qp, cq = a.queue_pair()
    handle = a.handle(dest_gid=b.gid, dest_mac=b.mac)
    qp.post(opcode, remote_address=handle, length=8)
    qp.ring()
    world.run()
    (cqe,) = cq.poll()
    assert (cqe.status, cqe.cause) == (Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE)


def refusal(node: Node, opcode: AdminOpcode, **values: Any) -> tuple[AdminStatus, int]:
    with pytest.raises(Refused) as caught:
        node.driver.command(opcode, **values)
    return caught.value.status, caught.value.offset


@pytest.mark.parametrize(
    ("values", "status", "field"),
    [
        ({"pd": 0x777}, AdminStatus.BAD_OBJECT, "pd"),
        ({"gid_index": 5}, AdminStatus.BAD_FIELD, "gid_index"),
        ({"gid_index": 16}, AdminStatus.BAD_FIELD, "gid_index"),
        ({"dest_gid": bytes(16)}, AdminStatus.BAD_FIELD, "dest_gid"),
        ({"dest_mac": bytes(6)}, AdminStatus.BAD_FIELD, "dest_mac"),
        ({"dest_mac": GROUP_MAC}, AdminStatus.BAD_FIELD, "dest_mac"),
        ({"dest_gid": GROUP}, AdminStatus.BAD_FIELD, "dest_mac"),
        ({"reserved0": 1}, AdminStatus.BAD_FIELD, "reserved0"),
    ],
)
def test_handles_that_cannot_be(
    world: World, values: dict[str, Any], status: AdminStatus, field: str
) -> None:
    a, b, _ = world.nodes
    fields = {"pd": a.driver.pd, "dest_gid": b.gid, "dest_mac": b.mac} | values
    assert refusal(a, AdminOpcode.CREATE_AH, **fields) == (status, offset_of(CreateAh, field))
    assert a.driver.objects()["ahs"] == 0


def test_handles_are_counted_bounded_and_freed(world: World) -> None:
    a, b, _ = world.nodes
    driver = a.driver
    pd = driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx).object
    handles = [a.handle(pd=pd, dest_gid=b.gid, dest_mac=b.mac) for _ in range(4)]
    assert len(set(handles)) == driver.objects()["ahs"] == 4
    fields = {"pd": pd, "dest_gid": b.gid, "dest_mac": b.mac}
    assert refusal(a, AdminOpcode.CREATE_AH, **fields)[0] is AdminStatus.NO_RESOURCE
    assert refusal(a, AdminOpcode.FREE_PD, object=pd)[0] is AdminStatus.BUSY
    driver.command(AdminOpcode.DESTROY_AH, object=handles[0])
    assert refusal(a, AdminOpcode.DESTROY_AH, object=handles[0])[0] is AdminStatus.BAD_OBJECT
    ctx = driver.command(AdminOpcode.ALLOC_CTX).ctx
    other = driver.command(AdminOpcode.ALLOC_PD, ctx=ctx).object
    a.handle(pd=other, dest_gid=b.gid, dest_mac=b.mac)
    driver.command(AdminOpcode.FREE_CTX, ctx=ctx, force=1)
    assert driver.objects()["ahs"] == 3
    for handle in handles[1:]:
        driver.command(AdminOpcode.DESTROY_AH, object=handle)
    driver.command(AdminOpcode.FREE_PD, object=pd)
    assert driver.objects()["ahs"] == 0


def test_a_group_reaches_its_members_and_nobody_else(world: World) -> None:
    a, b, c = world.nodes
    qp, cq = a.queue_pair()
    others = [node.queue_pair() for node in (a, b, b, c)]
    members = list(zip((a, b, b), others[:3], strict=True))
    places = [node.receive(peer, 64) for node, (peer, _) in members]
    c.receive(others[3][0], 64)
    for node, (peer, _) in [*members, (a, (qp, cq))]:
        node.driver.command(AdminOpcode.ATTACH_MULTICAST, qpn=peer.number, gid=GROUP)
    handle = a.handle(dest_gid=GROUP, dest_mac=GROUP_MAC)
    send(qp, handle, EVERY_MEMBER)
    world.run()
    assert [cqe.status for cqe in cq.poll()] == [Status.SUCCESS]
    for (node, (_, peer_cq)), place in zip(members, places, strict=True):
        assert [cqe.source_qpn for cqe in peer_cq.poll()] == [qp.number]
        assert node.machine.load(place + 36, 9) == GROUP[12:] + b"hello"
    assert others[3][1].poll() == []
    assert c.driver.counter("rx_dropped") == 1
    # One leaves: the other still hears.
    b.driver.command(AdminOpcode.DETACH_MULTICAST, qpn=others[1][0].number, gid=GROUP)
    b.receive(others[1][0], 64)
    b.receive(others[2][0], 64)
    send(qp, handle, EVERY_MEMBER)
    world.run()
    assert (len(others[1][1].poll()), len(others[2][1].poll())) == (0, 1)


def test_attachments_that_cannot_be(world: World) -> None:
    a = world.a
    driver = a.driver
    qp, cq = a.queue_pair()
    connected = driver.create_qp(cq)
    attach, detach = AdminOpcode.ATTACH_MULTICAST, AdminOpcode.DETACH_MULTICAST
    at = {name: offset_of(MulticastCommand, name) for name in ("qpn", "gid")}
    assert refusal(a, attach, qpn=0x999, gid=GROUP) == (AdminStatus.BAD_OBJECT, at["qpn"])
    assert refusal(a, attach, qpn=qp.number, gid=a.gid) == (AdminStatus.BAD_FIELD, at["gid"])
    assert refusal(a, attach, qpn=connected.number, gid=GROUP) == (AdminStatus.BAD_STATE, at["qpn"])
    assert refusal(a, detach, qpn=qp.number, gid=GROUP) == (AdminStatus.BAD_OBJECT, at["gid"])


def test_the_expected_state_is_compared(world: World) -> None:
    a = world.a
    qp, _ = a.queue_pair()
    mask = M.STATE | M.CUR_STATE
    values = {"qpn": qp.number, "mask": mask, "state": QpState.RTS | QpState.SQD << 4}
    assert refusal(a, AdminOpcode.MODIFY_QP, **values) == (
        AdminStatus.BAD_STATE,
        offset_of(ModifyQp, "state"),
    )
    values["state"] = QpState.RTS | 9 << 4
    assert refusal(a, AdminOpcode.MODIFY_QP, **values) == (
        AdminStatus.BAD_FIELD,
        offset_of(ModifyQp, "state"),
    )
    a.driver.modify(qp, mask, state=QpState.RTS | QpState.RTS << 4)


def test_alternate_paths_are_refused_by_name(world: World) -> None:
    a, b, _ = world.nodes
    qp = a.driver.create_qp(a.driver.create_cq())
    a.driver.to_init(qp)
    a.driver.to_rtr(qp, dest_qpn=1, dest_gid=b.gid, dest_mac=b.mac)
    a.driver.to_rts(qp)
    values = {"qpn": qp.number, "mask": M.STATE | M.ALT_PATH, "state": QpState.RTS}
    assert refusal(a, AdminOpcode.MODIFY_QP, **values) == (
        AdminStatus.UNSUPPORTED,
        offset_of(ModifyQp, "mask"),
    )
    a.driver.modify(qp, M.STATE | M.PATH_MIG_STATE, state=QpState.RTS)


@pytest.mark.parametrize(("asked", "events"), [(M(0), []), (M.EN_SQD_ASYNC_NOTIFY, [EventType.SQ_DRAINED])])
def test_a_send_queue_drains_and_says_so_to_who_asked(
    world: World, asked: ModifyMask, events: list[EventType]
) -> None:
    a, b, _ = world.nodes
    cq, peer_cq = a.driver.create_cq(log_size=6), b.driver.create_cq(log_size=6)
    qp, peer = a.driver.create_qp(cq), b.driver.create_qp(peer_cq)
    a.driver.connect(qp, b.driver, peer)
    b.driver.connect(peer, a.driver, qp)
    # Nothing is posted at the peer, so the message that has begun waits.
    qp.post(Opcode.SEND, inline=b"begun")
    qp.ring()
    a.driver.modify(qp, M.STATE | asked, state=QpState.SQD)
    assert qp.query().sq_draining == 1
    values = {"qpn": qp.number, "mask": M.STATE, "state": QpState.RTS}
    assert refusal(a, AdminOpcode.MODIFY_QP, **values)[0] is AdminStatus.BAD_STATE
    qp.post(Opcode.SEND, inline=b"later")
    qp.ring()
    b.receive(peer, 64)
    b.receive(peer, 64)
    world.run()
    assert qp.query().sq_draining == 0
    assert [event.type for event in a.driver.events()] == events
    assert len(cq.poll()) == 1
    a.driver.move(qp, QpState.RTS)
    world.run()
    assert len(cq.poll()) == 1


@pytest.mark.parametrize("opcode", [Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS])
def test_atomics_on_four_bytes(world: World, opcode: Opcode) -> None:
    a, b, _ = world.nodes
    cq, peer_cq = a.driver.create_cq(), b.driver.create_cq()
    qp, peer = a.driver.create_qp(cq), b.driver.create_qp(peer_cq)
    a.driver.connect(qp, b.driver, peer)
    b.driver.connect(peer, a.driver, qp)
    target, result = b.driver.allocate(64), a.driver.allocate(64)
    b.machine.store(target, b"\xff\xff\xff\xff" * 4)
    a.machine.store(result, b"\xaa" * 16)
    fields: dict[str, Any] = {
        "remote_address": b.driver.virtual(target) + 4,
        "rkey": b.driver.key,
        "result_address": a.driver.virtual(result),
        "result_lkey": a.driver.key,
        "local_address": 1,
        "lkey": 0xFFFFFFFF,
    }
    qp.post(opcode, flags=WqeFlags.OPERAND_4B, length=4, **fields)
    qp.ring()
    world.run()
    assert [cqe.status for cqe in cq.poll()] == [Status.SUCCESS]
    assert a.machine.load(result, 16) == b"\xff" * 4 + b"\xaa" * 12
    after = b"\0\0\0\0" if opcode is Opcode.ATOMIC_ADD else b"\1\0\0\0"
    assert b.machine.load(target, 16) == b"\xff" * 4 + after + b"\xff" * 8
    # Flag and length must agree.
    qp.post(opcode, flags=WqeFlags.OPERAND_4B, length=8, **fields)
    qp.ring()
    world.run()
    (cqe,) = cq.poll()
    assert (cqe.status, cqe.cause) == (Status.LOC_QP_OP_ERR, Cause.BAD_LENGTH)
