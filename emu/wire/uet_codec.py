# SPDX-License-Identifier: Apache-2.0
"""UET headers at data-path speed: big-endian ``struct`` layouts with the bit fields packed by hand.

Sub-byte fields share a word of the struct; the helpers here make and split those words. The tables of
:mod:`emu.wire.uet_pds` and :mod:`emu.wire.uet_ses` say what every bit is, and tests hold the two together.
"""

from __future__ import annotations

import struct

from emu.wire.uet_names import NextHeader, PdsType

__all__ = [
    "ACK",
    "ACK_CC",
    "ATOMIC",
    "COMPARE_SWAP",
    "CONTROL",
    "ENTROPY",
    "MEDIUM",
    "NACK",
    "PDS_SIZE",
    "RENDEZVOUS",
    "REQUEST",
    "REQUEST_CC",
    "RESPONSE",
    "RESPONSE_DATA",
    "RESPONSE_DATA_SMALL",
    "RUDI",
    "SES_SIZE",
    "SMALL",
    "STANDARD",
    "UUD",
    "bound",
    "nscc_state",
    "prologue",
    "split_nscc_state",
    "split_prologue",
    "subsequent",
]

REQUEST = struct.Struct(">HhIHH")
"""RUD_REQ, ROD_REQ: prologue, clear_psn_offset, psn, spdcid, dpdcid (SYN: psn_offset)."""
REQUEST_CC = struct.Struct(">HhIHHI")
"""RUD_CC_REQ, ROD_CC_REQ: as :data:`REQUEST`, then ccc_id in bits 31:24 and credit_target in 23:0."""
RUDI = struct.Struct(">HHI")
"""Prologue, 0, pkt_id."""
UUD = struct.Struct(">HH")
"""Prologue, 0."""
ACK = struct.Struct(">HhIHH")
"""Prologue, ack_psn_offset (P set: the probe's opaque value), cack_psn, spdcid, dpdcid."""
ACK_CC = struct.Struct(">HhIHHBBhQQ")
"""As :data:`ACK`, then cc_type in bits 7:4 of a byte, mpr, sack_psn_offset, sack_bitmap, ack_cc_state."""
NACK = struct.Struct(">HBBIHHI")
"""Prologue, nack_code, vendor_code, nack_psn or nack_pkt_id, spdcid, dpdcid, payload."""
CONTROL = struct.Struct(">HHIHHI")
"""Prologue, probe_opaque or 0, psn, spdcid, dpdcid (SYN: psn_offset), payload."""
ENTROPY = struct.Struct(">HH")
"""Entropy value, 0."""

STANDARD = struct.Struct(">BBHIHHQIQQI")
"""opcode, flags, message_id, :func:`bound` word, pid_on_fep, resource_index, buffer_offset, initiator,
memory_key or match bits, header_data (som = 0: :func:`subsequent`), request_length."""
MEDIUM = struct.Struct(">BBHIHHQIQ")
"""opcode, flags, request_length, :func:`bound` word, pid_on_fep, resource_index, header_data (hd = 1) or
buffer_offset, initiator, memory_key or match bits."""
SMALL = struct.Struct(">BBHIHHQ")
"""opcode, flags, request_length, :func:`bound` word, pid_on_fep, resource_index, buffer_offset."""
RESPONSE = struct.Struct(">BBHII")
"""list in bits 7:6 with the opcode, return_code, message_id, :func:`bound` word, modified_length."""
RESPONSE_DATA = struct.Struct(">BBHIHHII")
"""list and opcode, return_code, message_id, job_id, read_request_message_id, payload_length,
modified_length, message_offset."""
RESPONSE_DATA_SMALL = struct.Struct(">BBHII")
"""list and opcode, return_code, payload_length, job_id, original_request_psn."""
ATOMIC = struct.Struct(">BBBB")
"""amo_opcode, amo_datatype, semantic_control, 0."""
COMPARE_SWAP = struct.Struct(">BBBB16s16s")
"""As :data:`ATOMIC`, then compare and swap value, each right-aligned in 16 bytes."""
RENDEZVOUS = struct.Struct(">IIQQ")
"""eager_length, read_ri_generation in bits 31:24 with read_pid_on_fep in 23:12 and read_resource_index in
11:0, read_offset, read_memory_key."""

PDS_SIZE: dict[int, int] = {
    PdsType.RUD_REQ: REQUEST.size,
    PdsType.ROD_REQ: REQUEST.size,
    PdsType.RUDI_REQ: RUDI.size,
    PdsType.RUDI_RESP: RUDI.size,
    PdsType.UUD_REQ: UUD.size,
    PdsType.ACK: ACK.size,
    PdsType.ACK_CC: ACK_CC.size,
    PdsType.ACK_CCX: 40,
    PdsType.NACK: NACK.size,
    PdsType.CP: CONTROL.size,
    PdsType.NACK_CCX: 32,
    PdsType.RUD_CC_REQ: REQUEST_CC.size,
    PdsType.ROD_CC_REQ: REQUEST_CC.size,
}
"""Delivery header bytes by type, without the four more of an EPSN ACK or a NEGOTIATION."""

SES_SIZE: dict[int, int] = {
    NextHeader.NONE: 0,
    NextHeader.REQUEST_SMALL: SMALL.size,
    NextHeader.REQUEST_MEDIUM: MEDIUM.size,
    NextHeader.REQUEST_STD: STANDARD.size,
    NextHeader.RESPONSE: RESPONSE.size,
    NextHeader.RESPONSE_DATA: RESPONSE_DATA.size,
    NextHeader.RESPONSE_DATA_SMALL: RESPONSE_DATA_SMALL.size,
    NextHeader.CP_ACK: 0,
}
"""Semantic header bytes by next header; a value that is no key is reserved."""


def prologue(kind: int, following: int, flags: int) -> int:
    """First word of a delivery header from type, next header or ctl_type, and flags."""
    return kind << 11 | following << 7 | flags


def split_prologue(word: int) -> tuple[int, int, int]:
    """Type, next header or ctl_type, and flags of a delivery header's first word."""
    return word >> 11, word >> 7 & 0xF, word & 0x7F


def bound(ri_generation: int, job_id: int) -> int:
    """The word of resource-index generation (8 bits) and job id (24)."""
    return ri_generation << 24 | job_id


def subsequent(payload_length: int, message_offset: int) -> int:
    """What stands in place of header_data in the later packets of a message: lengths in bytes."""
    return payload_length << 32 | message_offset


def nscc_state(service_time: int, restore: bool, penalty: int, rcvd_bytes: int, ooo_count: int) -> int:
    """The ack_cc_state of cc_type NSCC. ``service_time`` in 128 ns, ``rcvd_bytes`` in 256 bytes mod 2^24."""
    return (
        service_time << 48
        | restore << 47
        | (penalty & 0x7F) << 40
        | (rcvd_bytes & 0xFF_FFFF) << 16
        | ooo_count
    )


def split_nscc_state(state: int) -> tuple[int, bool, int, int, int]:
    """Arguments of :func:`nscc_state` that give ``state``."""
    return (
        state >> 48,
        bool(state >> 47 & 1),
        state >> 40 & 0x7F,
        state >> 16 & 0xFF_FFFF,
        state & 0xFFFF,
    )
