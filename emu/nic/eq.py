# SPDX-License-Identifier: Apache-2.0
"""Event queues: how the device tells the driver that a CQ or a queue pair wants attention."""

from __future__ import annotations

from emu.checks.rule import Rule
from emu.events import Kind
from emu.nic.engine import AsyncEvent
from emu.nic.platform import Platform
from emu.nic.ring import Ring, RingMemory
from emu.nic.serial import MASK
from emu.pcie.bus import BusError

__all__ = ["EventQueue"]

_EQE = Kind.EQE.bit
_MSIX = Kind.MSIX.bit


class EventQueue:
    """A ring of events and the MSI-X vector that announces them.

    The vector is raised once; the driver's next consumer index arms it again, and raises it at once if events
    arrived in between, so none is slept over. ``producer`` and ``consumer`` are 32-bit running indices.
    """

    __slots__ = ("_platform", "armed", "consumer", "cqs", "number", "producer", "ring", "vector")

    def __init__(
        self, platform: Platform, number: int, vector: int, log_size: int, memory: RingMemory
    ) -> None:
        self._platform = platform
        self.number = number
        self.vector = vector
        self.ring = Ring(memory, platform.formats.eqe.slot_size, log_size, platform.dma)
        self.producer = 0
        self.consumer = 0
        self.armed = True
        self.cqs: set[int] = set()
        """Numbers of the CQs that report here."""

    def post(self, event: AsyncEvent | None, number: int, text: str) -> None:
        """Write one event (None: completion) about object ``number`` and interrupt.

        A full ring loses it, counted.
        """
        platform = self._platform
        if not self._room(number, text):
            return
        body, commit = platform.formats.eqe.encode(event, number, self, platform.scheduler.now())
        self._write(body, commit, number, text)

    def post_entry(self, body: bytes, commit: bytes, number: int, text: str) -> None:
        """As :meth:`post`, for an entry that only the personality knows.

        It was encoded for the entry with running index ``producer``.
        """
        if self._room(number, text):
            self._write(body, commit, number, text)

    def _room(self, number: int, text: str) -> bool:
        platform = self._platform
        if (self.producer - self.consumer) & MASK < self.ring.size:
            return True
        platform.counters.eq_overruns += 1
        if platform.events.mask & _EQE:
            platform.trace.emit(Kind.EQE, f"EQ {self.number} is full, event lost: {text}", value=number)
        return False

    def _write(self, body: bytes, commit: bytes, number: int, text: str) -> None:
        platform = self._platform
        try:
            self.ring.write(self.producer, body, commit)
        except BusError as error:
            if platform.events.mask & _EQE:
                platform.trace.emit(
                    Kind.EQE, f"EQ {self.number} cannot be written, event lost: {error}", value=number
                )
            return
        platform.counters.eqes += 1
        if platform.events.mask & _EQE:
            platform.trace.emit(
                Kind.EQE, f"EQ {self.number} entry {self.producer}: {text}", index=self.producer, value=number
            )
        self.producer = (self.producer + 1) & MASK
        if self.armed:
            self._interrupt()
        elif platform.checks.watch is not None:
            platform.checks.watch.eq_waits(self)

    def consume(self, index: int, *, arm: bool = True) -> None:
        """The driver read every event before ``index``; re-arms the vector, if ``arm`` says so."""
        pending = (self.producer - index) & MASK
        if pending > (self.producer - self.consumer) & MASK:
            self._platform.checks.report(
                Rule.C19_CONSUMER,
                f"EQ {self.number}: consumer index {index} is not between {self.consumer} and "
                f"{self.producer}, ignored; write the index of the next event to read",
            )
            return
        self.consumer = index
        if not arm:
            return
        self.armed = True
        if pending:
            self._interrupt()

    def _interrupt(self) -> None:
        platform = self._platform
        self.armed = False
        platform.counters.msix += 1
        if platform.events.mask & _MSIX:
            platform.trace.emit(Kind.MSIX, f"vector {self.vector} for EQ {self.number}", value=self.vector)
        platform.interrupts.trigger(self.vector)
