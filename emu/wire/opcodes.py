# SPDX-License-Identifier: Apache-2.0
"""BTH opcodes as data: which headers follow, what payload is legal, which part of a message it is.

One table serves the scapy layers, the frame templates, the parser and the engines. The opcode's upper three
bits are the transport class, the lower five the operation; UC repeats RC's SEND and WRITE operations under
its own class, XRC all of them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = [
    "BY_OPCODE",
    "CLASS_MASK",
    "CNP",
    "OPERATION_MASK",
    "ExtendedOpcode",
    "Header",
    "Kind",
    "OpcodeInfo",
    "PayloadRule",
    "RcOpcode",
    "TransportClass",
    "UdOpcode",
    "rc_opcode",
]

CLASS_MASK = 0xE0
OPERATION_MASK = 0x1F


class TransportClass(enum.IntEnum):
    """Opcode bits 7:5, in place."""

    RC = 0x00
    UC = 0x20
    RD = 0x40
    UD = 0x60
    CNP = 0x80
    XRC = 0xA0
    MANUFACTURER = 0xC0
    """Left to each manufacturer, as is 0xE0."""


class RcOpcode(enum.IntEnum):
    """RC opcodes. SEND_FIRST to WRITE_ONLY_IMM exist for UC too, with :attr:`TransportClass.UC` added."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_IMM = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_IMM = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    SEND_LAST_INVALIDATE = 0x16
    SEND_ONLY_INVALIDATE = 0x17
    FLUSH = 0x1C
    ATOMIC_WRITE = 0x1D


class ExtendedOpcode(enum.IntEnum):
    """Requests of RC queue pairs for atomics that the standard's two cannot express: 4 bytes, or with masks.

    No public text says what adapters put on the wire for these, so they are this project's own, in the range
    that the standard leaves to manufacturers: its atomics with that range's class (0xE0 on XRC connections),
    and a header of 48 bytes, MaskedAtomicETH. The answer is an ordinary ATOMIC ACKNOWLEDGE, whose value has
    64 bits for 4 bytes too. Only an adapter of this project understands them; another one drops them.
    """

    COMPARE_SWAP = 0xD3
    FETCH_ADD = 0xD4


class UdOpcode(enum.IntEnum):
    """UD opcodes."""

    SEND_ONLY = 0x64
    SEND_ONLY_IMM = 0x65


CNP = 0x81
"""Congestion notification packet."""


class Header(enum.Enum):
    """Extension headers between BTH and payload; the value is the size in bytes, made unique by the name."""

    RETH = ("RETH", 16)
    ATOMIC_ETH = ("AtomicETH", 28)
    AETH = ("AETH", 4)
    ATOMIC_ACK_ETH = ("AtomicAckETH", 8)
    IMM_DT = ("ImmDt", 4)
    IETH = ("IETH", 4)
    DETH = ("DETH", 8)
    FETH = ("FETH", 4)
    MASKED_ATOMIC_ETH = ("MaskedAtomicETH", 48)
    XRC_ETH = ("XRCETH", 4)

    @property
    def size(self) -> int:
        """Bytes on the wire, always a multiple of four."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """How many payload bytes a packet may carry: ``least`` to ``most``, None standing for the path MTU."""

    text: str
    least: int | None
    most: int | None

    def allows(self, length: int, mtu: int) -> bool:
        """True when ``length`` payload bytes are legal on a path of ``mtu`` bytes."""
        least, most = self.least, self.most
        return (mtu if least is None else least) <= length <= (mtu if most is None else most)


class Kind(enum.IntFlag):
    """What part an opcode plays. READ requests and atomics are START and END at once."""

    REQUEST = 1
    RESPONSE = 2
    START = 4
    END = 8
    RECEIVE = 16
    """Takes a receive element at this packet."""


@dataclass(frozen=True, slots=True)
class OpcodeInfo:
    """One opcode: ``name`` as people read it, headers in wire order, payload rule and kind.

    The rest follows from these and is kept because every packet asks: ``extension_size`` is the bytes of all
    extension headers, the others are the bits of ``kind``.
    """

    opcode: int
    name: str
    headers: tuple[Header, ...]
    payload: PayloadRule
    kind: Kind
    extension_size: int = field(init=False)
    response: bool = field(init=False)
    start: bool = field(init=False)
    end: bool = field(init=False)
    takes_receive: bool = field(init=False)

    def __post_init__(self) -> None:
        derived = {
            "extension_size": sum(header.size for header in self.headers),
            "response": Kind.RESPONSE in self.kind,
            "start": Kind.START in self.kind,
            "end": Kind.END in self.kind,
            "takes_receive": Kind.RECEIVE in self.kind,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def transport_class(self) -> int:
        """Opcode bits 7:5, in place."""
        return self.opcode & CLASS_MASK


_REQ, _RESP = Kind.REQUEST, Kind.RESPONSE
_START, _END, _RECV = Kind.START, Kind.END, Kind.RECEIVE
_WHOLE = _REQ | _START | _END
_RETH, _IMM, _AETH, _IETH = Header.RETH, Header.IMM_DT, Header.AETH, Header.IETH
_NONE = PayloadRule("none", 0, 0)
_FULL = PayloadRule("exactly the path MTU", None, None)
_SOME = PayloadRule("1 to path MTU", 1, None)
_ANY = PayloadRule("0 to path MTU", 0, None)
_EIGHT = PayloadRule("exactly 8", 8, 8)
_SIXTEEN = PayloadRule("exactly 16", 16, 16)

_OPERATIONS: tuple[tuple[RcOpcode, str, tuple[Header, ...], PayloadRule, Kind], ...] = (
    (RcOpcode.SEND_FIRST, "SEND FIRST", (), _FULL, _REQ | _START | _RECV),
    (RcOpcode.SEND_MIDDLE, "SEND MIDDLE", (), _FULL, _REQ),
    (RcOpcode.SEND_LAST, "SEND LAST", (), _SOME, _REQ | _END),
    (RcOpcode.SEND_LAST_IMM, "SEND LAST IMM", (_IMM,), _SOME, _REQ | _END),
    (RcOpcode.SEND_ONLY, "SEND ONLY", (), _ANY, _WHOLE | _RECV),
    (RcOpcode.SEND_ONLY_IMM, "SEND ONLY IMM", (_IMM,), _ANY, _WHOLE | _RECV),
    (RcOpcode.WRITE_FIRST, "WRITE FIRST", (_RETH,), _FULL, _REQ | _START),
    (RcOpcode.WRITE_MIDDLE, "WRITE MIDDLE", (), _FULL, _REQ),
    (RcOpcode.WRITE_LAST, "WRITE LAST", (), _SOME, _REQ | _END),
    (RcOpcode.WRITE_LAST_IMM, "WRITE LAST IMM", (_IMM,), _SOME, _REQ | _END | _RECV),
    (RcOpcode.WRITE_ONLY, "WRITE ONLY", (_RETH,), _ANY, _WHOLE),
    (RcOpcode.WRITE_ONLY_IMM, "WRITE ONLY IMM", (_RETH, _IMM), _ANY, _WHOLE | _RECV),
    (RcOpcode.READ_REQUEST, "READ REQUEST", (_RETH,), _NONE, _WHOLE),
    (RcOpcode.READ_RESPONSE_FIRST, "READ RESPONSE FIRST", (_AETH,), _FULL, _RESP),
    (RcOpcode.READ_RESPONSE_MIDDLE, "READ RESPONSE MIDDLE", (), _FULL, _RESP),
    (RcOpcode.READ_RESPONSE_LAST, "READ RESPONSE LAST", (_AETH,), _SOME, _RESP),
    (RcOpcode.READ_RESPONSE_ONLY, "READ RESPONSE ONLY", (_AETH,), _ANY, _RESP),
    (RcOpcode.ACKNOWLEDGE, "ACKNOWLEDGE", (_AETH,), _NONE, _RESP),
    (RcOpcode.ATOMIC_ACKNOWLEDGE, "ATOMIC ACKNOWLEDGE", (_AETH, Header.ATOMIC_ACK_ETH), _NONE, _RESP),
    (RcOpcode.COMPARE_SWAP, "COMPARE SWAP", (Header.ATOMIC_ETH,), _NONE, _WHOLE),
    (RcOpcode.FETCH_ADD, "FETCH ADD", (Header.ATOMIC_ETH,), _NONE, _WHOLE),
    (RcOpcode.SEND_LAST_INVALIDATE, "SEND LAST INVALIDATE", (_IETH,), _SOME, _REQ | _END),
    (RcOpcode.SEND_ONLY_INVALIDATE, "SEND ONLY INVALIDATE", (_IETH,), _ANY, _WHOLE | _RECV),
    (RcOpcode.FLUSH, "FLUSH", (Header.FETH, _RETH), _NONE, _WHOLE),
    (RcOpcode.ATOMIC_WRITE, "ATOMIC WRITE", (_RETH,), _EIGHT, _WHOLE),
)


def _xrc(headers: tuple[Header, ...], kind: Kind) -> tuple[Header, ...]:
    """Requests of an XRC connection name the shared receive queue first (IBTA volume 1, annex A14)."""
    return headers if Kind.RESPONSE in kind else (Header.XRC_ETH, *headers)


def _table() -> dict[int, OpcodeInfo]:
    table: dict[int, OpcodeInfo] = {}
    for operation, name, headers, payload, kind in _OPERATIONS:
        table[int(operation)] = OpcodeInfo(int(operation), f"RC {name}", headers, payload, kind)
        if operation <= RcOpcode.WRITE_ONLY_IMM:
            opcode = TransportClass.UC | operation
            table[opcode] = OpcodeInfo(opcode, f"UC {name}", headers, payload, kind)
        opcode = TransportClass.XRC | operation
        table[opcode] = OpcodeInfo(opcode, f"XRC {name}", _xrc(headers, kind), payload, kind)
    datagram = (Header.DETH,)
    for ud, name, headers in (
        (UdOpcode.SEND_ONLY, "UD SEND ONLY", datagram),
        (UdOpcode.SEND_ONLY_IMM, "UD SEND ONLY IMM", (*datagram, _IMM)),
    ):
        table[int(ud)] = OpcodeInfo(int(ud), name, headers, _ANY, _WHOLE | _RECV)
    for extended, name in (
        (ExtendedOpcode.COMPARE_SWAP, "MASKED COMPARE SWAP"),
        (ExtendedOpcode.FETCH_ADD, "MASKED FETCH ADD"),
    ):
        headers = (Header.MASKED_ATOMIC_ETH,)
        table[int(extended)] = OpcodeInfo(int(extended), f"RC {name}", headers, _NONE, _WHOLE)
        opcode = TransportClass.XRC | extended
        table[opcode] = OpcodeInfo(opcode, f"XRC {name}", _xrc(headers, _WHOLE), _NONE, _WHOLE)
    table[CNP] = OpcodeInfo(CNP, "CNP", (), _SIXTEEN, Kind(0))
    return table


BY_OPCODE: dict[int, OpcodeInfo] = _table()
"""Every opcode defined here, by its wire value."""

_FROM_XRC = {TransportClass.XRC | opcode: int(opcode) for opcode in (*RcOpcode, *ExtendedOpcode)}


def rc_opcode(opcode: int) -> int:
    """The opcode that says on a reliable connection what ``opcode`` says on an XRC one; others stay."""
    return _FROM_XRC.get(opcode, opcode)
