# SPDX-License-Identifier: Apache-2.0
"""Memory order between the threads of a GPU, as their side's hints tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.check import Check, Found
from emu.checks.hint import Hint, Part
from emu.checks.rule import Rule
from emu.nic.serial import ahead

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "OrderJudge"]

CHECKS = (
    Check(
        Rule.C09_ORDER,
        "Each store to a WQE, its payload and the doorbell record happens before the doorbell that "
        "covers it.",
        "QPN, index, address; who stored, its clock, what the one who rings knows of it",
        "Nothing: the descriptor may be read too early.",
        "A release fence of the NIC's scope comes before publishing and before the doorbell, an acquire "
        "after taking over what another thread wrote.",
        found=Found.HINTS,
        personalities=("vrnic",),
        limits="Stores of lanes of the SIMT shim's weak engine.",
    ),
    Check(
        Rule.C10_SCOPE,
        "Fences and atomics between threads have a scope that holds both of them, and the NIC where it "
        "reads.",
        "QPN, index, address; both CTAs, or who stored and the widest fence since",
        "Nothing: the descriptor may be read too early, an index handed out twice.",
        "CTA scope is for what one CTA uses alone; host memory needs system scope.",
        found=Found.HINTS,
        personalities=("vrnic",),
    ),
    Check(
        Rule.C20_LOCK,
        "Who stores doorbell record and doorbell holds the queue pair's lock.",
        "QPN, index, the lane that rings, the lane that holds the lock",
        "Nothing: an older doorbell may come last.",
        "Take the lock before the record is stored, release it after the doorbell, on every path.",
        found=Found.HINTS,
        personalities=("vrnic",),
    ),
    Check(
        Rule.C24_UNORDERED,
        "A receiver relies only on order that the transport promises: within a queue pair, or behind a "
        "fence.",
        "address of the data that is missing, address of the flag that is there",
        "Nothing.",
        "Send data and its signal on one queue pair, with a fence where that is unordered.",
        found=Found.HINTS,
        personalities=("vrnic",),
        limits="Needs a run in which the order is different: loss, a chaos profile, an unordered transport.",
    ),
)

_PARTS = {Part.WQE: "the WQE", Part.PAYLOAD: "the payload", Part.RECORD: "the doorbell record"}
_SCOPES = ("no", "CTA", "GPU", "system")


class OrderJudge:
    """Compares the clocks and names that hints carry."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks

    def doorbell(self, hint: Hint, qp: QueuePair) -> None:
        """What the lane that rings knows of a store that its doorbell covers."""
        if ahead(hint.writer_clock, hint.known_clock) <= 0:
            return
        narrow = ahead(hint.writer_clock, hint.loose_clock) <= 0
        part = _PARTS[Part(hint.detail)]
        writer = f"lane {hint.writer} of CTA {hint.writer_cta}"
        text = f"QP {qp.number:#x}: lane {hint.lane} rings for index {hint.index} while {part} at "
        if narrow:
            self._checks.report(
                Rule.C10_SCOPE,
                f"{text}{hint.address:#x} is ordered before it with {_SCOPES[hint.scope]} scope at most; it "
                f"needs {_SCOPES[hint.needed]} scope",
                qpn=qp.number,
                index=hint.index,
                address=hint.address,
                writers=(writer,),
            )
        else:
            self._checks.report(
                Rule.C09_ORDER,
                f"{text}{hint.address:#x} is not ordered before it (stored at {hint.writer_clock} of the "
                f"writer's clock, known up to {hint.known_clock}); a fence of the NIC's scope comes "
                "before the "
                "doorbell",
                qpn=qp.number,
                index=hint.index,
                address=hint.address,
                writers=(writer,),
            )

    def shared_word(self, hint: Hint) -> None:
        """CTAs update one word, one of them with CTA scope."""
        if hint.cta != hint.writer_cta:
            self._checks.report(
                Rule.C10_SCOPE,
                f"CTA {hint.cta} and CTA {hint.writer_cta} update the word at {hint.address:#x} with CTA "
                "scope; "
                "a word that CTAs share needs GPU scope",
                qpn=hint.qpn or None,
                address=hint.address,
                writers=(
                    f"lane {hint.writer} of CTA {hint.writer_cta}",
                    f"lane {hint.lane} of CTA {hint.cta}",
                ),
            )

    def lock(self, hint: Hint, qp: QueuePair) -> None:
        """A lane rings; ``detail`` says whether it holds the lock."""
        if not hint.detail:
            holder = "nobody" if hint.writer == hint.NOBODY else f"lane {hint.writer}"
            self._checks.report(
                Rule.C20_LOCK,
                f"QP {qp.number:#x}: lane {hint.lane} stores record and doorbell of index {hint.index} "
                "without "
                f"the lock, which {holder} holds; take it first",
                qpn=qp.number,
                index=hint.index,
                writers=(f"lane {hint.lane} of CTA {hint.cta}",),
            )

    def missing(self, hint: Hint) -> None:
        """A flag is here, the data it stands for is not."""
        self._checks.report(
            Rule.C24_UNORDERED,
            f"lane {hint.lane} sees the flag at {hint.value:#x}, but not the data at {hint.address:#x} "
            "that it "
            "stands for; only one queue pair keeps the two in order, and an unordered one only behind a "
            "fence",
            qpn=hint.qpn or None,
            address=hint.address,
        )

    def reuse(self, hint: Hint, qp: QueuePair) -> None:
        """A lane writes over a slot, payload or result; ``value`` is the first index it does not know as
        complete.
        """
        if ahead(hint.index, hint.value & 0xFFFFFFFF) < 0:
            return
        part = {Part.WQE: "the slot", Part.RESULT: "the result buffer"}.get(Part(hint.detail), "the payload")
        self._checks.report(
            Rule.C05_REUSE,
            f"QP {qp.number:#x}: lane {hint.lane} writes over {part} of index {hint.index} at "
            f"{hint.address:#x}, whose completion it has not seen; wait for it first",
            qpn=qp.number,
            index=hint.index,
            address=hint.address,
            writers=(f"lane {hint.lane} of CTA {hint.cta}",),
        )
