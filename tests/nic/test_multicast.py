# SPDX-License-Identifier: Apache-2.0
"""Multicast groups: who may attach, and who gets a datagram."""

from __future__ import annotations

import pytest

from emu.events import Kind
from emu.nic.errors import ErrorKind, NicError
from emu.nic.limits import NicLimits
from emu.nic.multicast import MULTICAST_QPN, is_multicast
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.work import AddressHandle, ModifyMask, Opcode, QpAttributes, QpState, SendRequest, Transport
from emu.roce import create_engine, parse
from emu.roce.path import Templates, datagram_path
from emu.wire.headers import pack_deth
from emu.wire.opcodes import UdOpcode
from tests.nic.rig import MAC, SLOT, Rig

OWN_IP = bytes([10, 77, 0, 1])
OWN = bytes(10) + b"\xff\xff" + OWN_IP
PEER = bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 2])
PEER_MAC = bytes.fromhex("020000000002")
GROUP = bytes(10) + b"\xff\xff" + bytes([239, 1, 2, 3])
GROUP_MAC = bytes.fromhex("01005e010203")
GROUP6 = bytes.fromhex("ff0e") + bytes(13) + b"\x09"
GROUP6_MAC = bytes.fromhex("333300000009")
QKEY = 0x1234


@pytest.fixture
def rig() -> Rig:
    return Rig(NicLimits(multicast_groups=3, multicast_members=2), create_engine, parse, (OWN,))


def create(rig: Rig, transport: Transport = Transport.ROCE_UD) -> QueuePair:
    """A queue pair; one of datagrams is in RTS."""
    cq, _ = rig.create_cq()
    qp = rig.nic.create_qp(
        QpConfig(
            pd=rig.pd,
            send_cq=cq,
            recv_cq=cq,
            transport=transport,
            send=rig.memory(SLOT << 4),
            send_log_size=4,
            receive=rig.memory(SLOT << 4),
            receive_log_size=4,
        )
    )
    if transport is Transport.ROCE_UD:
        identity = ModifyMask.PKEY_INDEX | ModifyMask.PORT | ModifyMask.QKEY
        for state, mask in (
            (QpState.INIT, identity),
            (QpState.RTR, ModifyMask(0)),
            (QpState.RTS, ModifyMask.SQ_PSN),
        ):
            qp.modify(ModifyMask.STATE | mask, QpAttributes(state=state, qkey=QKEY))
    return qp


def datagram(
    dest: bytes, mac: bytes, qpn: int = MULTICAST_QPN, qkey: int = QKEY, source: bytes = PEER
) -> bytes:
    """A datagram from QP 0x77 of the peer."""
    if dest == GROUP6:
        source = bytes.fromhex("fe80") + bytes(13) + b"\x02"
    path = datagram_path(AddressHandle(PEER_MAC, mac, source, dest), 0x77, qpn)
    extension = pack_deth(qkey, 0x77)
    return Templates(path, dest_qpn=qpn, pkey=0xFFFF)[UdOpcode.SEND_ONLY].build(5, extension, b"all of you")


def drops(rig: Rig) -> list[str]:
    return rig.events.texts(Kind.FRAME_DROP)


@pytest.mark.parametrize(("group", "mac"), [(GROUP, GROUP_MAC), (GROUP6, GROUP6_MAC)])
def test_every_queue_pair_attached_gets_a_copy(rig: Rig, group: bytes, mac: bytes) -> None:
    first, second, outside = (create(rig) for _ in range(3))
    for qp in (first, second, first):
        rig.nic.multicast.attach(qp, group)
    rig.port.deliver(datagram(group, mac))
    rig.settle()
    # Nothing is posted, so each queue pair that got its copy says so.
    assert drops(rig) == [f"QP {qp.number:#x}: datagram without receive element" for qp in (first, second)]
    assert rig.nic.counters.out_of_buffer == 2
    assert rig.nic.counters.rx_packets == 1
    assert outside.number not in (first.number, second.number)


def test_a_group_nobody_is_attached_to_is_dropped_by_name(rig: Rig) -> None:
    create(rig)
    rig.port.deliver(datagram(GROUP, GROUP_MAC))
    assert drops(rig) == ["no queue pair is attached to ef010203"]
    assert rig.nic.counters.rx_dropped == 1


def test_the_q_key_is_checked_for_each(rig: Rig) -> None:
    qp = create(rig)
    rig.nic.multicast.attach(qp, GROUP)
    rig.port.deliver(datagram(GROUP, GROUP_MAC, qkey=QKEY + 1))
    assert rig.nic.counters.qkey_viol_cntr == 1


def test_group_addresses_and_numbers_come_together_only(rig: Rig) -> None:
    qp = create(rig)
    rig.nic.multicast.attach(qp, GROUP)
    rig.port.deliver(datagram(OWN, MAC))
    rig.port.deliver(datagram(GROUP, GROUP_MAC, qp.number))
    rig.port.deliver(datagram(PEER, MAC, qp.number))
    assert drops(rig) == [
        "no queue pair is attached to 0a4d0001",
        f"QP {qp.number:#x}: datagram to ef010203, which is no address of this port",
        f"QP {qp.number:#x}: datagram to 0a4d0002, which is no address of this port",
    ]
    rig.port.deliver(datagram(OWN, MAC, qp.number))
    assert drops(rig)[3:] == [f"QP {qp.number:#x}: datagram without receive element"]


def test_the_sender_gets_no_copy_and_its_neighbours_do(rig: Rig) -> None:
    sender, neighbour = create(rig), create(rig)
    for qp in (sender, neighbour):
        rig.nic.multicast.attach(qp, GROUP)
    sender.engine.post(
        SendRequest(
            0,
            Opcode.SEND,
            handle=AddressHandle(MAC, GROUP_MAC, OWN, GROUP),
            dest_qpn=MULTICAST_QPN,
            qkey=QKEY,
        )
    )
    rig.nic.submission.kick(sender)
    rig.settle()
    assert len(rig.port.sent) == 1
    assert drops(rig) == [f"QP {neighbour.number:#x}: datagram without receive element"]


def test_a_group_of_others_does_not_come_back(rig: Rig) -> None:
    sender, member = create(rig), create(rig)
    rig.nic.multicast.attach(member, GROUP6)
    handle = AddressHandle(MAC, GROUP_MAC, OWN, GROUP)
    sender.engine.post(SendRequest(0, Opcode.SEND, handle=handle, dest_qpn=MULTICAST_QPN, qkey=QKEY))
    rig.nic.submission.kick(sender)
    rig.settle()
    assert (len(rig.port.sent), drops(rig), rig.nic.counters.rx_dropped) == (1, [], 0)


def refusal(rig: Rig, qp: QueuePair, gid: bytes, *, detach: bool = False) -> tuple[ErrorKind, str | None]:
    with pytest.raises(NicError) as caught:
        (rig.nic.multicast.detach if detach else rig.nic.multicast.attach)(qp, gid)
    return caught.value.kind, caught.value.field


def test_what_cannot_be_attached_is_refused(rig: Rig) -> None:
    qp = create(rig)
    assert refusal(rig, qp, OWN) == (ErrorKind.BAD_FIELD, "gid")
    assert refusal(rig, qp, GROUP[12:]) == (ErrorKind.BAD_FIELD, "gid")
    assert refusal(rig, create(rig, Transport.ROCE_RC), GROUP) == (ErrorKind.BAD_STATE, "qpn")
    assert refusal(rig, qp, GROUP, detach=True) == (ErrorKind.BAD_OBJECT, "gid")
    for _ in range(2):
        rig.nic.multicast.attach(create(rig), GROUP)
    assert refusal(rig, qp, GROUP) == (ErrorKind.NO_RESOURCE, None)
    for number in (1, 2):
        rig.nic.multicast.attach(qp, bytes.fromhex("ff02") + bytes(13) + bytes([number]))
    assert refusal(rig, qp, GROUP6) == (ErrorKind.NO_RESOURCE, None)
    assert len(rig.nic.multicast) == 3


def test_attachments_end_with_detach_destroy_and_reset(rig: Rig) -> None:
    first, second = create(rig), create(rig)
    for qp in (first, second):
        rig.nic.multicast.attach(qp, GROUP)
    rig.nic.multicast.detach(first, GROUP)
    assert rig.nic.multicast.members(GROUP[12:]) == (second,)
    rig.nic.destroy_qp(second)
    assert len(rig.nic.multicast) == 0
    rig.nic.multicast.attach(first, GROUP6)
    rig.nic.reset("test")
    assert len(rig.nic.multicast) == 0


@pytest.mark.parametrize(
    ("gid", "expected"), [(GROUP, True), (GROUP6, True), (OWN, False), (bytes(12) + GROUP[12:], False)]
)
def test_multicast_addresses(gid: bytes, expected: bool) -> None:
    assert is_multicast(gid) is expected
