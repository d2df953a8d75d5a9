# SPDX-License-Identifier: Apache-2.0
"""The fabric endpoint of one NIC: its packet delivery contexts, shared by all its UET queue pairs.

Implements :class:`emu.nic.endpoint.Endpoint`. A PDC is opened per peer, mode and traffic class by the first
message, and serves every queue pair that talks to that peer the same way.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from emu.clock import MS, US
from emu.nic.endpoint import EndpointHost
from emu.nic.engine import Drop, Engine, EngineHost
from emu.nic.work import Cause, Status, Transport
from emu.uet.datagram import UudEngine
from emu.uet.destination import CONSUMING
from emu.uet.engine import UetEngine
from emu.uet.headers import RequestHeader, ResponseHeader, nack, parse_request
from emu.uet.outgoing import Failure, Verdict, Work
from emu.uet.packet import NOMINAL_EXTRA, Parser, UetPacket
from emu.uet.parameters import Parameters
from emu.uet.path import PeerPath
from emu.uet.pdc import Pdc, Role
from emu.uet.rudi import Rudi
from emu.uet.tss import SecuredHost, Tss
from emu.uet.verdicts import refusal
from emu.wire.uet_names import (
    ControlFlag,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
    RequestOpcode,
    ReturnCode,
)

if TYPE_CHECKING:
    pass

__all__ = ["TRANSPORTS", "Fep"]

TRANSPORTS = (Transport.UET_ROD, Transport.UET_RUD, Transport.UET_RUDI, Transport.UET_UUD)
"""Services whose queue pairs an endpoint serves."""

_TURN = 32
"""PDCs served before the loop looks at its other work."""
_BACKLOG = 256
"""Frames at the port from which on nobody is served: a NIC sends at the speed of its link."""
_HOLD = 200 * US
"""How long to wait for the port then."""
_POSTPONE = 1 * MS
"""How much later a deadline is looked at again while the link is behind."""
_FULL = 1 * MS
"""How long a look for a context to give up holds: a flood of SYNs must not cost one each."""
_HEADERS = 120
"""Room for headers in the packet size that congestion control reckons with."""
_CE = 3
_CLOSED_KEPT = 4096
_PATHS_KEPT = 1024

Key = tuple[bytes, bytes, int]
_PeerKey = tuple[bytes, bytes, bytes, bool, int]


class Fep:
    """All UET state of one NIC that is not a queue pair's own.

    :param host: the NIC
    :param seed: of start PSNs and entropy values
    """

    def __init__(self, host: EndpointHost, parameters: Parameters | None = None, seed: int = 0) -> None:
        self.parameters = parameters or Parameters()
        security = self.parameters.security
        self._tss = None if security is None else Tss(security, self.parameters.wire)
        self.host: EndpointHost = host if self._tss is None else SecuredHost(host, self._tss)
        self.seed = seed
        wire = self.parameters.wire
        self._trimmed = (wire.dscp_trimmed, wire.dscp_trimmed_last_hop)
        self._parser = Parser(wire)
        self._engines: dict[int, UetEngine] = {}
        self._datagrams: dict[int, UudEngine] = {}
        self._ready: deque[Pdc] = deque()
        self._scheduled = False
        self._forget()

    def _forget(self) -> None:
        self.pdcs: dict[int, Pdc] = {}
        self._targets: dict[Key, Pdc] = {}
        self._initiated: dict[_PeerKey, Pdc] = {}
        self._closed: dict[Key, tuple[int, int]] = {}
        self._paths: dict[tuple[bytes, bytes, bytes, bytes], PeerPath] = {}
        self._ids: dict[int, Work] = {}
        self._next_id = self._next_number = 0
        self._full_until = 0
        self.rudi = Rudi(self)
        self._starved: deque[tuple[UetEngine, Work]] = deque()
        self._random = random.Random(self.seed)

    # The seam to the core

    def create_engine(self, transport: Transport, host: EngineHost) -> Engine:
        """A queue pair's engine in state RESET. :raises ValueError: the service is not offered."""
        if transport not in TRANSPORTS:
            names = ", ".join(offered.name for offered in TRANSPORTS)
            raise ValueError(f"transport {transport.name} is not offered: UET has {names}")
        if transport is Transport.UET_UUD:
            datagrams = self._datagrams[host.qpn] = UudEngine(self, host)
            return datagrams
        engine = UetEngine(self, transport, host)
        self._engines[engine.qpn] = engine
        return engine

    def forget_engine(self, qpn: int) -> None:
        """A queue pair is gone; what it still had to do is given up."""
        engine = self._engines.pop(qpn, None) or self._datagrams.pop(qpn, None)
        if engine is not None:
            engine.abandon()

    def reset(self) -> None:
        """Forget everything, without a word to peers, whose PDCs find out by the NACKs they get."""
        for pdc in self.pdcs.values():
            pdc.closed = True
            if pdc.timer is not None:
                pdc.timer.cancel()
        self.rudi.stop()
        self._engines.clear()
        self._datagrams.clear()
        self._ready.clear()
        if self._tss is not None:
            self._tss.restart()
        self._forget()

    def receive(self, frame: bytes, now: int) -> Drop | None:
        """Take a frame from the port; a :class:`Drop` says why it changed nothing."""
        if self._tss is not None:
            opened = self._tss.open(frame)
            if isinstance(opened, Drop):
                return opened
            frame = opened
        packet = self._parser.parse(frame)
        if isinstance(packet, Drop):
            return packet
        if packet.kind == PdsType.UUD_REQ:
            return self._datagram(packet)
        if packet.kind == PdsType.RUDI_REQ:
            return self.rudi.request(packet, self._path_back(packet))
        if packet.kind == PdsType.RUDI_RESP or (packet.is_nack and packet.flags & NackFlag.NT):
            return self.rudi.answered(packet, now)
        found = self._find(packet, now)
        if isinstance(found, Drop):
            return found
        found.receive(packet, now)
        if not found.closed:
            self._arm(found)
        return None

    # Inbound

    def _find(self, packet: UetPacket, now: int) -> Pdc | Drop:
        kind = packet.kind
        request = packet.is_request
        opens = request or kind == PdsType.CP
        if opens and not packet.spdcid:
            return Drop("packet without a source PDC id")
        if opens and packet.syn:
            return self._by_key(packet, now)
        pdc = self.pdcs.get(packet.dpdcid)
        if pdc is None:
            if request or (kind == PdsType.CP and packet.flags & ControlFlag.AR):
                self._refuse(NackCode.INV_DPDCID, packet)
            return Drop(f"there is no PDC {packet.dpdcid:#x}", "unknown_pdc")
        foreign = pdc.path.dest_ip != packet.head.source_ip or (
            packet.spdcid != pdc.peer and pdc.peer and packet.spdcid
        )
        if foreign:
            if request:
                self._refuse(NackCode.PDC_HDR_MISMATCH, packet)
            return Drop(f"PDC {pdc.number:#x} is not the sender's", "unknown_pdc")
        return pdc

    def _datagram(self, packet: UetPacket) -> Drop | None:
        """Hand a UUD packet to its queue pair; nobody is told when there is none."""
        if packet.head.dscp in self._trimmed:
            return Drop("a trimmed datagram is lost")
        header = parse_request(packet.frame, packet.ses, packet.end, packet.following)
        if header is None or packet.following == NextHeader.REQUEST_SMALL:
            return Drop("UUD packet without a standard or medium request")
        if header.opcode != RequestOpcode.DATAGRAM_SEND or not header.whole:
            return Drop(f"UUD packet with operation {header.opcode:#04x}, or of several")
        if header.request_length != header.end - header.start:
            return Drop(f"UUD packet with {header.end - header.start} of {header.request_length} bytes")
        if header.job_id != self.parameters.job_id:
            return Drop(f"datagram of job {header.job_id}")
        engine = self._datagrams.get(header.qpn)
        if engine is None:
            return Drop(f"there is no UUD QP {header.qpn:#x}")
        engine.datagram(packet, header)
        return None

    def _by_key(self, packet: UetPacket, now: int) -> Pdc | Drop:
        """The PDC of a SYN packet: one that exists, or a new one."""
        head = packet.head
        key = (head.source_ip, head.dest_ip, packet.spdcid)
        pdc = self._targets.get(key)
        if pdc is not None:
            if pdc.start_psn != packet.start_psn:
                self._refuse(NackCode.INVALID_SYN, packet)
                return Drop(f"SYN with another start PSN than PDC {pdc.number:#x}")
            return pdc
        if head.dscp in self._trimmed:
            last_hop = head.dscp == self.parameters.wire.dscp_trimmed_last_hop
            self._refuse(NackCode.TRIMMED_LASTHOP if last_hop else NackCode.TRIMMED, packet)
            return Drop("a trimmed packet opens no PDC")
        if packet.kind == PdsType.CP:
            if packet.following not in CONSUMING:
                return Drop("only a NOOP or a negotiation can open a PDC")
            rod = bool(packet.flags & ControlFlag.ISROD)
        else:
            rod = packet.rod
        start, until = self._closed.get(key, (0, 0))
        if until > now and start == packet.start_psn:
            self._refuse(NackCode.INVALID_SYN, packet)
            return Drop("late SYN of a PDC that was closed")
        number = self._allocate(now)
        if number is None:
            self._refuse(NackCode.NO_PDC_AVAIL, packet)
            return Drop(f"all {self.parameters.max_pdcs} PDCs are in use")
        pdc = Pdc(
            self,
            number,
            Role.TARGET,
            self._path_back(packet),
            rod=rod,
            start_psn=packet.start_psn,
            mtu=4096 + _HEADERS,
            peer=packet.spdcid,
        )
        self._add(pdc)
        self._targets[key] = pdc
        return pdc

    def _allocate(self, now: int) -> int | None:
        """A free PDC id. None when there is none, and then the longest unused one is asked to close."""
        if len(self.pdcs) >= self.parameters.max_pdcs:
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
            if now - oldest.used < self.parameters.tail_loss_ns:
                return None
            # Nobody went on with it after its SYN: a flood must not keep others out.
            oldest.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, "never confirmed"))
        while True:
            self._next_number = self._next_number % 0xFFFF + 1
            if self._next_number not in self.pdcs:
                return self._next_number

    def _path_back(self, packet: UetPacket) -> PeerPath:
        head = packet.head
        key = (head.dest_mac, head.source_mac, head.dest_ip, head.source_ip)
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            path = self._paths[key] = PeerPath(*key, self.parameters.wire)
        return path

    def _refuse(self, code: NackCode, packet: UetPacket) -> None:
        """NACK a packet that no PDC answers for."""
        flags = (NackFlag.M if packet.head.ecn == _CE else 0) | (
            NackFlag.RETX if packet.flags & RequestFlag.RETX else 0
        )
        self.count("nacks_sent")
        header = nack(code, flags, packet.psn, 0, packet.spdcid)
        frame = self._path_back(packet).frame(self.parameters.wire.dscp_control << 2, packet.ev, header)
        self.host.send(frame, None)

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """Carry out a request packet at the queue pair it names; without a PDC it came by RUDI."""
        if header.job_id != self.parameters.job_id:
            return refusal(ReturnCode.BAD_JOB_ID, header)
        engine = self._engines.get(header.qpn)
        if engine is None:
            return refusal(ReturnCode.BAD_INDEX, header)
        return engine.target.request(packet, header, pdc)

    def response(self, packet: UetPacket, header: ResponseHeader, pdc: Pdc) -> Verdict:
        """Take read data that came in the return direction."""
        message = pdc.reads.get(header.message_id)
        if message is None:
            # Its reader gave up; the data was delivered all the same.
            return None
        message.place(header.message_offset, memoryview(packet.frame)[header.start : header.end])
        return None

    # Outbound

    def current(self, engine: UetEngine) -> Pdc | None:
        """The PDC that messages of a queue pair would take now, if there is one."""
        return self._initiated.get(self._peer_key(engine))

    @staticmethod
    def _peer_key(engine: UetEngine) -> _PeerKey:
        attributes = engine.attributes
        return (
            engine.source_ip,
            engine.dest_ip,
            attributes.dest_mac,
            engine.rod,
            attributes.traffic_class,
        )

    def submit(self, engine: UetEngine, message: Work) -> None:
        """Queue a message on a PDC to its peer, opening one if needed, or for RUDI."""
        if engine.rudi:
            message.message_id = self._next_id = self._next_id % 0xFFFF + 1
            self.rudi.submit(self._path_to(engine), message)
            return
        pdc = self._pdc_for(engine)
        if pdc is None or len(self._ids) >= 0xFFFF:
            self._starved.append((engine, message))
            return
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self._ids:
                break
        message.message_id = self._next_id
        message.pdc = pdc
        self._ids[self._next_id] = message
        if message.reads:
            pdc.reads[self._next_id] = message
        pdc.submit(message)

    def _pdc_for(self, engine: UetEngine) -> Pdc | None:
        key = self._peer_key(engine)
        pdc = self._initiated.get(key)
        if pdc is not None and pdc.source.exhausted:
            pdc.wish_close()
            pdc = None
        if pdc is not None:
            return pdc
        now = self.host.scheduler.now()
        number = self._allocate(now)
        if number is None:
            return None
        pdc = Pdc(
            self,
            number,
            Role.INITIATOR,
            self._path_to(engine),
            rod=engine.rod,
            start_psn=self._random.getrandbits(32),
            mtu=engine.mtu + _HEADERS + NOMINAL_EXTRA,
        )
        self._add(pdc)
        self._initiated[key] = pdc
        return pdc

    def _path_to(self, engine: UetEngine) -> PeerPath:
        attributes = engine.attributes
        return PeerPath(
            attributes.source_mac,
            attributes.dest_mac,
            engine.source_ip,
            engine.dest_ip,
            self.parameters.wire,
            attributes.hop_limit or 64,
        )

    def release(self, message: Work) -> None:
        """A message needs its id no more."""
        if self._ids.get(message.message_id) is message:
            del self._ids[message.message_id]
            if message.pdc is not None:
                message.pdc.reads.pop(message.message_id, None)
        self._feed()

    def _feed(self) -> None:
        for _ in range(len(self._starved)):
            engine, message = self._starved.popleft()
            if not message.abandoned:
                self.submit(engine, message)
                if message.pdc is None:
                    return

    def _add(self, pdc: Pdc) -> None:
        self.pdcs[pdc.number] = pdc
        self.count("pdcs_opened")

    def retire(self, pdc: Pdc) -> None:
        """Give no more messages to a PDC."""
        for key, other in self._initiated.items():
            if other is pdc:
                del self._initiated[key]
                return

    def remove(self, pdc: Pdc, *, remember: bool = False) -> None:
        """A PDC ended. ``remember`` its key, to tell late SYN packets from a new PDC."""
        if pdc.closed:
            return
        pdc.closed = True
        if pdc.timer is not None:
            pdc.timer.cancel()
        del self.pdcs[pdc.number]
        for (qpn, _), inbound in pdc.inbound.items():
            engine = self._engines.get(qpn)
            if engine is not None:
                engine.target.lost(inbound)
        pdc.inbound.clear()
        if pdc.role is Role.TARGET:
            key = (pdc.path.dest_ip, pdc.path.source_ip, pdc.peer)
            self._targets.pop(key, None)
            if remember:
                if len(self._closed) >= _CLOSED_KEPT:
                    self._closed.pop(next(iter(self._closed)))
                until = self.host.scheduler.now() + self.parameters.syn_safety_ns
                self._closed[key] = (pdc.start_psn, until)
        else:
            self.retire(pdc)
        self._feed()

    # Turns and timers

    def kick(self, pdc: Pdc) -> None:
        """Serve ``pdc`` soon."""
        if pdc.queued or pdc.closed:
            return
        pdc.queued = True
        self._ready.append(pdc)
        if not self._scheduled:
            self._scheduled = True
            self.host.scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        ready = self._ready
        now = self.host.scheduler.now()
        if ready and self.host.backlog >= _BACKLOG:
            self._scheduled = True
            self.host.scheduler.call_at(now + _HOLD, self._run)
            return
        for _ in range(min(len(ready), _TURN)):
            pdc = ready.popleft()
            pdc.queued = False
            if pdc.closed:
                continue
            if pdc.transmit(now):
                self.kick(pdc)
            if not pdc.closed:
                self._arm(pdc)
        if ready and not self._scheduled:
            self._scheduled = True
            self.host.scheduler.call_soon(self._run)

    def _arm(self, pdc: Pdc) -> None:
        """Have a timer that runs no later than the PDC's deadline; an early one is kept."""
        deadline = pdc.deadline()
        if deadline is None:
            return
        timer = pdc.timer
        if timer is not None:
            if timer.pending and timer.when <= deadline:
                return
            timer.cancel()
        pdc.timer = self.host.scheduler.call_at(deadline, partial(self._expire, pdc))

    def _expire(self, pdc: Pdc) -> None:
        pdc.timer = None
        if pdc.closed:
            return
        deadline = pdc.deadline()
        if deadline is None:
            return
        now = self.host.scheduler.now()
        if now >= deadline and self.host.backlog >= _BACKLOG // 2:
            # No answer can be late yet: what it answers may still wait for the link.
            pdc.timer = self.host.scheduler.call_at(now + _POSTPONE, partial(self._expire, pdc))
            return
        if now >= deadline:
            pdc.expire(now)
            self.kick(pdc)
        if not pdc.closed:
            self._arm(pdc)

    def count(self, counter: str) -> None:
        """Bump a counter of the NIC."""
        self.host.count(counter)
