# SPDX-License-Identifier: Apache-2.0
"""The packet delivery contexts of an endpoint: by number, by the key of their SYN packets, by peer.

All of it is bounded: contexts, what is remembered of closed ones, paths back. When all contexts are in use,
one that nobody went on with after its SYN makes room, else the longest unused one is asked to close.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from emu.clock import MS
from emu.nic.engine import Drop
from emu.nic.work import Cause, Status
from emu.uet.ccc import Ccc
from emu.uet.challenge import Challenge
from emu.uet.headers import nack
from emu.uet.outgoing import Failure
from emu.uet.packet import NOMINAL_EXTRA, UetPacket
from emu.uet.path import PeerKey, PeerPath
from emu.uet.pdc import Pdc, Role
from emu.uet.psn import distance
from emu.wire.uet_names import ControlFlag, CtlType, NackCode, NackFlag, PdsType, RequestFlag

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.fep import Fep

__all__ = ["Contexts"]

_FULL = 1 * MS
"""How long a look for a context to give up holds: a flood of SYNs must not cost one each."""
_HEADERS = 120
"""Room for headers in the packet size that congestion control reckons with."""
_LARGEST = 4096 + _HEADERS
_START_DISTANCE = 1 << 16
"""A start PSN is further than this from the last PSN under the same PDC id."""
_OPENING = frozenset({CtlType.NOOP, CtlType.NEGOTIATION})
"""Control packets that may be the first of a PDC."""
_CE = 3
_CLOSED_KEPT = 4096
_PATHS_KEPT = 1024

_Key = tuple[bytes, bytes, int]


class Contexts:
    """``pdcs`` are those alive, by their number.

    :param seed: of start PSNs and of the secret behind those of the endpoint's choice
    """

    def __init__(self, fep: Fep, seed: int) -> None:
        self._fep = fep
        self._parameters = fep.parameters
        wire = fep.parameters.wire
        self._trimmed = {
            wire.dscp_trimmed: NackCode.TRIMMED,
            wire.dscp_trimmed_last_hop: NackCode.TRIMMED_LASTHOP,
        }
        self._control_class = wire.dscp_control << 2
        self.pdcs: dict[int, Pdc] = {}
        self._targets: dict[_Key, Pdc] = {}
        self._initiated: dict[PeerKey, Pdc] = {}
        self._closed: dict[_Key, tuple[int, int]] = {}
        self._paths: dict[tuple[bytes, bytes, bytes, bytes], PeerPath] = {}
        self._last_psns: dict[int, int] = {}
        self._next_number = self._bitmaps = self._full_until = 0
        self._cccs: dict[tuple[bytes, bytes, int], Ccc] = {}
        self._next_ccc = 0
        self._random = random.Random(seed)
        self.challenge = Challenge(self._random.randbytes(16))

    # Inbound

    def find(self, packet: UetPacket, now: int) -> Pdc | Drop:
        """The PDC that a packet is for, a new one where it may open one; else what was wrong with it."""
        request = packet.is_request
        is_control = packet.kind == PdsType.CP
        if request or is_control:
            if not packet.spdcid:
                return Drop("packet without a source PDC id")
            if packet.syn:
                return self._by_key(packet, now)
        pdc = self.pdcs.get(packet.dpdcid)
        if pdc is None:
            if request or (is_control and packet.flags & ControlFlag.AR):
                self._refuse_for_good(NackCode.INV_DPDCID, packet)
            return Drop(f"there is no PDC {packet.dpdcid:#x}", "unknown_pdc")
        foreign = pdc.path.dest_ip != packet.head.source_ip or (
            packet.spdcid != pdc.peer and pdc.peer and packet.spdcid
        )
        if foreign:
            if request:
                self._refuse_for_good(NackCode.PDC_HDR_MISMATCH, packet)
            return Drop(f"PDC {pdc.number:#x} is not the sender's", "unknown_pdc")
        return pdc

    def _by_key(self, packet: UetPacket, now: int) -> Pdc | Drop:
        """The PDC of a SYN packet: one that exists, or a new one."""
        head = packet.head
        key = (head.source_ip, head.dest_ip, packet.spdcid)
        pdc = self._targets.get(key)
        if pdc is None:
            return self._open(packet, key, now)
        if pdc.start_psn != packet.start_psn:
            self._refuse_for_good(NackCode.INVALID_SYN, packet)
            return Drop(f"SYN with another start PSN than PDC {pdc.number:#x}")
        return pdc

    def _refuse_for_good(self, code: NackCode, packet: UetPacket) -> None:
        """Refuse in a way that ends the sender's PDC. Not a trimmed packet: it has no CRC left by which its
        ids could be trusted, and is dropped without a word.
        """
        if packet.head.dscp not in self._trimmed:
            self._refuse(code, packet)

    def _open(self, packet: UetPacket, key: _Key, now: int) -> Pdc | Drop:
        parameters = self._parameters
        trimmed = self._trimmed.get(packet.head.dscp)
        if trimmed is not None:
            self._refuse(trimmed, packet)
            return Drop("a trimmed packet opens no PDC")
        rod = packet.rod
        if packet.kind == PdsType.CP:
            if packet.following not in _OPENING:
                return Drop("only a NOOP or a negotiation can open a PDC")
            rod = bool(packet.flags & ControlFlag.ISROD)
        start, until = self._closed.get(key, (0, 0))
        if until > now and start == packet.start_psn:
            self._refuse(NackCode.INVALID_SYN, packet)
            return Drop("late SYN of a PDC that was closed")
        if parameters.choose_start:
            starts = self.challenge.starts(key, now)
            if packet.start_psn not in starts:
                self._refuse(NackCode.NEW_START_PSN, packet, starts[0])
                return Drop("SYN with a start PSN that this endpoint did not choose")
        if not rod and self._bitmaps >= parameters.max_bitmaps:
            self._refuse(NackCode.NO_BITMAP, packet)
            return Drop(f"all {parameters.max_bitmaps} receive bitmaps are in use")
        if packet.cc_state is not None:
            ours = (packet.head.source_ip, packet.head.dest_ip, packet.cc_state >> 24)
            if not self._fep.pacer.room(ours):
                self._refuse(NackCode.NO_CCC_AVAIL, packet)
                return Drop(f"all {parameters.max_cccs} congestion control contexts are in use")
        number = self._allocate(now)
        if number is None:
            self._refuse(NackCode.NO_PDC_AVAIL, packet)
            return Drop(f"all {parameters.max_pdcs} PDCs are in use")
        pdc = Pdc(
            self._fep,
            number,
            Role.TARGET,
            self.path_back(packet),
            rod=rod,
            start_psn=packet.start_psn,
            mtu=_LARGEST,
            peer=packet.spdcid,
        )
        self._add(pdc)
        self._targets[key] = pdc
        self._bitmaps += not rod
        return pdc

    def _allocate(self, now: int) -> int | None:
        """A free PDC id. None when there is none, and then the longest unused one is asked to close."""
        if len(self.pdcs) >= self._parameters.max_pdcs:
            if now < self._full_until:
                return None
            self._full_until = now + _FULL
            targets = [pdc for pdc in self.pdcs.values() if pdc.role is Role.TARGET]
            if not targets:
                return None
            oldest = min(targets, key=lambda pdc: (pdc.confirmed, pdc.used))
            if oldest.confirmed:
                oldest.ask_close(now)
                return None
            if now - oldest.used < self._parameters.tail_loss_ns:
                return None
            # Nobody went on with it after its SYN: a flood must not keep others out.
            oldest.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, "never confirmed"))
        while True:
            self._next_number = self._next_number % 0xFFFF + 1
            if self._next_number not in self.pdcs:
                return self._next_number

    def path_back(self, packet: UetPacket) -> PeerPath:
        """The way to a packet's sender."""
        head = packet.head
        key = (head.dest_mac, head.source_mac, head.dest_ip, head.source_ip)
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            path = self._paths[key] = PeerPath(*key, self._parameters.wire)
        return path

    def _refuse(self, code: NackCode, packet: UetPacket, payload: int = 0) -> None:
        """NACK a packet that no PDC answers for."""
        flags = (NackFlag.M if packet.head.ecn == _CE else 0) | (
            NackFlag.RETX if packet.flags & RequestFlag.RETX else 0
        )
        fep = self._fep
        fep.count("nacks_sent")
        header = nack(code, flags, packet.psn, 0, packet.spdcid, payload)
        fep.host.send(self.path_back(packet).frame(self._control_class, packet.ev, header), None)

    # Outbound

    def current(self, engine: UetEngine) -> Pdc | None:
        """The PDC that messages of a queue pair would take now, if there is one."""
        return self._initiated.get(engine.peer_key)

    def of_peer(self, engine: UetEngine) -> Pdc | None:
        """The PDC for a queue pair's next message, a new one if needed. None when all are in use."""
        key = engine.peer_key
        pdc = self._initiated.get(key)
        if pdc is not None:
            if not pdc.source.exhausted:
                return pdc
            pdc.wish_close()
        number = self._allocate(self._fep.host.scheduler.now())
        if number is None:
            return None
        pdc = Pdc(
            self._fep,
            number,
            Role.INITIATOR,
            self.path_to(engine),
            rod=engine.rod,
            start_psn=self._start_psn(number),
            mtu=engine.mtu + _HEADERS + NOMINAL_EXTRA,
        )
        pdc.peer_key = key
        self._add(pdc)
        self._initiated[key] = pdc
        return pdc

    def _start_psn(self, number: int) -> int:
        """A random start PSN, far from the last ones used under this PDC id."""
        last = self._last_psns.get(number)
        while True:
            start = self._random.getrandbits(32)
            if last is None or abs(distance(start, last)) > _START_DISTANCE:
                return start

    def path_to(self, engine: UetEngine) -> PeerPath:
        """The way to a queue pair's peer."""
        attributes = engine.attributes
        return PeerPath(
            attributes.source_mac,
            attributes.dest_mac,
            engine.source_ip,
            engine.dest_ip,
            self._parameters.wire,
            attributes.hop_limit or 64,
        )

    def ccc(self, pdc: Pdc, mtu: int) -> Ccc:
        """The congestion control context of a PDC's packets, which it shares with others to that peer."""
        key = (pdc.path.source_ip, pdc.path.dest_ip, mtu)
        ccc = self._cccs.get(key)
        if ccc is None:
            # Eight bits: a peer tells those of more than 256 peers apart by our address.
            self._next_ccc = (self._next_ccc + 1) & 0xFF
            ccc = self._cccs[key] = Ccc(self._next_ccc, self._parameters, mtu)
        ccc.members.add(pdc)
        return ccc

    # Beginnings and ends

    def _add(self, pdc: Pdc) -> None:
        self.pdcs[pdc.number] = pdc
        self._fep.count("pdcs_opened")

    def retire(self, pdc: Pdc) -> None:
        """Give no more messages to a PDC."""
        if pdc.peer_key is not None and self._initiated.get(pdc.peer_key) is pdc:
            del self._initiated[pdc.peer_key]

    def remove(self, pdc: Pdc, *, remember: bool = False) -> None:
        """A PDC ended. ``remember`` its key, to tell late SYN packets from a new PDC."""
        del self.pdcs[pdc.number]
        ccc = pdc.source.ccc
        ccc.members.discard(pdc)
        ccc.blocked.pop(pdc, None)
        # What it had on the way is not any more.
        ccc.wake()
        if not ccc.members:
            self._cccs.pop((pdc.path.source_ip, pdc.path.dest_ip, ccc.nscc.mtu), None)
        self._fep.pacer.forget(pdc)
        if pdc.role is Role.INITIATOR:
            self.retire(pdc)
            self._last_psns[pdc.number] = pdc.source.next_psn
            return
        key = (pdc.path.dest_ip, pdc.path.source_ip, pdc.peer)
        if self._targets.get(key) is pdc:
            del self._targets[key]
        self._bitmaps -= not pdc.rod
        if remember:
            if len(self._closed) >= _CLOSED_KEPT:
                self._closed.pop(next(iter(self._closed)))
            until = self._fep.host.scheduler.now() + self._parameters.syn_safety_ns
            self._closed[key] = (pdc.start_psn, until)

    def abandon(self) -> None:
        """The endpoint is reset: no PDC does anything any more."""
        for pdc in self.pdcs.values():
            pdc.closed = True
            if pdc.timer is not None:
                pdc.timer.cancel()
