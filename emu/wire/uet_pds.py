# SPDX-License-Identifier: Apache-2.0
"""Packet delivery (PDS) headers and the congestion state they carry, as tables.

All begin with the prologue::

      byte 0            byte 1
    +---------------+----------------------+
    | type (5) | next_hdr or ctl_type (4)  | flags (7), meaning depends on type
    +---------------+----------------------+

Filter names are those of Wireshark's development branch; names it has not are in its style. Where sources
disagree the tables hold: ACK_CCX 40 bytes and NACK_CCX 32 (both are parsed, nothing standard sends them);
use_rsv_pdc in the most significant bit of its word (0x8000; one source has 0x1000); an ACK with EPSN set has
four more bytes; NEGOTIATION has an eight-byte payload (1.0.3), other control packets four.
"""

from __future__ import annotations

from emu.wire.uet_format import Derived, Field, Group, HeaderFormat, names_of, unless, when
from emu.wire.uet_names import AckRequest, CcType, CtlType, NackCode, NextHeader, PdsType

__all__ = [
    "ACK",
    "ACK_REQUEST_NAMES",
    "BY_TYPE",
    "CONTROL",
    "CTL_NAMES",
    "ENTROPY",
    "NACK",
    "NACK_NAMES",
    "PROLOGUE",
    "REQUEST",
    "RUDI",
    "TYPE_NAMES",
    "UUD",
]

TYPE_NAMES = names_of(PdsType)
NACK_NAMES = names_of(NackCode)
CTL_NAMES = names_of(CtlType)
ACK_REQUEST_NAMES = names_of(AckRequest)
_FLAGS = Group("uet.pds.flags", "Flags", 7)
_PDC_MODE = Group("uet.pds.pdc_mode", "PDC Mode", 4)
_CC_STATE = Group("uet.pds.ack.cc_state", "CC State", 64, octets=True)
_ANY_PSN = range(-0x8000, 1)
_PDCID = range(1, 0x10000)


def _flag(letter: str, title: str) -> Field:
    return Field(letter, 1, f"uet.pds.flags.{letter}", title, group=_FLAGS)


def _spare(name: str, bits: int, suffix: str) -> Field:
    return Field(name, bits, f"uet.pds.flags.rsvd_{suffix}", "Reserved", hexadecimal=True, group=_FLAGS)


_TYPE = Field("type", 5, "uet.pds.type", "Type", TYPE_NAMES)
_NEXT = Field("next_hdr", 4, "uet.pds.nh", "Next Hdr", names_of(NextHeader))
_M = _flag("m", "ECN Marked (M)")
_RETX = _flag("retx", "Retransmitted (RETX)")
_AR = _flag("ar", "ACK Request (AR)")
_SYN = _flag("syn", "New PDC (SYN)")
_SPDCID = Field("spdcid", 16, "uet.pds.spdcid", "Source PDC ID", legal=_PDCID)
_DPDCID = Field("dpdcid", 16, "uet.pds.dpdcid", "Destination PDC ID", legal=_PDCID)

_DESTINATION = (
    Field(
        "dpdcid",
        16,
        "uet.pds.dpdcid",
        "Destination PDC ID",
        legal=_PDCID,
        conditions=(unless("syn", 1),),
    ),
    Field(
        "use_rsv_pdc",
        1,
        "uet.pds.pdc_mode_use_rsv",
        "Use Reserved PDC",
        conditions=(when("syn", 1),),
        group=_PDC_MODE,
    ),
    Field(
        "pdc_info_rsvd",
        3,
        "uet.pds.pdc_mode_rsv",
        "Reserved",
        hexadecimal=True,
        conditions=(when("syn", 1),),
        group=_PDC_MODE,
    ),
    Field("psn_offset", 12, "uet.pds.psn_offset", "PSN offset", conditions=(when("syn", 1),)),
)
_START_PSN = Derived("start_psn", "uet.pds.start_psn", "Start PSN", "psn", "psn_offset", -1)

PROLOGUE = HeaderFormat(
    "Prologue",
    "UET packet of reserved type",
    "uet.pds",
    (_TYPE, _NEXT, Field("flags", 7, "uet.pds.flags", "Flags", hexadecimal=True)),
)
"""All that is known of a packet whose type is reserved."""

_WITH_CC = when("type", PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ)

REQUEST = HeaderFormat(
    "Request",
    "PDS request",
    "uet.pds",
    (
        _TYPE,
        _NEXT,
        _spare("flags_rsvd1", 2, "rud_rod"),
        _RETX,
        _AR,
        _SYN,
        _spare("flags_rsvd2", 2, "rud_rod"),
        Field(
            "clear_psn_offset",
            16,
            "uet.pds.clear_psn_offset",
            "Clear PSN offset",
            legal=_ANY_PSN,
            signed=True,
        ),
        Field("psn", 32, "uet.pds.psn", "PSN"),
        _SPDCID,
        *_DESTINATION,
        Field("ccc_id", 8, "uet.pds.cc_state.ccc_id", "CCC ID", conditions=(_WITH_CC,)),
        Field(
            "credit_target",
            24,
            "uet.pds.cc_state.credit_target",
            "Credit Target",
            hexadecimal=True,
            conditions=(_WITH_CC,),
        ),
    ),
    (
        Derived("clear_psn", "uet.pds.clear_psn", "Clear PSN", "psn", "clear_psn_offset"),
        _START_PSN,
    ),
)
"""RUD_REQ and ROD_REQ, 12 bytes; RUD_CC_REQ and ROD_CC_REQ, 16."""

RUDI = HeaderFormat(
    "Rudi",
    "PDS RUDI",
    "uet.pds",
    (
        _TYPE,
        _NEXT,
        _spare("flags_rsvd1", 1, "rudi"),
        _M,
        _RETX,
        _spare("flags_rsvd2", 4, "rudi"),
        Field("rsvd", 16, "uet.pds.rudi.rsvd", "Reserved", hexadecimal=True),
        Field("pkt_id", 32, "uet.pds.rudi.pkt_id", "RUDI ID"),
    ),
)
"""RUDI_REQ and RUDI_RESP, 8 bytes."""

UUD = HeaderFormat(
    "Uud",
    "PDS UUD request",
    "uet.pds",
    (
        _TYPE,
        _NEXT,
        _spare("flags_rsvd", 7, "uud"),
        Field("rsvd", 16, "uet.pds.uud.rsvd", "Reserved", hexadecimal=True),
    ),
)
"""UUD_REQ, 4 bytes."""

_PLAIN = when("type", PdsType.ACK)
_CC = when("type", PdsType.ACK_CC)
_CCX = when("type", PdsType.ACK_CCX)
_STATEFUL = when("type", PdsType.ACK_CC, PdsType.ACK_CCX)
_NSCC = (_CC, when("cc_type", CcType.NSCC))
_CREDIT = (_CC, when("cc_type", CcType.CREDIT))
_STATE = "uet.pds.ack.cc_state."

ACK = HeaderFormat(
    "Ack",
    "PDS ACK",
    "uet.pds",
    (
        _TYPE,
        _NEXT,
        Field("epsn", 1, "uet.pds.flags.epsn", "Expected PSN (EPSN)", group=_FLAGS),
        _M,
        _RETX,
        _flag("p", "Probe Packet (P)"),
        Field("req", 2, "uet.pds.flags.req", "Request (REQ)", ACK_REQUEST_NAMES, group=_FLAGS),
        _spare("flags_rsvd", 1, "ack"),
        Field(
            "ack_psn_offset",
            16,
            "uet.pds.ack_psn_offset",
            "ACK PSN offset",
            signed=True,
            conditions=(unless("p", 1),),
        ),
        Field(
            "probe_opaque",
            16,
            "uet.pds.ctrl_probe_opaque",
            "Probe Opaque",
            hexadecimal=True,
            conditions=(when("p", 1),),
        ),
        Field("cack_psn", 32, "uet.pds.cack_psn", "Cumulative ACK PSN"),
        _SPDCID,
        _DPDCID,
        Field(
            "expected_psn",
            32,
            "uet.pds.ack.expected_psn",
            "Expected PSN",
            conditions=(_PLAIN, when("epsn", 1)),
        ),
        Field(
            "cc_type",
            4,
            "uet.pds.ack.cc_type",
            "CC Type",
            names_of(CcType),
            vendor=range(14, 16),
            conditions=(_STATEFUL,),
        ),
        Field("cc_flags", 4, "uet.pds.ack.cc_flags", "Reserved", hexadecimal=True, conditions=(_STATEFUL,)),
        Field("mpr", 8, "uet.pds.ack.mpr", "Maximum PSN range (MPR)", conditions=(_STATEFUL,)),
        Field(
            "sack_psn_offset",
            16,
            "uet.pds.ack.sack_offset",
            "SACK Offset",
            signed=True,
            conditions=(_STATEFUL,),
        ),
        Field(
            "sack_bitmap",
            64,
            "uet.pds.ack.sack_bitmap",
            "SACK Bitmap",
            hexadecimal=True,
            conditions=(_STATEFUL,),
        ),
        Field("service_time", 16, f"{_STATE}service_time", "Service Time", conditions=_NSCC, group=_CC_STATE),
        Field("rc", 1, f"{_STATE}rc", "Restore Cwnd", conditions=_NSCC, group=_CC_STATE),
        Field(
            "rcv_cwnd_pend", 7, f"{_STATE}rcv_cwnd_pend", "Cwnd Penalty", conditions=_NSCC, group=_CC_STATE
        ),
        Field(
            "rcvd_bytes", 24, f"{_STATE}rcvd_bytes", "Received Byte Count", conditions=_NSCC, group=_CC_STATE
        ),
        Field("credit", 24, f"{_STATE}credit", "Credit", conditions=_CREDIT, group=_CC_STATE),
        Field(
            "credit_rsvd",
            24,
            f"{_STATE}reserved",
            "Reserved",
            hexadecimal=True,
            conditions=_CREDIT,
            group=_CC_STATE,
        ),
        Field(
            "ooo_count",
            16,
            f"{_STATE}ooo_count",
            "Out Of Order Count",
            conditions=(_CC, when("cc_type", CcType.NSCC, CcType.CREDIT)),
            group=_CC_STATE,
        ),
        Field(
            "cc_state",
            64,
            f"{_STATE}unknown",
            "State of unknown type",
            hexadecimal=True,
            conditions=(_CC, unless("cc_type", CcType.NSCC, CcType.CREDIT)),
            group=_CC_STATE,
        ),
        Field("ccx_state", 128, "uet.pds.ack.ccx_state", "CCX State", hexadecimal=True, conditions=(_CCX,)),
    ),
    (
        Derived("ack_psn", "uet.pds.ack_psn", "ACK PSN", "cack_psn", "ack_psn_offset"),
        Derived("sack_base_psn", "uet.pds.ack.sack_base_psn", "SACK base PSN", "cack_psn", "sack_psn_offset"),
    ),
)
"""ACK, 12 bytes (16 with EPSN); ACK_CC, 32; ACK_CCX, 40, where cc_type 14 and 15 are proprietary.

``service_time`` counts 128 ns, ``rcvd_bytes`` 256 bytes, ``mpr`` 128 PSNs. Bit i of ``sack_bitmap`` (least
significant first) speaks of PSN sack_base_psn + i.
"""

_EXTENDED = (when("type", PdsType.NACK_CCX),)

NACK = HeaderFormat(
    "Nack",
    "PDS NACK",
    "uet.pds",
    (
        _TYPE,
        _NEXT,
        _spare("flags_rsvd1", 1, "nack"),
        _M,
        _RETX,
        _flag("nt", "NACK Type (NT)"),
        _spare("flags_rsvd2", 3, "nack"),
        Field("nack_code", 8, "uet.pds.nack.code", "NACK Code", NACK_NAMES),
        Field("vendor_code", 8, "uet.pds.nack.vendor_code", "Vendor Code"),
        Field("nack_psn", 32, "uet.pds.nack.psn", "NACK PSN", conditions=(unless("nt", 1),)),
        Field("nack_pkt_id", 32, "uet.pds.nack.pkt_id", "NACK RUDI ID", conditions=(when("nt", 1),)),
        Field("spdcid", 16, "uet.pds.spdcid", "Source PDC ID"),
        Field("dpdcid", 16, "uet.pds.dpdcid", "Destination PDC ID"),
        Field("nack_payload", 32, "uet.pds.nack.max_recv_psn_plus_1", "Payload"),
        Field("nccx_type", 4, "uet.pds.nack.nccx_type", "NCCX Type", conditions=_EXTENDED),
        Field(
            "nccx_state1",
            60,
            "uet.pds.nack.nccx_state1",
            "NCCX State",
            hexadecimal=True,
            conditions=_EXTENDED,
        ),
        Field(
            "nccx_state2",
            64,
            "uet.pds.nack.nccx_state2",
            "NCCX State, second half",
            hexadecimal=True,
            conditions=_EXTENDED,
        ),
    ),
)
"""NACK, 16 bytes; NACK_CCX, 32.

``nack_payload`` is the expected PSN with ROD_OOO, the new start PSN with NEW_START_PSN, the number of packets
outstanding with CLOSING_IN_ERR, else 0. ``spdcid`` is 0 when the sender has no PDC.
"""

_PROBE = when("ctl_type", CtlType.PROBE)
_NEGOTIATION = (when("ctl_type", CtlType.NEGOTIATION),)

CONTROL = HeaderFormat(
    "Control",
    "PDS control packet",
    "uet.pds",
    (
        _TYPE,
        Field("ctl_type", 4, "uet.pds.ctl_type", "Ctl Type", CTL_NAMES),
        _spare("flags_rsvd1", 1, "ctl"),
        _flag("isrod", "PDC is ROD (ISROD)"),
        _RETX,
        _AR,
        _SYN,
        _spare("flags_rsvd2", 2, "ctl"),
        Field(
            "probe_opaque",
            16,
            "uet.pds.ctrl_probe_opaque",
            "Probe Opaque",
            hexadecimal=True,
            conditions=(_PROBE,),
        ),
        Field(
            "rsvd",
            16,
            "uet.pds.ctrl_rsvd",
            "Reserved",
            hexadecimal=True,
            conditions=(unless("ctl_type", CtlType.PROBE),),
        ),
        Field("psn", 32, "uet.pds.psn", "PSN"),
        _SPDCID,
        *_DESTINATION,
        Field(
            "ctl_payload",
            32,
            "uet.pds.ctrl_payload",
            "Payload",
            hexadecimal=True,
            conditions=(unless("ctl_type", CtlType.NEGOTIATION),),
        ),
        Field(
            "negotiation_type",
            8,
            "uet.pds.ctrl_negotiation.type",
            "Negotiation Type",
            conditions=_NEGOTIATION,
        ),
        Field(
            "negotiation_length",
            8,
            "uet.pds.ctrl_negotiation.length",
            "Negotiation Length",
            conditions=_NEGOTIATION,
        ),
        Field(
            "negotiation_rsvd",
            16,
            "uet.pds.ctrl_negotiation.rsvd",
            "Reserved",
            hexadecimal=True,
            conditions=_NEGOTIATION,
        ),
        Field(
            "features",
            32,
            "uet.pds.ctrl_negotiation.features",
            "Features",
            hexadecimal=True,
            conditions=_NEGOTIATION,
        ),
    ),
    (_START_PSN,),
)
"""Control packet, 16 bytes; NEGOTIATION, 20.

``ctl_payload``: CLEAR_CMD the clear PSN, CLEAR_REQ the PSN to be cleared, PROBE the SACK base wanted, CREDIT
the credit and CREDIT_REQ the credit target in the low 24 bits, ACK_REQUEST a message id in the low 16 or 0.
"""

ENTROPY = HeaderFormat(
    "Entropy",
    "UET entropy",
    "uet.pds.entropy_hdr",
    (
        Field("entropy", 16, "uet.pds.entropy", "Entropy"),
        Field("rsvd", 16, "uet.pds.entropy.rsvd", "Reserved", hexadecimal=True),
    ),
)
"""Four bytes between IP and UET where there is no UDP: what a switch hashes in place of the ports."""

BY_TYPE: dict[int, HeaderFormat] = {
    PdsType.RUD_REQ: REQUEST,
    PdsType.ROD_REQ: REQUEST,
    PdsType.RUDI_REQ: RUDI,
    PdsType.RUDI_RESP: RUDI,
    PdsType.UUD_REQ: UUD,
    PdsType.ACK: ACK,
    PdsType.ACK_CC: ACK,
    PdsType.ACK_CCX: ACK,
    PdsType.NACK: NACK,
    PdsType.CP: CONTROL,
    PdsType.NACK_CCX: NACK,
    PdsType.RUD_CC_REQ: REQUEST,
    PdsType.ROD_CC_REQ: REQUEST,
}
"""Format by packet type; other types are reserved."""
