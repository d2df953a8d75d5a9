# SPDX-License-Identifier: Apache-2.0
"""What UC and UD share: states, a sender without answers, and which packets come through to the receiver."""

from __future__ import annotations

from abc import ABC, abstractmethod

from emu.nic.drops import DropReason
from emu.nic.engine import AsyncEvent, EngineHost, Packet
from emu.nic.work import QpAttributes, QpState, SendRequest
from emu.roce.connection import Connection
from emu.roce.packet import CONGESTED, RocePacket
from emu.roce.pkey import pkeys_match
from emu.roce.sender import Packets, Sender
from emu.wire.opcodes import CLASS_MASK, CNP, OpcodeInfo, TransportClass

__all__ = ["UnreliableEngine"]

_RECEIVING = frozenset({QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE})
_SENDING = frozenset({QpState.RTS, QpState.SQD})
_FLUSHING = frozenset({QpState.SQE, QpState.ERR})


class UnreliableEngine(ABC):
    """State of one queue pair without acknowledgements. Nothing a guest posts or a peer sends makes it raise.

    A send element that fails stops the send queue only (state SQE); receiving goes on.
    """

    transport: TransportClass
    paced: bool
    """Whether congestion notifications are for a peer that this service has."""

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._connection = Connection(host)
        self._sender = Sender(self._connection, self._packets(), self._send_failed)
        self._established = False

    @abstractmethod
    def _packets(self) -> Packets:
        """How this service makes packets."""

    @abstractmethod
    def _clear(self) -> None:
        """Forget what is being received, without completions."""

    @abstractmethod
    def _start(self) -> None:
        """INIT to RTR: begin to receive."""

    @abstractmethod
    def _accept(self, packet: RocePacket, info: OpcodeInfo) -> None:
        """Handle a packet of this service and partition that came in a state that receives."""

    @abstractmethod
    def _flush_receives(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR."""

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Take over attributes and enter ``attributes.state``."""
        connection = self._connection
        state = attributes.state
        if state is QpState.ERR:
            if connection.state is not QpState.ERR:
                connection.state = QpState.ERR
                self._flush()
            return
        connection.set(attributes)
        connection.state = state
        if state is QpState.RESET:
            self._sender.clear()
            connection.forget_congestion()
            self._established = False
            self._clear()
        elif state is QpState.RTR and previous is not QpState.RTR:
            self._start()
        elif state is QpState.RTS and previous is QpState.RTR:
            self._sender.start()
        elif state is QpState.SQE:
            self._sender.flush()
        self._check_drained()

    def post(self, request: SendRequest) -> None:
        """Queue one send element; in SQE and ERR it is flushed at once."""
        self._sender.post(request)
        if self._connection.state in _FLUSHING:
            self._sender.flush()

    def receive(self, packet: Packet, now: int) -> None:
        """Handle one inbound packet: what the queue pair must not accept is dropped and counted."""
        if not isinstance(packet, RocePacket):
            self._drop(f"no RoCE packet: {packet!r}", DropReason.FOREIGN)
            return
        connection = self._connection
        ours = connection.attributes.pkey
        if packet.opcode == CNP and self.paced and connection.state in _SENDING:
            connection.notified(packet, now)
        elif packet.opcode & CLASS_MASK != self.transport:
            reason = f"opcode {packet.opcode:#04x} is of another transport than {self.transport.name}"
            self._drop(reason, DropReason.OPCODE)
        elif packet.info is None:
            self._drop(f"reserved opcode {packet.opcode:#04x}", DropReason.OPCODE)
        elif connection.state not in _RECEIVING:
            self._drop(f"packet in state {connection.state.name}", DropReason.STATE)
        elif not pkeys_match(packet.pkey, ours):
            self._drop(f"P_Key {packet.pkey:#06x} does not match {ours:#06x}", "bad_pkey_cntr")
        else:
            if packet.ecn == CONGESTED and self.paced:
                connection.see_mark(now)
            self._accept(packet, packet.info)

    def receive_posted(self, now: int) -> None:
        """In ERR flush what was posted; otherwise the next message finds it."""
        if self._connection.state is QpState.ERR:
            self._flush_receives()

    def transmit(self, now: int, budget: int) -> bool:
        """Send what is queued."""
        self._connection.settle_congestion(now)
        if self._connection.state not in _SENDING:
            return False
        sent = self._sender.transmit(now, budget)
        self._check_drained()
        return sent >= budget

    def deadline(self) -> int | None:
        """When the rate lets the next packet leave, if one waits for that."""
        return self._connection.paced

    def expire(self, now: int) -> None:
        """The core transmits after this call, which is all there is to do."""
        return

    def idle(self) -> bool:
        """True when nothing is queued."""
        return self._sender.idle()

    @property
    def next_psn(self) -> int:
        """PSN of the next packet."""
        return self._sender.psn

    def _establish(self) -> None:
        """The first message arrived."""
        if not self._established and self._connection.state is QpState.RTR:
            self._established = True
            self._host.raise_event(AsyncEvent.COMM_EST, "first message arrived")

    def _check_drained(self) -> None:
        if self._sender.drained():
            self._host.moved(QpState.SQD, "send queue drained")
            self._host.raise_event(AsyncEvent.SQ_DRAINED, "send queue drained")

    def _send_failed(self, reason: str) -> None:
        """A send element ended in error."""
        self._connection.state = QpState.SQE
        self._host.moved(QpState.SQE, reason)
        self._sender.flush()

    def _fail(self, reason: str) -> None:
        """Receiving cannot go on: the queue pair goes to ERR and both queues flush."""
        self._connection.state = QpState.ERR
        self._host.moved(QpState.ERR, reason)
        self._flush()

    def _flush(self) -> None:
        self._sender.flush()
        self._flush_receives()

    def _drop(self, reason: str, counter: str) -> None:
        self._host.note_drop(counter, reason)
