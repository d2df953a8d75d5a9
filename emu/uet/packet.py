# SPDX-License-Identifier: Apache-2.0
"""Inbound frames: from Ethernet bytes to a UET packet, or the reason why it is none."""

from __future__ import annotations

import struct

from emu.nic.engine import Drop
from emu.uet.headers import CONTROL, PDS_ACK_CC, PDS_REQUEST, PDS_SIZES
from emu.uet.path import ENTROPY_SIZE
from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6
from emu.wire.headers import UDP_SIZE
from emu.wire.uet_names import UET_PORT, AckFlag, CcType, PdsType, RequestFlag
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from emu.wire.uet_trailer import CRC_SIZE, packet_crc_ok

__all__ = ["NOMINAL_EXTRA", "SECURED", "Parser", "UetPacket"]

SECURED = "tss_unknown_domain"
"""Counter of secured packets where nothing can open them."""
NOMINAL_EXTRA = 40
"""Bytes beyond the IP payload in a packet's nominal size, the unit of congestion control."""

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_EPSN = int(AckFlag.EPSN)
_ACK = int(PdsType.ACK)
_RUD_CC_REQ = int(PdsType.RUD_CC_REQ)
_SYN = int(RequestFlag.SYN)
_HALF = struct.Struct(">H")
_UDP = struct.Struct(">HHHH")
_WORD = struct.Struct(">I")
_HEADS_KEPT = 4096
_IPV4_SIZE, _IPV6_SIZE = 20, 40
_UDP_PROTOCOL = 17
_IPV4 = ETHERTYPE_IPV4.to_bytes(2, "big")
_IPV6 = ETHERTYPE_IPV6.to_bytes(2, "big")
_REQUESTS = frozenset({PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ})
_ACKS = frozenset({PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX})
_NACKS = frozenset({PdsType.NACK, PdsType.NACK_CCX})
_CC_ACKS = frozenset({PdsType.ACK_CC, PdsType.ACK_CCX})


class _Head:
    """What the Ethernet and IP headers of one stream of packets say."""

    __slots__ = (
        "dest_ip",
        "dest_mac",
        "dscp",
        "ecn",
        "hop_limit",
        "room",
        "source_ip",
        "source_mac",
        "transport",
    )

    def __init__(self, octets: bytes, version: int) -> None:
        self.dest_mac, self.source_mac = octets[0:6], octets[6:12]
        ip = ETHERNET_SIZE
        if version == 4:
            traffic = octets[ip + 1]
            self.source_ip, self.dest_ip = octets[ip + 12 : ip + 16], octets[ip + 16 : ip + 20]
            self.room = _HALF.unpack_from(octets, ip + 2)[0] - _IPV4_SIZE
            self.transport = ip + _IPV4_SIZE
        else:
            traffic = _HALF.unpack_from(octets, ip)[0] >> 4 & 0xFF
            self.source_ip, self.dest_ip = octets[ip + 8 : ip + 24], octets[ip + 24 : ip + 40]
            self.room = _HALF.unpack_from(octets, ip + 4)[0]
            self.transport = ip + _IPV6_SIZE
        self.dscp, self.ecn = traffic >> 2, traffic & 3


class UetPacket:
    """A packet whose delivery header is complete. Its semantic header starts at ``ses``, its end is ``end``.

    ``head`` has the addresses; ``ev`` is the entropy value, ``nominal`` the size that congestion control
    counts. ``following`` is the next header or control type. ``psn`` is the PSN, CACK_PSN, NACK's PSN or
    RUDI packet id; ``offset`` the signed PSN offset, ``word`` the same 16 bits unsigned (probe value, NACK
    code and vendor code). ``sack_offset`` and ``sack_bitmap`` are 0 without them, ``received``,
    ``service_time``, ``credit`` of an ACK and ``cc_state`` of a request are None.
    """

    __slots__ = (
        "cc_state",
        "credit",
        "dpdcid",
        "end",
        "ev",
        "flags",
        "following",
        "frame",
        "head",
        "kind",
        "mpr",
        "nominal",
        "offset",
        "payload",
        "psn",
        "received",
        "sack_bitmap",
        "sack_offset",
        "service_time",
        "ses",
        "spdcid",
        "word",
    )

    def __init__(self, frame: bytes, head: _Head, ev: int, size: int, at: int, end: int, kind: int) -> None:
        self.frame = frame
        self.head = head
        self.ev = ev
        self.nominal = size + NOMINAL_EXTRA
        self.kind = kind
        self.end = end
        self.ses = at + PDS_SIZES[kind]
        self.sack_offset = self.sack_bitmap = self.mpr = self.payload = 0
        self.received: int | None = None
        self.credit: int | None = None
        self.cc_state: int | None = None
        self.service_time: int | None = None
        first: int
        if kind in _CC_ACKS:
            (
                first,
                self.word,
                self.psn,
                self.spdcid,
                self.dpdcid,
                cc_type,
                self.mpr,
                self.sack_offset,
                self.sack_bitmap,
                service,
                third,
                upper,
                lower,
                _,
            ) = PDS_ACK_CC.unpack_from(frame, at)
            if kind == PdsType.ACK_CC and cc_type >> 4 == CcType.NSCC:
                self.service_time = service
                self.received = upper << 16 | lower
            elif kind == PdsType.ACK_CC and cc_type >> 4 == CcType.CREDIT:
                self.credit = service << 8 | third
            self.offset = self.word - 0x10000 if self.word & 0x8000 else self.word
        elif kind in _REQUESTS or kind == _ACK:
            first, self.offset, self.psn, self.spdcid, self.dpdcid = PDS_REQUEST.unpack_from(frame, at)
            self.word = self.offset & 0xFFFF
            if kind >= _RUD_CC_REQ:
                (self.cc_state,) = _WORD.unpack_from(frame, at + PDS_REQUEST.size)
        elif kind in _NACKS or kind == PdsType.CP:
            first, self.word, self.psn, self.spdcid, self.dpdcid, self.payload = CONTROL.unpack_from(
                frame, at
            )
            self.offset = 0
        else:
            (first,) = _HALF.unpack_from(frame, at)
            self.psn = _WORD.unpack_from(frame, at + 4)[0] if kind != PdsType.UUD_REQ else 0
            self.offset = self.word = self.spdcid = self.dpdcid = 0
        self.following = first >> 7 & 0xF
        self.flags = first & 0x7F
        if self.flags & _EPSN and kind == _ACK:
            # An expected PSN for a mode of establishment that is not this endpoint's.
            self.ses = min(self.ses + 4, end)

    @property
    def is_request(self) -> bool:
        """True for RUD and ROD requests."""
        return self.kind in _REQUESTS

    @property
    def is_ack(self) -> bool:
        """True for acknowledgements of any shape."""
        return self.kind in _ACKS

    @property
    def is_nack(self) -> bool:
        """True for refusals of any shape."""
        return self.kind in _NACKS

    @property
    def rod(self) -> bool:
        """True for ROD requests."""
        return self.kind in (PdsType.ROD_REQ, PdsType.ROD_CC_REQ)

    @property
    def syn(self) -> bool:
        """True when the sender does not know our PDC id yet (requests and control packets)."""
        return bool(self.flags & _SYN)

    @property
    def start_psn(self) -> int:
        """First PSN of the PDC, in a SYN packet."""
        start: int = self.psn - (self.dpdcid & 0xFFF)
        return start & 0xFFFFFFFF


class Parser:
    """Takes frames apart. The headers of a stream repeat, so what follows from them is remembered."""

    def __init__(self, profile: Profile = DEFAULT) -> None:
        self._profile = profile
        self._trimmed = (profile.dscp_trimmed, profile.dscp_trimmed_last_hop)
        self._trailer = CRC_SIZE if profile.trailer is Trailer.CRC else 0
        self._over_udp = profile.over_udp
        self._overhead = UDP_SIZE if profile.over_udp else ENTROPY_SIZE
        self._protocol = _UDP_PROTOCOL if profile.over_udp else profile.native_protocol
        self._heads: dict[bytes, _Head | Drop] = {}

    def parse(self, frame: bytes) -> UetPacket | Drop:
        """The packet in an Ethernet frame, or why there is none. Never raises."""
        ethertype = frame[12:14]
        if ethertype == _IPV4:
            octets = frame[: ETHERNET_SIZE + _IPV4_SIZE]
        elif ethertype == _IPV6:
            octets = frame[: ETHERNET_SIZE + _IPV6_SIZE]
        else:
            return Drop("not IP", foreign=True)
        head = self._heads.get(octets)
        if head is None:
            head = _check(octets, self._protocol)
            if len(self._heads) >= _HEADS_KEPT:
                self._heads.clear()
            self._heads[octets] = head
        if isinstance(head, Drop):
            return head
        start = head.transport
        if len(frame) < start + self._overhead:
            return Drop("too short for UDP or an entropy header", foreign=True)
        trailer = self._trailer
        if self._over_udp:
            ev, port, size, _ = _UDP.unpack_from(frame, start)
            if port != UET_PORT:
                return Drop(f"not UDP port {UET_PORT}", foreign=True)
        else:
            (ev,) = _HALF.unpack_from(frame, start)
            size = head.room
        if head.dscp in self._trimmed:
            # The UDP length is that of the whole packet; the trailer is gone.
            size = min(size, head.room)
            trailer = 0
        at, end = start + self._overhead, start + size - trailer
        if size > head.room or start + size > len(frame) or end < at + 4:
            return Drop(f"length {size} does not fit the packet")
        if trailer and not packet_crc_ok(memoryview(frame)[ETHERNET_SIZE : start + size], self._profile):
            return Drop("wrong CRC", "rx_icrc_encapsulated")
        kind = frame[at] >> 3
        needed = PDS_SIZES.get(kind)
        if needed is None:
            if kind == PdsType.TSS:
                return Drop("a secured packet, and this NIC has no secret", SECURED)
            return Drop(f"packet type {kind} is reserved")
        if end < at + needed:
            return Drop(f"{end - at} bytes are no {PdsType(kind).name} header")
        return UetPacket(frame, head, ev, size, at, end, kind)


def _check(octets: bytes, protocol: int) -> _Head | Drop:
    """Judge Ethernet and IP headers."""
    if octets[12:14] == _IPV4:
        if len(octets) < ETHERNET_SIZE + _IPV4_SIZE or octets[14] != 0x45:
            return Drop("IPv4 options or a wrong version", foreign=True)
        if octets[23] != protocol:
            return Drop(f"not IP protocol {protocol}", foreign=True)
        if _HALF.unpack_from(octets, 20)[0] & 0x3FFF:
            return Drop("IPv4 fragment", foreign=True)
        total: int = sum(word for (word,) in _HALF.iter_unpack(octets[ETHERNET_SIZE:]))
        total = (total & 0xFFFF) + (total >> 16)
        if (total & 0xFFFF) + (total >> 16) != 0xFFFF:
            return Drop("wrong IPv4 header checksum")
        return _Head(octets, 4)
    if len(octets) < ETHERNET_SIZE + _IPV6_SIZE or octets[14] >> 4 != 6:
        return Drop("IPv6 header of a wrong version", foreign=True)
    if octets[20] != protocol:
        return Drop(f"not IP protocol {protocol}", foreign=True)
    return _Head(octets, 6)
