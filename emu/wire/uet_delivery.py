# SPDX-License-Identifier: Apache-2.0
"""Packet delivery and security headers of UET as scapy layers, with the CRC trailer."""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.error import warning
from scapy.fields import Field
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from emu.wire import uet_pds, uet_tss
from emu.wire.uet_format import HeaderFormat, Truncated
from emu.wire.uet_layer import Layer, Summary, fields_of, fitting, flags_of
from emu.wire.uet_names import UET_PORT, CtlType, NackCode, PdsType
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from emu.wire.uet_semantics import BY_NEXT_HEADER, ResponseData, ResponseDataSmall, StdRequest
from emu.wire.uet_trailer import CRC_SIZE, packet_crc, packet_crc_ok

__all__ = [
    "UET",
    "Ack",
    "Control",
    "Entropy",
    "Nack",
    "Request",
    "Rudi",
    "Security",
    "Uud",
    "use",
]

_profile: Profile = DEFAULT


def use(profile: Profile) -> None:
    """From now on build and dissect by the wire choices of ``profile``."""
    global _profile
    _profile = profile


class _CrcField(Field[int, int]):
    """The last four bytes of the packet, None without; written by :meth:`UET.post_build`."""

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, Any]:
        if len(s) < CRC_SIZE or not _has_crc(pkt):
            return s, None
        return s[:-CRC_SIZE], int.from_bytes(s[-CRC_SIZE:], _profile.crc_order)

    def i2repr(self, pkt: Any, x: int | None) -> str:
        return "None" if x is None else f"{x:#010x}"


def _network(packet: Packet) -> Packet | None:
    """The IP layer two below, None when there is no such."""
    below = packet.underlayer
    found = below.underlayer if isinstance(below, UDP | Entropy) else None
    return found if isinstance(found, IP | IPv6) else None


def _has_crc(packet: Packet) -> bool:
    network = _network(packet)
    if network is None:
        return False
    dscp = (network.tos if isinstance(network, IP) else network.tc) >> 2
    if dscp in (_profile.dscp_trimmed, _profile.dscp_trimmed_last_hop):
        return False
    if _profile.trailer is Trailer.CRC:
        return True
    octets = network.original
    length = network.len if isinstance(network, IP) else network.plen + 40
    try:
        return packet_crc_ok(octets[:length], _profile)
    except ValueError:
        return False


class UET(Layer):
    """Any packet delivery header: dissects into the class that its type asks for, and stands for those of
    reserved type itself.
    """

    name = "UET"
    header: ClassVar[HeaderFormat] = uet_pds.PROLOGUE
    match_subclass = True
    fields_desc: ClassVar[list[Any]] = [*fields_of(uet_pds.PROLOGUE), _CrcField("crc", None)]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> type[Packet]:
        if not _pkt:
            return cls
        layer = _BY_TYPE.get(_pkt[0] >> 3, UET)
        try:
            layer.header.size(_pkt)
        except Truncated:
            return Raw
        return layer

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        # A reserved type has a layout unknown, a control packet no next header and a NACK none in use.
        if isinstance(self, Request | Rudi | Uud | Ack):
            return fitting(BY_NEXT_HEADER.get(self.next_hdr), payload)
        return Raw

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        udp = self.underlayer
        if _profile.udp_checksum_ipv6 and isinstance(udp, UDP) and isinstance(udp.underlayer, IPv6):
            # Without the default of 0 UDP computes it; a value the user set stays.
            udp.overloaded_fields = {"dport": UET_PORT}
        body = pkt + pay
        if self.crc is not None:
            return bytes(body + self.crc.to_bytes(CRC_SIZE, _profile.crc_order))
        return bytes(body + self._compute_crc(body)) if _profile.trailer is Trailer.CRC else body

    def post_dissect(self, s: bytes) -> bytes:
        # The trailer was cut off the end, so scapy's cache of "bytes of this layer" is not what it thinks.
        self.raw_packet_cache = None
        return s

    def _compute_crc(self, body: bytes) -> bytes:
        network = _network(self)
        if network is None:
            warning("the CRC needs IP two layers below UET; zero bytes were put in its place")
            return bytes(CRC_SIZE)
        below = network.copy()
        # Without its payload UDP would fall back to its own default port.
        carrier = below.payload
        carrier.remove_payload()
        if isinstance(carrier, UDP):
            carrier.dport = UET_PORT
            carrier.chksum = 0
        return packet_crc(bytes(below / Raw(body + bytes(CRC_SIZE)))[:-CRC_SIZE], _profile)

    def mysummary(self) -> Summary:
        return f"UET reserved type {self.type}", [UDP, Entropy]


def _at_or_before(psn: int, limit: int) -> bool:
    return (limit - psn) & 0xFFFF_FFFF < 0x8000_0000


class Request(UET):
    """RUD_REQ, ROD_REQ and their CC forms, in both directions of a PDC."""

    name = "UET PDS request"
    header = uet_pds.REQUEST
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.REQUEST, type=PdsType.RUD_REQ),
        _CrcField("crc", None),
    ]

    @property
    def clear_psn(self) -> int | None:
        """PSN up to which the sender has seen every response."""
        return self.derived("clear_psn")

    @property
    def start_psn(self) -> int | None:
        """First PSN of the PDC; None without SYN."""
        return self.derived("start_psn")

    def answers(self, other: Packet) -> int:
        """1 when this brings, on the return direction, data of the read in request ``other``."""
        if not isinstance(other, Request) or self.dpdcid != other.spdcid:
            return 0
        data, read = self.payload, other.payload
        if isinstance(data, ResponseDataSmall):
            return int(data.original_request_psn == other.psn)
        if isinstance(data, ResponseData) and isinstance(read, StdRequest):
            return int(data.read_request_message_id == read.message_id)
        return 0

    def mysummary(self) -> Summary:
        there = f"dpdc={self.dpdcid:#x}" if not self.syn else f"start={self.start_psn:#x}"
        name = uet_pds.TYPE_NAMES.get(self.type, "?")
        flags = flags_of(self, "syn", "ar", "retx")
        return f"{name} psn={self.psn:#x} spdc={self.spdcid:#x} {there}{flags}", [UDP, Entropy]


class Rudi(UET):
    """RUDI_REQ and RUDI_RESP."""

    name = "UET PDS RUDI"
    header = uet_pds.RUDI
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.RUDI, type=PdsType.RUDI_REQ),
        _CrcField("crc", None),
    ]

    def answers(self, other: Packet) -> int:
        """1 when this is the response to RUDI request ``other``."""
        return int(
            isinstance(other, Rudi)
            and self.type == PdsType.RUDI_RESP
            and other.type == PdsType.RUDI_REQ
            and self.pkt_id == other.pkt_id
        )

    def mysummary(self) -> Summary:
        name = uet_pds.TYPE_NAMES.get(self.type, "?")
        return f"{name} id={self.pkt_id:#x}{flags_of(self, 'm', 'retx')}", [UDP, Entropy]


class Uud(UET):
    """UUD_REQ."""

    name = "UET PDS UUD"
    header = uet_pds.UUD
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.UUD, type=PdsType.UUD_REQ),
        _CrcField("crc", None),
    ]

    def mysummary(self) -> Summary:
        return "UUD_REQ", [UDP, Entropy]


class Ack(UET):
    """ACK, ACK_CC and ACK_CCX."""

    name = "UET PDS ACK"
    header = uet_pds.ACK
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.ACK, type=PdsType.ACK, mpr=DEFAULT.mpr),
        _CrcField("crc", None),
    ]

    @property
    def ack_psn(self) -> int | None:
        """PSN whose response is inside; None in the answer to a probe."""
        return self.derived("ack_psn")

    @property
    def sack_base_psn(self) -> int | None:
        """PSN of bit 0 of the bitmap; None in a plain ACK."""
        return self.derived("sack_base_psn")

    def answers(self, other: Packet) -> int:
        """1 when this acknowledges request or control packet ``other``, by itself or cumulatively."""
        if not isinstance(other, Request | Control) or self.dpdcid != other.spdcid:
            return 0
        if not other.syn and self.spdcid != other.dpdcid:
            return 0
        probe = isinstance(other, Control) and other.ctl_type == CtlType.PROBE
        if self.p or probe:
            return int(bool(self.p) and probe and self.probe_opaque == other.probe_opaque)
        return int(self.ack_psn == other.psn or _at_or_before(other.psn, self.cack_psn))

    def mysummary(self) -> Summary:
        name = uet_pds.TYPE_NAMES.get(self.type, "?")
        what = f"probe={self.probe_opaque:#x}" if self.p else f"ack={self.ack_psn:#x}"
        asked = " REQ_" + uet_pds.ACK_REQUEST_NAMES.get(self.req, "?") if self.req else ""
        flags = flags_of(self, "m", "retx")
        line = f"{name} cack={self.cack_psn:#x} {what} spdc={self.spdcid:#x} dpdc={self.dpdcid:#x}"
        return f"{line}{flags}{asked}", [UDP, Entropy]


class Nack(UET):
    """NACK and NACK_CCX."""

    name = "UET PDS NACK"
    header = uet_pds.NACK
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.NACK, type=PdsType.NACK, nack_code=NackCode.TRIMMED),
        _CrcField("crc", None),
    ]

    def answers(self, other: Packet) -> int:
        """1 when this refuses packet ``other``."""
        if self.nt:
            refused = isinstance(other, Rudi) and other.type == PdsType.RUDI_REQ
            return int(refused and self.nack_pkt_id == other.pkt_id)
        return int(
            isinstance(other, Request | Control)
            and self.dpdcid == other.spdcid
            and self.nack_psn == other.psn
        )

    def mysummary(self) -> Summary:
        code = uet_pds.NACK_NAMES.get(self.nack_code, f"{self.nack_code:#x}")
        what = f"id={self.nack_pkt_id:#x}" if self.nt else f"psn={self.nack_psn:#x}"
        line = f"NACK {code} {what} spdc={self.spdcid:#x} dpdc={self.dpdcid:#x}"
        return f"{line}{flags_of(self, 'm', 'retx')}", [UDP, Entropy]


class Control(UET):
    """Control packet."""

    name = "UET PDS control"
    header = uet_pds.CONTROL
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_pds.CONTROL, type=PdsType.CP),
        _CrcField("crc", None),
    ]

    @property
    def start_psn(self) -> int | None:
        """First PSN of the PDC; None without SYN."""
        return self.derived("start_psn")

    def mysummary(self) -> Summary:
        name = uet_pds.CTL_NAMES.get(self.ctl_type, f"{self.ctl_type:#x}")
        line = f"CP {name} psn={self.psn:#x} spdc={self.spdcid:#x}"
        return f"{line}{flags_of(self, 'syn', 'ar', 'retx')}", [UDP, Entropy]


class _IcvField(Field[bytes, bytes]):
    """The last sixteen bytes of the packet; written by :meth:`Security.post_build`."""

    def addfield(self, pkt: Any, s: bytes, val: bytes | None) -> bytes:
        return s

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        return s[: -uet_tss.ICV_SIZE], s[-uet_tss.ICV_SIZE :]

    def i2repr(self, pkt: Any, x: bytes | None) -> str:
        return bytes(x or b"").hex()


class Security(Layer):
    """TSS header. What follows is encrypted and shown as it is; ``icv`` is the tag at the packet's end."""

    name = "UET TSS"
    header = uet_tss.SECURITY
    fields_desc: ClassVar[list[Any]] = [
        *fields_of(uet_tss.SECURITY, type=PdsType.TSS),
        _IcvField("icv", bytes(uet_tss.ICV_SIZE)),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        return pkt + pay + bytes(self.icv)

    def post_dissect(self, s: bytes) -> bytes:
        self.raw_packet_cache = None
        return s

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Raw

    def mysummary(self) -> Summary:
        return f"TSS sdi={self.sdi} an={self.an} tsc={self.tsc_epoch}/{self.tsc_counter}", [UDP, Entropy]


class Entropy(Layer):
    """What stands between IP and UET where there is no UDP."""

    name = "UET entropy"
    header = uet_pds.ENTROPY
    fields_desc: ClassVar[list[Any]] = fields_of(uet_pds.ENTROPY)

    def answers(self, other: Packet) -> int:
        return int(isinstance(other, Entropy) and self.payload.answers(other.payload))

    def mysummary(self) -> Summary:
        return f"entropy={self.entropy:#x}", [IP, IPv6]


Layer.shown_after = [Request, Rudi, Uud, Ack]

_BY_TYPE: dict[int, type[Layer]] = {
    PdsType.TSS: Security,
    PdsType.RUD_REQ: Request,
    PdsType.ROD_REQ: Request,
    PdsType.RUDI_REQ: Rudi,
    PdsType.RUDI_RESP: Rudi,
    PdsType.UUD_REQ: Uud,
    PdsType.ACK: Ack,
    PdsType.ACK_CC: Ack,
    PdsType.ACK_CCX: Ack,
    PdsType.NACK: Nack,
    PdsType.CP: Control,
    PdsType.NACK_CCX: Nack,
    PdsType.RUD_CC_REQ: Request,
    PdsType.ROD_CC_REQ: Request,
}
