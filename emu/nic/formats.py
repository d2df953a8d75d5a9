# SPDX-License-Identifier: Apache-2.0
"""The seam between the core and a personality: who knows what the bytes in guest memory look like.

The core reads and writes slots; these objects give the bytes their meaning. They are asked for whole bursts,
so the cost of a call is shared by every descriptor of a doorbell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from emu.checks.rule import Rule
from emu.nic.engine import AsyncEvent
from emu.nic.work import Cause, Completion, CompletionOpcode, ReceiveRequest, SendRequest, Status

if TYPE_CHECKING:
    from emu.nic.cq import CompletionQueue
    from emu.nic.eq import EventQueue
    from emu.nic.qp import QueuePair

__all__ = ["CqeFormat", "EqeFormat", "Formats", "ReceiveFormat", "RecordFormat", "WqeFault", "WqeFormat"]


@dataclass(frozen=True, slots=True)
class WqeFault:
    """A descriptor that cannot be carried out: which rule it breaks and how its completion reports it.

    ``text`` is for a person and says what to do. ``slots`` is how far the next descriptor is, as well as one
    can tell.
    """

    index: int
    rule: Rule
    cause: Cause
    text: str
    slots: int = 1
    status: Status = Status.LOC_QP_OP_ERR
    opcode: CompletionOpcode = CompletionOpcode.SEND


class WqeFormat(Protocol):
    """Send descriptors."""

    slot_size: int

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
        """The descriptors in ``count`` slots, ``burst`` being their bytes and ``first`` the running index of
        the
        first.

        One result per descriptor, in order. Never raises for any bytes. A descriptor of several slots that
        reaches past ``count`` is left out; the core reads on from there.
        """


class ReceiveFormat(Protocol):
    """Receive descriptors, one slot each."""

    slot_size: int

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[ReceiveRequest | WqeFault]:
        """As :meth:`WqeFormat.decode`, with exactly ``count`` results. A slot is ``len(burst) // count``
        bytes.
        """


class CqeFormat(Protocol):
    """Completion entries."""

    slot_size: int

    def encode(self, completion: Completion, cq: CompletionQueue, timestamp: int) -> tuple[bytes, bytes]:
        """Body and commit word of the entry with running index ``cq.producer``.

        Together they are ``slot_size`` bytes.
        """

    def counter(self, value: int) -> bytes:
        """One 8-byte completion counter."""


class EqeFormat(Protocol):
    """Event entries."""

    slot_size: int

    def encode(
        self, event: AsyncEvent | None, number: int, eq: EventQueue, timestamp: int
    ) -> tuple[bytes, bytes]:
        """Body and commit word of the entry with running index ``eq.producer``.

        ``event`` None is a completion event and ``number`` then a CQN; otherwise ``number`` is the CQN or QPN
        the event is about, 0 for the whole device.
        """


class RecordFormat(Protocol):
    """Doorbell records.

    Indices may be narrower in memory than the core's 32 bits: ``last`` supplies the rest.
    """

    size: int

    def send(self, record: bytes, last: int) -> int:
        """Running index of the next free send slot."""

    def receive(self, record: bytes, last: int) -> int:
        """Running index of the next free receive slot."""

    def consumer(self, record: bytes, last: int) -> int:
        """Of a CQ's record: running index of the next entry software will read."""


@dataclass(frozen=True, slots=True)
class Formats:
    """A personality's formats."""

    wqe: WqeFormat
    receive: ReceiveFormat
    cqe: CqeFormat
    eqe: EqeFormat
    record: RecordFormat
