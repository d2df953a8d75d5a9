# SPDX-License-Identifier: Apache-2.0
"""The receive ring of one queue pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.rule import Rule
from emu.nic.engine import ProtectionError
from emu.nic.formats import WqeFault
from emu.nic.platform import Platform
from emu.nic.record import DbrPolicy, DoorbellRecord
from emu.nic.ring import Ring, RingMemory
from emu.nic.serial import MASK, ahead
from emu.nic.work import Cause, Completion, CompletionOpcode, QpState, ReceiveRequest, Status
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.nic.qp import QueuePair

__all__ = ["ReceiveQueue"]

BURST = 16
"""Elements read ahead in one bus read.

They belong to the device from the doorbell on, so reading early is allowed.
"""
FLUSH = 256
"""Elements flushed in one turn: a deep ring must not keep the loop from its other work."""

_RECORD_COUNTS = (DbrPolicy.RECOVERY, DbrPolicy.AUTHORITATIVE, DbrPolicy.LATEST)


class ReceiveQueue:
    """Elements software posted, read in bursts and handed out in order.

    ``doorbell`` is the running index of the next element software will post, ``taken`` of the next one to
    hand out, ``completed`` of the oldest whose completion is not written yet. Without doorbells the doorbell
    record serves, where its policy allows: it is read again whenever the ring looks empty.
    """

    __slots__ = (
        "_buffer",
        "_failed",
        "_flushed",
        "_platform",
        "_qp",
        "completed",
        "doorbell",
        "news",
        "ring",
        "taken",
    )

    def __init__(
        self,
        platform: Platform,
        qp: QueuePair,
        log_size: int,
        memory: RingMemory,
        slot_size: int | None = None,
    ) -> None:
        self._platform = platform
        self._qp = qp
        self.ring = Ring(memory, slot_size or platform.formats.receive.slot_size, log_size, platform.dma)
        self._buffer: list[ReceiveRequest | WqeFault] = []
        """Elements read and not handed out, the next one last."""
        self._failed = False
        self._flushed = 0
        self.news = False
        """Elements were posted and the engine has not been told."""
        self.doorbell = self.taken = self.completed = 0

    def restart(self, index: int) -> None:
        """Empty the ring; the next element has running index ``index``."""
        self._buffer.clear()
        self._failed = False
        self._flushed = 0
        self.news = False
        self.doorbell = self.taken = self.completed = index

    def advance(self, index: int) -> None:
        """A doorbell says that every element before ``index`` is posted; one that breaks a rule is ignored
        and
        counted.
        """
        platform, qp = self._platform, self._qp
        distance = ahead(index, self.doorbell)
        if distance == 0:
            platform.counters.doorbells_ignored += 1
            return
        if qp.state is QpState.RESET:
            qp.refuse_doorbell(Rule.C21_STATE, index, "receive doorbell in RESET; move the QP to INIT first")
        elif distance < 0:
            qp.refuse_doorbell(
                Rule.C07_OLDER,
                index,
                f"receive doorbell index {index} is older than {self.doorbell}; serialise doorbells",
            )
        elif (index - self.completed) & MASK > self.ring.size:
            qp.refuse_doorbell(
                Rule.C06_AHEAD,
                index,
                f"receive doorbell index {index} is more than {self.ring.size} slots ahead of "
                f"{self.completed}, the oldest element not completed; wait for completions",
            )
        elif not self._record_allows(index):
            return
        else:
            self.doorbell = index
            self.news = True
            platform.counters.doorbells += 1

    def next_turn(self) -> None:
        """What :attr:`news` announced is about to be told to the engine."""
        self.news = False
        self._flushed = 0

    def take(self) -> ReceiveRequest | None:
        """The next element, None when there is none, or in ERR when this turn has flushed enough of them.

        :raises ProtectionError: it is malformed or cannot be read. It is consumed then, with an error
            completion.
        """
        while True:
            if not self._buffer and not self._fill():
                return None
            if self._qp.state is QpState.ERR:
                if self._flushed == FLUSH:
                    self.news = True
                    return None
                self._flushed += 1
            element = self._buffer.pop()
            self.taken = (element.index + 1) & MASK
            if isinstance(element, ReceiveRequest):
                return element
            flushed = self._failed or self._qp.state is QpState.ERR
            self._failed = True
            self._complete(element, flushed)
            if not flushed:
                raise ProtectionError(element.text, cause=element.cause)

    def _fill(self) -> bool:
        if self.taken == self.doorbell:
            self._consult_record()
        count = min((self.doorbell - self.taken) & MASK, BURST)
        if not count:
            return False
        platform, first = self._platform, self.taken
        try:
            burst = self.ring.read(first, count)
        except BusError as error:
            self._buffer.append(
                WqeFault(first, Rule.NONE, Cause.BUS_ERROR, f"receive ring: {error}", 1, Status.LOC_PROT_ERR)
            )
            return True
        self._buffer = platform.formats.receive.decode(burst, first, count, self._qp)[::-1]
        return True

    def _consult_record(self) -> None:
        record = self._qp.record
        if record is None or record.policy not in _RECORD_COUNTS:
            return
        index = self._read_record(record)
        if index is not None and 0 < ahead(index, self.doorbell) <= self.ring.size:
            self.doorbell = index

    def _record_allows(self, index: int) -> bool:
        record = self._qp.record
        if record is None or record.policy is not DbrPolicy.STRICT:
            return True
        recorded = self._read_record(record)
        if recorded is None:
            return False
        if ahead(index, recorded) > 0:
            self._qp.refuse_doorbell(
                Rule.C08_DBR,
                index,
                f"receive doorbell index {index} is ahead of the doorbell record's {recorded}; "
                "store the record first",
            )
            return False
        return True

    def _read_record(self, record: DoorbellRecord) -> int | None:
        try:
            return record.receive(self.doorbell)
        except BusError as error:
            self._qp.fail_soon(f"doorbell record: {error}")
            return None

    def _complete(self, fault: WqeFault, flushed: bool) -> None:
        qp = self._qp
        if fault.rule is not Rule.NONE and not flushed:
            self._platform.checks.report(
                fault.rule, f"QP {qp.number:#x} receive: {fault.text}", qpn=qp.number, index=fault.index
            )
        qp.host.complete(
            Completion(
                qpn=qp.number,
                index=fault.index,
                opcode=CompletionOpcode.RECV,
                status=Status.WR_FLUSH_ERR if flushed else fault.status,
                cause=Cause.FLUSHED if flushed else fault.cause,
            )
        )
