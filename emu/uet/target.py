# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a queue pair: request packets to memory and receive completions.

Packets come in any order, each once. Every packet can be placed alone; messages that take a receive element
are matched and completed in the order the sender numbered them, tagged ones by their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import Access, QpState, Status
from emu.uet.headers import RequestHeader
from emu.uet.inbound import Inbound
from emu.uet.outgoing import Pending, Verdict
from emu.uet.packet import UetPacket
from emu.uet.receives import Receives
from emu.uet.serving import Serving
from emu.uet.verdicts import Refused, code_of, refusal
from emu.uet.waiting import Waiting
from emu.wire.uet_names import NackCode, NextHeader, RequestOpcode, ReturnCode, SesFlag

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.pdc import Pdc

__all__ = ["Target"]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_IE = int(SesFlag.IE)
_SOM = int(SesFlag.SOM)
_READY = frozenset({QpState.RTR, QpState.RTS, QpState.SQD})
_U32 = 0xFFFFFFFF
_TAGGED = frozenset(
    {RequestOpcode.TAGGED_SEND, RequestOpcode.RENDEZVOUS_TSEND, RequestOpcode.DEFERRABLE_TSEND}
)
_RENDEZVOUS = frozenset({RequestOpcode.RENDEZVOUS_SEND, RequestOpcode.RENDEZVOUS_TSEND})
_DEFERRABLE = frozenset({RequestOpcode.DEFERRABLE_SEND, RequestOpcode.DEFERRABLE_TSEND})
_MESSAGES = frozenset({RequestOpcode.WRITE, RequestOpcode.SEND}) | _TAGGED | _RENDEZVOUS | _DEFERRABLE


class Target:
    """Target state of one queue pair. ``epoch`` counts its lives."""

    def __init__(self, engine: UetEngine) -> None:
        self._engine = engine
        self._host = engine.host
        self._parameters = engine.parameters
        self._serving = Serving(engine)
        self.receives = Receives(engine)
        self.waiting = Waiting(engine, self.receives)
        self.epoch = 0
        self._established = False

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.epoch += 1
        self.receives.clear()
        self.waiting.clear()
        self._established = False

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """Carry out one request packet. Without a PDC it came by RUDI, and nothing is remembered of it."""
        engine = self._engine
        try:
            if engine.state not in _READY:
                raise Refused(ReturnCode.DISABLED)
            if packet.head.source_ip != engine.dest_ip or packet.head.dest_ip != engine.source_ip:
                raise Refused(ReturnCode.OP_VIOLATION)
            if packet.following != NextHeader.REQUEST_SMALL and header.initiator != engine.dest_qpn:
                raise Refused(ReturnCode.OP_VIOLATION)
            if header.flags & _IE:
                raise Refused(ReturnCode.INITIATOR_ERROR)
            if not self._established and engine.state is QpState.RTR:
                self._established = True
                self._host.raise_event(AsyncEvent.COMM_EST, "first request arrived")
            opcode = header.opcode
            if opcode in _MESSAGES:
                return self._message(packet, header, pdc)
            if opcode == RequestOpcode.READ:
                return self._serving.read(header, pdc)
            if opcode in (RequestOpcode.FETCHING_ATOMIC, RequestOpcode.ATOMIC):
                return self._serving.atomic(packet, header)
            if opcode == RequestOpcode.DEFERRABLE_RTR:
                engine.resume(header.key >> 32, header.key & _U32)
                return None
            if opcode == RequestOpcode.MSG_ERROR:
                self._aborted(header, pdc)
                return None
            if opcode == RequestOpcode.NO_OP:
                if header.key and not self.waiting.knows(header.key):
                    raise Refused(ReturnCode.CANCELLED)
                return None
            raise Refused(ReturnCode.UNSUPPORTED_OP)
        except Refused as refused:
            return refusal(refused.code, header)

    # Writes and sends

    def _message(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        size = header.end - header.start
        opcode = header.opcode
        expected = header.eager if opcode in _RENDEZVOUS else header.request_length
        if header.whole:
            fits = size == expected <= header.request_length
        elif opcode in _RENDEZVOUS:
            fits = False
        elif header.flags & _SOM:
            fits = 0 < size < expected
        else:
            end = header.message_offset + size
            fits = size == header.payload_length > 0 and end <= expected
        if not fits:
            raise Refused(ReturnCode.UNSUPPORTED_SIZE)
        send = opcode != RequestOpcode.WRITE
        if pdc is None or (header.whole and not send and not header.key >> 32):
            self._write(packet, header, size, whole=True)
            return None
        key = (self._engine.qpn, header.message_id)
        inbound = pdc.inbound.get(key)
        if inbound is None or inbound.epoch != self.epoch:
            if len(pdc.inbound) >= self._parameters.max_messages:
                return NackCode.NO_SES_MSG_AVAIL
            if opcode in _RENDEZVOUS and len(self.waiting.fetches) >= self._parameters.max_fetches:
                return NackCode.NO_RESOURCE
            inbound = Inbound(self.epoch, header.request_length, expected, send)
            inbound.home = (pdc, key)
            pdc.inbound[key] = inbound
            self._begin(inbound, header)
        if header.request_length != inbound.total or inbound.placed + size > inbound.expected:
            inbound.code = inbound.code or ReturnCode.UNSUPPORTED_SIZE
        if inbound.code is None:
            try:
                if inbound.buffer is not None:
                    at = header.message_offset
                    inbound.buffer[at : at + size] = packet.frame[header.start : header.end]
                elif send:
                    self._scatter(inbound, header, packet, size)
                else:
                    self._write(packet, header, size, whole=False)
            except Refused as refused:
                inbound.code = refused.code
        inbound.placed += size
        if header.flags & _SOM:
            inbound.header_data = header.header_data
        if inbound.placed >= inbound.expected:
            del pdc.inbound[key]
            inbound.here = True
            if inbound.code is None:
                return self._arrived(inbound, header, pdc, packet.psn)
            if not inbound.deferred:
                self.waiting.forget(inbound)
                self.receives.put_back(inbound)
        if inbound.code is not None:
            raise Refused(inbound.code)
        return None

    def _begin(self, inbound: Inbound, header: RequestHeader) -> None:
        """Check a message at its first packet, and find the receive element it takes."""
        opcode = header.opcode
        try:
            if not inbound.send:
                self._check_write(header)
                if header.key >> 32:
                    self._take(inbound, header.key >> 32, deferrable=False)
                return
            if opcode in _RENDEZVOUS:
                inbound.offer = header
            if opcode in _DEFERRABLE:
                inbound.initiator_token, inbound.target_token = divmod(header.buffer_offset, 1 << 32)
                if self.waiting.resume(inbound):
                    return
            if opcode not in _TAGGED:
                number = (header.key & _U32) or self.receives.next_number
                self._take(inbound, number, deferrable=opcode in _DEFERRABLE)
                return
            inbound.tag = header.key
            if self.receives.match(inbound, inbound.tag):
                self.receives.check_length(inbound)
            elif opcode in _DEFERRABLE:
                self.waiting.defer(inbound)
            else:
                self.waiting.buffer(inbound)
        except Refused as refused:
            inbound.code = refused.code

    def _take(self, inbound: Inbound, number: int, *, deferrable: bool) -> None:
        """Give a numbered message its element. :raises Refused: there is none, or it is too short."""
        if self.receives.take(inbound, number):
            if inbound.send:
                self.receives.check_length(inbound)
            return
        if deferrable:
            inbound.number = number
            self.waiting.defer(inbound)
        self._host.count("send_rnr_err")
        raise Refused(ReturnCode.NO_MATCH)

    def _arrived(self, inbound: Inbound, header: RequestHeader, pdc: Pdc, psn: int) -> Verdict:
        """All packets of a message are here. :raises Refused: its end is not allowed."""
        if inbound.buffer is not None:
            if inbound.receive is None:
                return self.waiting.answer(inbound, header)
            self.waiting.forget(inbound)
            self.waiting.deliver(inbound)
        elif inbound.rest:
            self.waiting.fetch(inbound, (pdc, psn))
            return Pending.RESPONSE
        elif inbound.receive is not None:
            self.receives.complete(inbound)
        return None

    def _scatter(self, inbound: Inbound, header: RequestHeader, packet: UetPacket, size: int) -> None:
        element = inbound.receive
        if element is None:
            raise Refused(ReturnCode.DROPPED)
        if not size:
            return
        payload = memoryview(packet.frame)[header.start : header.end]
        try:
            self._host.scatter(element.sges, header.message_offset, payload)
        except ProtectionError as error:
            reason = f"receive element {element.index}: {error.rule}"
            self.receives.spoil(inbound, Status.LOC_PROT_ERR, error.cause, reason)
            raise Refused(ReturnCode.UNCOR) from error

    def _check_write(self, header: RequestHeader) -> None:
        if not self._engine.access & Access.REMOTE_WRITE:
            raise Refused(ReturnCode.PERM_VIOLATION)
        if header.request_length:
            try:
                self._host.check_remote(
                    header.key & _U32, header.buffer_offset, header.request_length, Access.REMOTE_WRITE
                )
            except ProtectionError as error:
                raise Refused(code_of(error)) from error

    def _write(self, packet: UetPacket, header: RequestHeader, size: int, *, whole: bool) -> None:
        if whole and not self._engine.access & Access.REMOTE_WRITE:
            raise Refused(ReturnCode.PERM_VIOLATION)
        if not size:
            return
        payload = memoryview(packet.frame)[header.start : header.end]
        try:
            self._host.write_remote(header.key & _U32, header.buffer_offset + header.message_offset, payload)
        except ProtectionError as error:
            raise Refused(code_of(error)) from error

    def _aborted(self, header: RequestHeader, pdc: Pdc | None) -> None:
        """The initiator gives a message up: its element waits for another. Or the peer will not fetch one."""
        if header.key >> 32:
            offered = self._engine.offers.get(header.key >> 32)
            if offered is not None:
                offered.declined()
            return
        if pdc is None:
            return
        inbound = pdc.inbound.pop((self._engine.qpn, header.message_id), None)
        if inbound is not None and inbound.epoch == self.epoch:
            self.waiting.forget(inbound)
            self.receives.put_back(inbound)

    def lost(self, inbound: Inbound) -> None:
        """The PDC of a message ended before all of it came: its element waits for another."""
        if inbound.epoch == self.epoch and not inbound.deferred:
            self.waiting.forget(inbound)
            self.receives.put_back(inbound)

    # Receive elements

    def posted(self) -> None:
        """There are new receive elements: messages that wait may have one now."""
        if self.waiting.messages:
            self.waiting.posted()

    def flush(self) -> None:
        """Complete every receive element with WR_FLUSH_ERR: those of begun messages, then the posted ones."""
        self.waiting.clear()
        self.receives.flush()
