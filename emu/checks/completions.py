# SPDX-License-Identifier: Apache-2.0
"""Completions and events: that they find room, that somebody reads them, and acts on errors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from emu.checks.check import Check
from emu.checks.rule import Rule
from emu.clock import MS
from emu.nic.serial import MASK
from emu.nic.work import Cause, Completion, QpState, Status
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.cq import CompletionQueue
    from emu.nic.device import Nic
    from emu.nic.eq import EventQueue
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "PATIENCE", "CompletionWatch"]

CHECKS = (
    Check(
        Rule.C15_CQ_OVERRUN,
        "A CQ has room for every completion, unless it may overrun.",
        "CQN, entries, QPN, index",
        "Event CQ_ERR; the CQ stops; its QPs go to ERR (overrun policy ERROR).",
        "Ring the CQ's consumer doorbell, make the CQ deeper, or create it with overrun ignored.",
    ),
    Check(
        Rule.C16_UNPREPARED,
        "The memory of a queue is zero, or all ones, when the queue is made.",
        "CQN or ring, first byte that is neither, bus address",
        "Nothing: what is there may look like a completion.",
        "Clear the memory of CQs and rings before creating them.",
        limits="The first MiB of a queue. The last byte of an entry may say that it is invalid.",
    ),
    Check(
        Rule.C17_IGNORED_ERROR,
        "Who gets an error completion stops posting and polling, and resets or ends the queue pair.",
        "QPN, index and status of the error, what was done after it",
        "Doorbells of a queue pair in ERR are flushed.",
        "Look at the status of each completion: an error is not a `not yet`.",
        limits="Polling is seen with hints only, posting always; both 500 ms after the error.",
    ),
    Check(
        Rule.C19_CONSUMER,
        "A consumer index is never ahead of the producer's, and never goes back.",
        "CQN or EQN, the index, the range it must be in",
        "Consumer index ignored.",
        "Write the running index of the next entry to read.",
    ),
    Check(
        Rule.C33_REARM,
        "Whoever handles an interrupt arms it again after its last look at the queue.",
        "EQN, unread events, vector",
        "Nothing: the next event raises no interrupt.",
        "Write the consumer index with arm after the last look; that raises it at once if something came.",
        limits="2 s without a look while events wait: a guest that sleeps that long looks the same.",
    ),
)

PATIENCE = 500 * MS
"""How long software may take to notice an error."""
UNREAD = 2000 * MS
"""How long events may wait for a driver."""
INVALID = 0xF
"""High half of an entry's last byte that no completion has."""
SCANNED = 1 << 20
"""Bytes of a queue's memory that are looked at."""


class CompletionWatch:
    """Remembers errors until software acts, and events until they are read."""

    def __init__(self, nic: Nic, checks: Checks) -> None:
        self._nic = nic
        self._checks = checks
        self._quiet = nic.platform.dma.quiet()
        self._failed: dict[int, tuple[int, int, Status]] = {}
        """By QPN: when, index and status of the first error that software did not act on."""
        self._waiting: set[int] = set()

    def clear(self) -> None:
        """Forget everything."""
        self._failed.clear()
        self._waiting.clear()

    def completing(self, qp: QueuePair, completion: Completion) -> None:
        """An error completion is about to be written."""
        if completion.cause != Cause.FLUSHED and qp.number not in self._failed:
            now = self._nic.platform.scheduler.now()
            self._failed[qp.number] = now, completion.index, completion.status

    def acted(self, qpn: int) -> None:
        """Software changed or ended the queue pair."""
        self._failed.pop(qpn, None)

    def rang(self, qp: QueuePair, index: int) -> None:
        """Software posted."""
        if qp.state is QpState.ERR and qp.number in self._failed:
            self._ignored(qp.number, index, "rings for more work")

    def polls(self, qpn: int, index: int, who: str) -> None:
        """Software waits for the completion of ``index``."""
        if qpn in self._failed:
            self._ignored(qpn, index, f"still polls for index {index} ({who})")

    def cq_made(self, cq: CompletionQueue) -> None:
        """Look at the memory of a fresh CQ."""
        ring = cq.ring
        count = min(ring.size, max(1, SCANNED // ring.slot_size))
        try:
            data = ring.peek(self._quiet, 0, count)
        except BusError:
            return
        if not data.strip(b"\0") or not data.strip(b"\xff"):
            return
        size = ring.slot_size
        for slot in range(count):
            entry = data[slot * size : (slot + 1) * size - 1]
            if data[(slot + 1) * size - 1] >> 4 == INVALID:
                continue
            if entry.count(0) != len(entry) and entry.count(0xFF) != len(entry):
                at = next(at for at, byte in enumerate(entry) if byte != entry[-1])
                self._unprepared(f"CQ {cq.number}", f"entry {slot}", ring.place(slot), at)
                return

    def qp_made(self, qp: QueuePair) -> None:
        """Look at the send ring of a fresh queue pair whose slots carry a phase."""
        ring = qp.sq
        if not qp.phase:
            return
        count = min(ring.size, max(1, SCANNED // ring.slot_size))
        try:
            data = ring.peek(self._quiet, 0, count)
        except BusError:
            return
        # The flags are the second byte of a slot, the phase their highest bit.
        phases = data[1 :: ring.slot_size]
        if max(phases) < 0x80:
            return
        slot = next(slot for slot, flags in enumerate(phases) if flags & 0x80)
        self._unprepared(f"QP {qp.number:#x}", f"send slot {slot}", ring.place(slot), 1)

    def eq_waits(self, eq: EventQueue) -> None:
        """An event came that raises no interrupt, as the queue is not armed."""
        if eq.number in self._waiting:
            return
        self._waiting.add(eq.number)
        scheduler = self._nic.platform.scheduler
        scheduler.call_at(scheduler.now() + UNREAD, partial(self._still, eq, eq.consumer))

    def _still(self, eq: EventQueue, consumer: int) -> None:
        self._waiting.discard(eq.number)
        if self._nic.eqs.items.get(eq.number) is not eq or eq.armed or eq.consumer != consumer:
            return
        unread = (eq.producer - eq.consumer) & MASK
        if unread:
            self._checks.report(
                Rule.C33_REARM,
                f"EQ {eq.number} has {unread} unread events and raises no interrupt, as nobody armed vector "
                f"{eq.vector} again in {UNREAD // MS} ms; arm after the last look at the queue",
                address=None,
            )

    def _ignored(self, qpn: int, index: int, what: str) -> None:
        when, failed, status = self._failed[qpn]
        if self._nic.platform.scheduler.now() - when < PATIENCE:
            return
        del self._failed[qpn]
        self._checks.report(
            Rule.C17_IGNORED_ERROR,
            f"QP {qpn:#x}: index {failed} completed with {status.name} {PATIENCE // MS} ms ago or more, and "
            f"software {what}; look at the status of each completion",
            qpn=qpn,
            index=index,
        )

    def _unprepared(self, owner: str, what: str, address: int, at: int) -> None:
        self._checks.report(
            Rule.C16_UNPREPARED,
            f"{owner} was made on memory that is not clear: {what} at {address:#x} holds something from byte "
            f"{at} on, which may be taken for an entry; clear the memory first",
            address=address,
        )
