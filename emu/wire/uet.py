# SPDX-License-Identifier: Apache-2.0
"""Ultra Ethernet Transport as scapy layers, made from the header tables.

``from emu.wire import uet`` in any scapy session is enough: UDP port 4793 then dissects into these layers, IP
protocol 253 into an :class:`Entropy` header and them, and they build complete packets::

    Ether() / IP(src=..., dst=...) / UDP(sport=0xC001) \\
        / uet.Request(type="RUD_REQ", syn=1, ar=1, psn=7, spdcid=3) \\
        / uet.StdRequest(opcode="WRITE", memory_key=0x203, request_length=5) / b"hello"

The UDP source port is the entropy value. Field names are those of the tables in :mod:`emu.wire.uet_pds`,
:mod:`emu.wire.uet_ses` and :mod:`emu.wire.uet_tss`; numbers that follow from two fields (``clear_psn``,
``start_psn``, ``ack_psn``, ``sack_base_psn``) are properties.

``crc`` is the trailer. After :func:`use` of a profile that asks for one it is computed unless given, and the
last four bytes of whatever arrives are one. By default a packet is built without; one that arrives with the
right CRC behind it is taken to have it, since no bit tells. For ``answers`` on whole packets set
``conf.checkIPsrc = False``: an answer carries the entropy value of its request.
"""

from __future__ import annotations

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import bind_bottom_up, bind_layers, bind_top_down

from emu.wire.uet_delivery import (
    UET,
    Ack,
    Control,
    Entropy,
    Nack,
    Request,
    Rudi,
    Security,
    Uud,
    use,
)
from emu.wire.uet_names import UET_PORT, RequestOpcode
from emu.wire.uet_profile import DEFAULT
from emu.wire.uet_semantics import (
    BY_NEXT_HEADER,
    Atomic,
    CompareSwap,
    MediumRequest,
    Rendezvous,
    Response,
    ResponseData,
    ResponseDataSmall,
    SmallRequest,
    StdRequest,
)

__all__ = [
    "UET",
    "Ack",
    "Atomic",
    "CompareSwap",
    "Control",
    "Entropy",
    "MediumRequest",
    "Nack",
    "Rendezvous",
    "Request",
    "Response",
    "ResponseData",
    "ResponseDataSmall",
    "Rudi",
    "Security",
    "SmallRequest",
    "StdRequest",
    "Uud",
    "use",
]

bind_bottom_up(UDP, UET, dport=UET_PORT)
bind_layers(IP, Entropy, proto=DEFAULT.native_protocol)
bind_layers(IPv6, Entropy, nh=DEFAULT.native_protocol)
bind_bottom_up(Entropy, UET)
for _delivery in (UET, Request, Rudi, Uud, Ack, Nack, Control, Security):
    bind_top_down(UDP, _delivery, dport=UET_PORT, chksum=0)
for _delivery in (Request, Rudi, Uud, Ack):
    for _next_header, _semantic in BY_NEXT_HEADER.items():
        bind_top_down(_delivery, _semantic, next_hdr=int(_next_header))
for _request in (StdRequest, MediumRequest, SmallRequest):
    bind_top_down(_request, Rendezvous, opcode=int(RequestOpcode.RENDEZVOUS_SEND))
    bind_top_down(_request, Atomic, opcode=int(RequestOpcode.ATOMIC))
    bind_top_down(_request, CompareSwap, opcode=int(RequestOpcode.FETCHING_ATOMIC))
