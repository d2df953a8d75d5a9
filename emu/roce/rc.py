# SPDX-License-Identifier: Apache-2.0
"""Reliable connection: one queue pair's requester and responder behind :class:`emu.nic.engine.Engine`."""

from __future__ import annotations

from emu.fabric.run import FrameRun
from emu.nic.drops import DropReason
from emu.nic.engine import AsyncEvent, EngineHost, Packet
from emu.nic.work import QpAttributes, QpState, SendRequest
from emu.roce.connection import Connection
from emu.roce.packet import CONGESTED, RocePacket
from emu.roce.pkey import pkeys_match
from emu.roce.requester import Requester
from emu.roce.responder import Responder
from emu.roce.run import PacketRun
from emu.wire.opcodes import CLASS_MASK, CNP, ExtendedOpcode, TransportClass

__all__ = ["RcEngine"]

_REQUESTS = frozenset({QpState.RTR, QpState.RTS, QpState.SQD})
_RESPONSES = frozenset({QpState.RTS, QpState.SQD})
_EXTENDED = frozenset(map(int, ExtendedOpcode))


class RcEngine:
    """RC protocol state of one queue pair. Nothing a guest posts or a peer sends makes a call raise."""

    connection_type = Connection

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._connection = self.connection_type(host)
        self._requester = Requester(self._connection, self._fail)
        self._responder = Responder(self._connection, self._fail)

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Take over attributes and enter ``attributes.state``."""
        connection = self._connection
        state = attributes.state
        if state is QpState.ERR:
            if connection.state is not QpState.ERR:
                connection.state = QpState.ERR
                self._responder.responses.clear()
                self._flush()
            return
        connection.set(attributes)
        connection.state = state
        if state is QpState.RESET:
            self._requester.clear()
            self._responder.clear()
            connection.forget_congestion()
        elif state is QpState.RTR and previous is not QpState.RTR:
            self._responder.start()
        elif state is QpState.RTS and previous is QpState.RTR:
            self._requester.start()
        elif state is QpState.SQD:
            self._responder.adjust()
        self._check_drained()

    def post(self, request: SendRequest) -> None:
        """Queue one send element; in ERR it is flushed at once."""
        self._requester.post(request)
        if self._connection.state is QpState.ERR:
            self._requester.flush()

    def receive(self, packet: Packet, now: int) -> None:
        """Handle one inbound packet: what the queue pair must not accept is dropped and counted."""
        if not isinstance(packet, RocePacket):
            self._drop(DropReason.FOREIGN, f"no RoCE packet: {packet!r}")
            return
        refusal = self._refusal(packet)
        if refusal is not None:
            self._drop(*refusal)
            return
        if packet.ecn == CONGESTED:
            self._connection.see_mark(now)
        if packet.opcode == CNP:
            self._connection.notified(packet, now)
        elif packet.info is not None and packet.info.response:
            self._requester.receive(packet, now)
            self._check_drained()
        else:
            self._responder.receive(packet)

    def receive_run(self, run: FrameRun, now: int) -> None:
        """Handle middle packets of a message: together when they are what comes next, else one by one."""
        if not isinstance(run, PacketRun):
            self._drop(DropReason.FOREIGN, f"no RoCE packets: {run!r}")
            return
        if self._refusal(run) is None and run.ecn != CONGESTED:
            taken = (
                self._requester.receive_run(run, now)
                if run.info.response
                else self._responder.receive_run(run)
            )
            if taken:
                return
        for packet in run.packets():
            self.receive(packet, now)

    def _refusal(self, packet: RocePacket | PacketRun) -> tuple[str, str] | None:
        """Why this queue pair does not accept ``packet``: counter and sentence; None when it does."""
        connection = self._connection
        if packet.opcode == CNP:
            if connection.state in _RESPONSES:
                return None
            return DropReason.STATE, f"congestion notification in state {connection.state.name}"
        if packet.opcode & CLASS_MASK != TransportClass.RC and packet.opcode not in _EXTENDED:
            return DropReason.OPCODE, f"opcode {packet.opcode:#04x} is of another transport than RC"
        response = packet.info is not None and packet.info.response
        if connection.state not in (_RESPONSES if response else _REQUESTS):
            kind = "response" if response else "request"
            return DropReason.STATE, f"{kind} in state {connection.state.name}"
        if packet.source_ip != connection.dest_ip or packet.dest_ip != connection.source_ip:
            return DropReason.ADDRESS, "addresses are not those of the connection"
        theirs, ours = packet.pkey, connection.attributes.pkey
        if not pkeys_match(theirs, ours):
            return "bad_pkey_cntr", f"P_Key {theirs:#06x} does not match {ours:#06x}"
        return None

    def receive_posted(self, now: int) -> None:
        """In ERR flush what was posted; otherwise the next request (a repeated one after RNR) finds it."""
        if self._connection.state is QpState.ERR:
            self._responder.flush()

    def transmit(self, now: int, budget: int) -> bool:
        """Send answers first, then requests. In ERR only the answers that led there still leave."""
        connection = self._connection
        connection.settle_congestion(now)
        # A long READ answered here must not hold up the requests of the other direction.
        share = budget if self._requester.idle() else budget - budget // 2
        sent = self._responder.transmit(now, share) if self._responder.responses else 0
        if sent < budget and connection.state in _RESPONSES:
            sent += self._requester.transmit(now, budget - sent)
            self._check_drained()
        return sent >= budget or (bool(self._responder.responses) and connection.paced is None)

    def deadline(self) -> int | None:
        """The requester's timer, or when the rate lets the next packet leave."""
        deadline, paced = self._requester.deadline(), self._connection.paced
        if deadline is None or paced is None:
            return paced if deadline is None else deadline
        return min(deadline, paced)

    def expire(self, now: int) -> None:
        """The requester's timer ran out."""
        self._requester.expire(now)

    def idle(self) -> bool:
        """True when nothing is queued, in flight, open or waiting to leave."""
        return self._requester.idle() and self._responder.idle()

    @property
    def next_psn(self) -> int:
        """PSN of the requester's next new packet."""
        return self._requester.nxt

    @property
    def expected_psn(self) -> int:
        """PSN the responder expects next."""
        return self._responder.epsn

    def _check_drained(self) -> None:
        if self._requester.drained():
            self._host.moved(QpState.SQD, "send queue drained")
            self._host.raise_event(AsyncEvent.SQ_DRAINED, "send queue drained")

    def _fail(self, reason: str) -> None:
        """Either half ended in error: the queue pair goes to ERR and both queues flush."""
        self._connection.state = QpState.ERR
        self._host.moved(QpState.ERR, reason)
        self._flush()

    def _flush(self) -> None:
        self._requester.flush()
        self._responder.flush()

    def _drop(self, counter: str, reason: str) -> None:
        self._host.note_drop(counter, reason)
