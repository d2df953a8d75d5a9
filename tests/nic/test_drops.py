# SPDX-License-Identifier: Apache-2.0
"""Every reason to drop a packet has a counter of its own and gives one line of the trace; nothing else
happens.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emu.events import Kind
from emu.nic.drops import DropReason
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.work import ModifyMask, QpAttributes, QpState, Transport
from emu.roce import create_engine, parse
from emu.roce.path import Templates, frame_path
from emu.wire.headers import pack_aeth, pack_deth, pack_reth
from emu.wire.icrc import icrc
from emu.wire.opcodes import RcOpcode, TransportClass, UdOpcode
from tests.nic.rig import MAC, SLOT, Rig

M = ModifyMask
PEER_MAC = bytes.fromhex("020000000002")
OWN, PEER, OTHER = (bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number)) for number in (1, 2, 3))
PEER_QPN, PSN, QKEY = 0x77, 500, 0x1234


class World:
    """A NIC with an RC, a UC and a UD queue pair in RTS whose peer is QP 0x77 of another port."""

    def __init__(self) -> None:
        self.rig = Rig(None, create_engine, parse, (OWN,))
        self.rc = self._connected(Transport.ROCE_RC)
        self.uc = self._connected(Transport.ROCE_UC)
        self.ud = self._create(Transport.ROCE_UD)
        for state, mask in (
            (QpState.INIT, M.PKEY_INDEX | M.PORT | M.QKEY),
            (QpState.RTR, M(0)),
            (QpState.RTS, M.SQ_PSN),
        ):
            self.ud.modify(M.STATE | mask, QpAttributes(state=state, qkey=QKEY))

    def _create(self, transport: Transport) -> QueuePair:
        cq, _ = self.rig.create_cq()
        return self.rig.nic.create_qp(
            QpConfig(
                pd=self.rig.pd,
                send_cq=cq,
                recv_cq=cq,
                transport=transport,
                send=self.rig.memory(SLOT << 4),
                send_log_size=4,
                receive=self.rig.memory(SLOT << 4),
                receive_log_size=4,
            )
        )

    def _connected(self, transport: Transport) -> QueuePair:
        qp = self._create(transport)
        reliable = transport is Transport.ROCE_RC
        to_rtr = M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN
        to_rts = M.SQ_PSN
        if reliable:
            to_rtr |= M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER
            to_rts |= M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.MAX_RD_ATOMIC
        attributes = QpAttributes(
            dest_qpn=PEER_QPN,
            rq_psn=PSN,
            source_mac=MAC,
            dest_mac=PEER_MAC,
            source_gid=OWN,
            dest_gid=PEER,
        )
        for state, mask in (
            (QpState.INIT, M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS),
            (QpState.RTR, to_rtr),
            (QpState.RTS, to_rts),
        ):
            attributes.state = state
            qp.modify(M.STATE | mask, attributes)
        return qp

    def frame(
        self,
        opcode: int,
        qpn: int,
        psn: int = PSN,
        extension: bytes = b"",
        payload: bytes = b"",
        *,
        source: bytes = PEER,
        dest: bytes = OWN,
        pkey: int = 0xFFFF,
        patch: Callable[[bytearray], None] | None = None,
        seal: bool = True,
    ) -> bytes:
        """What the peer sends; ``patch`` changes it, after which ``seal`` has the ICRC right again."""
        path = frame_path(
            QpAttributes(source_mac=PEER_MAC, dest_mac=MAC, source_gid=source, dest_gid=dest, dest_qpn=qpn),
            PEER_QPN,
        )
        frame = bytearray(Templates(path, dest_qpn=qpn, pkey=pkey)[opcode].build(psn, extension, payload))
        if patch is not None:
            patch(frame)
            if seal:
                frame[-4:] = icrc(bytes(frame[14:-4]))
        return bytes(frame)


BTH = 14 + 20 + 8
UC = int(TransportClass.UC)


def put(offset: int, value: int) -> Callable[[bytearray], None]:
    def patch(frame: bytearray) -> None:
        frame[offset] = value

    return patch


def cut(frame: bytearray) -> None:
    """UDP and IP say less than the opcode needs."""
    del frame[BTH + 12 :]
    frame.extend(bytes(4))
    frame[14 + 2 : 14 + 4] = (len(frame) - 14).to_bytes(2, "big")
    frame[14 + 24 : 14 + 26] = (len(frame) - 34).to_bytes(2, "big")
    frame[24:26] = b"\0\0"
    total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(14, 34, 2))
    total = (total & 0xFFFF) + (total >> 16)
    frame[24:26] = (~total & 0xFFFF).to_bytes(2, "big")


ACK = pack_aeth(0x1F, 1)
READ = pack_reth(0x1000, 0x999, 8)

ROWS: dict[str, tuple[str, Callable[[World], bytes]]] = {
    "another station": (
        DropReason.FOREIGN,
        lambda world: b"\x02\x11\x11\x11\x11\x11" + world.frame(RcOpcode.SEND_ONLY, world.rc.number)[6:],
    ),
    "another protocol": (DropReason.FOREIGN, lambda world: MAC + PEER_MAC + b"\x08\x06" + bytes(46)),
    "RoCEv1": (DropReason.FOREIGN, lambda world: MAC + PEER_MAC + b"\x89\x15" + bytes(60)),
    "IPv4 options": (
        DropReason.FOREIGN,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(14, 0x46), seal=False),
    ),
    "another port": (
        DropReason.FOREIGN,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(37, 1), seal=False),
    ),
    "truncated frame": (
        DropReason.LENGTH,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, PSN, b"", bytes(40))[:-8],
    ),
    "no room for the opcode": (
        DropReason.LENGTH,
        lambda world: world.frame(RcOpcode.READ_REQUEST, world.rc.number, PSN, READ, patch=cut),
    ),
    "IPv4 checksum": (
        DropReason.CHECKSUM,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(24, 1), seal=False),
    ),
    "UDP checksum": (
        DropReason.CHECKSUM,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(41, 1), seal=False),
    ),
    "ICRC": (
        "rx_icrc_encapsulated",
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(BTH + 11, 9), seal=False),
    ),
    "transport version": (
        DropReason.VERSION,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, patch=put(BTH + 1, 1)),
    ),
    "no such queue pair": (DropReason.QPN, lambda world: world.frame(RcOpcode.SEND_ONLY, 0x999)),
    "queue pair 0": (DropReason.QPN, lambda world: world.frame(RcOpcode.SEND_ONLY, 0)),
    "group without members": (
        DropReason.QPN,
        lambda world: world.frame(UdOpcode.SEND_ONLY, 0xFFFFFF, 1, bytes(8)),
    ),
    "another transport": (DropReason.OPCODE, lambda world: world.frame(UC, world.rc.number)),
    "reserved opcode of UC": (
        DropReason.OPCODE,
        lambda world: world.frame(UC, world.uc.number, patch=put(BTH, UC | 0x1F)),
    ),
    "address": (
        DropReason.ADDRESS,
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, source=OTHER),
    ),
    "address of a datagram": (
        DropReason.ADDRESS,
        lambda world: world.frame(
            UdOpcode.SEND_ONLY, world.ud.number, 1, pack_deth(QKEY, PEER_QPN), dest=OTHER
        ),
    ),
    "partition": (
        "bad_pkey_cntr",
        lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, pkey=0x1234),
    ),
    "Q_Key": (
        "qkey_viol_cntr",
        lambda world: world.frame(UdOpcode.SEND_ONLY, world.ud.number, 1, pack_deth(QKEY + 1, PEER_QPN)),
    ),
    "no receive": (
        "out_of_buffer",
        lambda world: world.frame(UdOpcode.SEND_ONLY, world.ud.number, 1, pack_deth(QKEY, PEER_QPN)),
    ),
    "response to nothing": (
        DropReason.RESPONSE,
        lambda world: world.frame(RcOpcode.ACKNOWLEDGE, world.rc.number, 7, ACK),
    ),
    "repeated READ": (
        DropReason.REPEAT,
        lambda world: world.frame(RcOpcode.READ_REQUEST, world.rc.number, PSN - 1, READ),
    ),
    "sequence": ("out_of_sequence", lambda world: world.frame(RcOpcode.SEND_ONLY, world.rc.number, PSN + 3)),
    "unreliable WRITE with a bad key": (
        DropReason.REFUSED,
        lambda world: world.frame(UC | RcOpcode.WRITE_ONLY, world.uc.number, PSN, READ, bytes(8)),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_drop_is_counted_by_its_reason_and_told(name: str) -> None:
    counter, make = ROWS[name]
    world = World()
    rig = world.rig
    frame = make(world)
    before = rig.nic.counters.snapshot()
    rig.port.deliver(frame)
    rig.settle()
    after = rig.nic.counters.snapshot()
    changed = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert changed.pop("rx_dropped") == 1
    assert changed.pop(str(counter)) == 1
    # What came in, and the one answer that a gap deserves; a key that was refused is a broken rule as well.
    noise = {"rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "duplicate_request", "protection_errors"}
    assert set(changed) <= noise | {"check_violations"}, changed
    assert len(rig.events.texts(Kind.FRAME_DROP)) == 1
    assert [qp.state for qp in (world.rc, world.uc, world.ud)] == [QpState.RTS] * 3


@pytest.mark.parametrize("state", [QpState.RESET, QpState.ERR])
def test_a_queue_pair_not_in_a_state_for_it_counts_that(state: QpState) -> None:
    world = World()
    for qp, opcode in ((world.rc, int(RcOpcode.SEND_ONLY)), (world.uc, UC | RcOpcode.SEND_ONLY)):
        qp.modify(M.STATE, QpAttributes(state=state))
        world.rig.port.deliver(world.frame(opcode, qp.number))
    assert world.rig.nic.counters.rx_drop_state == 2


def test_every_reason_is_tried() -> None:
    assert {*DropReason} - {counter for counter, _ in ROWS.values()} == {DropReason.STATE}
