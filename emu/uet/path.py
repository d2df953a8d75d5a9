# SPDX-License-Identifier: Apache-2.0
"""The way to one peer: addresses, and frames around UET bytes."""

from __future__ import annotations

import struct

from emu.nic.work import AddressHandle, QpAttributes
from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6
from emu.wire.headers import UDP_SIZE
from emu.wire.uet_names import UET_PORT
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from emu.wire.uet_trailer import CRC_SIZE, packet_crc

__all__ = ["ENTROPY_SIZE", "PeerKey", "PeerPath", "addresses"]

_HEADS_KEPT = 64
_V4_MAPPED = bytes(10) + b"\xff\xff"
_HALF = struct.Struct(">H")
_IPV4_HEADER = struct.Struct(">BBHHHBBH4s4s")
_IPV6_HEADER = struct.Struct(">IHBB16s16s")
_DF = 0x4000
_UDP_PROTOCOL = 17
PeerKey = tuple[bytes, bytes, bytes, bool, int]
"""What messages have in common that share a PDC: source and destination IP, destination MAC, whether they
are ordered, traffic class."""
ENTROPY_SIZE = 4
"""Entropy header of UET without UDP: the value, and two bytes 0."""


def addresses(attributes: QpAttributes | AddressHandle) -> tuple[bytes, bytes]:
    """Source and destination IP of a queue pair or datagram: IPv4 if both GIDs are IPv4-mapped, else IPv6."""
    source, dest = attributes.source_gid, attributes.dest_gid
    if source.startswith(_V4_MAPPED) and dest.startswith(_V4_MAPPED):
        return source[12:], dest[12:]
    return source, dest


class PeerPath:
    """Builds frames from one endpoint to another; what depends on class and length only is remembered.

    ``overhead`` are the bytes between IP and UET headers.
    """

    __slots__ = (
        "_heads",
        "_profile",
        "dest_ip",
        "dest_mac",
        "hop_limit",
        "overhead",
        "source_ip",
        "source_mac",
    )

    def __init__(
        self,
        source_mac: bytes,
        dest_mac: bytes,
        source_ip: bytes,
        dest_ip: bytes,
        profile: Profile = DEFAULT,
        hop_limit: int = 64,
    ) -> None:
        self._profile = profile
        self.source_mac, self.dest_mac = source_mac, dest_mac
        self.source_ip, self.dest_ip = source_ip, dest_ip
        self.hop_limit = hop_limit
        self.overhead = UDP_SIZE if profile.over_udp else ENTROPY_SIZE
        self._heads: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def frame(self, traffic_class: int, ev: int, header: bytes, body: bytes = b"") -> bytes:
        """An Ethernet frame with UET bytes ``header + body``; ``ev`` is UDP source port or entropy header."""
        crc = self._profile.trailer is Trailer.CRC
        size = len(header) + len(body) + (CRC_SIZE if crc else 0)
        head = self._heads.get((traffic_class, size))
        if head is None:
            head = self._head(traffic_class, size)
        frame = b"".join((head[0], ev.to_bytes(2, "big"), head[1], header, body))
        return frame + packet_crc(memoryview(frame)[ETHERNET_SIZE:], self._profile) if crc else frame

    def _head(self, traffic_class: int, size: int) -> tuple[bytes, bytes]:
        datagram = self.overhead + size
        protocol = _UDP_PROTOCOL if self._profile.over_udp else self._profile.native_protocol
        if len(self.source_ip) == 4:
            fields = (self.hop_limit, protocol, 0, self.source_ip, self.dest_ip)
            ip = bytearray(_IPV4_HEADER.pack(0x45, traffic_class, datagram + 20, 0, _DF, *fields))
            total: int = sum(word for (word,) in _HALF.iter_unpack(ip))
            total = (total & 0xFFFF) + (total >> 16)
            _HALF.pack_into(ip, 10, ~(total + (total >> 16)) & 0xFFFF)
            ethertype = ETHERTYPE_IPV4
        else:
            ip = bytearray(
                _IPV6_HEADER.pack(
                    6 << 28 | traffic_class << 20,
                    datagram,
                    protocol,
                    self.hop_limit,
                    self.source_ip,
                    self.dest_ip,
                )
            )
            ethertype = ETHERTYPE_IPV6
        ethernet = self.dest_mac + self.source_mac + _HALF.pack(ethertype)
        assert len(ethernet) == ETHERNET_SIZE
        # Checksum 0: a trimming switch could not keep another one right.
        behind = struct.pack(">HHH", UET_PORT, datagram, 0) if self._profile.over_udp else bytes(2)
        head = (ethernet + bytes(ip), behind)
        if len(self._heads) >= _HEADS_KEPT:
            self._heads.clear()
        self._heads[traffic_class, size] = head
        return head
