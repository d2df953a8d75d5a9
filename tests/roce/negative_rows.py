# SPDX-License-Identifier: Apache-2.0
"""What a row of the negative table is made of: stimuli as data, and outcomes as short strings.

Answers and requests read ``ACK 100``, ``NAK61 100``, ``RNR 100``, ``ONLY 100`` (READ responses by their
part), ``ATOMIC 100``, ``SEND ONLY 100``; completions read ``5 SUCCESS``. ``P`` is the first PSN, ``M`` the
path MTU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emu.nic.work import Access, Opcode, QpState
from emu.wire.headers import pack_aeth, pack_atomic_ack, pack_atomic_eth, pack_reth
from emu.wire.opcodes import RcOpcode as Op
from tests.roce.bench import BASE, RKEY

__all__ = [
    "Arrive",
    "Change",
    "Forget",
    "M",
    "P",
    "Post",
    "Receive",
    "RequesterRow",
    "ResponderRow",
    "Step",
    "Wait",
    "ack",
    "add",
    "cas",
    "data",
    "nak",
    "old",
    "post",
    "read",
    "send",
    "write",
]

P = 100
M = 1024


@dataclass(frozen=True)
class Arrive:
    """A frame arrives. ``edits`` change bytes at offsets into the Ethernet frame (negative: from its end)
    before the ICRC is computed, or after it when ``sealed``; ``flip`` inverts a bit of one byte, ``tail`` is
    appended behind the ICRC.
    """

    opcode: int
    psn: int
    extension: bytes = b""
    payload: bytes = b""
    ask: bool = True
    lies: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[tuple[int, bytes], ...] = ()
    sealed: bool = False
    flip: int | None = None
    tail: bytes = b""
    swap_icrc: bool = False


@dataclass(frozen=True)
class Receive:
    """A receive element is posted at the responder."""

    index: int
    length: int = 4096
    lkey: int | None = None


@dataclass(frozen=True)
class Post:
    """A send element is posted at the requester."""

    opcode: Opcode
    length: int
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """The queue pair enters a state."""

    state: QpState


@dataclass(frozen=True)
class Forget:
    """A memory region disappears."""

    key: int


@dataclass(frozen=True)
class Wait:
    """Virtual time passes (ns)."""

    duration: int


Step = Arrive | Receive | Post | Change | Forget | Wait


@dataclass(frozen=True)
class ResponderRow:
    """Steps at a responder in RTS, and what it must answer, complete, raise and become."""

    id: str
    stimulus: str
    steps: tuple[Step, ...]
    wire: str = ""
    done: str = ""
    events: str = ""
    state: QpState = QpState.RTS
    memory: Callable[[bytes], bool] | None = None
    drops: int | None = None
    atomics: int | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)
    rights: Access | None = None


@dataclass(frozen=True)
class RequesterRow:
    """Steps at a requester in RTS, and what it must send, complete and become."""

    id: str
    stimulus: str
    steps: tuple[Step, ...]
    sent: str
    done: str = ""
    events: str = ""
    state: QpState = QpState.RTS
    memory: bytes | None = None
    drops: int | None = None
    setup: Mapping[str, Any] = field(default_factory=dict)


def send(psn: int, size: int = 4, opcode: int = Op.SEND_ONLY, **more: Any) -> Arrive:
    """A SEND packet."""
    return Arrive(opcode, psn, more.pop("extension", b""), bytes(size), **more)


def write(
    psn: int,
    payload: bytes = b"data",
    *,
    opcode: int = Op.WRITE_ONLY,
    va: int = BASE,
    rkey: int = RKEY,
    length: int | None = None,
    extra: bytes = b"",
    **more: Any,
) -> Arrive:
    """A WRITE packet; one with RETH when it begins a message."""
    reth = b""
    if opcode in (Op.WRITE_FIRST, Op.WRITE_ONLY, Op.WRITE_ONLY_IMM):
        reth = pack_reth(va, rkey, len(payload) if length is None else length)
    return Arrive(opcode, psn, reth + extra, payload, **more)


def read(psn: int, length: int = 8, *, va: int = BASE, rkey: int = RKEY, **more: Any) -> Arrive:
    """A READ request."""
    return Arrive(Op.READ_REQUEST, psn, pack_reth(va, rkey, length), **more)


def add(psn: int, operand: int = 1, *, va: int = BASE, rkey: int = RKEY, **more: Any) -> Arrive:
    """A FETCH ADD."""
    return Arrive(Op.FETCH_ADD, psn, pack_atomic_eth(va, rkey, operand, 0), **more)


def cas(psn: int, swap: int = 1, compare: int = 0) -> Arrive:
    """A COMPARE SWAP."""
    return Arrive(Op.COMPARE_SWAP, psn, pack_atomic_eth(BASE, RKEY, swap, compare))


def post(opcode: Opcode, length: int = 4, **fields: Any) -> Post:
    """A send element, signaled unless ``fields`` say otherwise."""
    return Post(opcode, length, fields)


def ack(psn: int, syndrome: int = 0x1F, **more: Any) -> Arrive:
    """An acknowledgement of any kind."""
    return Arrive(Op.ACKNOWLEDGE, psn, pack_aeth(syndrome, 0), ask=False, **more)


def nak(psn: int, code: int) -> Arrive:
    """A negative one."""
    return ack(psn, code)


def data(opcode: int, psn: int, payload: bytes) -> Arrive:
    """A READ response."""
    extension = b"" if opcode == Op.READ_RESPONSE_MIDDLE else pack_aeth(0x1F, 0)
    return Arrive(opcode, psn, extension, payload, ask=False)


def old(psn: int, value: int = 0) -> Arrive:
    """An atomic acknowledgement."""
    return Arrive(Op.ATOMIC_ACKNOWLEDGE, psn, pack_atomic_ack(0x1F, 0, value), ask=False)
