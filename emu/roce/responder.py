# SPDX-License-Identifier: Apache-2.0
"""The receiving half of RC: request packets to memory and receive completions, and the answers to them.

Every request is judged first by its PSN: the expected one is checked and carried out, one ahead draws a
single NAK, one behind is a repetition that is answered again but not carried out again.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import Access, Cause, Completion, CompletionOpcode, QpState, ReceiveRequest, Status
from emu.roce import syndrome as aeth
from emu.roce.connection import Connection
from emu.roce.element import MAX_MESSAGE
from emu.roce.packet import RocePacket
from emu.roce.psn import PSN_MASK, cmp24, distance24, packets_of
from emu.roce.resource import Resource, ResourceRing, ring_size
from emu.roce.response import ResponseQueue
from emu.roce.syndrome import Nak
from emu.wire.headers import ATOMIC_ETH, IMM_DT, RETH, pad_count
from emu.wire.opcodes import Header, Kind, OpcodeInfo, RcOpcode

__all__ = ["Responder"]

_READ = int(RcOpcode.READ_REQUEST)
_COMPARE_SWAP = int(RcOpcode.COMPARE_SWAP)
_FETCH_ADD = int(RcOpcode.FETCH_ADD)
_SEND_OPCODES = frozenset(range(RcOpcode.SEND_FIRST, RcOpcode.SEND_ONLY_IMM + 1))
_WRITE_OPCODES = frozenset(range(RcOpcode.WRITE_FIRST, RcOpcode.WRITE_ONLY_IMM + 1))
_RIGHTS: dict[int, Access] = {
    **dict.fromkeys(_SEND_OPCODES, Access.NONE),
    **dict.fromkeys(_WRITE_OPCODES, Access.REMOTE_WRITE),
    _READ: Access.REMOTE_READ,
    _COMPARE_SWAP: Access.REMOTE_ATOMIC,
    _FETCH_ADD: Access.REMOTE_ATOMIC,
}
"""Operations carried out, and the right each needs on the queue pair and on the memory region."""

_STATUS = {
    Nak.INVALID_REQUEST: Status.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS: Status.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATION: Status.LOC_PROT_ERR,
}
"""Completion of a receive element that was bound to the refused request."""
_EVENT = {
    Nak.INVALID_REQUEST: AsyncEvent.QP_REQ_ERR,
    Nak.REMOTE_ACCESS: AsyncEvent.QP_ACCESS_ERR,
    Nak.REMOTE_OPERATION: AsyncEvent.QP_FATAL,
}
"""Event raised when no receive element can tell."""


class _Refusal(Exception):
    """A request that ends the connection: the NAK to send, and what to report locally."""

    def __init__(self, nak: Nak, reason: str, *, status: Status | None = None, cause: int = 0) -> None:
        super().__init__(reason)
        self.nak = nak
        self.reason = reason
        self.status = _STATUS[nak] if status is None else status
        self.cause = cause


class _NotReady(Exception):
    """A request that needs a receive element while there is none."""


class Responder:
    """Responder state of one queue pair. ``failed`` is told why when a request ended the connection."""

    def __init__(self, connection: Connection, failed: Callable[[str], None]) -> None:
        self._connection = connection
        self._host = connection.host
        self._failed = failed
        self.responses = ResponseQueue(connection)
        self.clear()

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.responses.clear()
        self.epsn = 0
        self.msn = 0
        self.silent = False
        self._ring = ResourceRing(0)
        self._established = False
        self._close()

    def _close(self) -> None:
        """No message is open."""
        self._open: frozenset[int] | None = None
        self._receive: ReceiveRequest | None = None
        self._received = 0
        self._rkey = 0
        self._address = 0
        self._length = 0

    def start(self) -> None:
        """INIT to RTR: take the expected PSN and the size of the resource ring from the attributes."""
        self.epsn = self._connection.attributes.rq_psn & PSN_MASK
        self.adjust()

    def adjust(self) -> None:
        """Take the size of the resource ring from the attributes, which may have changed."""
        self._ring.resize(ring_size(self._connection.attributes.max_dest_rd_atomic))

    # Requests

    def receive(self, packet: RocePacket) -> None:
        """Handle one request packet."""
        order = cmp24(packet.psn, self.epsn)
        if order > 0:
            self._ahead(packet.psn)
            return
        if order < 0:
            self._host.count("duplicate_requests")
            self._repeat(packet)
            return
        self.silent = False
        try:
            self._execute(packet)
        except _NotReady:
            self.silent = True
            self._host.count("rnr_naks_sent")
            code = aeth.rnr(self._connection.attributes.min_rnr_timer)
            self.responses.refuse(packet.psn, code, self.msn)
        except _Refusal as refusal:
            self._refuse(packet.psn, refusal)

    def _ahead(self, psn: int) -> None:
        self._host.note_drop("out_of_sequence", f"request PSN {psn} while expecting {self.epsn}")
        if not self.silent:
            self.silent = True
            self.responses.refuse(self.epsn, Nak.SEQUENCE, self.msn)

    def _execute(self, packet: RocePacket) -> None:
        """Check and carry out the expected request. :raises _Refusal, _NotReady: and nothing advanced."""
        info = packet.info
        if info is None:
            raise _Refusal(Nak.INVALID_REQUEST, f"reserved opcode {packet.opcode:#04x}")
        opcode = packet.opcode
        self._check_sequence(info)
        needed = _RIGHTS.get(opcode)
        if needed is None:
            raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} is not offered", cause=Cause.BAD_OPCODE)
        if needed & ~self._connection.attributes.access:
            raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} on a QP without {needed.name}")
        if not self._established and self._connection.state is QpState.RTR:
            self._established = True
            self._host.raise_event(AsyncEvent.COMM_EST, "first request arrived")
        step = 1
        if opcode in _WRITE_OPCODES:
            self._write(packet, info)
        elif opcode in _SEND_OPCODES:
            self._send(packet, info)
        elif opcode == _READ:
            step = self._read(packet, info)
        else:
            self._atomic(packet, info)
        self.epsn = (self.epsn + step) & PSN_MASK
        if not info.kind & Kind.END:
            self._open = _WRITE_OPCODES if opcode in _WRITE_OPCODES else _SEND_OPCODES
        else:
            self.msn = (self.msn + 1) & PSN_MASK
            if self._receive is not None:
                self._complete(packet, info)
            self._close()
        if packet.ack_request and opcode <= RcOpcode.WRITE_ONLY_IMM:
            self.responses.acknowledge(packet.psn, self.msn)

    def _check_sequence(self, info: OpcodeInfo) -> None:
        start = bool(info.kind & Kind.START)
        if self._open is None:
            if not start:
                raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} without an open message")
        elif start or info.opcode not in self._open:
            raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} inside another message")

    def _check_payload(self, packet: RocePacket, info: OpcodeInfo) -> None:
        if not info.payload.allows(packet.payload_length, self._connection.mtu):
            raise _Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} with {packet.payload_length} payload bytes, must be {info.payload.text}",
                cause=Cause.BAD_LENGTH,
            )

    def _take_receive(self) -> ReceiveRequest:
        """The next receive element. :raises _NotReady: there is none."""
        try:
            request = self._host.take_receive()
        except ProtectionError as error:
            raise _Refusal(
                Nak.REMOTE_OPERATION, f"receive element cannot be read: {error.rule}", cause=error.cause
            ) from error
        if request is None:
            raise _NotReady
        return request

    def _send(self, packet: RocePacket, info: OpcodeInfo) -> None:
        if info.kind & Kind.START:
            self._receive = self._take_receive()
        self._check_payload(packet, info)
        receive, size = self._receive, packet.payload_length
        assert receive is not None  # the sequence check lets no MIDDLE or LAST through without a START
        if self._received + size > receive.length:
            raise _Refusal(
                Nak.INVALID_REQUEST,
                f"message longer than the {receive.length} bytes of receive element {receive.index}",
                status=Status.LOC_LEN_ERR,
                cause=Cause.BAD_LENGTH,
            )
        if size:
            try:
                self._host.scatter(receive.sges, self._received, packet.payload)
            except ProtectionError as error:
                raise _Refusal(
                    Nak.REMOTE_OPERATION, f"receive element {receive.index}: {error.rule}", cause=error.cause
                ) from error
        self._received += size

    def _write(self, packet: RocePacket, info: OpcodeInfo) -> None:
        # A receive element is needed before anything else is judged, so that only this packet need be sent
        # again.
        if info.kind & Kind.RECEIVE:
            self._receive = self._take_receive()
        self._check_payload(packet, info)
        size = packet.payload_length
        address, rkey, length = self._address, self._rkey, self._length
        if info.kind & Kind.START:
            address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
            self._check_range(rkey, address, length, Access.REMOTE_WRITE, info)
        remaining = length - self._received
        fits = size == remaining if info.kind & Kind.END else size < remaining
        if not fits or packet.pad_count != pad_count(size):
            raise _Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} with {size} bytes and pad {packet.pad_count}, {remaining} of {length} left",
                cause=Cause.BAD_LENGTH,
            )
        if size:
            try:
                self._host.write_remote(rkey, address + self._received, packet.payload)
            except ProtectionError as error:
                raise _Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        self._address, self._rkey, self._length = address, rkey, length
        self._received += size

    def _read(self, packet: RocePacket, info: OpcodeInfo) -> int:
        """Accept a READ; returns the PSNs it takes."""
        self._check_resources(info)
        self._check_payload(packet, info)
        address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
        self._check_range(rkey, address, length, Access.REMOTE_READ, info)
        packets = packets_of(length, self._connection.mtu)
        resource = Resource(_READ, packet.psn, packets, address, rkey, length)
        self._ring.add(resource)
        self.responses.read(resource)
        return packets

    def _atomic(self, packet: RocePacket, info: OpcodeInfo) -> None:
        self._check_resources(info)
        self._check_payload(packet, info)
        address, rkey, operand, compare = ATOMIC_ETH.unpack_from(packet.frame, packet.extension)
        if address & 7:
            raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} at {address:#x}, which is not 8-byte aligned")
        self._check_range(rkey, address, 8, Access.REMOTE_ATOMIC, info)
        add = operand if packet.opcode == _FETCH_ADD else None
        try:
            original = self._host.atomic(rkey, address, add=add, compare=compare, swap=operand)
        except ProtectionError as error:
            raise _Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error
        resource = Resource(packet.opcode, packet.psn, 1, address, rkey, 8, original)
        self._ring.add(resource)
        self.responses.atomic(resource)

    def _check_resources(self, info: OpcodeInfo) -> None:
        if self._ring.full:
            limit = self._connection.attributes.max_dest_rd_atomic
            raise _Refusal(Nak.INVALID_REQUEST, f"{info.name} beyond the {limit} of max_dest_rd_atomic")

    def _check_range(self, rkey: int, address: int, length: int, access: Access, info: OpcodeInfo) -> None:
        if length > MAX_MESSAGE:
            raise _Refusal(
                Nak.INVALID_REQUEST,
                f"{info.name} of {length} bytes, at most {MAX_MESSAGE}",
                cause=Cause.BAD_LENGTH,
            )
        # Nothing is touched by a zero-length access, so any key and address will do.
        if not length:
            return
        try:
            self._host.check_remote(rkey, address, length, access)
        except ProtectionError as error:
            raise _Refusal(Nak.REMOTE_ACCESS, error.rule, cause=error.cause) from error

    def _complete(self, packet: RocePacket, info: OpcodeInfo) -> None:
        """Report the receive element of a message that just ended."""
        receive = self._receive
        assert receive is not None
        write = packet.opcode in _WRITE_OPCODES
        immediate = None
        if Header.IMM_DT in info.headers:
            at = packet.extension + info.extension_size - Header.IMM_DT.size
            (immediate,) = IMM_DT.unpack_from(packet.frame, at)
        self._host.complete(
            Completion(
                self._host.qpn,
                receive.index,
                CompletionOpcode.RECV_WRITE_IMM if write else CompletionOpcode.RECV,
                Status.SUCCESS,
                length=self._received,
                immediate=immediate,
                solicited=packet.solicited,
                cookie=receive.cookie,
            )
        )

    # Repetitions

    def _repeat(self, packet: RocePacket) -> None:
        """Answer a request that was carried out before. Errors in it draw no NAK."""
        opcode, psn = packet.opcode, packet.psn
        if opcode == _READ:
            self._repeat_read(packet)
        elif opcode in (_COMPARE_SWAP, _FETCH_ADD):
            resource = self._ring.find(psn)
            if resource is not None and resource.opcode == opcode:
                self.responses.atomic(resource)
            else:
                self._drop(f"repeated atomic PSN {psn} is no longer remembered")
        elif packet.ack_request and opcode in _RIGHTS:
            # A plain ACK must not reach a READ or atomic: the requester would take its answer for lost.
            later = self._ring.after(psn, self.epsn)
            covered = (self.epsn if later is None else later.first) - 1
            self.responses.acknowledge(covered & PSN_MASK, self.msn)

    def _repeat_read(self, packet: RocePacket) -> None:
        resource = self._ring.find(packet.psn)
        if resource is None or resource.opcode != _READ:
            self._drop(f"repeated READ PSN {packet.psn} is no longer remembered")
            return
        start = distance24(packet.psn, resource.first)
        offset = start * self._connection.mtu
        address, rkey, length = RETH.unpack_from(packet.frame, packet.extension)
        if (rkey, address, length) != (resource.rkey, resource.address + offset, resource.length - offset):
            self._drop(f"repeated READ PSN {packet.psn} asks for something else than before")
            return
        if length:
            try:
                self._host.check_remote(rkey, address, length, Access.REMOTE_READ)
            except ProtectionError as error:
                self._drop(f"repeated READ PSN {packet.psn}: {error.rule}")
                return
        self.responses.read(resource, start, repeat=True)

    # Ends

    def transmit(self, budget: int) -> int:
        """Send up to ``budget`` responses; returns how many left."""
        sent, lost = self.responses.transmit(budget, self.msn)
        if lost is not None:
            psn, error = lost
            self.responses.clear()
            # The open message is a later one and only flushed: the event tells about the READ.
            self._end(psn, _Refusal(Nak.REMOTE_ACCESS, f"READ: {error.rule}", cause=error.cause))
        return sent

    def _refuse(self, psn: int, refusal: _Refusal) -> None:
        """NAK the request that came, report it here, and end the connection."""
        receive = self._receive
        self._close()
        if receive is not None:
            self._report(receive, refusal.status, refusal.cause)
        self._end(psn, refusal, told=receive is not None)

    def _end(self, psn: int, refusal: _Refusal, *, told: bool = False) -> None:
        """NAK ``psn`` and end the connection; raise an event when no completion has ``told`` of it."""
        self.responses.refuse(psn, refusal.nak, self.msn)
        if not told:
            self._host.raise_event(_EVENT[refusal.nak], refusal.reason)
        self._failed(refusal.reason)

    def flush(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR, the open message's first. Answers still leave."""
        receive = self._receive
        self._close()
        while receive is not None or (receive := self._next_to_flush()) is not None:
            self._report(receive, Status.WR_FLUSH_ERR, Cause.FLUSHED)
            receive = None

    def _next_to_flush(self) -> ReceiveRequest | None:
        try:
            return self._host.take_receive()
        except ProtectionError:
            return None

    def _report(self, receive: ReceiveRequest, status: Status, cause: int) -> None:
        self._host.complete(
            Completion(
                self._host.qpn,
                receive.index,
                CompletionOpcode.RECV,
                status,
                cause=cause,
                cookie=receive.cookie,
            )
        )

    def idle(self) -> bool:
        """True when no answer waits and no message is open."""
        return not self.responses and self._open is None

    def _drop(self, reason: str) -> None:
        self._host.note_drop("rx_dropped", reason)
