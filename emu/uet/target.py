# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a queue pair: request packets to memory and receive completions.

Packets come in any order, each once. Every packet can be placed alone; messages that take a receive element
are matched and completed in the order the sender numbered them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.nic.atomics import AtomicOperation
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import Access, Cause, Completion, CompletionOpcode, QpState, ReceiveRequest, Status
from emu.uet.headers import RequestHeader, data_response, response
from emu.uet.message import IMMEDIATE, INVALIDATE, SOLICITED
from emu.uet.outgoing import Answer, Failure, Outgoing, Verdict
from emu.uet.packet import UetPacket
from emu.uet.psn import distance
from emu.wire.uet_names import (
    AtomicOp,
    AtomicType,
    NackCode,
    NextHeader,
    RequestOpcode,
    ResponseOpcode,
    ReturnCode,
    SesFlag,
)

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.headers import ResponseHeader
    from emu.uet.pdc import Pdc

__all__ = ["Inbound", "Target", "refusal"]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_IE = int(SesFlag.IE)
_SOM = int(SesFlag.SOM)
_READY = frozenset({QpState.RTR, QpState.RTS, QpState.SQD})
_REPLIES_MAX = 4096
"""Read answers that may wait for the window of one PDC."""
_U32 = 0xFFFFFFFF
_CODES: dict[int, ReturnCode] = {
    Cause.RKEY_UNKNOWN: ReturnCode.BAD_MKEY,
    Cause.RKEY_BOUNDS: ReturnCode.BAD_ADDR,
    Cause.RKEY_ACCESS: ReturnCode.PERM_VIOLATION,
    Cause.RKEY_PD: ReturnCode.PERM_VIOLATION,
    Cause.BUS_ERROR: ReturnCode.UNCOR,
}


def refusal(code: ReturnCode, header: RequestHeader) -> Answer:
    """A SES response that refuses a packet for good."""
    octets = response(ResponseOpcode.RESPONSE, code, header.message_id, header.job_id)
    return Answer(NextHeader.RESPONSE, octets)


class _Refused(Exception):
    """A request that is not carried out: what the initiator is told."""

    def __init__(self, code: ReturnCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Inbound:
    """A message of several packets, or one with a receive element, that has begun to arrive.

    ``code`` is why it is refused; ``epoch`` the life of the queue pair it belongs to.
    """

    epoch: int
    total: int
    number: int = 0
    placed: int = 0
    receive: ReceiveRequest | None = None
    header_data: int = 0
    code: ReturnCode | None = None


class _Reply:
    """Read data of one request packet, on its way in the return direction."""

    def __init__(self, qpn: int, body: bytes, octets: int) -> None:
        self.qpn: int | None = qpn
        self._outgoing: Outgoing | None = Outgoing(self, NextHeader.RESPONSE_DATA, body, octets, last=True)

    def next(self) -> Outgoing | None:
        """The packet, once."""
        outgoing, self._outgoing = self._outgoing, None
        return outgoing

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """The initiator has it."""

    def failed(self, failure: Failure) -> None:
        """The initiator finds out by itself."""


class Target:
    """Target state of one queue pair. ``epoch`` counts its lives."""

    def __init__(self, engine: UetEngine) -> None:
        self._engine = engine
        self._host = engine.host
        self._parameters = engine.parameters
        self.epoch = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.epoch += 1
        self.next_number = 1
        self._next_done = 1
        self._waiting: dict[int, ReceiveRequest] = {}
        self._bound: dict[int, ReceiveRequest] = {}
        self._finished: dict[int, Completion] = {}
        self._established = False

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """Carry out one request packet. Without a PDC it came by RUDI, and nothing is remembered of it."""
        engine = self._engine
        try:
            if engine.state not in _READY:
                raise _Refused(ReturnCode.DISABLED)
            if packet.head.source_ip != engine.dest_ip or packet.head.dest_ip != engine.source_ip:
                raise _Refused(ReturnCode.OP_VIOLATION)
            if packet.following != NextHeader.REQUEST_SMALL and header.initiator != engine.dest_qpn:
                raise _Refused(ReturnCode.OP_VIOLATION)
            if header.flags & _IE:
                raise _Refused(ReturnCode.INITIATOR_ERROR)
            if not self._established and engine.state is QpState.RTR:
                self._established = True
                self._host.raise_event(AsyncEvent.COMM_EST, "first request arrived")
            opcode = header.opcode
            if opcode in (RequestOpcode.WRITE, RequestOpcode.SEND):
                return self._message(packet, header, pdc)
            if opcode == RequestOpcode.READ:
                return self._read(header, pdc)
            if opcode in (RequestOpcode.FETCHING_ATOMIC, RequestOpcode.ATOMIC):
                return self._atomic(packet, header)
            if opcode == RequestOpcode.MSG_ERROR:
                self._aborted(header, pdc)
                return None
            if opcode == RequestOpcode.NO_OP:
                return None
            raise _Refused(ReturnCode.UNSUPPORTED_OP)
        except _Refused as refused:
            return refusal(refused.code, header)

    # Writes and sends

    def _message(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        size = header.end - header.start
        if header.whole:
            fits = size == header.request_length
        elif header.flags & _SOM:
            fits = 0 < size < header.request_length
        else:
            end = header.message_offset + size
            fits = size == header.payload_length > 0 and end <= header.request_length
        if not fits:
            raise _Refused(ReturnCode.UNSUPPORTED_SIZE)
        send = header.opcode == RequestOpcode.SEND
        numbered = send or header.key >> 32
        if pdc is None or (header.whole and not numbered):
            self._write(packet, header, size, whole=True)
            return None
        key = (self._engine.qpn, header.message_id)
        inbound = pdc.inbound.get(key)
        if inbound is None or inbound.epoch != self.epoch:
            if len(pdc.inbound) >= self._parameters.max_messages:
                return NackCode.NO_SES_MSG_AVAIL
            inbound = Inbound(self.epoch, header.request_length)
            pdc.inbound[key] = inbound
            self._begin(inbound, header, send)
        if header.request_length != inbound.total or inbound.placed + size > inbound.total:
            inbound.code = inbound.code or ReturnCode.UNSUPPORTED_SIZE
        if inbound.code is None:
            try:
                if send:
                    self._scatter(inbound, header, packet, size)
                else:
                    self._write(packet, header, size, whole=False)
            except _Refused as refused:
                inbound.code = refused.code
        inbound.placed += size
        if header.flags & _SOM:
            inbound.header_data = header.header_data
        if inbound.placed >= inbound.total:
            del pdc.inbound[key]
            if inbound.code is None and inbound.receive is not None:
                self._complete(inbound, send)
            elif inbound.receive is not None:
                # Its element is still good for the message that takes the same number.
                self._bound.pop(inbound.number, None)
                self._waiting[inbound.number] = inbound.receive
        if inbound.code is not None:
            raise _Refused(inbound.code)
        return None

    def _begin(self, inbound: Inbound, header: RequestHeader, send: bool) -> None:
        """Check a message at its first packet, and bind the receive element it takes."""
        try:
            if not send:
                self._check_write(header)
            number = header.key & _U32 if send else header.key >> 32
            if send or number:
                inbound.number = number or self.next_number
                inbound.receive = self._take(inbound.number)
                if send and inbound.total > inbound.receive.length:
                    self._too_long(inbound)
        except _Refused as refused:
            inbound.code = refused.code

    def _take(self, number: int) -> ReceiveRequest:
        """The receive element of message ``number``; those before it are kept for theirs."""
        while distance(number, self.next_number) >= 0:
            try:
                element = self._host.take_receive()
            except ProtectionError as error:
                self._engine.fail(f"receive element cannot be read: {error.rule}")
                raise _Refused(ReturnCode.UNCOR) from error
            if element is None:
                self._host.count("rnr_naks_sent")
                raise _Refused(ReturnCode.NO_MATCH)
            self._waiting[self.next_number] = element
            self.next_number = self.next_number % _U32 + 1
        receive = self._waiting.pop(number, None)
        if receive is None:
            raise _Refused(ReturnCode.DROPPED)
        self._bound[number] = receive
        return receive

    def _too_long(self, inbound: Inbound) -> None:
        receive = inbound.receive
        assert receive is not None  # just taken
        reason = (
            f"message of {inbound.total} bytes for the {receive.length} of receive element {receive.index}"
        )
        self._spoil(inbound, Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
        raise _Refused(ReturnCode.TOO_LONG)

    def _spoil(self, inbound: Inbound, status: Status, cause: int, reason: str) -> None:
        """A message ruined its receive element, which ends the queue pair."""
        receive = inbound.receive
        assert receive is not None  # only for bound messages
        inbound.receive = None
        self._bound.pop(inbound.number, None)
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
        self._engine.fail(reason)

    def _scatter(self, inbound: Inbound, header: RequestHeader, packet: UetPacket, size: int) -> None:
        receive = inbound.receive
        if receive is None:
            raise _Refused(ReturnCode.DROPPED)
        if not size:
            return
        payload = memoryview(packet.frame)[header.start : header.end]
        try:
            self._host.scatter(receive.sges, header.message_offset, payload)
        except ProtectionError as error:
            self._spoil(
                inbound, Status.LOC_PROT_ERR, error.cause, f"receive element {receive.index}: {error.rule}"
            )
            raise _Refused(ReturnCode.UNCOR) from error

    def _check_write(self, header: RequestHeader) -> None:
        if not self._engine.access & Access.REMOTE_WRITE:
            raise _Refused(ReturnCode.PERM_VIOLATION)
        if header.request_length:
            self._guard(header.key, header.buffer_offset, header.request_length, Access.REMOTE_WRITE)

    def _guard(self, key: int, address: int, length: int, access: Access) -> None:
        try:
            self._host.check_remote(key & _U32, address, length, access)
        except ProtectionError as error:
            raise _Refused(_CODES.get(error.cause, ReturnCode.PERM_VIOLATION)) from error

    def _write(self, packet: UetPacket, header: RequestHeader, size: int, *, whole: bool) -> None:
        if whole and not self._engine.access & Access.REMOTE_WRITE:
            raise _Refused(ReturnCode.PERM_VIOLATION)
        if not size:
            return
        payload = memoryview(packet.frame)[header.start : header.end]
        try:
            self._host.write_remote(header.key & _U32, header.buffer_offset + header.message_offset, payload)
        except ProtectionError as error:
            raise _Refused(_CODES.get(error.cause, ReturnCode.PERM_VIOLATION)) from error

    def _complete(self, inbound: Inbound, send: bool) -> None:
        receive = inbound.receive
        assert receive is not None  # checked by the caller
        data = inbound.header_data
        invalidated = data & _U32 if data & INVALIDATE else None
        if invalidated is not None:
            try:
                self._host.invalidate(invalidated)
            except ProtectionError as error:
                reason = f"SEND with invalidate: {error.rule}"
                self._spoil(inbound, Status.LOC_PROT_ERR, error.cause, reason)
                raise _Refused(ReturnCode.PERM_VIOLATION) from error
        self._bound.pop(inbound.number, None)
        self._finished[inbound.number] = Completion(
            self._host.qpn,
            receive.index,
            CompletionOpcode.RECV if send else CompletionOpcode.RECV_WRITE_IMM,
            Status.SUCCESS,
            length=inbound.total,
            immediate=data & _U32 if data & IMMEDIATE else None,
            solicited=bool(data & SOLICITED),
            cookie=receive.cookie,
            invalidated=invalidated,
        )
        while (completion := self._finished.pop(self._next_done, None)) is not None:
            self._next_done = self._next_done % _U32 + 1
            self._host.complete(completion)

    def _aborted(self, header: RequestHeader, pdc: Pdc | None) -> None:
        """The initiator gives a message up: its element waits for another."""
        if pdc is None:
            return
        inbound = pdc.inbound.pop((self._engine.qpn, header.message_id), None)
        if inbound is not None and inbound.epoch == self.epoch and inbound.receive is not None:
            self._bound.pop(inbound.number, None)
            self._waiting[inbound.number] = inbound.receive

    # Reads and atomics

    def _read(self, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        if not self._engine.access & Access.REMOTE_READ:
            raise _Refused(ReturnCode.PERM_VIOLATION)
        mtu, total = self._engine.mtu, header.request_length
        offset = header.message_offset
        # The first packet has no payload_length: it asks for one MTU of a longer message.
        size = min(total, mtu) if header.flags & _SOM else header.payload_length
        if size > mtu or offset + size > total or (header.whole and total > mtu):
            raise _Refused(ReturnCode.UNSUPPORTED_SIZE)
        if pdc is not None and len(pdc.source.queue) >= _REPLIES_MAX:
            return NackCode.NO_PKT_BUFFER
        data = b""
        if size:
            try:
                data = self._host.read_remote(header.key & _U32, header.buffer_offset + offset, size)
            except ProtectionError as error:
                raise _Refused(_CODES.get(error.cause, ReturnCode.PERM_VIOLATION)) from error
        octets = data_response(ReturnCode.OK, header.message_id, header.job_id, size, size, offset) + data
        if pdc is None or total <= self._parameters.max_ack_data:
            return Answer(NextHeader.RESPONSE_DATA, octets)
        pdc.submit(_Reply(self._engine.qpn, octets, size))
        return None

    def _atomic(self, packet: UetPacket, header: RequestHeader) -> Verdict:
        if not self._engine.access & Access.REMOTE_ATOMIC:
            raise _Refused(ReturnCode.PERM_VIOLATION)
        order = self._parameters.operand_order
        operation = AtomicOperation(add=False, operand=header.swap, compare=header.compare)
        payload = packet.frame[header.start : header.end]
        if header.data_type != AtomicType.UINT64:
            raise _Refused(ReturnCode.AMO_UNSUPPORTED_DT)
        if header.operation == AtomicOp.SUM:
            if len(payload) != 8:
                raise _Refused(ReturnCode.AMO_UNSUPPORTED_SIZE)
            operation = AtomicOperation(add=True, operand=int.from_bytes(payload, order))
        elif header.operation != AtomicOp.CSWAP:
            raise _Refused(ReturnCode.AMO_UNSUPPORTED_OP)
        if not header.whole or header.request_length != 8:
            raise _Refused(ReturnCode.AMO_UNSUPPORTED_SIZE)
        if header.buffer_offset & 7:
            raise _Refused(ReturnCode.AMO_UNALIGNED)
        self._guard(header.key, header.buffer_offset, 8, Access.REMOTE_ATOMIC)
        try:
            original = self._host.atomic(header.key & _U32, header.buffer_offset, operation)
        except ProtectionError as error:
            raise _Refused(_CODES.get(error.cause, ReturnCode.PERM_VIOLATION)) from error
        if header.opcode == RequestOpcode.ATOMIC:
            return None
        octets = data_response(ReturnCode.OK, header.message_id, header.job_id, 8, 8, 0)
        return Answer(NextHeader.RESPONSE_DATA, octets + original.to_bytes(8, order))

    # Ends

    def flush(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR: those of begun messages, then the posted ones."""
        taken = {**self._waiting, **self._bound}
        for number, completion in self._finished.items():
            taken[number] = ReceiveRequest(completion.index, cookie=completion.cookie)
        self._waiting.clear()
        self._bound.clear()
        self._finished.clear()
        for number in sorted(taken):
            self._flushed(taken[number])
        while True:
            try:
                element = self._host.take_receive()
            except ProtectionError:
                # It has its completion already.
                continue
            if element is None:
                return
            self._flushed(element)

    def _flushed(self, element: ReceiveRequest) -> None:
        self._host.complete(
            Completion(
                self._host.qpn,
                element.index,
                CompletionOpcode.RECV,
                Status.WR_FLUSH_ERR,
                cause=Cause.FLUSHED,
                cookie=element.cookie,
            )
        )
