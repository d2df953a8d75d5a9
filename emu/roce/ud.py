# SPDX-License-Identifier: Apache-2.0
"""Unreliable datagram: one packet a message, to whom each send element says, guarded by a Q_Key.

A receive element begins with 40 bytes for the network header: an IPv6 header, or twenty zero bytes and an
IPv4 header. What finds no receive element, one that is too small, or has the wrong Q_Key, is dropped; the
receive element stays for the next datagram, but one of a shared receive queue that is too small completes in
error.

A datagram longer than the path MTU completes with LOC_LEN_ERR, as hardware drivers do. (Linux rxe sends
nothing and reports success.)
"""

from __future__ import annotations

from emu.nic.drops import DropReason
from emu.nic.engine import AsyncEvent, EngineHost, ProtectionError
from emu.nic.multicast import MULTICAST_QPN
from emu.nic.work import (
    AddressHandle,
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    SendRequest,
    Status,
)
from emu.roce.connection import Connection
from emu.roce.element import Fault
from emu.roce.message import packet_payload
from emu.roce.packet import RocePacket
from emu.roce.path import Templates, datagram_path
from emu.roce.receives import Receives
from emu.roce.sender import Packets
from emu.roce.unreliable import UnreliableEngine
from emu.wire.headers import DETH, IMM_DT, pack_deth, pack_immediate
from emu.wire.opcodes import Header, OpcodeInfo, TransportClass, UdOpcode

__all__ = ["HEADER_AREA", "UdEngine"]

HEADER_AREA = 40
"""Bytes before the data in a receive element."""

_OWN_QKEY = 1 << 31
"""A send element's Q_Key with this bit stands for the queue pair's own."""
_DESTINATIONS_KEPT = 256
_U32 = 0xFFFFFFFF
_OPCODES = {
    Opcode.SEND: int(UdOpcode.SEND_ONLY),
    Opcode.SEND_IMM: int(UdOpcode.SEND_ONLY_IMM),
}


class _Datagrams:
    """Implements :class:`emu.roce.sender.Packets`; templates are kept for destinations in use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._templates: dict[tuple[AddressHandle, int, int], Templates] = {}

    def refusal(self, request: SendRequest) -> Fault | None:
        """Only SENDs, to somewhere, within one packet."""
        mtu = self._connection.mtu
        if request.opcode is Opcode.NOP:
            return None
        if request.opcode not in _OPCODES:
            return Fault(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, f"UD has no operation {request.opcode!r}")
        if request.handle is None:
            return Fault(Status.LOC_QP_OP_ERR, Cause.BAD_FLAGS, "a datagram without address handle")
        if not 0 <= request.length <= mtu:
            reason = f"datagram of {request.length} bytes, at most {mtu}"
            return Fault(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
        return None

    def count(self, request: SendRequest) -> int:
        """One; none for a NOP."""
        return int(request.opcode is not Opcode.NOP)

    def send(self, request: SendRequest, cursor: int, count: int, psn: int) -> None:
        """Send the datagram."""
        host, attributes = self._connection.host, self._connection.attributes
        payload = packet_payload(host, request, 0, request.length)
        qkey = attributes.qkey if request.qkey & _OWN_QKEY else request.qkey
        extension = pack_deth(qkey & _U32, attributes.source_qpn or host.qpn)
        if request.opcode is Opcode.SEND_IMM:
            extension += pack_immediate(request.immediate & _U32)
        handle = request.handle
        assert handle is not None  # refused before
        key = (handle, request.dest_qpn, attributes.pkey)
        templates = self._templates.get(key)
        if templates is None:
            if len(self._templates) >= _DESTINATIONS_KEPT:
                self._templates.clear()
            path = datagram_path(handle, host.qpn, request.dest_qpn)
            templates = Templates(path, dest_qpn=request.dest_qpn, pkey=attributes.pkey)
            self._templates[key] = templates
        template = templates[_OPCODES[request.opcode]]
        host.send(template.build(psn, extension, payload, False, request.solicited))


class UdEngine(UnreliableEngine):
    """UD protocol state of one queue pair."""

    transport = TransportClass.UD
    paced = False

    def __init__(self, host: EngineHost) -> None:
        super().__init__(host)
        self._receives = Receives(host)

    def _packets(self) -> Packets:
        return _Datagrams(self._connection)

    def _clear(self) -> None:
        self._receives.clear()

    def _start(self) -> None:
        """Datagrams come in any order."""

    @property
    def expected_psn(self) -> int:
        """Receivers of datagrams expect no number."""
        return 0

    def _accept(self, packet: RocePacket, info: OpcodeInfo) -> None:
        if packet.dest_qpn != MULTICAST_QPN and not self._host.owns_address(packet.dest_ip):
            self._drop(
                f"datagram to {packet.dest_ip.hex()}, which is no address of this port", DropReason.ADDRESS
            )
            return
        qkey, source = DETH.unpack_from(packet.frame, packet.extension)
        if qkey != self._connection.attributes.qkey:
            self._drop(f"Q_Key {qkey:#x} is not the queue pair's", "qkey_viol_cntr")
            return
        if packet.payload_length > self._connection.mtu:
            reason = f"datagram of {packet.payload_length} bytes on a path of {self._connection.mtu}"
            self._drop(reason, DropReason.LENGTH)
            return
        try:
            element = self._receives.take()
        except ProtectionError as error:
            self._host.raise_event(AsyncEvent.QP_FATAL, f"receive element: {error.rule}")
            self._fail(f"receive element: {error.rule}")
            return
        if element is None:
            self._drop("datagram without receive element", "out_of_buffer")
            return
        length = HEADER_AREA + packet.payload_length
        if length > element.length:
            self._receives.give_up(element, Status.LOC_LEN_ERR, Cause.BAD_LENGTH)
            reason = f"datagram needs {length} bytes, receive element {element.index} has {element.length}"
            self._drop(reason, DropReason.REFUSED)
            return
        self._establish()
        try:
            data = b"".join((packet.network_header.rjust(HEADER_AREA, b"\0"), packet.payload))
            self._host.scatter(element.sges, 0, data)
        except ProtectionError as error:
            self._receives.fail(element, Status.LOC_PROT_ERR, error.cause)
            self._fail(f"receive element {element.index}: {error.rule}")
            return
        immediate = None
        if Header.IMM_DT in info.headers:
            (immediate,) = IMM_DT.unpack_from(packet.frame, packet.extension + DETH.size)
        self._host.complete(
            Completion(
                self._host.qpn,
                element.index,
                CompletionOpcode.RECV,
                Status.SUCCESS,
                length=length,
                immediate=immediate,
                solicited=packet.solicited,
                cookie=element.cookie,
                source_qpn=source & 0xFFFFFF,
                ip_version=4 if len(packet.source_ip) == 4 else 6,
            )
        )

    def _flush_receives(self) -> None:
        self._receives.flush()
