# SPDX-License-Identifier: Apache-2.0
"""A captured frame seen as RoCEv2, right or wrong: unlike the receive path it also shows what a NIC would
drop."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN
from emu.wire.headers import AETH, BTH, BTH_SIZE, ICRC_SIZE, RETH, ROCE_PORT, UDP_SIZE
from emu.wire.icrc import verify
from emu.wire.opcodes import BY_OPCODE, Header, Kind, OpcodeInfo

__all__ = ["NAK_NAMES", "RoceFrame", "syndrome_name"]

NAK_NAMES = {
    0x60: "PSN sequence error",
    0x61: "invalid request",
    0x62: "remote access error",
    0x63: "remote operational error",
    0x64: "invalid RD request",
}
"""AETH syndromes of negative acknowledgements."""

_IPV4 = ETHERTYPE_IPV4.to_bytes(2)
_IPV6 = ETHERTYPE_IPV6.to_bytes(2)
_VLAN = ETHERTYPE_VLAN.to_bytes(2)
_UDP = b"\x11"


@dataclass(frozen=True, slots=True)
class RoceFrame:
    """One RoCEv2 packet.

    ``payload`` counts its data bytes without pad; ``message`` is the DMA length of a RETH (None without one);
    ``syndrome`` the AETH's; ``icrc_ok`` whether the invariant CRC is right.
    """

    source: str
    destination: str
    opcode: int
    info: OpcodeInfo | None
    dest_qpn: int
    psn: int
    ack_request: bool
    payload: int
    message: int | None
    syndrome: int | None
    icrc_ok: bool

    @classmethod
    def parse(cls, frame: bytes) -> RoceFrame | None:
        """The packet in an Ethernet frame; None when it is not RoCEv2 or too short to tell. Never raises."""
        start = ETHERNET_SIZE
        ethertype = frame[start - 2 : start]
        if ethertype == _VLAN:
            start += 4
            ethertype = frame[start - 2 : start]
        # RoCE uses no IPv4 options and no IPv6 extension headers.
        if ethertype == _IPV4 and frame[start : start + 1] == b"\x45":
            protocol, addresses, size, udp = start + 9, start + 12, 4, start + 20
        elif ethertype == _IPV6 and b"\x60" <= frame[start : start + 1] < b"\x70":
            protocol, addresses, size, udp = start + 6, start + 8, 16, start + 40
        else:
            return None
        if frame[protocol : protocol + 1] != _UDP:
            return None
        if int.from_bytes(frame[udp + 2 : udp + 4]) != ROCE_PORT:
            return None
        bth = udp + UDP_SIZE
        end = udp + int.from_bytes(frame[udp + 4 : udp + 6])
        if end > len(frame) or end < bth + BTH_SIZE + ICRC_SIZE:
            return None
        opcode, flags, _, qpn, psn = BTH.unpack_from(frame, bth)
        info = BY_OPCODE.get(opcode)
        offset = bth + BTH_SIZE
        message = syndrome = None
        for header in info.headers if info else ():
            if offset + header.size > end - ICRC_SIZE:
                break
            if header is Header.RETH:
                message = RETH.unpack_from(frame, offset)[2]
            elif header is Header.AETH:
                syndrome = AETH.unpack_from(frame, offset)[0] >> 24
            offset += header.size
        return cls(
            source=str(ipaddress.ip_address(frame[addresses : addresses + size])),
            destination=str(ipaddress.ip_address(frame[addresses + size : addresses + 2 * size])),
            opcode=opcode,
            info=info,
            dest_qpn=qpn & 0xFFFFFF,
            psn=psn & 0xFFFFFF,
            ack_request=bool(psn >> 31),
            payload=max(0, end - ICRC_SIZE - (flags >> 4 & 3) - offset),
            message=message,
            syndrome=syndrome,
            icrc_ok=verify(memoryview(frame)[start:end]),
        )

    @property
    def name(self) -> str:
        """Opcode for a person."""
        return self.info.name if self.info else f"opcode {self.opcode:#04x}"

    @property
    def is_request(self) -> bool:
        """True for packets a requester sends."""
        return self.info is not None and bool(self.info.kind & Kind.REQUEST)

    @property
    def is_response(self) -> bool:
        """True for packets a responder sends."""
        return self.info is not None and bool(self.info.kind & Kind.RESPONSE)

    def describe(self) -> str:
        """A few words: opcode, destination QP, PSN."""
        line = f"{self.name} to QP {self.dest_qpn:#x} PSN {self.psn}"
        return line if self.icrc_ok else f"{line}, bad ICRC"


def syndrome_name(syndrome: int) -> str:
    """What an AETH syndrome says: "ACK", "RNR NAK", "NAK ...", or its number when reserved."""
    if syndrome < 0x20:
        return "ACK"
    if syndrome < 0x40:
        return "RNR NAK"
    name = NAK_NAMES.get(syndrome)
    return f"NAK {name}" if name else f"reserved syndrome {syndrome:#04x}"
