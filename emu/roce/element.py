# SPDX-License-Identifier: Apache-2.0
"""Send-queue elements on their way: which packets an operation makes, and how far one element has come."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emu.nic.atomics import ATOMIC_SIZES
from emu.nic.work import Cause, CompletionOpcode, Opcode, SendRequest, Status
from emu.roce.psn import HALF, PSN_MASK
from emu.wire.opcodes import ExtendedOpcode, RcOpcode

__all__ = [
    "MAX_MESSAGE",
    "NO_OPERATION",
    "OPERATIONS",
    "WINDOW",
    "Answer",
    "Element",
    "Fault",
    "Operation",
    "refusal",
]

WINDOW = 128
"""PSNs that may be unacknowledged before no new packet starts; one long READ may exceed it by itself."""
MAX_MESSAGE = 1 << 31
"""Longest message in bytes."""


class Answer(enum.Enum):
    """What finishes an operation."""

    NOTHING = "local"
    ACK = "acknowledgement"
    DATA = "READ responses"
    ATOMIC = "atomic acknowledgement"


@dataclass(frozen=True, slots=True)
class Operation:
    """One send opcode. READ and atomics make one request packet, ``only`` (of atomics ``extended`` when 8
    plain bytes are not what they work on); NOP makes none.
    """

    completion: CompletionOpcode
    answer: Answer
    first: int = 0
    middle: int = 0
    last: int = 0
    only: int = 0
    write: bool = False
    immediate: bool = False
    invalidate: bool = False
    extended: int = 0


def _message(
    completion: CompletionOpcode,
    base: str,
    *,
    write: bool = False,
    immediate: bool = False,
    invalidate: bool = False,
) -> Operation:
    end = "_IMM" if immediate else "_INVALIDATE" if invalidate else ""
    return Operation(
        completion,
        Answer.ACK,
        first=int(RcOpcode[f"{base}_FIRST"]),
        middle=int(RcOpcode[f"{base}_MIDDLE"]),
        last=int(RcOpcode[f"{base}_LAST{end}"]),
        only=int(RcOpcode[f"{base}_ONLY{end}"]),
        write=write,
        immediate=immediate,
        invalidate=invalidate,
    )


OPERATIONS: dict[Opcode, Operation] = {
    Opcode.NOP: Operation(CompletionOpcode.NOP, Answer.NOTHING),
    Opcode.WRITE: _message(CompletionOpcode.WRITE, "WRITE", write=True),
    Opcode.WRITE_IMM: _message(CompletionOpcode.WRITE, "WRITE", write=True, immediate=True),
    Opcode.SEND: _message(CompletionOpcode.SEND, "SEND"),
    Opcode.SEND_IMM: _message(CompletionOpcode.SEND, "SEND", immediate=True),
    Opcode.SEND_INV: _message(CompletionOpcode.SEND, "SEND", invalidate=True),
    Opcode.READ: Operation(CompletionOpcode.READ, Answer.DATA, only=int(RcOpcode.READ_REQUEST)),
    Opcode.ATOMIC_ADD: Operation(
        CompletionOpcode.ATOMIC_ADD,
        Answer.ATOMIC,
        only=int(RcOpcode.FETCH_ADD),
        extended=int(ExtendedOpcode.FETCH_ADD),
    ),
    Opcode.ATOMIC_CAS: Operation(
        CompletionOpcode.ATOMIC_CAS,
        Answer.ATOMIC,
        only=int(RcOpcode.COMPARE_SWAP),
        extended=int(ExtendedOpcode.COMPARE_SWAP),
    ),
}


NO_OPERATION = Operation(CompletionOpcode.NOP, Answer.NOTHING)
"""Stands for an opcode that RC does not have, until its element fails."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an element cannot go on locally; it fails once everything before it is finished."""

    status: Status
    cause: int
    reason: str


@dataclass(slots=True)
class Element:
    """One element between its first packet and its completion.

    It owns PSNs ``first`` .. ``first + packets - 1``. ``cursor`` counts PSNs already sent, and goes back for
    a resend; ``received`` counts answers already placed (READ response packets, or 1 for an atomic).
    """

    request: SendRequest
    operation: Operation
    first: int
    packets: int
    cursor: int = 0
    received: int = 0
    restarted: bool = False
    fault: Fault | None = None

    @property
    def last(self) -> int:
        """Last PSN owned."""
        return (self.first + self.packets - 1) & PSN_MASK


def refusal(request: SendRequest, operation: Operation, mtu: int, max_rd_atomic: int) -> Fault | None:
    """What forbids to carry out ``request`` on this queue pair at all; None when nothing does."""
    if request.opcode not in OPERATIONS:
        return Fault(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, f"RC has no operation {request.opcode!r}")
    # No two PSNs in flight may be half the circle apart.
    longest = min(MAX_MESSAGE, (HALF - WINDOW - 1) * mtu)
    if not 0 <= request.length <= longest:
        reason = f"message of {request.length} bytes, at most {longest}"
        return Fault(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
    if operation.answer is Answer.ATOMIC and request.length not in ATOMIC_SIZES:
        reason = f"atomic of {request.length} bytes: there are atomics of 4 and of 8 bytes"
        return Fault(Status.LOC_QP_OP_ERR, Cause.BAD_LENGTH, reason)
    if operation.answer in (Answer.DATA, Answer.ATOMIC) and not max_rd_atomic:
        reason = "READ or atomic on a QP with max_rd_atomic 0 can never run"
        return Fault(Status.LOC_QP_OP_ERR, Cause.NONE, reason)
    return None
