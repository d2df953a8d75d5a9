# SPDX-License-Identifier: Apache-2.0
"""The fabric endpoint of one NIC: its packet delivery contexts, shared by all its UET queue pairs.

Implements :class:`emu.nic.endpoint.Endpoint`. A PDC is opened per peer, mode and traffic class by the first
message, and serves every queue pair that talks to that peer the same way.
"""

from __future__ import annotations

from collections import deque

from emu.nic.endpoint import EndpointHost
from emu.nic.engine import Drop, Engine, EngineHost
from emu.nic.work import Transport
from emu.uet.contexts import Contexts
from emu.uet.datagram import UudEngine
from emu.uet.engine import UetEngine
from emu.uet.headers import RequestHeader, ResponseHeader, parse_request
from emu.uet.outgoing import Verdict, Work
from emu.uet.packet import Parser, UetPacket
from emu.uet.parameters import Parameters
from emu.uet.pdc import Pdc
from emu.uet.rccc import CreditPacer
from emu.uet.rudi import Rudi
from emu.uet.tss import SecuredHost, Tss
from emu.uet.turns import Turns
from emu.uet.verdicts import refusal
from emu.wire.uet_names import NackFlag, NextHeader, PdsType, RequestOpcode, ReturnCode, SesFlag

__all__ = ["TRANSPORTS", "Fep"]

TRANSPORTS = (Transport.UET_ROD, Transport.UET_RUD, Transport.UET_RUDI, Transport.UET_UUD)
"""Services whose queue pairs an endpoint serves."""

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_REL = int(SesFlag.REL)
_NT = int(NackFlag.NT)
_NACK = int(PdsType.NACK)
_WITHOUT_CONTEXT = frozenset({PdsType.UUD_REQ, PdsType.RUDI_REQ, PdsType.RUDI_RESP})


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
        self.turns = Turns(self.host)
        self._forget()

    def _forget(self) -> None:
        self.contexts = Contexts(self, self.seed)
        self.rudi = Rudi(self)
        self.pacer = CreditPacer(self)
        self._ids: dict[int, Work] = {}
        self._next_id = 0
        self._starved: deque[tuple[UetEngine, Work]] = deque()

    @property
    def pdcs(self) -> dict[int, Pdc]:
        """PDCs alive, by their number."""
        return self.contexts.pdcs

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
        engine = self._engines.pop(qpn, None)
        if engine is not None:
            engine.abandon()
            engine.target.waiting.clear()
        self._datagrams.pop(qpn, None)

    def reset(self) -> None:
        """Forget everything, without a word to peers, whose PDCs find out by the NACKs they get."""
        self.contexts.abandon()
        self.rudi.stop()
        self.pacer.stop()
        self._engines.clear()
        self._datagrams.clear()
        self.turns.clear()
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
        kind = packet.kind
        if kind in _WITHOUT_CONTEXT or (kind == _NACK and packet.flags & _NT):
            return self._without_context(packet, now)
        found = self.contexts.find(packet, now)
        if isinstance(found, Drop):
            return found
        found.receive(packet, now)
        if not found.closed:
            self.turns.arm(found)
        return None

    # Inbound

    def _without_context(self, packet: UetPacket, now: int) -> Drop | None:
        """RUDI and UUD."""
        if packet.kind == PdsType.UUD_REQ:
            return self._datagram(packet)
        if packet.kind == PdsType.RUDI_REQ:
            return self.rudi.request(packet, self.contexts.path_back(packet))
        return self.rudi.answered(packet, now)

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
        if header.flags & _REL and header.job_id != self.parameters.job_id:
            return Drop(f"datagram of job {header.job_id}")
        engine = self._datagrams.get(header.qpn)
        if engine is None:
            return Drop(f"there is no UUD QP {header.qpn:#x}")
        engine.datagram(packet, header)
        return None

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """Carry out a request packet at the queue pair it names; without a PDC it came by RUDI."""
        if header.flags & _REL and header.job_id != self.parameters.job_id:
            return refusal(ReturnCode.BAD_JOB_ID, header)
        engine = self._engines.get(header.qpn)
        if engine is None:
            known = any(qpn >> 12 == header.pid for qpn in self._engines)
            return refusal(ReturnCode.BAD_INDEX if known else ReturnCode.BAD_PID, header)
        if header.generation:
            # Queue pairs have no generations, so the current one is always 0.
            return refusal(ReturnCode.BAD_GENERATION, header)
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
        return self.contexts.current(engine)

    def submit(self, engine: UetEngine, message: Work) -> None:
        """Queue a message on a PDC to its peer, opening one if needed, or for RUDI."""
        if engine.rudi:
            message.message_id = self._next_id = self._next_id % 0xFFFF + 1
            self.rudi.submit(self.contexts.path_to(engine), message)
            return
        pdc = self.contexts.of_peer(engine)
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

    # What contexts ask for

    def retire(self, pdc: Pdc) -> None:
        """Give no more messages to a PDC."""
        self.contexts.retire(pdc)

    def remove(self, pdc: Pdc, *, remember: bool = False) -> None:
        """A PDC ended. ``remember`` its key, to tell late SYN packets from a new PDC."""
        if pdc.closed:
            return
        pdc.closed = True
        if pdc.timer is not None:
            pdc.timer.cancel()
        for (qpn, _), inbound in pdc.inbound.items():
            engine = self._engines.get(qpn)
            if engine is not None:
                engine.target.lost(inbound)
        pdc.inbound.clear()
        self.contexts.remove(pdc, remember=remember)
        self._feed()

    def kick(self, pdc: Pdc) -> None:
        """Serve ``pdc`` soon."""
        self.turns.kick(pdc)

    def count(self, counter: str) -> None:
        """Bump a counter of the NIC."""
        self.host.count(counter)
