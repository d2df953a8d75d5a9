# SPDX-License-Identifier: Apache-2.0
"""Unreliable unordered delivery (UUD): one packet a message, to whom each send element says; no contexts.

The rules are those of RoCE's unreliable datagrams, and so is what a receive element begins with: 40 bytes for
the network header, an IPv6 header, or twenty zero bytes and an IPv4 header. On the wire a datagram is a
DATAGRAM_SEND with a standard header and message_id 0. The target queue pair's number and the own one stand
where :mod:`emu.uet.message` has them, the Q_Key is the lower half of the match bits, and ``header_data`` is
that of any other send.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.nic.engine import AsyncEvent, EngineHost, Packet, ProtectionError
from emu.nic.payload import packet_payload
from emu.nic.work import (
    AddressHandle,
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    SendRequest,
    Status,
)
from emu.roce.receives import Receives
from emu.uet.entropy import EntropySelector
from emu.uet.headers import UUD_PROLOGUE, RequestHeader, standard_request
from emu.uet.message import COMPLETIONS, IMMEDIATE, SOLICITED
from emu.uet.outgoing import Failure
from emu.uet.packet import UetPacket
from emu.uet.path import PeerPath, addresses
from emu.wire.frame import ETHERNET_SIZE
from emu.wire.uet_names import RequestOpcode, SesFlag

if TYPE_CHECKING:
    from emu.uet.fep import Fep

__all__ = ["HEADER_AREA", "UudEngine"]

HEADER_AREA = 40
"""Bytes before the data in a receive element."""

_OWN_QKEY = 1 << 31
"""A send element's Q_Key with this bit stands for the queue pair's own."""
_PATHS_KEPT = 256
_U32 = 0xFFFFFFFF
_ECT0 = 2
_WHOLE = int(SesFlag.SOM | SesFlag.EOM)
_HD, _REL = int(SesFlag.HD), int(SesFlag.REL)
_RECEIVING = frozenset({QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE})
_FLUSHING = frozenset({QpState.SQE, QpState.ERR})


class UudEngine:
    """One queue pair's datagrams, behind :class:`emu.nic.engine.Engine`.

    A send element that fails stops the send queue only (state SQE); receiving goes on.
    """

    def __init__(self, fep: Fep, host: EngineHost) -> None:
        self._fep = fep
        self._host = host
        self.qpn = host.qpn
        self._parameters = fep.parameters
        self._attributes = QpAttributes()
        self.state = QpState.RESET
        self._receives = Receives(host)
        self._queue: deque[SendRequest] = deque()
        self._paths: dict[AddressHandle, PeerPath] = {}
        self._selector = EntropySelector(fep.parameters.paths, fep.seed ^ host.qpn)
        self._traffic = fep.parameters.wire.dscp_data << 2 | _ECT0
        self._sent = 0
        self._established = self._drained = False

    # The seam to the core

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Take over attributes and enter ``attributes.state``."""
        state = attributes.state
        if state is QpState.ERR:
            if self.state is not QpState.ERR:
                self.state = QpState.ERR
                self._flush()
            return
        self._attributes = replace(attributes)
        self.state = state
        if state is QpState.RESET:
            self._queue.clear()
            self._receives.clear()
            self._established = self._drained = False
        elif state is QpState.SQE:
            self._flush_sends()
        self._check_drained()

    def post(self, request: SendRequest) -> None:
        """Queue one send element; in SQE and ERR it is flushed at once."""
        self._queue.append(request)
        if self.state in _FLUSHING:
            self._flush_sends()

    def receive(self, packet: Packet, now: int) -> None:
        """Packets of other protocols that name this queue pair."""
        self._host.note_drop("rx_dropped", f"{packet!r} for a UET queue pair")

    def receive_posted(self, now: int) -> None:
        """In ERR flush what was posted; otherwise the next datagram finds it."""
        if self.state is QpState.ERR:
            self._receives.flush()

    def transmit(self, now: int, budget: int) -> bool:
        """Send up to ``budget`` datagrams. True when more could go at once."""
        queue = self._queue
        while queue and budget > 0 and self.state is QpState.RTS:
            request = queue.popleft()
            failure = self._refusal(request)
            if failure is None and request.opcode is not Opcode.NOP:
                failure = self._send(request, now)
                budget -= 1
            self._host.retire(request.index + request.slots)
            if failure is not None:
                self._report(request, failure.status, 0, failure.cause)
                self.state = QpState.SQE
                self._host.moved(QpState.SQE, failure.reason)
                self._flush_sends()
            elif request.signaled:
                self._report(request, Status.SUCCESS, request.length, Cause.NONE)
        self._check_drained()
        return bool(queue) and self.state is QpState.RTS

    def deadline(self) -> int | None:
        """Nothing is waited for."""
        return None

    def expire(self, now: int) -> None:
        """No timer is ever set."""

    def idle(self) -> bool:
        """True when nothing is queued."""
        return not self._queue

    @property
    def next_psn(self) -> int:
        """Datagrams have no numbers on the wire; this one counts them (24 bits)."""
        return self._sent & 0xFFFFFF

    @property
    def expected_psn(self) -> int:
        """Receivers of datagrams expect no number."""
        return 0

    # Sending

    def _refusal(self, request: SendRequest) -> Failure | None:
        opcode = request.opcode
        if opcode is Opcode.NOP:
            return None
        if opcode not in (Opcode.SEND, Opcode.SEND_IMM):
            reason = f"UUD has no operation {opcode!r}"
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, reason)
        if request.handle is None:
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_FLAGS, "a datagram without address handle")
        mtu = self._attributes.path_mtu
        if not 0 <= request.length <= mtu:
            reason = f"datagram of {request.length} bytes, at most {mtu}"
            return Failure(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
        return None

    def _send(self, request: SendRequest, now: int) -> Failure | None:
        handle = request.handle
        assert handle is not None  # refused before
        try:
            payload = packet_payload(self._host, request, 0, request.length)
        except ProtectionError as error:
            return Failure(Status.LOC_PROT_ERR, Cause(error.cause), f"payload: {error.rule}")
        header_data = IMMEDIATE | request.immediate & _U32 if request.opcode is Opcode.SEND_IMM else 0
        if request.solicited:
            header_data |= SOLICITED
        parameters = self._parameters
        qkey = self._attributes.qkey if request.qkey & _OWN_QKEY else request.qkey
        header = standard_request(
            RequestOpcode.DATAGRAM_SEND,
            _WHOLE | (_REL if parameters.relative else 0) | (_HD if header_data else 0),
            message_id=0,
            job_id=parameters.job_id,
            pid=request.dest_qpn >> 12 & 0xFFF,
            resource_index=request.dest_qpn & 0xFFF,
            buffer_offset=0,
            initiator=self._attributes.source_qpn or self.qpn,
            key=qkey & _U32,
            header_data=header_data,
            request_length=len(payload),
        )
        ev = handle.udp_source_port or self._selector.pick(now)
        frame = self._path(handle).frame(self._traffic, ev, UUD_PROLOGUE, header + payload)
        self._fep.host.send(frame, self.qpn)
        self._sent += 1
        return None

    def _path(self, handle: AddressHandle) -> PeerPath:
        path = self._paths.get(handle)
        if path is None:
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            ends = addresses(handle)
            macs = handle.source_mac, handle.dest_mac
            path = PeerPath(*macs, *ends, self._parameters.wire, handle.hop_limit or 64)
            self._paths[handle] = path
        return path

    # Receiving

    def datagram(self, packet: UetPacket, header: RequestHeader) -> None:
        """Take a datagram for this queue pair, or drop it and say why."""
        size = header.end - header.start
        qkey = header.key & _U32
        if self.state not in _RECEIVING:
            self._drop(f"datagram in state {self.state.name}")
        elif not self._host.owns_address(packet.head.dest_ip):
            self._drop(f"datagram to {packet.head.dest_ip.hex()}, which is no address of this port")
        elif qkey != self._attributes.qkey:
            self._drop(f"Q_Key {qkey:#x} is not the queue pair's", "qkey_viol_cntr")
        elif size > self._attributes.path_mtu:
            self._drop(f"datagram of {size} bytes on a path of {self._attributes.path_mtu}")
        else:
            self._accept(packet, header, size)

    def _accept(self, packet: UetPacket, header: RequestHeader, size: int) -> None:
        try:
            element = self._receives.take()
        except ProtectionError as error:
            self._host.raise_event(AsyncEvent.QP_FATAL, f"receive element: {error.rule}")
            self._fail(f"receive element: {error.rule}")
            return
        if element is None:
            self._drop("datagram without receive element", "out_of_buffer")
            return
        length = HEADER_AREA + size
        if length > element.length:
            self._receives.put_back(element)
            self._drop(f"datagram needs {length} bytes, receive element {element.index} has {element.length}")
            return
        if not self._established and self.state is QpState.RTR:
            self._established = True
            self._host.raise_event(AsyncEvent.COMM_EST, "first datagram arrived")
        network = packet.frame[ETHERNET_SIZE : packet.head.transport].rjust(HEADER_AREA, b"\0")
        try:
            self._host.scatter(element.sges, 0, network + packet.frame[header.start : header.end])
        except ProtectionError as error:
            self._receives.fail(element, Status.LOC_PROT_ERR, error.cause)
            self._fail(f"receive element {element.index}: {error.rule}")
            return
        data = header.header_data
        self._host.complete(
            Completion(
                self.qpn,
                element.index,
                CompletionOpcode.RECV,
                Status.SUCCESS,
                length=length,
                immediate=data & _U32 if data & IMMEDIATE else None,
                solicited=bool(data & SOLICITED),
                cookie=element.cookie,
                source_qpn=header.initiator & 0xFFFFFF,
                ip_version=4 if len(packet.head.source_ip) == 4 else 6,
            )
        )

    # Ends

    def _fail(self, reason: str) -> None:
        """Receiving cannot go on: the queue pair goes to ERR and both queues flush."""
        self.state = QpState.ERR
        self._host.moved(QpState.ERR, reason)
        self._flush()

    def _flush(self) -> None:
        self._flush_sends()
        self._receives.flush()

    def _flush_sends(self) -> None:
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            self._host.retire(request.index + request.slots)
            self._report(request, Status.WR_FLUSH_ERR, 0, Cause.FLUSHED)

    def _report(self, request: SendRequest, status: Status, length: int, cause: int) -> None:
        self._host.complete(
            Completion(
                self.qpn,
                request.index,
                COMPLETIONS.get(request.opcode, CompletionOpcode.NOP),
                status,
                length=length,
                cause=cause,
                cookie=request.cookie,
            )
        )

    def _check_drained(self) -> None:
        if self.state is not QpState.SQD:
            self._drained = False
        elif not self._drained:
            self._drained = True
            self._host.moved(QpState.SQD, "send queue drained")
            self._host.raise_event(AsyncEvent.SQ_DRAINED, "send queue drained")

    def _drop(self, reason: str, counter: str = "rx_dropped") -> None:
        self._host.note_drop(counter, reason)
