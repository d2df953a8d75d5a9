# SPDX-License-Identifier: Apache-2.0
"""Shared receive queues: one list of receive elements for many queue pairs."""

from __future__ import annotations

from typing import Protocol

from emu.nic.context import ProtectionDomain
from emu.nic.cq import CompletionQueue
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.platform import Platform
from emu.nic.record import DbrPolicy, DoorbellRecord
from emu.nic.ring import Ring, RingMemory
from emu.nic.serial import MASK, ahead
from emu.nic.work import Cause, ReceiveRequest, Sge
from emu.pcie.bus import BusError

__all__ = ["SharedFormat", "SharedReceiveQueue"]


class SharedFormat(Protocol):
    """Elements of shared receive queues."""

    def shared(self, slot: int, data: bytes) -> tuple[int, list[Sge]]:
        """Which slot holds the next element after slot number ``slot``, which holds ``data``, and where this
        one wants its message. The next one's number is taken modulo the queue's size.
        """


class SharedReceiveQueue:
    """Slots that are linked: each names the next, so software can free and post them in any order.

    ``taken`` counts elements handed out; the doorbell record counts those posted. A request's ``index`` is
    its slot, and its ``cookie`` the queue's number. ``cq`` is where its elements complete, when it is not the
    queue pair that says so (XRC).
    """

    def __init__(
        self,
        platform: Platform,
        number: int,
        pd: ProtectionDomain,
        ring: RingMemory,
        log_size: int,
        slot_size: int,
        record: RingMemory,
        form: SharedFormat,
        cq: CompletionQueue | None = None,
    ) -> None:
        self._platform = platform
        self._format = form
        self.number = number
        self.pd = pd
        self.cq = cq
        self.ring = Ring(ring, slot_size, log_size, platform.dma)
        self.record = DoorbellRecord(record, DbrPolicy.AUTHORITATIVE, platform.formats.record, platform.dma)
        self.taken = self.posted = 0
        self.limit = 0
        """Raise an event once fewer elements than this are left (0: never)."""
        self.users: set[int] = set()
        """Numbers of the queue pairs that receive here."""
        self._head = 0
        self._failed = False

    def take(self) -> ReceiveRequest | None:
        """The next element, None when there is none. :raises ProtectionError: it cannot be read."""
        try:
            if self.taken == self.posted:
                self._consult_record()
            if self.taken == self.posted:
                return None
            slot = self._head
            following, sges = self._format.shared(slot, self.ring.read(slot, 1))
        except BusError as error:
            text = f"shared receive queue {self.number}: {error}"
            if not self._failed:
                self._failed = True
                self._raise(AsyncEvent.SRQ_ERR, text)
            raise ProtectionError(text, cause=Cause.BUS_ERROR) from None
        self._head = following & self.ring.mask
        self.taken = (self.taken + 1) & MASK
        self._watch_limit()
        return ReceiveRequest(slot, sges, self.number, shared=True)

    def arm(self, limit: int) -> None:
        """Raise one event when fewer than ``limit`` elements are left."""
        self.limit = limit
        self._watch_limit()

    def _consult_record(self) -> None:
        """:raises BusError: the record is unreachable."""
        posted = self.record.receive(self.posted)
        if 0 < ahead(posted, self.taken) <= self.ring.size:
            self.posted = posted

    def _watch_limit(self) -> None:
        if not self.limit:
            return
        try:
            self._consult_record()
        except BusError:
            # The next element tells.
            return
        if (self.posted - self.taken) & MASK >= self.limit:
            return
        limit, self.limit = self.limit, 0
        text = f"shared receive queue {self.number} has fewer than {limit} elements"
        self._raise(AsyncEvent.SRQ_LIMIT_REACHED, text)

    def _raise(self, event: AsyncEvent, text: str) -> None:
        eq = self._platform.routes.about_object(event, None)
        if eq is not None:
            eq.post(event, self.number, text)
