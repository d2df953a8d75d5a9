# SPDX-License-Identifier: Apache-2.0
"""READs and atomics at their target: memory in, answers out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emu.nic.atomics import AtomicOperation
from emu.nic.engine import ProtectionError
from emu.nic.work import Access
from emu.uet.headers import RequestHeader, ResponseHeader, data_response
from emu.uet.outgoing import Answer, Failure, Outgoing, Verdict
from emu.uet.packet import UetPacket
from emu.uet.verdicts import Refused, code_of
from emu.wire.uet_names import (
    AtomicOp,
    AtomicType,
    NackCode,
    NextHeader,
    RequestOpcode,
    ReturnCode,
    SesFlag,
)

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.pdc import Pdc

__all__ = ["Serving"]

_SOM = int(SesFlag.SOM)
_U32 = 0xFFFFFFFF
_ATOMIC_BYTES = 8


class _Reply:
    """Read data of one request packet, on its way in the return direction."""

    def __init__(self, qpn: int, body: bytes, octets: int, taken: Callable[[], None] | None = None) -> None:
        self.qpn: int | None = qpn
        self._outgoing: Outgoing | None = Outgoing(self, NextHeader.RESPONSE_DATA, body, octets, last=True)
        self._taken = taken

    @property
    def remaining(self) -> int:
        """Nominal bytes of the packet, or a little more, until it is made."""
        return self._outgoing.octets + 160 if self._outgoing is not None else 0

    def next(self) -> Outgoing | None:
        """The packet, once."""
        outgoing, self._outgoing = self._outgoing, None
        return outgoing

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """The initiator has it."""
        if self._taken is not None:
            self._taken()

    def failed(self, failure: Failure) -> None:
        """The initiator finds out by itself."""


class Serving:
    """What one queue pair's memory is asked for."""

    def __init__(self, engine: UetEngine) -> None:
        self._engine = engine
        self._host = engine.host
        self._parameters = engine.parameters

    def read(self, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """Answer one READ packet. :raises Refused: it is not allowed."""
        engine = self._engine
        offered = header.key >> 32
        if not offered and not engine.access & Access.REMOTE_READ:
            raise Refused(ReturnCode.PERM_VIOLATION)
        mtu, total = engine.mtu, header.request_length
        offset = header.message_offset
        # The first packet has no payload_length: it asks for one MTU of a longer message.
        size = min(total, mtu) if header.flags & _SOM else header.payload_length
        if size > mtu or offset + size > total or (header.whole and total > mtu):
            raise Refused(ReturnCode.UNSUPPORTED_SIZE)
        if pdc is not None and len(pdc.source.queue) >= self._parameters.max_replies:
            return NackCode.NO_PKT_BUFFER
        if offered:
            return self._offered(header, pdc, offset, size)
        data = b""
        if size:
            try:
                data = self._host.read_remote(header.key & _U32, header.buffer_offset + offset, size)
            except ProtectionError as error:
                raise Refused(code_of(error)) from error
        octets = data_response(ReturnCode.OK, header.message_id, header.job_id, size, size, offset) + data
        if pdc is None or total <= self._parameters.max_ack_data:
            return Answer(NextHeader.RESPONSE_DATA, octets)
        pdc.submit(_Reply(engine.qpn, octets, size))
        return None

    def _offered(self, header: RequestHeader, pdc: Pdc | None, offset: int, size: int) -> Verdict:
        """The rest of a message of ours that the peer fetches. It never comes in an ACK, as its own
        acknowledgement says that the peer has it.
        """
        message = self._engine.offers.get(header.key >> 32)
        if message is None or pdc is None:
            raise Refused(ReturnCode.BAD_MKEY)
        at = header.buffer_offset + offset
        data = message.offered(at, size)
        if data is None:
            raise Refused(ReturnCode.BAD_ADDR)
        octets = data_response(ReturnCode.OK, header.message_id, header.job_id, size, size, offset) + data
        pdc.submit(_Reply(self._engine.qpn, octets, size, lambda: message.fetched(at, size)))
        return None

    def atomic(self, packet: UetPacket, header: RequestHeader) -> Verdict:
        """Carry out an atomic. :raises Refused: it is not allowed, or not one of this target's."""
        if not self._engine.access & Access.REMOTE_ATOMIC:
            raise Refused(ReturnCode.PERM_VIOLATION)
        order = self._parameters.operand_order
        operation = AtomicOperation(add=False, operand=header.swap, compare=header.compare)
        payload = packet.frame[header.start : header.end]
        if header.data_type != AtomicType.UINT64:
            raise Refused(ReturnCode.AMO_UNSUPPORTED_DT)
        if header.operation == AtomicOp.SUM:
            if len(payload) != _ATOMIC_BYTES:
                raise Refused(ReturnCode.AMO_UNSUPPORTED_SIZE)
            operation = AtomicOperation(add=True, operand=int.from_bytes(payload, order))
        elif header.operation != AtomicOp.CSWAP:
            raise Refused(ReturnCode.AMO_UNSUPPORTED_OP)
        if not header.whole or header.request_length != _ATOMIC_BYTES:
            raise Refused(ReturnCode.AMO_UNSUPPORTED_SIZE)
        if header.buffer_offset & 7:
            raise Refused(ReturnCode.AMO_UNALIGNED)
        key = header.key & _U32
        try:
            self._host.check_remote(key, header.buffer_offset, _ATOMIC_BYTES, Access.REMOTE_ATOMIC)
            original = self._host.atomic(key, header.buffer_offset, operation)
        except ProtectionError as error:
            raise Refused(code_of(error)) from error
        if header.opcode == RequestOpcode.ATOMIC:
            return None
        octets = data_response(ReturnCode.OK, header.message_id, header.job_id, 8, 8, 0)
        return Answer(NextHeader.RESPONSE_DATA, octets + original.to_bytes(8, order))
