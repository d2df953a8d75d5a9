# SPDX-License-Identifier: Apache-2.0
"""One send element on its way: segmentation into request packets, and their answers.

How an operation addresses its target queue pair is this project's choice, as the specification leaves it to
the user of the transport:

- PIDonFEP and resource index are the upper and lower 12 bits of the target QP's number, ``initiator`` is the
  own QP's number.
- The lower 32 bits of the memory key are the rkey, ``buffer_offset`` is the remote virtual address.
- Messages that take a receive element are numbered from 1 by the sending queue pair, so that the target
  matches them with its elements in order however the packets arrive. The number is the upper half of a
  write's memory key, and the match bits of a send without tag; a tag is the match bits itself.
- A rendezvous is one packet with the eager part; :mod:`emu.uet.rendezvous` tells how its rest is addressed.
  What fits a packet goes without one.
- ``header_data``: the immediate in bits 31:0, bit 32 says that there is one, bit 33 asks for the interrupt,
  bit 34 says that bits 31:0 are a key to invalidate at the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emu.nic.engine import ProtectionError
from emu.nic.payload import packet_payload
from emu.nic.work import Cause, CompletionOpcode, Opcode, SendMode, SendRequest, Status
from emu.uet.headers import ATOMIC_EXTENSION, COMPARE_SWAP, ResponseHeader, rendezvous, standard_request
from emu.uet.outgoing import Failure, Outgoing
from emu.wire.uet_names import (
    AtomicOp,
    AtomicType,
    NextHeader,
    RequestOpcode,
    ResponseOpcode,
    ReturnCode,
    SesFlag,
)

if TYPE_CHECKING:
    from emu.nic.engine import EngineHost
    from emu.uet.parameters import Parameters
    from emu.uet.pdc import Pdc

__all__ = [
    "COMPLETIONS",
    "IMMEDIATE",
    "INVALIDATE",
    "NUMBERED",
    "SOLICITED",
    "Message",
    "Sender",
    "failure_of",
]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_EOM = int(SesFlag.EOM)
_HD = int(SesFlag.HD)
_REL = int(SesFlag.REL)
_SOM = int(SesFlag.SOM)
_HEADERS = 160
"""Nominal bytes of a request packet beside its payload, at most."""
IMMEDIATE = 1 << 32
SOLICITED = 1 << 33
INVALIDATE = 1 << 34
_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

COMPLETIONS: dict[Opcode, CompletionOpcode] = {
    Opcode.NOP: CompletionOpcode.NOP,
    Opcode.WRITE: CompletionOpcode.WRITE,
    Opcode.WRITE_IMM: CompletionOpcode.WRITE,
    Opcode.SEND: CompletionOpcode.SEND,
    Opcode.SEND_IMM: CompletionOpcode.SEND,
    Opcode.SEND_INV: CompletionOpcode.SEND,
    Opcode.READ: CompletionOpcode.READ,
    Opcode.ATOMIC_ADD: CompletionOpcode.ATOMIC_ADD,
    Opcode.ATOMIC_CAS: CompletionOpcode.ATOMIC_CAS,
}
NUMBERED = frozenset({Opcode.WRITE_IMM, Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV})
"""Operations that take a receive element."""

_REQUESTS: dict[Opcode, int] = {
    Opcode.WRITE: int(RequestOpcode.WRITE),
    Opcode.WRITE_IMM: int(RequestOpcode.WRITE),
    Opcode.SEND: int(RequestOpcode.SEND),
    Opcode.SEND_IMM: int(RequestOpcode.SEND),
    Opcode.SEND_INV: int(RequestOpcode.SEND),
    Opcode.READ: int(RequestOpcode.READ),
    Opcode.ATOMIC_ADD: int(RequestOpcode.FETCHING_ATOMIC),
    Opcode.ATOMIC_CAS: int(RequestOpcode.FETCHING_ATOMIC),
}
_EAGER = SendMode.EAGER
_SENDS = (Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV)
_TAGGED: dict[RequestOpcode, RequestOpcode] = {
    RequestOpcode.SEND: RequestOpcode.TAGGED_SEND,
    RequestOpcode.RENDEZVOUS_SEND: RequestOpcode.RENDEZVOUS_TSEND,
    RequestOpcode.DEFERRABLE_SEND: RequestOpcode.DEFERRABLE_TSEND,
}
_IMMEDIATES = (Opcode.WRITE_IMM, Opcode.SEND_IMM)
_ATOMICS = (Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS)
_PAYLOAD = NUMBERED | {Opcode.WRITE}

_ACCESS_CODES = frozenset(
    {
        ReturnCode.AT_INVALID,
        ReturnCode.AT_PERM,
        ReturnCode.AT_ATS_ERROR,
        ReturnCode.AT_NO_TRANS,
        ReturnCode.AT_OUT_OF_RANGE,
        ReturnCode.PERM_VIOLATION,
        ReturnCode.BAD_MKEY,
        ReturnCode.BAD_ADDR,
    }
)
_REQUEST_CODES = frozenset(
    {
        ReturnCode.BAD_GENERATION,
        ReturnCode.UNSUPPORTED_OP,
        ReturnCode.UNSUPPORTED_SIZE,
        ReturnCode.AMO_UNSUPPORTED_OP,
        ReturnCode.AMO_UNSUPPORTED_DT,
        ReturnCode.AMO_UNSUPPORTED_SIZE,
        ReturnCode.AMO_UNALIGNED,
        ReturnCode.OP_VIOLATION,
        ReturnCode.BAD_INDEX,
        ReturnCode.BAD_PID,
        ReturnCode.BAD_JOB_ID,
        ReturnCode.TOO_LONG,
    }
)


def failure_of(code: int) -> Failure:
    """What a target's return code means for the element's completion."""
    if code in _ACCESS_CODES:
        status = Status.REM_ACCESS_ERR
    elif code in _REQUEST_CODES:
        status = Status.REM_INV_REQ_ERR
    else:
        status = Status.REM_OP_ERR
    name = ReturnCode(code).name if code in ReturnCode.__members__.values() else f"{code:#04x}"
    return Failure(status, Cause.REMOTE_NAK, f"the target answered {name}")


class Sender(Protocol):
    """What a message asks of the queue pair that sends it, or of who stands for it."""

    host: EngineHost
    parameters: Parameters
    qpn: int
    dest_qpn: int

    def restart(self, message: Message) -> None:
        """Send a message again that the target has not touched, on another PDC."""

    def release(self, message: Message) -> None:
        """A message needs its id no more."""

    def ended(self, message: Message) -> None:
        """A message is done: its answers are in, or it failed."""

    def called_off(self, message: Message) -> None:
        """The peer called a message off, and all of it that was sent is answered."""

    def unfetched(self, message: Message) -> None:
        """The peer has the beginning of a message, and is to fetch the rest."""


class Message:
    """Implements :class:`emu.uet.outgoing.Work` for one element.

    ``number`` is its place among those that take receive elements, ``message_id`` what the wire calls it,
    ``done`` that it ended, well or with ``failure``; ``code`` is the first return code that was no success.
    ``token`` names a message that the peer may call off or fetch, ``peer_token`` is the peer's name for it
    once it has one, ``deferred`` that it was called off. ``due`` is when it is tried again.
    """

    __slots__ = (
        "_acked",
        "_cancelled",
        "_cursor",
        "_dest_qpn",
        "_eager",
        "_engine",
        "_fetched",
        "_mtu",
        "_opcode",
        "_packets",
        "_placed",
        "_served",
        "abandoned",
        "code",
        "deferred",
        "done",
        "due",
        "failure",
        "message_id",
        "number",
        "pdc",
        "peer_token",
        "qpn",
        "request",
        "restarts",
        "token",
    )

    def __init__(self, engine: Sender, request: SendRequest, number: int, mtu: int) -> None:
        self._engine = engine
        self._mtu = mtu
        self._dest_qpn = engine.dest_qpn
        self.qpn: int | None = engine.qpn
        self.request = request
        self.number = number
        self.abandoned = False
        self.restarts = 0
        self._opcode = _REQUESTS.get(request.opcode, 0)
        self._packets = max(1, -(-request.length // mtu)) if request.opcode in _REQUESTS else 0
        self._eager: int | None = None
        self.token = self.peer_token = self.due = 0
        if request.tag is not None or request.mode is not _EAGER:
            self._choose()
        self.reset()

    def _choose(self) -> None:
        """Which kind of send a tag and a mode make it."""
        request, parameters = self.request, self._engine.parameters
        opcode = RequestOpcode.SEND
        if request.opcode not in _SENDS:
            return
        if request.mode is SendMode.DEFERRABLE:
            opcode = RequestOpcode.DEFERRABLE_SEND
        elif request.mode is SendMode.RENDEZVOUS and request.length > self._mtu:
            opcode = RequestOpcode.RENDEZVOUS_SEND
            self._eager = min(parameters.eager_bytes, self._mtu)
            self._packets = 1
        self._opcode = int(opcode if request.tag is None else _TAGGED[opcode])

    def reset(self) -> None:
        """Start over as a new message."""
        self.message_id = 0
        self.pdc: Pdc | None = None
        self._cursor = self._acked = self._placed = 0
        self._fetched: dict[int, int] | None = None
        self._served = 0
        self._cancelled = self.deferred = False
        self.code = 0
        self.done = False
        self.failure: Failure | None = None

    @property
    def remaining(self) -> int:
        """Nominal bytes of the packets still to be made, or a little more."""
        payload = self._mtu if self.request.opcode in _PAYLOAD else 0
        return (self._packets - self._cursor) * (payload + _HEADERS)

    @property
    def reads(self) -> bool:
        """True when data comes back in the return direction."""
        return self.request.opcode is Opcode.READ

    @property
    def rendezvous(self) -> bool:
        """True when the peer fetches the rest."""
        return self._eager is not None

    @property
    def touched(self) -> bool:
        """True once the target answered any of its packets."""
        return self._acked > 0

    def next(self) -> Outgoing | None:
        """The next packet; None when there is none, or local memory does not allow it."""
        if self.abandoned:
            return self._cancel()
        if self._cursor >= self._packets or self.failure is not None or self.deferred:
            return None
        request = self.request
        opcode = request.opcode
        offset = self._cursor * self._mtu
        size = min(self._mtu, request.length - offset) if self._eager is None else self._eager
        last = self._cursor == self._packets - 1
        payload = extension = b""
        if opcode in _PAYLOAD:
            try:
                payload = packet_payload(self._engine.host, request, offset, size)
            except ProtectionError as error:
                cause = Cause(error.cause)
                self._end(Failure(Status.LOC_PROT_ERR, cause, f"payload: {error.rule}"))
                return None
        elif opcode in _ATOMICS:
            extension, payload = self._operands()
        if self._eager is not None:
            extension = rendezvous(size, self._engine.qpn, size, self.token << 32)
        header = self._header(offset, size, last)
        self._cursor += 1
        return Outgoing(
            self, NextHeader.REQUEST_STD, b"".join((header, extension, payload)), len(payload), last=last
        )

    def _cancel(self) -> Outgoing | None:
        """The packet that ends a begun message at the target, once; None when there is nothing to end."""
        if self._cancelled or not 0 < self._cursor < self._packets:
            return None
        self._cancelled = True
        self._cursor += 1
        header = standard_request(
            RequestOpcode.MSG_ERROR,
            _EOM | (_REL if self._engine.parameters.relative else 0),
            message_id=self.message_id,
            job_id=self._engine.parameters.job_id,
            pid=self._dest_qpn >> 12,
            resource_index=self._dest_qpn & 0xFFF,
            buffer_offset=0,
            initiator=self._engine.qpn,
            key=0,
            request_length=self.request.length,
        )
        return Outgoing(self, NextHeader.REQUEST_STD, header, 0, last=True)

    def abandon(self) -> None:
        """The queue pair gives it up; the target is told if it has a part of it."""
        self.abandoned = True
        if self.pdc is not None:
            self.pdc.kick()
        self._check_done()

    def _header(self, offset: int, size: int, last: bool) -> bytes:
        request = self.request
        opcode = request.opcode
        parameters = self._engine.parameters
        flags = _REL if parameters.relative else 0
        header_data = 0
        if not offset:
            flags |= _SOM
            if opcode in _IMMEDIATES:
                header_data = IMMEDIATE | request.immediate & _U32
            elif opcode is Opcode.SEND_INV:
                header_data = INVALIDATE | request.rkey & _U32
            if request.solicited and opcode in NUMBERED:
                header_data |= SOLICITED
            if header_data:
                flags |= _HD
        if last:
            flags |= _EOM
        if opcode in _SENDS:
            key = self.number if request.tag is None else request.tag & _U64
            place = self.token << 32 | self.peer_token if request.mode is SendMode.DEFERRABLE else 0
        else:
            key = self.number << 32 | request.rkey & _U32
            place = request.remote_address & _U64
        dest = self._dest_qpn
        return standard_request(
            self._opcode,
            flags,
            message_id=self.message_id,
            job_id=parameters.job_id,
            pid=dest >> 12,
            resource_index=dest & 0xFFF,
            buffer_offset=place,
            initiator=self._engine.qpn,
            key=key,
            header_data=header_data,
            payload_length=size,
            message_offset=offset,
            request_length=request.length,
        )

    def _operands(self) -> tuple[bytes, bytes]:
        request = self.request
        if request.opcode is Opcode.ATOMIC_CAS:
            compare, swap = request.compare & _U64, request.swap_add & _U64
            return COMPARE_SWAP.pack(AtomicOp.CSWAP, AtomicType.UINT64, 0, 0, 0, compare, 0, swap), b""
        extension = ATOMIC_EXTENSION.pack(AtomicOp.SUM, AtomicType.UINT64, 0, 0)
        order = self._engine.parameters.operand_order
        return extension, (request.swap_add & _U64).to_bytes(8, order)

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """One packet was answered."""
        self._acked += 1
        if header is not None and not self.abandoned:
            if not header.good:
                if header.code == self._engine.parameters.wire.deferred_return_code and self.token:
                    self.deferred = True
                else:
                    self.code = self.code or header.code
            elif header.opcode == ResponseOpcode.RESPONSE_W_DATA:
                self.place(header.message_offset, memoryview(frame)[header.start : header.end])
        self._check_done()

    def place(self, offset: int, data: memoryview) -> None:
        """Put result bytes into local memory."""
        request = self.request
        if self.abandoned or self.failure is not None:
            return
        if offset + len(data) > request.length or request.opcode in _PAYLOAD:
            self._end(Failure(Status.BAD_RESP_ERR, Cause.BAD_LENGTH, "data beyond what was asked for"))
            return
        octets: bytes | memoryview = data
        if request.opcode in _ATOMICS and self._engine.parameters.operand_order == "big":
            octets = bytes(data)[::-1]
        try:
            if len(data):
                self._engine.host.scatter(request.sges, offset, octets)
        except ProtectionError as error:
            self._end(Failure(Status.LOC_PROT_ERR, Cause(error.cause), f"result: {error.rule}"))
            return
        self._placed += len(data)
        self._check_done()

    def failed(self, failure: Failure) -> None:
        """The PDC ended: start over where nothing was carried out, else fail."""
        if self.abandoned:
            self._engine.release(self)
        elif failure.fresh and not self.touched and self.restarts < 2:
            self.restarts += 1
            self._engine.restart(self)
        else:
            self._end(failure)

    def _check_done(self) -> None:
        if self.abandoned:
            if self._acked >= self._cursor and (self._cancelled or not 0 < self._cursor < self._packets):
                self._engine.release(self)
            return
        if self.deferred and not self.code and not self.done:
            if self._acked >= self._cursor:
                # Not before everything is answered: no packet of it may come behind the next attempt.
                self._engine.called_off(self)
            return
        if self.done or self._acked < (self._cursor if self.deferred else self._packets):
            return
        if self.code:
            self._end(failure_of(self.code))
        elif self._eager is not None and self._eager + self._taken < self.request.length:
            self._engine.unfetched(self)
        elif self.request.opcode in _PAYLOAD or self._placed >= self.request.length:
            self._end(None)
        elif self.request.opcode in _ATOMICS:
            # Its result comes in the acknowledgement or never.
            self._end(
                Failure(Status.BAD_RESP_ERR, Cause.NONE, "an atomic was acknowledged without its result")
            )

    # What the peer fetches

    def offered(self, offset: int, size: int) -> bytes | None:
        """Bytes of a rendezvous that the peer READs; None when they are not on offer."""
        request = self.request
        if self._eager is None or offset < self._eager or offset + size > request.length or self.done:
            return None
        try:
            data = packet_payload(self._engine.host, request, offset, size)
        except ProtectionError as error:
            self._end(Failure(Status.LOC_PROT_ERR, Cause(error.cause), f"payload: {error.rule}"))
            return None
        self._served += 1
        return data

    def fetched(self, offset: int, size: int) -> None:
        """The peer has these bytes, maybe again."""
        self._served -= 1
        if self._fetched is None:
            self._fetched = {}
        self._fetched[offset] = size
        self._check_done()

    @property
    def _taken(self) -> int:
        return sum(self._fetched.values()) if self._fetched else 0

    def unknown(self) -> None:
        """The peer does not know it. Maybe it has all, and its last acknowledgements are on their way."""
        if not self._served:
            self.declined()

    def declined(self) -> None:
        """The peer will not fetch it."""
        self._end(Failure(Status.REM_OP_ERR, Cause.REMOTE_NAK, "the target gave the rendezvous up"))

    def _end(self, failure: Failure | None) -> None:
        if not self.done:
            self.done = True
            self.failure = failure
            self._engine.ended(self)
