# SPDX-License-Identifier: Apache-2.0
"""Doorbells and doorbell records: what may be rung, when, and that it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from emu.checks.check import Check, Found
from emu.checks.rule import Rule
from emu.clock import MS
from emu.nic.serial import MASK, ahead
from emu.nic.work import QpState, SendRequest
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.device import Nic
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "CONFIRM", "IDLE", "IdleWatch"]

CHECKS = (
    Check(
        Rule.C06_AHEAD,
        "A doorbell is at most a ring ahead of what completed.",
        "QPN, index, oldest index not completed",
        "Doorbell ignored.",
        "Wait for completions before reusing slots; check for a free slot when reserving.",
    ),
    Check(
        Rule.C07_OLDER,
        "Doorbells of a queue pair come in the order of their indices.",
        "QPN, index, the one before",
        "Doorbell ignored.",
        "Serialise the doorbells of a queue pair; one lane of a warp rings.",
    ),
    Check(
        Rule.C08_DBR,
        "The doorbell record agrees with the doorbell: not behind it when the queue pair is idle, and stored "
        "before it where the policy is STRICT. The receive dword is not the send index.",
        "QPN, index, both dwords of the record",
        "STRICT: doorbell ignored. Otherwise nothing, until a doorbell is lost.",
        "Store the send index in the second dword of the record, then fence, then ring.",
        limits="Where the record is looked at: policies RECOVERY and STRICT, and mlx5.",
    ),
    Check(
        Rule.C12_WIDTH,
        "A doorbell is one aligned 64-bit store.",
        "offset, width, value",
        "Doorbell ignored.",
        "Ring with one 8-byte store, not with two halves, and not with several lanes in one instruction.",
        limits="mlx5 drivers of 32-bit machines ring in halves; on a CQ doorbell too that is named here.",
    ),
    Check(
        Rule.C13_LOST_DOORBELL,
        "A lost doorbell loses no work: the record tells of it, or it is rung again.",
        "QPN, index of the doorbell that was lost, index in the record",
        "Nothing: the work stays where it is.",
        "Keep the record current before each doorbell, and choose a policy that reads it.",
        found=Found.FAULT,
        personalities=("vrnic",),
    ),
    Check(
        Rule.C14_UNRUNG,
        "WQEs that are written and published are rung when nobody does anything else.",
        "QPN, first index not rung; with hints the ready index",
        "Nothing: the NIC does not know of them.",
        "Whoever is last must ring; batching needs a flush.",
        limits="Without hints the next slot tells, after 2 s; with hints 500 ms after every lane waits.",
    ),
    Check(
        Rule.C21_STATE,
        "Work is rung on queue pairs in RTS, receives from INIT on.",
        "QPN, index, state",
        "Doorbell ignored.",
        "Move the queue pair to RTS before its first doorbell.",
    ),
)

IDLE = 1 * MS
"""How long after a doorbell a queue pair is looked at."""
CONFIRM = 200 * MS
"""How long a suspicion must last: software may be between two stores."""
UNRUNG = 2000 * MS
"""How long a written slot may wait for its doorbell."""
STALLED = 500 * MS
"""The same when every lane is known to wait."""


class IdleWatch:
    """Looks at queue pairs that have nothing to do: at their record, and at the slot behind the last
    doorbell.

    A look that finds nothing new is the last one until the next doorbell, so that a lab at rest stays at
    rest.
    """

    def __init__(self, nic: Nic, checks: Checks) -> None:
        self._nic = nic
        self._checks = checks
        self._quiet = nic.platform.dma.quiet()
        self._due: set[int] = set()
        self._stalls: dict[int, int] = {}

    def clear(self) -> None:
        """Forget what was to be looked at."""
        self._due.clear()
        self._stalls.clear()

    def rang(self, qp: QueuePair) -> None:
        """A doorbell was accepted."""
        if qp.number not in self._due:
            self._due.add(qp.number)
            self._later(IDLE, qp.number, None)

    def lost(self, qpn: int, index: int) -> None:
        """A fault took the send doorbell of ``index`` away on its way here."""
        scheduler = self._nic.platform.scheduler
        scheduler.call_at(scheduler.now() + CONFIRM, partial(self._missed, qpn, index))

    def stalled(self, qp: QueuePair, ready: int, who: str) -> None:
        """Every lane waits, and WQEs before ``ready`` are published."""
        if ahead(ready, qp.doorbell) <= 0 or self._stalls.get(qp.number) == ready:
            return
        self._stalls[qp.number] = ready
        scheduler = self._nic.platform.scheduler
        scheduler.call_at(scheduler.now() + STALLED, partial(self._still, qp.number, ready, who))

    def _later(self, delay: int, number: int, seen: tuple[int, int] | None) -> None:
        scheduler = self._nic.platform.scheduler
        scheduler.call_at(scheduler.now() + delay, partial(self._look, number, seen))

    def _look(self, number: int, seen: tuple[int, int] | None) -> None:
        qp = self._nic.qps.items.get(number)
        if qp is None or number not in self._due:
            self._due.discard(number)
            return
        now = (qp.doorbell, qp.completed)
        if qp.doorbell != qp.completed:
            if now == seen:
                self._due.discard(number)
                if self._checks.watch is not None:
                    self._checks.watch.stuck(qp)
            else:
                self._later(CONFIRM, number, now)
            return
        self._due.discard(number)
        if qp.state is not QpState.RTS:
            return
        scheduler = self._nic.platform.scheduler
        if self._checks.on(Rule.C08_DBR) and self._behind(qp) is not None:
            scheduler.call_at(scheduler.now() + CONFIRM, partial(self._confirm_record, number, qp.doorbell))
        # Who hints says so when everybody waits.
        if self._checks.on(Rule.C14_UNRUNG) and qp.pd.context.hints is None and self._written(qp):
            scheduler.call_at(scheduler.now() + UNRUNG, partial(self._confirm_unrung, number, qp.doorbell))

    def _behind(self, qp: QueuePair) -> tuple[int, int] | None:
        """Both dwords of the record when it is behind the last doorbell."""
        if qp.record is None:
            return None
        try:
            receive, send = qp.record.peek(self._quiet, qp.doorbell)
        except BusError:
            return None
        return (receive, send) if ahead(send, qp.doorbell) < 0 else None

    def _confirm_record(self, number: int, doorbell: int) -> None:
        qp = self._nic.qps.items.get(number)
        if qp is None or qp.doorbell != doorbell or qp.state is not QpState.RTS:
            return
        found = self._behind(qp)
        if found is None:
            return
        receive, send = found
        more = "store it before each doorbell"
        if receive & 0xFFFF == doorbell & 0xFFFF and qp.receive is None:
            more = "the receive dword has it: the send index belongs 4 bytes further"
        self._checks.report(
            Rule.C08_DBR,
            f"QP {number:#x} is idle after doorbell index {doorbell}, its record says {send}; {more}",
            qpn=number,
            index=doorbell,
        )

    def _written(self, qp: QueuePair) -> bool:
        """Whether the slot behind the last doorbell holds a descriptor made for it."""
        try:
            slot = qp.sq.peek(self._quiet, qp.doorbell, 1)
        except BusError:
            return False
        found = self._nic.platform.formats.wqe.decode(slot, qp.doorbell, 1, qp)
        return bool(found) and isinstance(found[0], SendRequest)

    def _confirm_unrung(self, number: int, doorbell: int) -> None:
        qp = self._nic.qps.items.get(number)
        if qp is None or qp.doorbell != doorbell or qp.state is not QpState.RTS or not self._written(qp):
            return
        self._checks.report(
            Rule.C14_UNRUNG,
            f"QP {number:#x}: the WQE of index {doorbell} is written, but {UNRUNG // MS} ms after the "
            "doorbell "
            "before it nobody rang for it; whoever is last must ring",
            qpn=number,
            index=doorbell,
            address=qp.sq.place(doorbell),
        )

    def _still(self, number: int, ready: int, who: str) -> None:
        self._stalls.pop(number, None)
        qp = self._nic.qps.items.get(number)
        if qp is None or qp.state is not QpState.RTS or qp.doorbell != qp.completed:
            return
        if ahead(ready, qp.doorbell) <= 0:
            return
        self._checks.report(
            Rule.C14_UNRUNG,
            f"QP {number:#x}: WQEs up to index {(ready - 1) & MASK} are ready, the last doorbell covers "
            "those "
            f"before {qp.doorbell}, and every lane waits ({who}); whoever is last must ring",
            qpn=number,
            index=qp.doorbell,
        )

    def _missed(self, qpn: int, index: int) -> None:
        qp = self._nic.qps.items.get(qpn)
        if qp is None or qp.state is not QpState.RTS or ahead(index, qp.doorbell) <= 0:
            return
        says = "it has no doorbell record"
        if qp.record is not None:
            try:
                says = f"its record says {qp.record.peek(self._quiet, qp.doorbell)[1]}"
            except BusError:
                says = "its record is unreachable"
        self._checks.report(
            Rule.C13_LOST_DOORBELL,
            f"QP {qpn:#x}: the doorbell of index {index} was lost on its way, and {CONFIRM // MS} ms "
            "later the "
            f"last one known is {qp.doorbell}; {says}; store the record before each doorbell, or ring again",
            qpn=qpn,
            index=index,
        )
