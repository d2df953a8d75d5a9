# SPDX-License-Identifier: Apache-2.0
"""A captured frame seen as UET, in the terms of :class:`emu.capture.roce_frame.RoceFrame`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from emu.nic.engine import Drop
from emu.uet.headers import parse_request, parse_response
from emu.uet.packet import SECURED, Parser
from emu.uet.path import ENTROPY_SIZE
from emu.wire.congestion import locate_network
from emu.wire.headers import UDP_SIZE
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType, RequestFlag, RequestOpcode
from emu.wire.uet_profile import Profile

__all__ = ["UetFrame"]

_parser = Parser()
_native_parser = Parser(Profile(over_udp=False))
_NUMBERLESS = frozenset({PdsType.UUD_REQ, PdsType.RUDI_REQ})
"""Requests without a PSN."""
_UDP_PROTOCOL = 17
_SP = 4
"""In the first byte of a security header: it names its source."""
_CONSUMING = frozenset({CtlType.NOOP, CtlType.CLOSE_CMD, CtlType.CLOSE_REQ, CtlType.NEGOTIATION})


@dataclass(frozen=True, slots=True)
class UetFrame:
    """One UET packet, over UDP or directly over IP.

    ``number`` is the sender's PDC id, 0 without one; ``psn`` is that of the packet or of what it answers. Of
    a secured packet only the security header can be told: it is named TSS, and ``psn`` are the lower 32 bits
    of its counter.

    ``payload`` counts message bytes, ``acknowledgement`` says what an ACK or NACK tells (None for others),
    ``is_request`` is true for packets that take a PSN, ``again`` for those marked as sent again.
    """

    source: str
    destination: str
    number: int
    psn: int
    name: str
    payload: int
    acknowledgement: str | None
    is_request: bool
    again: bool

    @classmethod
    def parse(cls, frame: bytes) -> UetFrame | None:
        """The packet in an Ethernet frame; None when it is not UET or too short to tell. Never raises."""
        packet = _parser.parse(frame)
        if isinstance(packet, Drop) and packet.foreign:
            packet = _native_parser.parse(frame)
        if isinstance(packet, Drop):
            return cls._secured(frame) if packet.counter == SECURED else None
        kind = PdsType(packet.kind)
        name, payload, acknowledgement = kind.name, 0, None
        request = packet.is_request
        if packet.is_ack:
            acknowledgement = "ACK"
        elif packet.is_nack:
            acknowledgement = f"NACK {_name(NackCode, packet.word >> 8)}"
            name = acknowledgement
        elif kind is PdsType.CP:
            name = f"CP {_name(CtlType, packet.following)}"
            request = packet.following in _CONSUMING
        elif packet.following in (NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL):
            data = parse_response(frame, packet.ses, packet.end, packet.following)
            name = f"{kind.name} READ_DATA"
            payload = data.end - data.start if data is not None else 0
        elif request or kind in _NUMBERLESS:
            header = parse_request(frame, packet.ses, packet.end, packet.following)
            if header is not None:
                name = f"{kind.name} {_name(RequestOpcode, header.opcode)}"
                payload = header.end - header.start
        return cls(
            source=str(ipaddress.ip_address(packet.head.source_ip)),
            destination=str(ipaddress.ip_address(packet.head.dest_ip)),
            number=packet.spdcid,
            psn=packet.psn,
            name=name,
            payload=payload,
            acknowledgement=acknowledgement,
            is_request=request,
            again=bool(packet.flags & RequestFlag.RETX),
        )

    @classmethod
    def _secured(cls, frame: bytes) -> UetFrame | None:
        start, version = locate_network(frame)
        addresses = start + (12 if version == 4 else 8)
        middle = addresses + (4 if version == 4 else 16)
        transport = middle + (4 if version == 4 else 16)
        over_udp = frame[start + (9 if version == 4 else 6)] == _UDP_PROTOCOL
        at = transport + (UDP_SIZE if over_udp else ENTROPY_SIZE)
        # Domain and, perhaps, source come before the counter.
        at += 8 if frame[at] & _SP else 4
        return cls(
            source=str(ipaddress.ip_address(frame[addresses:middle])),
            destination=str(ipaddress.ip_address(frame[middle:transport])),
            number=0,
            psn=int.from_bytes(frame[at + 4 : at + 8], "big"),
            name=PdsType.TSS.name,
            payload=0,
            acknowledgement=None,
            is_request=False,
            again=False,
        )


def _name(names: type[CtlType] | type[NackCode] | type[RequestOpcode], value: int) -> str:
    return names(value).name if value in names.__members__.values() else f"{value:#x}"
