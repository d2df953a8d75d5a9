# SPDX-License-Identifier: Apache-2.0
"""A captured frame seen as UET, in the terms of :class:`emu.capture.roce_frame.RoceFrame`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from emu.nic.engine import Drop
from emu.uet.headers import parse_request, parse_response
from emu.uet.packet import Parser
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType, RequestFlag, RequestOpcode

__all__ = ["UetFrame"]

_parser = Parser()
_CONSUMING = frozenset({CtlType.NOOP, CtlType.CLOSE_CMD, CtlType.CLOSE_REQ, CtlType.NEGOTIATION})


@dataclass(frozen=True, slots=True)
class UetFrame:
    """One UET packet. ``number`` is the sender's PDC id; ``psn`` is that of the packet or of what it answers.

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
        if isinstance(packet, Drop):
            return None
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
        elif request:
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


def _name(names: type[CtlType] | type[NackCode] | type[RequestOpcode], value: int) -> str:
    return names(value).name if value in names.__members__.values() else f"{value:#x}"
