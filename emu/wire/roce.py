# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 as scapy layers: BTH and its extension headers, pad, ICRC, summaries, requests paired with answers.

``from emu.wire import roce`` in any scapy session is enough: UDP port 4791 then dissects into these layers,
and they build complete packets::

    Ether() / IP(src=..., dst=...) / UDP(sport=0xC011) / roce.BTH(opcode=0x0A, dqpn=0x12, psn=7) \\
        / roce.RETH(va=0x1000, rkey=0x203, dmalen=5) / b"hello"

``padcount``, the pad bytes and ``icrc`` are computed unless given. A dissected packet keeps the ones it came
with; ``packet[BTH].icrc_right`` says whether the ICRC was right (None where that cannot be known), as does
its summary, and ``del packet[BTH].icrc`` has it computed anew. :func:`icrc_ok` judges bytes. The UDP checksum
defaults to 0 as NICs send it. For ``answers`` on whole packets set ``conf.checkIPsrc = False``: RoCE answers
come from another source port than the request went to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from scapy.error import warning
from scapy.fields import (
    BitField,
    ByteEnumField,
    Field,
    IntField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw, bind_top_down

from emu.wire import icrc as _icrc
from emu.wire.headers import ROCE_PORT
from emu.wire.opcodes import (
    BY_OPCODE,
    CNP,
    ExtendedOpcode,
    Header,
    Kind,
    OpcodeInfo,
    RcOpcode,
    TransportClass,
    UdOpcode,
    rc_opcode,
)

__all__ = [
    "AETH",
    "BTH",
    "CNP",
    "DETH",
    "FETH",
    "IETH",
    "RETH",
    "XRCETH",
    "AtomicAckETH",
    "AtomicETH",
    "ExtendedOpcode",
    "ImmDt",
    "MaskedAtomicETH",
    "RcOpcode",
    "UdOpcode",
    "cnp",
    "icrc_ok",
]

_Summary = Any
"""What scapy takes: a sentence, alone or with the layers below after which it is shown."""
_PSN_SPAN = 1 << 24
_ATOMICS = (RcOpcode.COMPARE_SWAP, RcOpcode.FETCH_ADD, *ExtendedOpcode)
_SMALLEST_MTU = 256


class _IcrcField(Field[int, int]):
    """The last four bytes of the packet; written by :meth:`BTH.post_build`, never where it stands."""

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        # A packet cut short has no ICRC; 0 is as wrong as any other value.
        if len(s) < 4:
            return s, 0
        return s[:-4], int.from_bytes(s[-4:], "big")

    def i2repr(self, pkt: Any, x: int | None) -> str:
        return "None" if x is None else f"{x:#010x}"


class _PadField(Field[bytes, bytes]):
    """The ``padcount`` bytes before the ICRC; written by :meth:`BTH.post_build`."""

    def addfield(self, pkt: Any, s: bytes, val: bytes | None) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        count = min(pkt.padcount or 0, len(s))
        return s[: len(s) - count], s[len(s) - count :]

    def i2repr(self, pkt: Any, x: bytes | None) -> str:
        return bytes(x or b"").hex()


class _Chained(Packet):
    """A header whose successor follows from the BTH opcode."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        bth: Packet | None = self
        while bth is not None and not isinstance(bth, BTH):
            bth = bth.underlayer
        info = BY_OPCODE.get(bth.opcode) if bth is not None else None
        if info is None:
            return Raw
        classes = [_LAYERS[header] for header in info.headers]
        position = (
            0 if self is bth else classes.index(type(self)) + 1 if type(self) in classes else len(classes)
        )
        return classes[position] if position < len(classes) else Raw


class BTH(_Chained):
    """Base transport header. Field names are those of ``scapy.contrib.roce``."""

    name = "BTH"
    fields_desc: ClassVar[list[Any]] = [
        ByteEnumField("opcode", 0, {opcode: info.name for opcode, info in BY_OPCODE.items()}),
        BitField("solicited", 0, 1),
        BitField("migreq", 0, 1),
        BitField("padcount", None, 2),
        BitField("version", 0, 4),
        XShortField("pkey", 0xFFFF),
        BitField("fecn", 0, 1),
        BitField("becn", 0, 1),
        BitField("resv6", 0, 6),
        XBitField("dqpn", 0, 24),
        BitField("ackreq", 0, 1),
        BitField("resv7", 0, 7),
        BitField("psn", 0, 24),
        _IcrcField("icrc", None),
        _PadField("pad", None),
    ]

    icrc_right: bool | None = None
    """Of a dissected packet: whether it came with the right ICRC. None without IP and UDP below, or when it
    was built here.
    """

    def post_dissection(self, pkt: Packet) -> None:
        """The whole packet is taken apart: judge its ICRC by the bytes it came in."""
        udp = self.underlayer
        network = udp.underlayer if isinstance(udp, UDP) else None
        if isinstance(network, IP | IPv6) and network.original:
            with suppress(ValueError):
                self.icrc_right = icrc_ok(bytes(network.original))

    @property
    def info(self) -> OpcodeInfo | None:
        """The opcode's table entry, None for an opcode that is not defined."""
        return BY_OPCODE.get(self.opcode)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        # Every extension header is a multiple of four, so the pad follows from all that comes after the BTH.
        count = self.padcount
        if count is None:
            count = len(self.pad) if self.pad is not None else -len(pay) & 3
            pkt = pkt[:1] + bytes([pkt[1] | (count & 3) << 4]) + pkt[2:]
        pad = self.pad if self.pad is not None else bytes(count)
        body = pkt + pay + pad
        if self.icrc is not None:
            return bytes(body + self.icrc.to_bytes(4, "big"))
        return bytes(body + self._compute_icrc(body))

    def post_dissect(self, s: bytes) -> bytes:
        # The trailer was cut off the end, so scapy's cache of "bytes of this layer" is not what it thinks.
        self.raw_packet_cache = None
        return s

    def _compute_icrc(self, body: bytes) -> bytes:
        udp = self.underlayer
        if not isinstance(udp, UDP) or not isinstance(udp.underlayer, IP | IPv6):
            warning("ICRC needs IP/UDP or IPv6/UDP right below BTH; zero bytes were put in its place")
            return bytes(4)
        below = udp.underlayer.copy()
        # Without its payload UDP would fall back to its own default port.
        below[UDP].remove_payload()
        below[UDP].dport = udp.dport
        return _icrc.icrc(bytes(below / Raw(body + bytes(4)))[:-4])

    def hashret(self) -> bytes:
        return b""

    def answers(self, other: Packet) -> int:
        """1 when this response belongs to request ``other``: kinds fit, and the request took the PSN."""
        mine = self.info
        theirs = other.info if isinstance(other, BTH) else None
        if mine is None or theirs is None:
            return 0
        if not (mine.kind & Kind.RESPONSE and theirs.kind & Kind.REQUEST):
            return 0
        distance = (self.psn - other.psn) % _PSN_SPAN
        request, response = rc_opcode(other.opcode), rc_opcode(self.opcode)
        read = request == RcOpcode.READ_REQUEST
        atomic = request in _ATOMICS
        if response == RcOpcode.ACKNOWLEDGE:
            # A positive acknowledgement of a READ or atomic is the response that carries the data.
            positive = AETH not in self or self[AETH].syndrome < 0x20
            return int(distance == 0 and not (positive and (read or atomic)))
        if response == RcOpcode.ATOMIC_ACKNOWLEDGE:
            return int(atomic and distance == 0)
        if request in (RcOpcode.FLUSH, RcOpcode.ATOMIC_WRITE):
            return int(response == RcOpcode.READ_RESPONSE_ONLY and distance == 0)
        span = max(1, -(-other[RETH].dmalen // _SMALLEST_MTU)) if read and RETH in other else 0
        return int(distance < span)

    def mysummary(self) -> _Summary:
        info = self.info
        name = info.name if info is not None else f"opcode {self.opcode:#04x}"
        flags = "".join(
            f" {flag}"
            for flag, is_set in (("A", self.ackreq), ("SE", self.solicited), ("BECN", self.becn))
            if is_set
        )
        wrong = " wrong ICRC" if self.icrc_right is False else ""
        return f"{name} qpn={self.dqpn:#x} psn={self.psn}{flags}{wrong}", [UDP]


class RETH(_Chained):
    """RDMA extended transport header: where the whole message of ``dmalen`` bytes lives at the responder."""

    name = "RETH"
    fields_desc: ClassVar[list[Any]] = [XLongField("va", 0), XIntField("rkey", 0), IntField("dmalen", 0)]

    def mysummary(self) -> _Summary:
        return f"RETH va={self.va:#x} rkey={self.rkey:#x} len={self.dmalen}", [BTH]


class AtomicETH(_Chained):
    """Atomic extended transport header; operands are big-endian numbers."""

    name = "AtomicETH"
    fields_desc: ClassVar[list[Any]] = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        XLongField("swap", 0),
        XLongField("compare", 0),
    ]

    def mysummary(self) -> _Summary:
        return (
            f"AtomicETH va={self.va:#x} rkey={self.rkey:#x} swap={self.swap:#x} compare={self.compare:#x}",
            [BTH],
        )


class MaskedAtomicETH(_Chained):
    """Extended header of :class:`emu.wire.opcodes.ExtendedOpcode`: operands and masks as 64-bit numbers.

    ``size`` is the bytes of the target, 4 or 8; ``swapmask`` of a FETCH ADD is its field boundaries.
    """

    name = "MaskedAtomicETH"
    fields_desc: ClassVar[list[Any]] = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        IntField("size", 8),
        XLongField("swap", 0),
        XLongField("compare", 0),
        XLongField("swapmask", 0),
        XLongField("comparemask", 0),
    ]

    def mysummary(self) -> _Summary:
        return (
            f"MaskedAtomicETH va={self.va:#x} rkey={self.rkey:#x} size={self.size} swap={self.swap:#x}/"
            f"{self.swapmask:#x} compare={self.compare:#x}/{self.comparemask:#x}",
            [BTH],
        )


_NAK_NAMES = {
    0x60: "NAK PSN sequence error",
    0x61: "NAK invalid request",
    0x62: "NAK remote access error",
    0x63: "NAK remote operational error",
    0x64: "NAK invalid RD request",
}


class AETH(_Chained):
    """ACK extended transport header."""

    name = "AETH"
    fields_desc: ClassVar[list[Any]] = [XByteField("syndrome", 0), BitField("msn", 0, 24)]

    def mysummary(self) -> _Summary:
        kind = self.syndrome >> 5
        if kind == 0:
            text = "ACK"
        elif kind == 1:
            text = f"RNR NAK timer={self.syndrome & 0x1F}"
        else:
            text = _NAK_NAMES.get(self.syndrome, f"reserved syndrome {self.syndrome:#04x}")
        return f"{text} msn={self.msn}", [BTH]


class AtomicAckETH(_Chained):
    """Original value of an atomic's target."""

    name = "AtomicAckETH"
    fields_desc: ClassVar[list[Any]] = [XLongField("old", 0)]

    def mysummary(self) -> _Summary:
        return f"old={self.old:#x}", [BTH, AETH]


class ImmDt(_Chained):
    """Immediate data."""

    name = "ImmDt"
    fields_desc: ClassVar[list[Any]] = [XIntField("imm", 0)]

    def mysummary(self) -> _Summary:
        return f"imm={self.imm:#x}", [BTH, RETH, DETH]


class IETH(_Chained):
    """R_Key to invalidate."""

    name = "IETH"
    fields_desc: ClassVar[list[Any]] = [XIntField("rkey", 0)]


class DETH(_Chained):
    """Datagram extended transport header."""

    name = "DETH"
    fields_desc: ClassVar[list[Any]] = [
        XIntField("qkey", 0),
        XByteField("reserved", 0),
        XBitField("sqpn", 0, 24),
    ]

    def mysummary(self) -> _Summary:
        return f"DETH qkey={self.qkey:#x} sqpn={self.sqpn:#x}", [BTH]


class XRCETH(_Chained):
    """Header of XRC requests: the shared receive queue they are for."""

    name = "XRCETH"
    fields_desc: ClassVar[list[Any]] = [XByteField("reserved", 0), XBitField("srqn", 0, 24)]

    def mysummary(self) -> _Summary:
        return f"XRCETH srqn={self.srqn:#x}", [BTH]


class FETH(_Chained):
    """Flush extended transport header: selectivity (0 range, 1 whole region) and placement type mask."""

    name = "FETH"
    fields_desc: ClassVar[list[Any]] = [
        BitField("reserved", 0, 26),
        BitField("selectivity", 0, 2),
        BitField("placement", 0, 4),
    ]


_LAYERS: dict[Header, type[Packet]] = {
    Header.RETH: RETH,
    Header.ATOMIC_ETH: AtomicETH,
    Header.AETH: AETH,
    Header.ATOMIC_ACK_ETH: AtomicAckETH,
    Header.IMM_DT: ImmDt,
    Header.IETH: IETH,
    Header.DETH: DETH,
    Header.FETH: FETH,
    Header.MASKED_ATOMIC_ETH: MaskedAtomicETH,
    Header.XRC_ETH: XRCETH,
}


def layers_of(opcode: int) -> list[type[Packet]]:
    """Extension layers that follow BTH for ``opcode``, in wire order; none for one that is not defined."""
    info = BY_OPCODE.get(opcode)
    return [] if info is None else [_LAYERS[header] for header in info.headers]


def cnp(dqpn: int) -> Packet:
    """A congestion notification for QP ``dqpn``: BTH and its sixteen reserved bytes."""
    return BTH(opcode=CNP, becn=1, dqpn=dqpn) / Raw(bytes(16))


def icrc_ok(packet: Packet | bytes) -> bool:
    """True when the ICRC of ``packet`` (a dissected packet, or bytes from the IP header on) is right.

    :raises ValueError: there is no RoCEv2 packet in it.
    """
    if isinstance(packet, bytes):
        octets = packet
    else:
        network = packet.getlayer(IP) or packet.getlayer(IPv6)
        if network is None or BTH not in network:
            raise ValueError("no BTH over IP/UDP in this packet")
        octets = bytes(network)
    start = 20 if octets[:1] and octets[0] >> 4 == 4 else 40
    end = start + int.from_bytes(octets[start + 4 : start + 6], "big")
    return _icrc.verify(octets[:end])


# Ahead of any other binding of the port, so that it holds whether scapy.contrib.roce is loaded or not.
UDP.payload_guess.insert(0, ({"dport": ROCE_PORT}, BTH))
bind_top_down(UDP, BTH, dport=ROCE_PORT, chksum=0)
for _layer, _opcode in (
    (RETH, RcOpcode.WRITE_ONLY),
    (AtomicETH, RcOpcode.FETCH_ADD),
    (AETH, RcOpcode.ACKNOWLEDGE),
    (ImmDt, RcOpcode.SEND_ONLY_IMM),
    (IETH, RcOpcode.SEND_ONLY_INVALIDATE),
    (DETH, UdOpcode.SEND_ONLY),
    (FETH, RcOpcode.FLUSH),
    (MaskedAtomicETH, ExtendedOpcode.FETCH_ADD),
    (XRCETH, TransportClass.XRC | RcOpcode.SEND_ONLY),
):
    bind_top_down(BTH, _layer, opcode=int(_opcode))
