# SPDX-License-Identifier: Apache-2.0
"""Semantic (SES) headers and their extensions, as tables.

The next-header value of the delivery header selects the request or response header, the opcode of a request
its extension. Filter names are those of Wireshark's development branch; names it has not are in its style.
Where sources disagree the tables hold: rendezvous bytes 4 to 7 as 8, 12 and 12 bits; a small response with
data of 12 bytes; payload lengths of 14 bits.
"""

from __future__ import annotations

from emu.wire.uet_format import Field, Group, HeaderFormat, names_of, unless, when
from emu.wire.uet_names import (
    AtomicOp,
    AtomicType,
    NextHeader,
    RequestOpcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
    is_compare_swap,
)

__all__ = [
    "ATOMIC",
    "BY_NEXT_HEADER",
    "COMPARE_SWAP",
    "EXTENDED_BY_ATOMIC",
    "EXTENDED_BY_RENDEZVOUS",
    "MEDIUM",
    "RENDEZVOUS",
    "RESPONSE",
    "RESPONSE_DATA",
    "RESPONSE_DATA_SMALL",
    "SMALL",
    "STANDARD",
    "atomic_format",
    "extension_format",
]

_OPCODES = names_of(RequestOpcode)
_VENDOR = range(0x30, 0x3F)
_ZERO = range(1)
_ONE = range(1, 2)


def _flag(group: Group, prefix: str, name: str, title: str, legal: range | None = None) -> Field:
    return Field(name, 1, f"{prefix}.{name}", title, legal=legal, group=group)


def _head(prefix: str, flags: str, short: bool) -> tuple[Field, ...]:
    """Opcode and flags. ``flags`` is the prefix of most flag names; a short message is one packet."""
    group = Group(f"{prefix}.flags", "Flags", 8)
    return (
        Field("rsvd1", 2, f"{prefix}.rsv", "Reserved", hexadecimal=True),
        Field("opcode", 6, f"{prefix}.opcode", "Opcode", _OPCODES, vendor=_VENDOR),
        Field("ver", 2, f"{flags}.ver", "Version", legal=_ZERO, group=group),
        _flag(group, flags, "dc", "Delivery Complete (DC)"),
        _flag(group, flags, "ie", "Initiator Error (IE)"),
        _flag(group, flags, "rel", "Relative"),
        Field("hd_rsvd", 1, f"{flags}.rsvd", "Reserved", group=group)
        if prefix.endswith("small_req")
        else _flag(group, flags, "hd", "Header Data"),
        _flag(group, prefix, "eom", "End of Msg (EOM)", _ONE if short else None),
        _flag(group, prefix, "som", "Start of Msg (SOM)", _ONE if short else None),
    )


def _address(prefix: str, generation: str, rsvd: tuple[str, str]) -> tuple[Field, ...]:
    """Which resource of which process of which job."""
    return (
        Field("ri_generation", 8, f"{prefix}.{generation}", "Resource Index Generation"),
        Field("job_id", 24, f"{prefix}.job_id", "Job ID"),
        Field("rsvd3", 4, f"{prefix}.{rsvd[0]}", "Reserved", hexadecimal=True),
        Field("pid_on_fep", 12, f"{prefix}.pidonfep", "PIDonFEP"),
        Field("rsvd4", 4, f"{prefix}.{rsvd[1]}", "Reserved", hexadecimal=True),
        Field("resource_index", 12, f"{prefix}.resource_index", "Resource Index (RI)"),
    )


_STD = "uet.ses.std"
_DEFERRABLE = (RequestOpcode.DEFERRABLE_SEND, RequestOpcode.DEFERRABLE_TSEND)
_RESTART = Group(f"{_STD}.restart_token", "Restart Token", 64)

STANDARD = HeaderFormat(
    "StdRequest",
    "SES standard request",
    "uet.ses",
    (
        *_head(_STD, _STD, short=False),
        Field("message_id", 16, f"{_STD}.message_id", "Message ID"),
        *_address(_STD, "index_generation", ("reserved2", "reserved3")),
        Field(
            "buffer_offset",
            64,
            f"{_STD}.buffer_offset",
            "Buffer Offset",
            hexadecimal=True,
            conditions=(unless("opcode", *_DEFERRABLE),),
        ),
        Field(
            "initiator_token",
            32,
            f"{_STD}.restart_token.initiator",
            "Initiator Restart Token",
            hexadecimal=True,
            conditions=(when("opcode", *_DEFERRABLE),),
            group=_RESTART,
        ),
        Field(
            "target_token",
            32,
            f"{_STD}.restart_token.target",
            "Target Restart Token",
            hexadecimal=True,
            conditions=(when("opcode", *_DEFERRABLE),),
            group=_RESTART,
        ),
        Field("initiator", 32, f"{_STD}.initiator", "Initiator", hexadecimal=True),
        Field(
            "memory_key",
            64,
            f"{_STD}.mem_key_match_bits",
            "Memory Key/Match Bits",
            hexadecimal=True,
            conditions=(unless("opcode", RequestOpcode.DEFERRABLE_RTR),),
        ),
        Field(
            "rtr_initiator_token",
            32,
            f"{_STD}.restart_token.initiator",
            "Initiator Restart Token",
            hexadecimal=True,
            conditions=(when("opcode", RequestOpcode.DEFERRABLE_RTR),),
            group=_RESTART,
        ),
        Field(
            "rtr_target_token",
            32,
            f"{_STD}.restart_token.target",
            "Target Restart Token",
            hexadecimal=True,
            conditions=(when("opcode", RequestOpcode.DEFERRABLE_RTR),),
            group=_RESTART,
        ),
        Field(
            "header_data",
            64,
            f"{_STD}.header_data",
            "Header Data",
            hexadecimal=True,
            conditions=(when("som", 1),),
        ),
        Field(
            "rsvd5",
            18,
            f"{_STD}.reserved4",
            "Reserved",
            hexadecimal=True,
            conditions=(unless("som", 1),),
        ),
        Field(
            "payload_length",
            14,
            f"{_STD}.payload_length",
            "Payload Length",
            conditions=(unless("som", 1),),
        ),
        Field(
            "message_offset",
            32,
            f"{_STD}.message_offset",
            "Message Offset",
            conditions=(unless("som", 1),),
        ),
        Field("request_length", 32, f"{_STD}.request_length", "Request Length"),
    ),
)
"""44 bytes. ``memory_key`` holds match bits in tagged sends. ``header_data`` is valid with ``hd`` set."""


def _length(prefix: str) -> tuple[Field, ...]:
    return (
        Field("rsvd2", 2, f"{prefix}.flags.rsv2", "Reserved", hexadecimal=True),
        Field("request_length", 14, f"{prefix}.req_length", "Request Length"),
    )


_MED = "uet.ses.med_req"

MEDIUM = HeaderFormat(
    "MediumRequest",
    "SES medium request",
    "uet.ses",
    (
        *_head(_MED, f"{_MED}.flags", short=True),
        *_length(_MED),
        *_address(_MED, "resource_index_generation", ("rsv3", "rsv4")),
        Field(
            "header_data",
            64,
            f"{_MED}.header_data",
            "Header Data",
            hexadecimal=True,
            conditions=(when("hd", 1),),
        ),
        Field(
            "buffer_offset",
            64,
            f"{_MED}.buffer_offset",
            "Buffer Offset",
            hexadecimal=True,
            conditions=(unless("hd", 1),),
        ),
        Field("initiator", 32, f"{_MED}.initiator", "Initiator", hexadecimal=True),
        Field("memory_key", 64, f"{_MED}.mem_key_match_bits", "Memory Key/Match Bits", hexadecimal=True),
    ),
)
"""32 bytes; the message is this packet."""

_SMALL = "uet.ses.small_req"

SMALL = HeaderFormat(
    "SmallRequest",
    "SES small request",
    "uet.ses",
    (
        *_head(_SMALL, f"{_SMALL}.flags", short=True),
        *_length(_SMALL),
        *_address(_SMALL, "index_generation", ("rsv3", "rsv4")),
        Field("buffer_offset", 64, f"{_SMALL}.buffer_offset", "Buffer Offset", hexadecimal=True),
    ),
)
"""20 bytes; the message is this packet, the resource index alone names the buffer."""

_RSP = "uet.ses.rsp"
_RSP_HEAD = (
    Field("list", 2, f"{_RSP}.list", "List", names_of(ResponseList), vendor=range(2, 4)),
    Field("opcode", 6, f"{_RSP}.opcode", "Opcode", names_of(ResponseOpcode), vendor=range(0x30, 0x40)),
    Field("ver", 2, f"{_RSP}.ver", "Version", legal=_ZERO),
    Field(
        "return_code",
        6,
        f"{_RSP}.return_code",
        "Return Code",
        names_of(ReturnCode),
        vendor=range(0x30, 0x38),
    ),
)
_RSP_JOB = (
    Field("rsvd1", 8, f"{_RSP}.reserved", "Reserved", hexadecimal=True),
    Field("job_id", 24, f"{_RSP}.job_id", "Job ID"),
)
_RSP_LENGTH = Field("modified_length", 32, f"{_RSP}.mod_length", "Modified Length")
_RSP_PAYLOAD = Field("payload_length", 14, f"{_RSP}.payload_length", "Payload Length")

RESPONSE = HeaderFormat(
    "Response",
    "SES response",
    "uet.ses",
    (
        *_RSP_HEAD,
        Field("message_id", 16, f"{_RSP}.message_id", "Response Message ID"),
        Field("ri_generation", 8, f"{_RSP}.resource_index_gen", "Resource Index Generation"),
        Field("job_id", 24, f"{_RSP}.job_id", "Job ID"),
        _RSP_LENGTH,
    ),
)
"""12 bytes; ``modified_length`` is the length that the target really used."""

RESPONSE_DATA = HeaderFormat(
    "ResponseData",
    "SES response with data",
    "uet.ses",
    (
        *_RSP_HEAD,
        Field("message_id", 16, f"{_RSP}.message_id", "Response Message ID"),
        *_RSP_JOB,
        Field("read_request_message_id", 16, f"{_RSP}.read_req_message_id", "Message ID"),
        Field("rsvd2", 2, f"{_RSP}.reserved2", "Reserved", hexadecimal=True),
        _RSP_PAYLOAD,
        _RSP_LENGTH,
        Field("message_offset", 32, f"{_RSP}.message_offset", "Message Offset"),
    ),
)
"""20 bytes."""

RESPONSE_DATA_SMALL = HeaderFormat(
    "ResponseDataSmall",
    "SES small response with data",
    "uet.ses",
    (
        *_RSP_HEAD,
        Field("rsvd2", 2, f"{_RSP}.reserved3", "Reserved", hexadecimal=True),
        _RSP_PAYLOAD,
        *_RSP_JOB,
        Field("original_request_psn", 32, f"{_RSP}.original_request_psn", "Original Request PSN"),
    ),
)
"""12 bytes; the read is known by its PSN in the forward direction."""

_RDV = "uet.ses.rendv_ext_hdr"

RENDEZVOUS = HeaderFormat(
    "Rendezvous",
    "SES rendezvous extension",
    _RDV,
    (
        Field("eager_length", 32, f"{_RDV}.eager_length", "Eager Length"),
        Field("read_ri_generation", 8, f"{_RDV}.read_index_generation", "Read Index Generation"),
        Field("read_pid_on_fep", 12, f"{_RDV}.read_pid_on_fep", "Read PIDonFEP"),
        Field("read_resource_index", 12, f"{_RDV}.read_resource_index", "Read Resource Index"),
        Field("read_offset", 64, f"{_RDV}.read_offset", "Read Offset", hexadecimal=True),
        Field("read_memory_key", 64, f"{_RDV}.read_match_bits", "Read Match Bits", hexadecimal=True),
    ),
)
"""24 bytes: how much came along, and where the target reads the rest."""


def _atomic(prefix: str) -> tuple[Field, ...]:
    return (
        Field(
            "amo_opcode",
            8,
            f"{prefix}.atomic_opcode",
            "Atomic Opcode",
            names_of(AtomicOp),
            vendor=range(0xE0, 0xFF),
        ),
        Field(
            "amo_datatype",
            8,
            f"{prefix}.atomic_data_type",
            "Atomic Data Type",
            names_of(AtomicType),
            vendor=range(0xE0, 0xFF),
        ),
        Field("semantic_control", 8, f"{prefix}.sem_ctl", "Semantic Control", hexadecimal=True),
        Field("rsvd", 8, f"{prefix}.rsvd", "Reserved", hexadecimal=True),
    )


_AMO = "uet.ses.atomic_op_ext_hdr"

ATOMIC = HeaderFormat("Atomic", "SES atomic extension", _AMO, _atomic(_AMO))
"""4 bytes; the operands are the payload."""

_CAS = "uet.ses.comp_swap_ext_hdr"

COMPARE_SWAP = HeaderFormat(
    "CompareSwap",
    "SES compare and swap extension",
    _CAS,
    (
        *_atomic(_CAS),
        Field("compare_value", 128, f"{_CAS}.comp_value", "Compare Value", hexadecimal=True),
        Field("swap_value", 128, f"{_CAS}.swap_value", "Swap Value", hexadecimal=True),
    ),
)
"""36 bytes; a value shorter than 16 bytes sits in the last bytes of its slot."""

BY_NEXT_HEADER: dict[int, HeaderFormat] = {
    NextHeader.REQUEST_SMALL: SMALL,
    NextHeader.REQUEST_MEDIUM: MEDIUM,
    NextHeader.REQUEST_STD: STANDARD,
    NextHeader.RESPONSE: RESPONSE,
    NextHeader.RESPONSE_DATA: RESPONSE_DATA,
    NextHeader.RESPONSE_DATA_SMALL: RESPONSE_DATA_SMALL,
}
"""Format of the semantic header by next-header value; other values have none."""

EXTENDED_BY_RENDEZVOUS = frozenset({RequestOpcode.RENDEZVOUS_SEND, RequestOpcode.RENDEZVOUS_TSEND})
"""Request opcodes with a rendezvous extension."""

EXTENDED_BY_ATOMIC = frozenset(
    {
        RequestOpcode.ATOMIC,
        RequestOpcode.FETCHING_ATOMIC,
        RequestOpcode.TSEND_ATOMIC,
        RequestOpcode.TSEND_FETCH_ATOMIC,
    }
)
"""Request opcodes with an atomic or compare-and-swap extension, after any of the three request headers."""


def atomic_format(operation: int) -> HeaderFormat:
    """The atomic extension's format, by the operation that is its first byte."""
    return COMPARE_SWAP if is_compare_swap(operation) else ATOMIC


def extension_format(opcode: int, octets: bytes | memoryview) -> HeaderFormat | None:
    """Format of the extension behind a request header of ``opcode``; ``octets`` follow that header.

    None when there is none to expect.
    """
    if opcode in EXTENDED_BY_RENDEZVOUS:
        return RENDEZVOUS
    if opcode in EXTENDED_BY_ATOMIC:
        return atomic_format(octets[0] if len(octets) else 0)
    return None
