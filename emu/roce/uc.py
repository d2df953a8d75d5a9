# SPDX-License-Identifier: Apache-2.0
"""Unreliable connection: SEND and WRITE in order, without acknowledgement; a message that lost a packet is
dropped whole.

A gap ends the open message: its receive element serves the next message from its start, or, when it is one of
a shared receive queue, completes in error. Packets are dropped until one begins a message. WRITE data that is
already placed stays. Faults of the sender are dropped silently; a receive element that cannot be written ends
the queue pair.
"""

from __future__ import annotations

from dataclasses import replace

from emu.nic.drops import DropReason
from emu.nic.engine import AsyncEvent, EngineHost
from emu.nic.work import Access, Cause, Opcode, SendRequest, Status
from emu.roce.connection import Connection
from emu.roce.element import MAX_MESSAGE, NO_OPERATION, OPERATIONS, Answer, Fault, Operation
from emu.roce.incoming import WRITES, Incoming, NotReady, Refusal
from emu.roce.message import packet_head, packet_payload
from emu.roce.packet import RocePacket
from emu.roce.psn import PSN_MASK, packets_of
from emu.roce.sender import Packets
from emu.roce.syndrome import Nak
from emu.roce.unreliable import UnreliableEngine
from emu.wire.opcodes import OPERATION_MASK, OpcodeInfo, TransportClass

__all__ = ["UcEngine"]


_REMOTE_WRITE = int(Access.REMOTE_WRITE)


def _unreliable(operation: Operation) -> Operation:
    base = int(TransportClass.UC)
    return replace(
        operation,
        first=operation.first | base,
        middle=operation.middle | base,
        last=operation.last | base,
        only=operation.only | base,
    )


_OPERATIONS = {
    Opcode.NOP: OPERATIONS[Opcode.NOP],
    **{
        opcode: _unreliable(OPERATIONS[opcode])
        for opcode in (Opcode.SEND, Opcode.SEND_IMM, Opcode.WRITE, Opcode.WRITE_IMM)
    },
}


class _Messages:
    """Implements :class:`emu.roce.sender.Packets`: RC's packets in UC's class, never asking for an ACK."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refusal(self, request: SendRequest) -> Fault | None:
        """Operations that need an answer do not exist here."""
        if request.opcode not in _OPERATIONS:
            return Fault(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, f"UC has no operation {request.opcode!r}")
        if not 0 <= request.length <= MAX_MESSAGE:
            reason = f"message of {request.length} bytes, at most {MAX_MESSAGE}"
            return Fault(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
        return None

    def count(self, request: SendRequest) -> int:
        """Packets by path MTU; none for a NOP."""
        if _OPERATIONS[request.opcode].answer is Answer.NOTHING:
            return 0
        return packets_of(request.length, self._connection.mtu)

    def send(self, request: SendRequest, cursor: int, count: int, psn: int) -> None:
        """Send one packet."""
        connection = self._connection
        operation = _OPERATIONS.get(request.opcode, NO_OPERATION)
        end = cursor == count - 1
        offset = cursor * connection.mtu
        size = request.length - offset if end else connection.mtu
        opcode, extension = packet_head(request, operation, cursor, end)
        payload = packet_payload(connection.host, request, offset, size)
        solicited = request.solicited and end and (operation.immediate or not operation.write)
        connection.send(opcode, psn, extension, payload, False, solicited)


class UcEngine(UnreliableEngine):
    """UC protocol state of one queue pair."""

    transport = TransportClass.UC
    paced = True

    def __init__(self, host: EngineHost) -> None:
        super().__init__(host)
        self._incoming = Incoming(self._connection)
        self._epsn = 0

    def _packets(self) -> Packets:
        return _Messages(self._connection)

    def _clear(self) -> None:
        self._incoming.clear()
        self._epsn = 0

    def _start(self) -> None:
        self._epsn = self._connection.attributes.rq_psn & PSN_MASK

    @property
    def expected_psn(self) -> int:
        """PSN that continues the stream without a gap."""
        return self._epsn

    def _accept(self, packet: RocePacket, info: OpcodeInfo) -> None:
        connection = self._connection
        if packet.source_ip != connection.dest_ip or packet.dest_ip != connection.source_ip:
            self._drop("addresses are not those of the connection", DropReason.ADDRESS)
            return
        incoming = self._incoming
        if packet.psn != self._epsn:
            incoming.give_up(cause=Cause.SEQUENCE_RETRIES)
            if not info.start:
                self._drop(f"PSN {packet.psn} while expecting {self._epsn}", "out_of_sequence")
                return
            self._host.count("out_of_sequence")
        elif incoming.open and info.start:
            incoming.give_up()
        self._epsn = (packet.psn + 1) & PSN_MASK
        self._establish()
        try:
            incoming.check_sequence(info)
            if info.opcode & OPERATION_MASK in WRITES and not connection.rights & _REMOTE_WRITE:
                raise Refusal(Nak.INVALID_REQUEST, f"{info.name} on a QP without REMOTE_WRITE")
            incoming.carry(packet, info)
        except NotReady:
            incoming.give_up()
            self._drop(f"{info.name}: no receive element", "out_of_buffer")
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            if info.end:
                incoming.end(packet, info)

    def _refuse(self, refusal: Refusal) -> None:
        incoming = self._incoming
        if refusal.nak is not Nak.REMOTE_OPERATION:
            incoming.give_up(refusal.status, refusal.cause)
            self._drop(refusal.reason, DropReason.REFUSED)
            return
        element = incoming.element
        incoming.close()
        if element is not None:
            incoming.receives.fail(element, refusal.status, refusal.cause)
        else:
            self._host.raise_event(AsyncEvent.QP_FATAL, refusal.reason)
        self._fail(refusal.reason)

    def _flush_receives(self) -> None:
        self._incoming.flush()
