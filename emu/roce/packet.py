# SPDX-License-Identifier: Apache-2.0
"""Inbound frames: from Ethernet bytes to a checked RoCEv2 packet, or the reason why it is none.

The IP and UDP headers of a stream repeat from packet to packet, so what follows from them (addresses, end of
the packet, CRC state after the masked bytes) is remembered per distinct header; the rest is a CRC and two
unpacks.
"""

from __future__ import annotations

import struct

from emu.nic.drops import DropReason
from emu.nic.engine import Drop
from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN
from emu.wire.headers import (
    BTH,
    BTH_ACK_REQUEST,
    BTH_SIZE,
    BTH_SOLICITED,
    DETH,
    ICRC_SIZE,
    ROCE_PORT,
    UDP_SIZE,
)
from emu.wire.icrc import PRESET, crc32
from emu.wire.opcodes import BY_OPCODE, Header, OpcodeInfo

__all__ = ["CONGESTED", "RocePacket", "parse"]

CONGESTED = 3
"""``ecn`` of a packet that a congested switch has marked."""

_HALF = struct.Struct(">H")
_HEADS_KEPT = 4096
_IPV4_SIZE, _IPV6_SIZE = 20, 40
_UDP_PROTOCOL = 17
_IPV4 = ETHERTYPE_IPV4.to_bytes(2, "big")
_IPV6 = ETHERTYPE_IPV6.to_bytes(2, "big")
_VLAN = ETHERTYPE_VLAN.to_bytes(2, "big")


class RocePacket:
    """A packet whose lengths and ICRC are right.

    ``source_ip`` and ``dest_ip`` are 4 or 16 bytes in network order.
    ``extension`` is the byte offset of the first extension header in ``frame``. ``info`` is None for a
    reserved opcode.
    """

    __slots__ = (
        "_payload_end",
        "_payload_start",
        "ack_request",
        "dest_ip",
        "dest_qpn",
        "ecn",
        "extension",
        "frame",
        "info",
        "opcode",
        "pad_count",
        "payload_length",
        "pkey",
        "psn",
        "solicited",
        "source_ip",
    )

    def __init__(
        self,
        frame: bytes,
        head: _Head,
        bth: tuple[int, int, int, int, int],
        info: OpcodeInfo | None,
        extension: int,
        payload_start: int,
        payload_end: int,
    ) -> None:
        self.frame = frame
        self.source_ip = head.source_ip
        self.dest_ip = head.dest_ip
        self.ecn = head.ecn
        self.opcode, flags, self.pkey, queue, sequence = bth
        self.info = info
        self.dest_qpn = queue & 0xFFFFFF
        self.psn = sequence & 0xFFFFFF
        self.ack_request = sequence >= BTH_ACK_REQUEST
        self.solicited = flags >= BTH_SOLICITED
        self.pad_count = flags >> 4 & 3
        self.extension = extension
        self._payload_start = payload_start
        self._payload_end = payload_end
        self.payload_length = payload_end - payload_start

    @property
    def payload(self) -> memoryview:
        """Payload bytes without pad."""
        return memoryview(self.frame)[self._payload_start : self._payload_end]

    @property
    def source_qpn(self) -> int | None:
        """Queue pair that sent it: datagrams say so."""
        if self.info is None or Header.DETH not in self.info.headers:
            return None
        number: int = DETH.unpack_from(self.frame, self.extension)[1]
        return number & 0xFFFFFF

    @property
    def network_header(self) -> bytes:
        """The IPv4 or IPv6 header."""
        end = self.extension - BTH_SIZE - UDP_SIZE
        return self.frame[end - (_IPV4_SIZE if len(self.source_ip) == 4 else _IPV6_SIZE) : end]

    def __repr__(self) -> str:
        name = self.info.name if self.info is not None else f"opcode {self.opcode:#04x}"
        return f"<{name} qpn={self.dest_qpn:#x} psn={self.psn} payload={self.payload_length}>"


class _Head:
    """What the IP and UDP headers say. ``bth`` and ``end`` are offsets from the start of the IP header."""

    __slots__ = ("bth", "dest_ip", "ecn", "end", "source_ip", "state", "udp_checksum")

    def __init__(self, octets: bytes, size: int) -> None:
        self.bth = size + UDP_SIZE
        masked = bytearray(octets)
        if size == _IPV4_SIZE:
            self.source_ip, self.dest_ip = octets[12:16], octets[16:20]
            self.ecn = octets[1] & 3
            masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
        else:
            self.source_ip, self.dest_ip = octets[8:24], octets[24:40]
            self.ecn = octets[1] >> 4 & 3
            masked[0] |= 0x0F
            masked[1] = masked[2] = masked[3] = masked[7] = 0xFF
        self.end = size + _HALF.unpack_from(octets, size + 4)[0]
        self.udp_checksum = _HALF.unpack_from(octets, size + 6)[0]
        masked[size + 6] = masked[size + 7] = 0xFF
        self.state = crc32(masked, PRESET)


_heads: dict[bytes, _Head] = {}


def parse(frame: bytes) -> RocePacket | Drop:
    """Check one Ethernet frame (no FCS) down to its ICRC. Never raises; trailing Ethernet padding is ignored.

    Refused: anything but UDP port 4791 over IPv4 without options or IPv6 without extension headers,
    fragments, wrong IPv4 or non-zero UDP checksums, lengths that do not fit the opcode, TVer other than 0,
    QPN 0, and a wrong ICRC. What needs a queue pair (class, state, addresses, P_Key, PSN) is the engine's to
    judge.
    """
    ip = ETHERNET_SIZE
    kind = frame[12:14]
    if kind == _VLAN:
        ip += 4
        kind = frame[16:18]
    if kind == _IPV4:
        size = _IPV4_SIZE
    elif kind == _IPV6:
        size = _IPV6_SIZE
    else:
        return Drop("neither IPv4 nor IPv6", DropReason.FOREIGN, foreign=True)
    bth = ip + size + UDP_SIZE
    octets = frame[ip:bth]
    head = _heads.get(octets)
    if head is None:
        checked = _check_head(octets, size)
        if isinstance(checked, Drop):
            return checked
        head = checked
        if len(_heads) >= _HEADS_KEPT:
            _heads.clear()
        _heads[octets] = head
    end = ip + head.end
    if end > len(frame):
        return Drop(f"UDP length runs {end - len(frame)} bytes past the frame", DropReason.LENGTH)
    if end < bth + BTH_SIZE + ICRC_SIZE:
        return Drop("too short for BTH and ICRC", DropReason.LENGTH)
    if head.udp_checksum and not _udp_checksum_ok(frame[ip:end], size):
        return Drop("wrong UDP checksum", DropReason.CHECKSUM)
    fields = BTH.unpack_from(frame, bth)
    icrc_at = end - ICRC_SIZE
    state = crc32(b"".join((frame[bth : bth + 4], b"\xff", frame[bth + 5 : icrc_at])), head.state)
    if state.to_bytes(4, "little") != frame[icrc_at:end]:
        return Drop(
            f"wrong ICRC (PSN {fields[4] & 0xFFFFFF}, QPN {fields[3] & 0xFFFFFF:#x})", "rx_icrc_encapsulated"
        )
    opcode, flags = fields[0], fields[1]
    if flags & 0x0F:
        return Drop(f"transport version {flags & 0x0F}", DropReason.VERSION)
    if not fields[3] & 0xFFFFFF:
        return Drop("destination QP 0", DropReason.QPN)
    info = BY_OPCODE.get(opcode)
    extension = bth + BTH_SIZE
    payload_start = extension + info.extension_size if info is not None else extension
    payload_end = icrc_at - (flags >> 4 & 3)
    if payload_end < payload_start:
        name = info.name if info is not None else f"opcode {opcode:#04x}"
        return Drop(f"UDP length {end - ip - size} is too short for {name}", DropReason.LENGTH)
    return RocePacket(frame, head, fields, info, extension, payload_start, payload_end)


def _check_head(octets: bytes, size: int) -> _Head | Drop:
    """Judge IP and UDP headers."""
    if len(octets) < size + UDP_SIZE:
        return Drop("too short for IP and UDP", DropReason.FOREIGN, foreign=True)
    if size == _IPV4_SIZE:
        protocol = octets[9]
        if octets[0] != 0x45:
            return Drop("IPv4 options or a wrong version", DropReason.FOREIGN, foreign=True)
        if _HALF.unpack_from(octets, 6)[0] & 0x3FFF:
            return Drop("IPv4 fragment", DropReason.FOREIGN, foreign=True)
        if _ones_sum(octets[:_IPV4_SIZE]) != 0xFFFF:
            return Drop("wrong IPv4 header checksum", DropReason.CHECKSUM)
        room = _HALF.unpack_from(octets, 2)[0] - _IPV4_SIZE
    else:
        protocol = octets[6]
        if octets[0] >> 4 != 6:
            return Drop("IPv6 header of a wrong version", DropReason.FOREIGN, foreign=True)
        room = _HALF.unpack_from(octets, 4)[0]
    if protocol != _UDP_PROTOCOL or _HALF.unpack_from(octets, size + 2)[0] != ROCE_PORT:
        return Drop("not UDP port 4791", DropReason.FOREIGN, foreign=True)
    length = _HALF.unpack_from(octets, size + 4)[0]
    if length > room:
        return Drop(f"UDP length {length} exceeds the IP packet's {room}", DropReason.LENGTH)
    return _Head(octets, size)


def _ones_sum(octets: bytes) -> int:
    total: int = sum(word for (word,) in _HALF.iter_unpack(octets))
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)


def _udp_checksum_ok(packet: bytes, size: int) -> bool:
    addresses = packet[12:20] if size == _IPV4_SIZE else packet[8:40]
    datagram = packet[size:]
    pseudo = addresses + struct.pack(">HH", _UDP_PROTOCOL, len(datagram))
    return _ones_sum(pseudo + datagram + b"\0" * (len(datagram) & 1)) == 0xFFFF
