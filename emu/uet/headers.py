# SPDX-License-Identifier: Apache-2.0
"""PDS and SES headers at data-path speed: ``struct`` images of the tables in :mod:`emu.wire.uet_names`'s
company. A test holds every one of them against the scapy layers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from emu.wire.uet_names import (
    CcType,
    CtlType,
    NackCode,
    NextHeader,
    PdsType,
    RequestOpcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
    SesFlag,
)

__all__ = [
    "ATOMIC_EXTENSION",
    "CC_STATE",
    "COMPARE_SWAP",
    "CONTROL",
    "DATA_RESPONSE",
    "PDS_ACK_CC",
    "PDS_REQUEST",
    "PDS_RUDI",
    "PDS_SIZES",
    "RENDEZVOUS",
    "RESPONSE",
    "SMALL_DATA_RESPONSE",
    "STD_SIZE",
    "UUD_PROLOGUE",
    "RequestHeader",
    "ResponseHeader",
    "ack_cc",
    "control",
    "data_response",
    "nack",
    "parse_request",
    "parse_response",
    "prologue",
    "rendezvous",
    "response",
    "rudi",
    "standard_request",
]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_HD = int(SesFlag.HD)
_SOM = int(SesFlag.SOM)
PDS_REQUEST = struct.Struct(">HhIHH")
"""Prologue, clear (or ack) PSN offset, PSN (or CACK_PSN), spdcid, dpdcid: requests, ACKs."""
CC_STATE = struct.Struct(">I")
"""Behind a request's: CCC id 8, credit target 24."""
PDS_ACK_CC = struct.Struct(">HHIHHBBhQHBBHH")
"""As a request's, then CC type, MPR, SACK offset, SACK bitmap, service time, window penalty, received
bytes (8 and 16 bits), out-of-order count."""
CONTROL = struct.Struct(">HHIHHI")
"""Control packets and NACKs: prologue, 16 bits, PSN, spdcid, dpdcid, payload."""

PDS_RUDI = struct.Struct(">HHI")
"""Prologue, reserved, packet id."""

PDS_UUD = struct.Struct(">HH")
"""Prologue, reserved."""

PDS_SIZES: dict[int, int] = {
    PdsType.RUD_REQ: 12,
    PdsType.ROD_REQ: 12,
    PdsType.RUDI_REQ: 8,
    PdsType.RUDI_RESP: 8,
    PdsType.UUD_REQ: 4,
    PdsType.ACK: 12,
    PdsType.ACK_CC: 32,
    PdsType.ACK_CCX: 40,
    PdsType.NACK: 16,
    PdsType.CP: 16,
    PdsType.NACK_CCX: 32,
    PdsType.RUD_CC_REQ: 16,
    PdsType.ROD_CC_REQ: 16,
}
"""Header bytes by packet type."""

_COMMON = struct.Struct(">BBHIHH")
_STANDARD = struct.Struct(">BBHIHHQIQQI")
_MEDIUM_TAIL = struct.Struct(">QIQ")
_SMALL_TAIL = struct.Struct(">Q")
STD_SIZE = _STANDARD.size
ATOMIC_EXTENSION = struct.Struct(">BBBB")
"""Operation, data type, semantic control, reserved."""
COMPARE_SWAP = struct.Struct(">BBBBQQQQ")
"""The atomic extension, then compare and swap values of 16 bytes, shorter ones in the last bytes."""
RENDEZVOUS = struct.Struct(">IIQQ")
"""Eager length; generation 8, PIDonFEP 12, resource index 12 of the READs for the rest; offset and key."""
RESPONSE = struct.Struct(">BBHII")
DATA_RESPONSE = struct.Struct(">BBHIHHII")
SMALL_DATA_RESPONSE = struct.Struct(">BBHII")

_LENGTH_14 = 0x3FFF
_ATOMICS = frozenset({RequestOpcode.ATOMIC, RequestOpcode.FETCHING_ATOMIC})
_RENDEZVOUS = frozenset({RequestOpcode.RENDEZVOUS_SEND, RequestOpcode.RENDEZVOUS_TSEND})
_EXTENDED = _ATOMICS | _RENDEZVOUS


def prologue(kind: int, following: int, flags: int) -> int:
    """First 16 bits: packet type 5, next header or control type 4, flags 7."""
    return kind << 11 | following << 7 | flags


UUD_PROLOGUE = PDS_UUD.pack(prologue(PdsType.UUD_REQ, NextHeader.REQUEST_STD, 0), 0)
"""Delivery header of every datagram with a standard request: it has no fields."""


def ack_cc(
    *,
    next_header: int,
    flags: int,
    word: int,
    cack: int,
    source: int,
    dest: int,
    mpr: int,
    sack_offset: int,
    sack_bitmap: int,
    service_time: int,
    received: int,
    out_of_order: int,
    credit: int | None = None,
) -> bytes:
    """ACK_CC with NSCC state, or with ``credit`` instead. ``word`` is ack_psn_offset or probe_opaque,
    ``received`` units of 256 bytes.
    """
    third = cc_type = 0
    if credit is not None:
        cc_type, service_time, third, received = CcType.CREDIT << 4, credit >> 8, credit & 0xFF, 0
    return PDS_ACK_CC.pack(
        prologue(PdsType.ACK_CC, next_header, flags),
        word & 0xFFFF,
        cack,
        source,
        dest,
        cc_type,
        mpr,
        sack_offset,
        sack_bitmap,
        service_time,
        third,
        received >> 16 & 0xFF,
        received & 0xFFFF,
        out_of_order,
    )


def nack(code: NackCode, flags: int, psn: int, source: int, dest: int, payload: int = 0) -> bytes:
    """NACK. ``psn`` is the packet id and the ids are 0 when the flags say NT."""
    return CONTROL.pack(prologue(PdsType.NACK, 0, flags), code << 8, psn, source, dest, payload)


def control(
    kind: CtlType, flags: int, psn: int, source: int, dest: int, payload: int = 0, opaque: int = 0
) -> bytes:
    """Control packet."""
    return CONTROL.pack(prologue(PdsType.CP, kind, flags), opaque, psn, source, dest, payload)


def rudi(kind: PdsType, next_header: int, flags: int, packet_id: int) -> bytes:
    """RUDI request or response."""
    return PDS_RUDI.pack(prologue(kind, next_header, flags), 0, packet_id)


def standard_request(
    opcode: int,
    flags: int,
    *,
    message_id: int,
    job_id: int,
    pid: int,
    resource_index: int,
    buffer_offset: int,
    initiator: int,
    key: int,
    header_data: int = 0,
    payload_length: int = 0,
    message_offset: int = 0,
    request_length: int,
) -> bytes:
    """Standard request, 44 bytes. ``header_data`` counts when ``flags`` has SOM, the two before the last
    otherwise.
    """
    if not flags & _SOM:
        header_data = payload_length << 32 | message_offset
    return _STANDARD.pack(
        opcode,
        flags,
        message_id,
        job_id,
        pid,
        resource_index,
        buffer_offset,
        initiator,
        key,
        header_data,
        request_length,
    )


def rendezvous(eager: int, qpn: int, offset: int, key: int) -> bytes:
    """Rendezvous extension, 24 bytes: how much comes at once, and where to READ the rest."""
    return RENDEZVOUS.pack(eager, qpn & 0xFFFFFF, offset, key)


def response(
    opcode: int,
    code: int,
    message_id: int = 0,
    job_id: int = 0,
    modified_length: int = 0,
    *,
    listed: int = ResponseList.EXPECTED,
    generation: int = 0,
) -> bytes:
    """SES response, 12 bytes."""
    return RESPONSE.pack(listed << 6 | opcode, code, message_id, generation << 24 | job_id, modified_length)


def data_response(
    code: int, read_message_id: int, job_id: int, length: int, modified_length: int, message_offset: int
) -> bytes:
    """SES response with data, 20 bytes."""
    return DATA_RESPONSE.pack(
        ResponseOpcode.RESPONSE_W_DATA,
        code,
        0,
        job_id,
        read_message_id,
        length,
        modified_length,
        message_offset,
    )


@dataclass(slots=True)
class RequestHeader:
    """A SES request of any size, taken apart. Absent fields are 0. Payload is ``frame[start:end]``.

    ``key`` is the memory key or the match bits; ``eager`` to ``read_key`` are the rendezvous extension.
    """

    opcode: int
    flags: int
    message_id: int
    job_id: int
    pid: int
    resource_index: int
    request_length: int
    buffer_offset: int
    initiator: int
    key: int
    header_data: int
    payload_length: int
    message_offset: int
    start: int
    end: int
    operation: int = 0
    data_type: int = 0
    compare: int = 0
    swap: int = 0
    generation: int = 0
    eager: int = 0
    read_qpn: int = 0
    read_offset: int = 0
    read_key: int = 0

    @property
    def qpn(self) -> int:
        """The queue pair that PIDonFEP and resource index name: upper and lower 12 bits."""
        return self.pid << 12 | self.resource_index

    @property
    def whole(self) -> bool:
        """True for a message of one packet."""
        return self.flags & 3 == 3


def parse_request(frame: bytes, at: int, end: int, kind: int) -> RequestHeader | None:
    """The SES request of next-header ``kind`` at ``at``; None when the bytes do not hold one."""
    if kind == NextHeader.REQUEST_STD:
        if end - at < STD_SIZE:
            return None
        (
            opcode,
            flags,
            message_id,
            job,
            pid,
            index,
            offset,
            initiator,
            key,
            header_data,
            total,
        ) = _STANDARD.unpack_from(frame, at)
        if flags & 1:
            length = message_offset = 0
        else:
            length, message_offset = header_data >> 32 & _LENGTH_14, header_data & 0xFFFFFFFF
            header_data = 0
        at += STD_SIZE
    elif kind in (NextHeader.REQUEST_MEDIUM, NextHeader.REQUEST_SMALL):
        size = 32 if kind == NextHeader.REQUEST_MEDIUM else 20
        if end - at < size:
            return None
        opcode, flags, total, job, pid, index = _COMMON.unpack_from(frame, at)
        if flags & 3 != 3:
            return None
        total &= _LENGTH_14
        message_id = initiator = key = header_data = length = message_offset = 0
        if kind == NextHeader.REQUEST_SMALL:
            (offset,) = _SMALL_TAIL.unpack_from(frame, at + 12)
        else:
            offset, initiator, key = _MEDIUM_TAIL.unpack_from(frame, at + 12)
            if flags & _HD:
                offset, header_data = 0, offset
        at += size
    else:
        return None
    header = RequestHeader(
        opcode & 0x3F,
        flags,
        message_id,
        job & 0xFFFFFF,
        pid & 0xFFF,
        index & 0xFFF,
        total,
        offset,
        initiator,
        key,
        header_data,
        length,
        message_offset,
        at,
        end,
    )
    if job >> 24:
        header.generation = job >> 24
    return _extended(frame, header) if header.opcode in _EXTENDED else header


def _extended(frame: bytes, header: RequestHeader) -> RequestHeader | None:
    at = header.start
    if header.opcode in _RENDEZVOUS:
        if header.end - at < RENDEZVOUS.size:
            return None
        header.eager, place, header.read_offset, header.read_key = RENDEZVOUS.unpack_from(frame, at)
        header.read_qpn = place & 0xFFFFFF
        header.start = at + RENDEZVOUS.size
        return header
    if header.end - at < ATOMIC_EXTENSION.size:
        return None
    header.operation, header.data_type = frame[at], frame[at + 1]
    header.start = at + ATOMIC_EXTENSION.size
    if 0x0D <= header.operation <= 0x13:
        if header.end - at < COMPARE_SWAP.size:
            return None
        *_, header.compare, _, header.swap = COMPARE_SWAP.unpack_from(frame, at)
        header.start = at + COMPARE_SWAP.size
    return header


@dataclass(slots=True)
class ResponseHeader:
    """A SES response with or without data. ``message_id`` is the request's; data is ``frame[start:end]``.

    ``request_psn`` is that of a read whose answer is a small one (None otherwise). ``listed`` says whether
    the message met a receive element or was buffered.
    """

    opcode: int
    code: int
    message_id: int
    modified_length: int
    message_offset: int
    request_psn: int | None
    start: int
    end: int
    listed: int = ResponseList.EXPECTED

    @property
    def good(self) -> bool:
        """True when it reports success."""
        return self.code in (ReturnCode.NULL, ReturnCode.OK)


def parse_response(frame: bytes, at: int, end: int, kind: int) -> ResponseHeader | None:
    """The SES response of next-header ``kind`` at ``at``; None when the bytes do not hold one."""
    if kind == NextHeader.RESPONSE:
        if end - at < RESPONSE.size:
            return None
        opcode, code, message_id, _, modified = RESPONSE.unpack_from(frame, at)
        listed = opcode >> 6
        return ResponseHeader(opcode & 0x3F, code & 0x3F, message_id, modified, 0, None, end, end, listed)
    if kind == NextHeader.RESPONSE_DATA:
        if end - at < DATA_RESPONSE.size:
            return None
        opcode, code, _, _, message_id, length, modified, offset = DATA_RESPONSE.unpack_from(frame, at)
        start, psn = at + DATA_RESPONSE.size, None
    elif kind == NextHeader.RESPONSE_DATA_SMALL:
        if end - at < SMALL_DATA_RESPONSE.size:
            return None
        opcode, code, length, _, psn = SMALL_DATA_RESPONSE.unpack_from(frame, at)
        start, message_id, modified, offset = at + SMALL_DATA_RESPONSE.size, 0, 0, 0
    else:
        return None
    # Ethernet padding is cut off before; what is longer than the header says is a malformed packet.
    length &= _LENGTH_14
    if end - start != length:
        return None
    return ResponseHeader(opcode & 0x3F, code & 0x3F, message_id, modified, offset, psn, start, end)
