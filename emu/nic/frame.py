# SPDX-License-Identifier: Apache-2.0
"""What an Ethernet adapter knows of the frames it carries: headers, checksums, and how to cut a large send.

Sums are ones' complement sums of 16-bit big-endian words. They are computed as a remainder modulo 0xFFFF,
because 2^16 leaves 1 there: the whole packet is one long number.

Sources: RFC 791, 793, 768, 8200 (headers and pseudo headers), RFC 1071 (the sum).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = [
    "ETHERNET_SIZE",
    "NO_HASH",
    "TCP",
    "UDP",
    "FlowHash",
    "FrameInfo",
    "Headers",
    "inspect",
    "parse_headers",
    "segment",
    "with_checksums",
]

ETHERNET_SIZE = 14
TCP, UDP = 6, 17
_IPV4, _IPV6, _VLAN = b"\x08\x00", b"\x86\xdd", b"\x81\x00"
_IPV4_SIZE, _IPV6_SIZE = 20, 40
_CHECKSUM_AT = {TCP: 16, UDP: 6}
_FIN, _PSH, _CWR = 0x01, 0x08, 0x80


@dataclass(frozen=True, slots=True)
class Headers:
    """Byte offsets in a frame. ``version`` is 4, 6 or 0 (not IP), ``protocol`` the one at ``l4`` (0:
    unknown).

    ``end`` is where the IP packet ends; padding may follow. ``fragment``: nothing is known of its transport.
    """

    l3: int
    l4: int
    end: int
    version: int
    protocol: int
    fragment: bool = False


@dataclass(frozen=True, slots=True)
class FlowHash:
    """A number that all packets of a flow share. ``version`` is the one of the IP addresses that went in,
    ``protocol`` the one of the ports (0: none did)."""

    value: int
    version: int = 0
    protocol: int = 0


NO_HASH = FlowHash(0)


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """A received frame. ``sum`` is the sum over its IP packet, ``l3_ok``/``l4_ok`` that its checksums
    hold, ``flow`` what steering made of its flow."""

    headers: Headers
    length: int
    sum: int
    l3_ok: bool
    l4_ok: bool
    flow: FlowHash = NO_HASH


def parse_headers(frame: bytes | bytearray) -> Headers:
    """Find IP and transport header; anything short or strange counts as not IP."""
    l3 = ETHERNET_SIZE
    kind = frame[12:14]
    if kind == _VLAN:
        l3, kind = l3 + 4, frame[16:18]
    size = len(frame)
    if kind == _IPV4 and size >= l3 + _IPV4_SIZE:
        l4 = l3 + (frame[l3] & 0xF) * 4
        end = l3 + int.from_bytes(frame[l3 + 2 : l3 + 4], "big")
        fragment = bool(int.from_bytes(frame[l3 + 6 : l3 + 8], "big") & 0x3FFF)
        if frame[l3] >> 4 == 4 and l3 + _IPV4_SIZE <= l4 <= end <= size:
            return Headers(l3, l4, end, 4, frame[l3 + 9], fragment)
    elif kind == _IPV6 and size >= l3 + _IPV6_SIZE:
        end = l3 + _IPV6_SIZE + int.from_bytes(frame[l3 + 4 : l3 + 6], "big")
        if frame[l3] >> 4 == 6 and end <= size:
            return Headers(l3, l3 + _IPV6_SIZE, end, 6, frame[l3 + 6])
    return Headers(l3, l3, size, 0, 0)


def inspect(frame: bytes, flow: FlowHash = NO_HASH) -> FrameInfo:
    """Look at a received frame as far as checksums go."""
    headers = parse_headers(frame)
    if not headers.version:
        return FrameInfo(headers, len(frame), _whole(frame[headers.l3 :]), False, False, flow)
    l3_ok = headers.version == 6 or _sum(frame[headers.l3 : headers.l4]) == 0
    l4_ok = False
    if not headers.fragment and headers.protocol in _CHECKSUM_AT:
        payload = frame[headers.l4 : headers.end]
        at = _CHECKSUM_AT[headers.protocol]
        absent = headers.protocol == UDP and payload[at : at + 2] == b"\0\0"
        l4_ok = len(payload) >= at + 2 and (absent or (_pseudo(frame, headers) + _sum(payload)) % 0xFFFF == 0)
    return FrameInfo(headers, len(frame), _whole(frame[headers.l3 : headers.end]), l3_ok, l4_ok, flow)


def with_checksums(frame: bytes, *, l3: bool, l4: bool) -> bytes:
    """``frame`` with the IPv4 header checksum and the TCP or UDP checksum filled in, where it has them."""
    if not (l3 or l4):
        return frame
    headers = parse_headers(frame)
    out = bytearray(frame)
    if l3 and headers.version == 4:
        at = headers.l3 + 10
        out[at : at + 2] = b"\0\0"
        out[at : at + 2] = _folded(_sum(out[headers.l3 : headers.l4]))
    if l4 and headers.version and not headers.fragment and headers.protocol in _CHECKSUM_AT:
        at = headers.l4 + _CHECKSUM_AT[headers.protocol]
        if at + 2 <= headers.end:
            out[at : at + 2] = b"\0\0"
            value = _folded(_pseudo(out, headers) + _sum(out[headers.l4 : headers.end]))
            # A UDP checksum of 0 would mean that there is none.
            out[at : at + 2] = b"\xff\xff" if value == b"\0\0" and headers.protocol == UDP else value
    return bytes(out)


def segment(header: bytes, payload: bytes, size: int) -> list[bytes]:
    """Cut a large TCP send into frames of at most ``size`` payload bytes.

    ``header`` is everything in front of the payload: sequence numbers, lengths, IPv4 identification and flags
    of each frame follow from it.

    :raises ValueError: it is no TCP header, or ``size`` is 0.
    """
    headers = _tcp_headers(header)
    if headers is None or size <= 0:
        raise ValueError("a large send needs a whole TCP header and a segment size")
    l3, l4 = headers.l3, headers.l4
    sequence = int.from_bytes(header[l4 + 4 : l4 + 8], "big")
    identification = int.from_bytes(header[l3 + 4 : l3 + 6], "big")
    flags = header[l4 + 13]
    frames: list[bytes] = []
    for start in range(0, len(payload), size) or (0,):
        part = payload[start : start + size]
        out = bytearray(header) + part
        if headers.version == 4:
            struct.pack_into(">HH", out, l3 + 2, len(out) - l3, (identification + len(frames)) & 0xFFFF)
        else:
            struct.pack_into(">H", out, l3 + 4, len(out) - l4)
        struct.pack_into(">I", out, l4 + 4, (sequence + start) & 0xFFFFFFFF)
        if start + size < len(payload):
            out[l4 + 13] &= ~(_FIN | _PSH) & 0xFF
        if start:
            out[l4 + 13] &= ~_CWR & 0xFF
        else:
            out[l4 + 13] |= flags & _CWR
        frames.append(bytes(out))
    return frames


def _tcp_headers(header: bytes) -> Headers | None:
    """Offsets in a bare header, whose IP length may be that of the whole send or 0."""
    l3 = ETHERNET_SIZE + (4 if header[12:14] == _VLAN else 0)
    kind = header[l3 - 2 : l3]
    if kind == _IPV4 and len(header) > l3 + _IPV4_SIZE:
        headers = Headers(l3, l3 + (header[l3] & 0xF) * 4, len(header), 4, header[l3 + 9])
    elif kind == _IPV6 and len(header) > l3 + _IPV6_SIZE:
        headers = Headers(l3, l3 + _IPV6_SIZE, len(header), 6, header[l3 + 6])
    else:
        return None
    return headers if headers.protocol == TCP and len(header) >= headers.l4 + 20 else None


def _sum(data: bytes | bytearray | memoryview) -> int:
    value = int.from_bytes(data, "big")
    return (value << 8 if len(data) & 1 else value) % 0xFFFF


def _whole(data: bytes) -> int:
    """The sum as an adder gives it: 0 only when there is nothing but zeros.

    Linux takes 0 for a wrong checksum and 0xFFFF for a right one.
    """
    value = _sum(data)
    return value or (0xFFFF if any(data) else 0)


def _pseudo(frame: bytes | bytearray, headers: Headers) -> int:
    at = headers.l3 + (12 if headers.version == 4 else 8)
    size = 8 if headers.version == 4 else 32
    return _sum(frame[at : at + size]) + headers.protocol + headers.end - headers.l4


def _folded(total: int) -> bytes:
    return (0xFFFF - total % 0xFFFF).to_bytes(2, "big") if total % 0xFFFF else b"\0\0"
