# SPDX-License-Identifier: Apache-2.0
"""Multicast groups of datagram queue pairs, and which frames a port takes that are not for it alone."""

from __future__ import annotations

import struct

import pytest

from emu.clock import MS
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, WqeOpcode
from tests.personality.mlx5.machine import Machine, Qp, inline
from tests.personality.mlx5.test_data import Pair, Side
from tests.personality.mlx5.test_ethernet import Netdev

GROUP_V6 = bytes.fromhex("ff0e0000000000000000000000001234")
GROUP_V4 = bytes(10) + b"\xff\xff" + bytes((239, 1, 2, 3))
STRANGER = bytes.fromhex("020000000077")


@pytest.fixture
def pair() -> Pair:
    """Two connected NICs."""
    return Pair()


def datagram(side: Side) -> Qp:
    """A datagram queue pair that is ready."""
    qp = side.make(service=2)
    side.machine.do(Op.RST2INIT_QP, qpn=qp.number, qpc__q_key=0x1234)
    side.machine.do(Op.INIT2RTR_QP, qpn=qp.number)
    side.machine.do(Op.RTR2RTS_QP, qpn=qp.number)
    return qp


def group_mac(gid: bytes) -> bytes:
    """Where frames to a group go."""
    if gid == GROUP_V4:
        return bytes.fromhex("01005e") + bytes((gid[13] & 0x7F, gid[14], gid[15]))
    return bytes.fromhex("3333") + gid[12:]


def send(qp: Qp, gid: bytes, payload: bytes) -> None:
    """A datagram to a group."""
    mac = group_mac(gid)
    vector = struct.pack(">I4xI2xH4x6sBBI16s", 0x1234, 0xFFFFFF, 0, mac, 0, 64, 1 << 30, gid)
    qp.post(WqeOpcode.SEND, vector, inline(payload))


def attach(side: Side, qp: Qp, gid: bytes, opcode: Op = Op.ATTACH_TO_MCG) -> CommandStatus:
    """Attach or detach."""
    value = int.from_bytes(gid, "big")
    return side.machine.command(opcode, qpn=qp.number, multicast_gid=value).status


@pytest.mark.parametrize("gid", [GROUP_V6, GROUP_V4], ids=["v6", "v4"])
def test_every_member_gets_a_copy(pair: Pair, gid: bytes) -> None:
    a, b = pair.a, pair.b
    sender = datagram(a)
    members = [datagram(b) for _ in range(3)]
    for member in members[:2]:
        assert attach(b, member, gid) is CommandStatus.OK
    for number, member in enumerate(members):
        member.receive((4096, b.key, b.memory + 4096 * number))
    send(sender, gid, b"everybody")
    pair.run(10 * MS)
    got = sorted(done.qpn for done in (b.cq.poll(), b.cq.poll()) if done is not None)
    assert got == sorted(member.number for member in members[:2])
    assert b.cq.poll() is None
    assert b.held(9, 40) == b.held(9, 4096 + 40) == b"everybody"
    assert attach(b, members[0], gid, Op.DETACH_FROM_MCG) is CommandStatus.OK
    members[0].receive((4096, b.key, b.memory))
    members[1].receive((4096, b.key, b.memory))
    send(sender, gid, b"one less")
    pair.run(10 * MS)
    done = b.cq.poll()
    assert done is not None and done.qpn == members[1].number
    assert b.cq.poll() is None


def test_what_cannot_be_attached_is_refused(pair: Pair) -> None:
    a = pair.a
    qp = datagram(a)
    assert attach(a, a.qp, GROUP_V6) is CommandStatus.BAD_QP_STATE
    assert attach(a, qp, a.gid) is CommandStatus.BAD_PARAM
    assert attach(a, qp, GROUP_V6, Op.DETACH_FROM_MCG) is CommandStatus.BAD_RESOURCE


# Ethernet


def listen(machine: Machine, *, unicast: int = 0, every: int = 0, multicast: int = 0) -> None:
    """Set what the vport takes besides its own."""
    machine.do(
        Op.MODIFY_NIC_VPORT_CONTEXT,
        field_select__promisc=1,
        nic_vport_context__promisc_uc=unicast,
        nic_vport_context__promisc_mc=multicast,
        nic_vport_context__promisc_all=every,
    )


def received(net: Netdev, dest: bytes) -> bool:
    """Whether a frame to ``dest`` ends up in the receive queue."""
    net.post(net.memory)
    net.machine.own_port.deliver(dest + STRANGER + b"\x88\xb5" + bytes(50))
    net.machine.settle()
    return net.receive_cq.poll() is not None


def test_a_promiscuous_port_takes_what_is_for_others() -> None:
    net = Netdev()
    net.rule(0, net.table, net.to_tir())
    assert not received(net, STRANGER)
    for which in ("unicast", "every"):
        listen(net.machine, **{which: 1})
        assert received(net, STRANGER)
        listen(net.machine)
        assert not received(net, STRANGER)
    shown = net.machine.do(Op.QUERY_NIC_VPORT_CONTEXT)
    assert shown["nic_vport_context.promisc_all"] == 0
    listen(net.machine, multicast=1, unicast=1)
    shown = net.machine.do(Op.QUERY_NIC_VPORT_CONTEXT)
    assert (shown["nic_vport_context.promisc_mc"], shown["nic_vport_context.promisc_uc"]) == (1, 1)
    net.machine.device.reset("test")
    assert not net.machine.nic.promiscuous


def test_groups_are_taken_as_the_rules_say() -> None:
    net = Netdev()
    joined, other = bytes.fromhex("333300000001"), bytes.fromhex("333300000002")
    net.rule(0, net.table, net.to_tir(), dmac_47_16=0x33330000, dmac_15_0=1)
    assert received(net, joined)
    assert not received(net, other)
    # Every group: a rule on the one bit that makes an address one of a group.
    net.machine.do(Op.DELETE_FLOW_TABLE_ENTRY, table_id=net.table, flow_index=0)
    net.rule(1, net.table, net.to_tir())
    assert received(net, other)


def test_queue_pairs_never_get_what_is_for_another_station(pair: Pair) -> None:
    """A promiscuous port hands frames to Ethernet queues only."""
    a, b = pair.a, pair.b
    listen(b.machine, every=1)
    frames: list[bytes] = []
    b.machine.nic.ethernet = frames.append
    b.machine.nic.addresses = frozenset((STRANGER,))
    a.qp.post(WqeOpcode.SEND, inline(b"x"))
    pair.run(MS)
    assert frames and frames[0][:6] == b.mac
    assert not b.machine.nic.counters.rx_packets
