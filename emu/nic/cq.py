# SPDX-License-Identifier: Apache-2.0
"""Completion queues."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

from emu.checks.rule import Rule
from emu.clock import Timer
from emu.events import Kind
from emu.nic.context import Context
from emu.nic.engine import AsyncEvent
from emu.nic.eq import EventQueue
from emu.nic.errors import ErrorKind, NicError
from emu.nic.platform import Platform
from emu.nic.ring import Ring, RingMemory
from emu.nic.serial import MASK, before
from emu.nic.work import Completion, Status
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.nic.qp import QueuePair

__all__ = ["COUNTER_BYTES", "Arm", "CompletionQueue", "CqMode", "CqOverrun"]

_CQE = Kind.CQE.bit
COUNTER_BYTES = 8
"""One counter of a counter-mode CQ; the error counter follows the success counter."""


class CqMode(enum.IntEnum):
    """How a CQ reports."""

    RING = 0
    """Entries go round the ring."""
    COLLAPSED = 1
    """Every entry goes to slot 0."""
    COUNTER = 2
    """No entries: a success and an error counter."""


class CqOverrun(enum.IntEnum):
    """What a ring CQ does when it is full."""

    ERROR = 0
    IGNORE = 1


class Arm(enum.IntEnum):
    """What raises a completion event."""

    NONE = 0
    NEXT = 1
    SOLICITED = 2


class CompletionQueue:
    """One CQ.

    Software says what it has read by a doorbell (:meth:`consume`), or by a record in memory, which is
    looked at when the CQ seems full.

    ``producer`` counts entries (and counted completions) since creation, ``consumer`` is what software said
    last; both are 32-bit running indices.

    A CQ that overran or cannot be written is ``broken``: it takes nothing more and its queue pairs go to ERR.
    """

    __slots__ = (
        "_announced",
        "_held",
        "_notable",
        "_platform",
        "_record",
        "_timer",
        "arm_state",
        "broken",
        "consumer",
        "context",
        "eq",
        "errors",
        "mode",
        "moderation_count",
        "moderation_period",
        "number",
        "overrun",
        "page",
        "producer",
        "qps",
        "queues",
        "ring",
        "successes",
        "waiting",
    )

    def __init__(
        self,
        platform: Platform,
        number: int,
        context: Context,
        eq: EventQueue | None,
        mode: CqMode,
        overrun: CqOverrun,
        log_size: int,
        memory: RingMemory,
        slot_size: int | None = None,
        record: RingMemory | None = None,
    ) -> None:
        self._platform = platform
        self.number = number
        self.context = context
        self.eq = eq
        self.mode = mode
        self.overrun = overrun
        if mode is CqMode.COUNTER:
            self.ring = Ring(memory, COUNTER_BYTES, 1, platform.dma)
        else:
            self.ring = Ring(memory, slot_size or platform.formats.cqe.slot_size, log_size, platform.dma)
        self._record = record
        self.producer = 0
        self.consumer = 0
        self.successes = 0
        self.errors = 0
        self.arm_state = Arm.NONE
        self.broken = False
        self.qps: dict[int, QueuePair] = {}
        """Queue pairs that complete here."""
        self.queues: set[int] = set()
        """Numbers of Ethernet queues that complete here."""
        self.page = 0
        """Doorbell page it is rung through, where that says who may wait for it."""
        self.waiting: dict[int, QueuePair] = {}
        """Queue pairs whose send queues stand still until an entry comes."""
        self._notable = self._announced = 0
        self.moderation_count = self.moderation_period = 0
        self._held = 0
        self._timer: Timer | None = None

    def post(self, completion: Completion) -> bool:
        """Report one completion. False when the CQ is, or thereby becomes, broken."""
        if self.broken:
            return False
        platform = self._platform
        mode = self.mode
        failed = completion.status is not Status.SUCCESS
        try:
            if mode is CqMode.COUNTER:
                self._count(failed)
            else:
                if (
                    mode is CqMode.RING
                    and self.overrun is CqOverrun.ERROR
                    and (self.producer - self.consumer) & MASK >= self.ring.size
                    and not self._consult_record()
                ):
                    self._overran(completion)
                    return False
                body, commit = platform.formats.cqe.encode(completion, self, platform.scheduler.now())
                self.ring.write(0 if mode is CqMode.COLLAPSED else self.producer, body, commit)
        except BusError as error:
            self._break(f"CQ {self.number} cannot be written: {error}")
            return False
        counters = platform.counters
        counters.cqes += 1
        if failed:
            counters.cqe_errors += 1
        if platform.events.mask & _CQE:
            self._trace(completion)
        self.producer = (self.producer + 1) & MASK
        if self.waiting:
            self._tell()
        notable = failed or completion.solicited
        if notable:
            self._notable = self.producer
        if self.arm_state is not Arm.NONE and (notable or self.arm_state is Arm.NEXT):
            if self.moderation_period:
                self._hold()
            else:
                self._notify()
        return True

    def moderate(self, count: int, period: int) -> None:
        """Hold an event back until ``count`` completions ask for one (0: however many), for at most
        ``period`` nanoseconds (0: not at all).
        """
        self.moderation_count = count
        self.moderation_period = period

    def resize(
        self, memory: RingMemory, log_size: int, slot_size: int, marker: Callable[[], tuple[bytes, bytes]]
    ) -> None:
        """Go on in another ring, behind an entry ``marker`` that is the old ring's last. Software carries
        over what it has not read, one slot further on.

        :raises NicError: UNSUPPORTED, it has no ring; BUSY, the old one has no room for the last entry;
            BAD_FIELD ``log_size``, the new one is too small for what is not read; BAD_STATE, it is broken;
            DMA_ERROR, the old one is unreachable.
        """
        if self.mode is not CqMode.RING:
            raise NicError(ErrorKind.UNSUPPORTED, f"CQ {self.number} has no ring to change", "cqn")
        if self.broken:
            raise NicError(ErrorKind.BAD_STATE, f"CQ {self.number} is broken", "cqn")
        try:
            if not self._consult_record() and (self.producer - self.consumer) & MASK >= self.ring.size:
                raise NicError(ErrorKind.BUSY, f"CQ {self.number} is full; read it first", "cqn")
            if (self.producer - self.consumer) & MASK >= 1 << log_size:
                raise NicError(
                    ErrorKind.BAD_FIELD,
                    f"the new ring is too small for {(self.producer - self.consumer) & MASK} unread entries",
                    "log_size",
                )
            body, commit = marker()
            self.ring.write(self.producer, body, commit)
        except BusError as error:
            raise NicError(ErrorKind.DMA_ERROR, f"CQ {self.number}: {error}", "cqn") from None
        self.producer = (self.producer + 1) & MASK
        self.consumer = (self.consumer + 1) & MASK
        self.ring.release()
        self.ring = Ring(memory, slot_size, log_size, self._platform.dma)

    def close(self) -> None:
        """End it."""
        self._cancel()
        self._tell()
        self.ring.release()

    def _tell(self) -> None:
        """Let those who wait look again."""
        waiting, self.waiting = self.waiting, {}
        for qp in waiting.values():
            qp.wake()

    def _hold(self) -> None:
        self._held += 1
        if self.moderation_count and self._held >= self.moderation_count:
            self._notify()
        elif self._timer is None:
            scheduler = self._platform.scheduler
            self._timer = scheduler.call_at(scheduler.now() + self.moderation_period, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if self._held and self.arm_state is not Arm.NONE:
            self._notify()

    def _cancel(self) -> None:
        self._held = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def consume(self, index: int) -> bool:
        """Software read every entry before ``index``. False when that cannot be (and nothing changed)."""
        if (self.producer - index) & MASK > (self.producer - self.consumer) & MASK:
            self._platform.checks.report(
                Rule.C19_CONSUMER,
                f"CQ {self.number}: consumer index {index} is not between {self.consumer} and "
                f"{self.producer}, ignored; write the index of the next entry to read",
            )
            return False
        self.consumer = index
        return True

    def arm(self, index: int, kind: Arm, *, again: bool = True) -> bool:
        """Ask for one event at the first completion (or solicited or failed one) beyond ``index``, which is
        also the consumer index. One that is there already raises it at once, unless the last event was raised
        after it and ``again`` is False. False as :meth:`consume`.
        """
        if not self.consume(index):
            return False
        self.arm_state = kind
        if not again and before(index, self._announced):
            index = self._announced
        if self.producer != index and (kind is Arm.NEXT or before(index, self._notable)):
            self._notify()
        return True

    def _consult_record(self) -> bool:
        """Take the consumer index from the record in memory. True when there is room then.

        :raises BusError: the record is unreachable.
        """
        record = self._record
        if record is None:
            return False
        platform = self._platform
        form = platform.formats.record
        data = record.pages.read(platform.dma, record.offset, form.size)
        index = form.consumer(data, self.consumer)
        if (self.producer - index) & MASK <= (self.producer - self.consumer) & MASK:
            self.consumer = index
        return (self.producer - self.consumer) & MASK < self.ring.size

    def _count(self, failed: bool) -> None:
        value = (self.errors if failed else self.successes) + 1
        self.ring.write(1 if failed else 0, b"", self._platform.formats.cqe.counter(value))
        if failed:
            self.errors = value
        else:
            self.successes = value

    def _notify(self) -> None:
        self._cancel()
        self.arm_state = Arm.NONE
        self._announced = self.producer
        if self.eq is not None:
            self.eq.post(None, self.number, f"completion on CQ {self.number}")

    def _overran(self, completion: Completion) -> None:
        platform = self._platform
        platform.counters.cq_overruns += 1
        platform.checks.report(
            Rule.C15_CQ_OVERRUN,
            f"CQ {self.number} has {self.ring.size} entries and none is free; ring its consumer doorbell, "
            "make it deeper, or create it with overrun ignored",
            qpn=completion.qpn,
            index=completion.index,
        )
        self._break(f"CQ {self.number} overran")

    def _break(self, reason: str) -> None:
        self.broken = True
        eq = self._platform.routes.about_object(AsyncEvent.CQ_ERR, self.eq)
        if eq is not None:
            eq.post(AsyncEvent.CQ_ERR, self.number, reason)
        for qp in tuple(self.qps.values()):
            qp.fail_soon(reason)

    def _trace(self, completion: Completion) -> None:
        what = completion.opcode.name
        slot = "counter" if self.mode is CqMode.COUNTER else f"entry {self.producer}"
        outcome = completion.status.name + (f" cause {completion.cause}" if completion.cause else "")
        self._platform.trace.emit(
            Kind.CQE,
            f"CQ {self.number} {slot}: QP {completion.qpn:#x} {what} index {completion.index} {outcome}",
            qpn=completion.qpn,
            index=completion.index,
            length=completion.length,
            value=int(completion.status),
        )
