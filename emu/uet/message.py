# SPDX-License-Identifier: Apache-2.0
"""One send element on its way: segmentation into request packets, and their answers.

How an operation addresses its target queue pair is this project's choice, as the specification leaves it to
the user of the transport:

- PIDonFEP and resource index are the upper and lower 12 bits of the target QP's number, ``initiator`` is the
  own QP's number.
- The lower 32 bits of the memory key are the rkey, ``buffer_offset`` is the remote virtual address.
- Messages that take a receive element are numbered from 1 by the sending queue pair, so that the target
  matches them with its elements in order however the packets arrive. The number is the upper half of a
  write's memory key, and the match bits of a send.
- ``header_data``: the immediate in bits 31:0, bit 32 says that there is one, bit 33 asks for the interrupt,
  bit 34 says that bits 31:0 are a key to invalidate at the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.nic.engine import ProtectionError
from emu.nic.work import Cause, CompletionOpcode, Opcode, SendRequest, Status
from emu.uet.headers import ATOMIC_EXTENSION, COMPARE_SWAP, ResponseHeader, standard_request
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
    from emu.uet.engine import UetEngine
    from emu.uet.pdc import Pdc

__all__ = [
    "COMPLETIONS",
    "IMMEDIATE",
    "INVALIDATE",
    "NUMBERED",
    "SOLICITED",
    "Message",
    "failure_of",
]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_EOM = int(SesFlag.EOM)
_HD = int(SesFlag.HD)
_REL = int(SesFlag.REL)
_SOM = int(SesFlag.SOM)
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

_REQUESTS: dict[Opcode, RequestOpcode] = {
    Opcode.WRITE: RequestOpcode.WRITE,
    Opcode.WRITE_IMM: RequestOpcode.WRITE,
    Opcode.SEND: RequestOpcode.SEND,
    Opcode.SEND_IMM: RequestOpcode.SEND,
    Opcode.SEND_INV: RequestOpcode.SEND,
    Opcode.READ: RequestOpcode.READ,
    Opcode.ATOMIC_ADD: RequestOpcode.FETCHING_ATOMIC,
    Opcode.ATOMIC_CAS: RequestOpcode.FETCHING_ATOMIC,
}
_SENDS = (Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV)
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


class Message:
    """Implements :class:`emu.uet.outgoing.Stream` for one element.

    ``number`` is its place among those that take receive elements, ``message_id`` what the wire calls it,
    ``done`` that it ended, well or with ``failure``; ``code`` is the first return code that was no success.
    """

    __slots__ = (
        "_acked",
        "_cancelled",
        "_cursor",
        "_dest_qpn",
        "_engine",
        "_mtu",
        "_packets",
        "_placed",
        "abandoned",
        "code",
        "done",
        "failure",
        "message_id",
        "number",
        "pdc",
        "qpn",
        "request",
        "restarts",
    )

    def __init__(self, engine: UetEngine, request: SendRequest, number: int, mtu: int) -> None:
        self._engine = engine
        self._mtu = mtu
        self._dest_qpn = engine.dest_qpn
        self.qpn: int | None = engine.qpn
        self.request = request
        self.number = number
        self.abandoned = False
        self.restarts = 0
        self._packets = max(1, -(-request.length // mtu)) if request.opcode in _REQUESTS else 0
        self.reset()

    def reset(self) -> None:
        """Start over as a new message."""
        self.message_id = 0
        self.pdc: Pdc | None = None
        self._cursor = self._acked = self._placed = 0
        self._cancelled = False
        self.code = 0
        self.done = False
        self.failure: Failure | None = None

    @property
    def reads(self) -> bool:
        """True when data comes back in the return direction."""
        return self.request.opcode is Opcode.READ

    @property
    def touched(self) -> bool:
        """True once the target answered any of its packets."""
        return self._acked > 0

    def next(self) -> Outgoing | None:
        """The next packet; None when there is none, or local memory does not allow it."""
        if self.abandoned:
            return self._cancel()
        if self._cursor >= self._packets or self.failure is not None:
            return None
        request = self.request
        opcode = request.opcode
        offset = self._cursor * self._mtu
        size = min(self._mtu, request.length - offset)
        last = self._cursor == self._packets - 1
        payload = extension = b""
        if opcode in _PAYLOAD:
            if request.inline is not None:
                payload = request.inline[offset : offset + size]
            elif size:
                try:
                    payload = self._engine.host.gather(request.sges, offset, size)
                except ProtectionError as error:
                    cause = Cause(error.cause)
                    self._end(Failure(Status.LOC_PROT_ERR, cause, f"payload: {error.rule}"))
                    return None
        elif opcode in _ATOMICS:
            extension, payload = self._operands()
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
        key = self.number if opcode in _SENDS else self.number << 32 | request.rkey & _U32
        dest = self._dest_qpn
        return standard_request(
            _REQUESTS[opcode],
            flags,
            message_id=self.message_id,
            job_id=parameters.job_id,
            pid=dest >> 12,
            resource_index=dest & 0xFFF,
            buffer_offset=0 if opcode in _SENDS else request.remote_address & _U64,
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
        if self.done or self._acked < self._packets:
            return
        if self.code:
            self._end(failure_of(self.code))
        elif self.request.opcode in _PAYLOAD or self._placed >= self.request.length:
            self._end(None)
        elif self.request.opcode in _ATOMICS:
            # Its result comes in the acknowledgement or never.
            self._end(
                Failure(Status.BAD_RESP_ERR, Cause.NONE, "an atomic was acknowledged without its result")
            )

    def _end(self, failure: Failure | None) -> None:
        if not self.done:
            self.done = True
            self.failure = failure
            self._engine.ended(self)
