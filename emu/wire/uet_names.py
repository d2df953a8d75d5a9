# SPDX-License-Identifier: Apache-2.0
"""Numbers of Ultra Ethernet Transport with their names, as UE specification 1.0.x has them.

Every enumeration carries the wire value. A value that is not a member is reserved unless the docstring says
otherwise.
"""

from __future__ import annotations

import enum

__all__ = [
    "UET_PORT",
    "AckFlag",
    "AckRequest",
    "AtomicOp",
    "AtomicType",
    "CcType",
    "ControlFlag",
    "CtlType",
    "NackCode",
    "NackFlag",
    "NextHeader",
    "PdsType",
    "RequestFlag",
    "RequestOpcode",
    "ResponseList",
    "ResponseOpcode",
    "ReturnCode",
    "RudiFlag",
    "SemanticControl",
    "SesFlag",
    "is_compare_swap",
]

UET_PORT = 4793
"""UDP destination port of every UET packet; the source port is the entropy value."""


class PdsType(enum.IntEnum):
    """First five bits of a packet delivery header. TSS means that the security header comes first."""

    TSS = 1
    RUD_REQ = 2
    ROD_REQ = 3
    RUDI_REQ = 4
    RUDI_RESP = 5
    UUD_REQ = 6
    ACK = 7
    ACK_CC = 8
    ACK_CCX = 9
    NACK = 10
    CP = 11
    NACK_CCX = 12
    RUD_CC_REQ = 13
    ROD_CC_REQ = 14


class NextHeader(enum.IntEnum):
    """Which semantic header follows the packet delivery header. CP_ACK, found in one source, means NONE."""

    NONE = 0
    REQUEST_SMALL = 1
    REQUEST_MEDIUM = 2
    REQUEST_STD = 3
    RESPONSE = 4
    RESPONSE_DATA = 5
    RESPONSE_DATA_SMALL = 6
    CP_ACK = 9


class CtlType(enum.IntEnum):
    """What a control packet asks or tells; it stands where other packets have the next header."""

    NOOP = 0
    ACK_REQUEST = 1
    CLEAR_CMD = 2
    CLEAR_REQ = 3
    CLOSE_CMD = 4
    CLOSE_REQ = 5
    PROBE = 6
    CREDIT = 7
    CREDIT_REQ = 8
    NEGOTIATION = 9


class NackCode(enum.IntEnum):
    """Why a packet was refused. TRIMMED_ACK is reserved from 1.0.3 on."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    TRIMMED_ACK = 0x03
    NO_PDC_AVAIL = 0x04
    NO_CCC_AVAIL = 0x05
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_GTD_DEL_AVAIL = 0x08
    NO_SES_MSG_AVAIL = 0x09
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    ROD_OOO = 0x0D
    INV_DPDCID = 0x0E
    PDC_HDR_MISMATCH = 0x0F
    CLOSING = 0x10
    CLOSING_IN_ERR = 0x11
    PKT_NOT_RCVD = 0x12
    GTD_RESP_UNAVAIL = 0x13
    ACK_WITH_DATA = 0x14
    INVALID_SYN = 0x15
    PDC_MODE_MISMATCH = 0x16
    NEW_START_PSN = 0x17
    RCVD_SES_PROCG = 0x18
    UNEXP_EVENT = 0x19
    RCVR_INFER_LOSS = 0x1A
    EXP_NORMAL = 0xFD
    EXP_ERROR = 0xFE
    EXP_FATAL = 0xFF


class CcType(enum.IntEnum):
    """Shape of an ACK_CC's congestion state."""

    NSCC = 0
    CREDIT = 1


class AckRequest(enum.IntEnum):
    """The REQ flags of an ACK: what the target asks of the initiator."""

    NONE = 0
    CLEAR = 1
    CLOSE = 2


class RequestFlag(enum.IntFlag):
    """Seven flag bits of RUD and ROD requests."""

    RETX = 0x10
    AR = 0x08
    SYN = 0x04


class AckFlag(enum.IntFlag):
    """Seven flag bits of ACK, ACK_CC and ACK_CCX. REQ is the two-bit field of :class:`AckRequest`."""

    EPSN = 0x40
    M = 0x20
    RETX = 0x10
    P = 0x08
    REQ_CLEAR = 0x02
    REQ_CLOSE = 0x04


class NackFlag(enum.IntFlag):
    """Seven flag bits of NACK and NACK_CCX. NT set means that a RUDI packet was refused."""

    M = 0x20
    RETX = 0x10
    NT = 0x08


class ControlFlag(enum.IntFlag):
    """Seven flag bits of control packets."""

    ISROD = 0x20
    RETX = 0x10
    AR = 0x08
    SYN = 0x04


class RudiFlag(enum.IntFlag):
    """Seven flag bits of RUDI packets; M in responses only."""

    M = 0x20
    RETX = 0x10


class SesFlag(enum.IntFlag):
    """Low six bits of byte 1 of a request header: delivery complete, initiator error, relative addressing,
    header data, end and start of message.
    """

    DC = 0x20
    IE = 0x10
    REL = 0x08
    HD = 0x04
    EOM = 0x02
    SOM = 0x01


class RequestOpcode(enum.IntEnum):
    """Operation of a request header. 0x30 to 0x3E are the vendor's."""

    NO_OP = 0x00
    WRITE = 0x01
    READ = 0x02
    ATOMIC = 0x03
    FETCHING_ATOMIC = 0x04
    SEND = 0x05
    RENDEZVOUS_SEND = 0x06
    DATAGRAM_SEND = 0x07
    DEFERRABLE_SEND = 0x08
    TAGGED_SEND = 0x09
    RENDEZVOUS_TSEND = 0x0A
    DEFERRABLE_TSEND = 0x0B
    DEFERRABLE_RTR = 0x0C
    TSEND_ATOMIC = 0x0D
    TSEND_FETCH_ATOMIC = 0x0E
    MSG_ERROR = 0x0F


class ResponseOpcode(enum.IntEnum):
    """Kind of a response header. 0x30 to 0x3F are the vendor's."""

    DEFAULT_RESPONSE = 0x00
    RESPONSE = 0x01
    RESPONSE_W_DATA = 0x02
    NO_RESPONSE = 0x03


class ResponseList(enum.IntEnum):
    """Where the target found a buffer for a message. 2 and 3 are the vendor's."""

    EXPECTED = 0
    OVERFLOW = 1


class ReturnCode(enum.IntEnum):
    """How an operation ended at the target. 0x30 to 0x37 are the vendor's."""

    NULL = 0x00
    OK = 0x01
    BAD_GENERATION = 0x02
    DISABLED = 0x03
    DISABLED_GEN = 0x04
    NO_MATCH = 0x05
    UNSUPPORTED_OP = 0x06
    UNSUPPORTED_SIZE = 0x07
    AT_INVALID = 0x08
    AT_PERM = 0x09
    AT_ATS_ERROR = 0x0A
    AT_NO_TRANS = 0x0B
    AT_OUT_OF_RANGE = 0x0C
    HOST_POISONED = 0x0D
    HOST_UNSUCCESS_CMPL = 0x0E
    AMO_UNSUPPORTED_OP = 0x0F
    AMO_UNSUPPORTED_DT = 0x10
    AMO_UNSUPPORTED_SIZE = 0x11
    AMO_UNALIGNED = 0x12
    AMO_FP_NAN = 0x13
    AMO_FP_UNDERFLOW = 0x14
    AMO_FP_OVERFLOW = 0x15
    AMO_FP_INEXACT = 0x16
    PERM_VIOLATION = 0x17
    OP_VIOLATION = 0x18
    BAD_INDEX = 0x19
    BAD_PID = 0x1A
    BAD_JOB_ID = 0x1B
    BAD_MKEY = 0x1C
    BAD_ADDR = 0x1D
    CANCELLED = 0x1E
    UNDELIVERABLE = 0x1F
    UNCOR = 0x20
    UNCOR_TRNSNT = 0x21
    TOO_LONG = 0x22
    INITIATOR_ERROR = 0x23
    DROPPED = 0x24


class AtomicOp(enum.IntEnum):
    """Atomic operation. 0xE0 to 0xFE are the vendor's."""

    MIN = 0x00
    MAX = 0x01
    SUM = 0x02
    DIFF = 0x03
    PROD = 0x04
    LOR = 0x05
    LAND = 0x06
    BOR = 0x07
    BAND = 0x08
    LXOR = 0x09
    BXOR = 0x0A
    READ = 0x0B
    WRITE = 0x0C
    CSWAP = 0x0D
    CSWAP_NE = 0x0E
    CSWAP_LE = 0x0F
    CSWAP_LT = 0x10
    CSWAP_GE = 0x11
    CSWAP_GT = 0x12
    MSWAP = 0x13
    INVAL = 0x14


class AtomicType(enum.IntEnum):
    """Type of an atomic's operands. 0xE0 to 0xFE are the vendor's."""

    INT8 = 0x00
    UINT8 = 0x01
    INT16 = 0x02
    UINT16 = 0x03
    INT32 = 0x04
    UINT32 = 0x05
    INT64 = 0x06
    UINT64 = 0x07
    INT128 = 0x08
    UINT128 = 0x09
    FLOAT = 0x0A
    DOUBLE = 0x0B
    FLOAT_COMPLEX = 0x0C
    DOUBLE_COMPLEX = 0x0D
    LONG_DOUBLE = 0x0E
    LONG_DOUBLE_COMPLEX = 0x0F
    BF16 = 0x10
    FP16 = 0x11


class SemanticControl(enum.IntFlag):
    """Memory attributes of an atomic's target."""

    CACHEABLE = 0x01
    CPU_COHERENT = 0x02


def is_compare_swap(operation: int) -> bool:
    """True when ``operation`` (an :class:`AtomicOp` number) carries a compare and a swap value."""
    return AtomicOp.CSWAP <= operation <= AtomicOp.MSWAP
