# SPDX-License-Identifier: Apache-2.0
"""An adversary on the way from a function to memory: what PCI Express allows to happen, may happen.

Memory writes and MSI-X messages of a function are posted: it goes on without an answer, and they arrive
later. The rules kept here are those of the PCI Express Base Specification, sections 2.4.1 (Transaction
Ordering Rules) and 2.4.2 (Update Ordering and Granularity):

* a posted write does not overtake an earlier one, unless it has the relaxed-ordering attribute;
* an MSI-X message is a posted write without that attribute;
* a read pushes: whatever the function wrote before it is in memory before the read looks, and the answer to a
  read of the function's registers pushes as well;
* the bytes of one write appear in ascending order of address, those of a relaxed one in any order, in
  pieces of no less than an aligned dword. Pieces here are aligned words of 8 bytes.

One liberty is not taken: two writes to the same bytes keep their order even when relaxed, as the
function itself would otherwise not know what it left behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from emu.clock import Scheduler
from emu.pcie.bus import Bus, BusError, Interrupts

__all__ = ["PostedWrites"]

_WORD = 8
_LIMIT = 4096
"""Entries that wait at most: a function that never reads is not held up for ever."""


@dataclass(slots=True)
class _Posted:
    """One write (``pieces`` of address and bytes, in the order they are to appear) or message."""

    due: int
    start: int
    end: int
    relaxed: bool
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    vector: int | None = None


class PostedWrites:
    """Holds a function's writes and interrupts back, and lets them go in any order that is legal.

    Implements :class:`emu.pcie.bus.Bus` and :class:`emu.pcie.bus.Interrupts` between a function and its own.

    :param hold_ns: longest time that a write waits, in nanoseconds
    :param tear: whether the 8-byte words of one write may be seen one by one
    :param rng: where every decision comes from
    :param note: told, for people, what was done out of the usual order
    """

    def __init__(
        self,
        bus: Bus,
        interrupts: Interrupts,
        scheduler: Scheduler,
        rng: random.Random,
        *,
        hold_ns: int,
        tear: bool,
        note: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._interrupts = interrupts
        self._scheduler = scheduler
        self._rng = rng
        self._hold_ns = hold_ns
        self._tear = tear
        self._note = note
        self._waiting: list[_Posted] = []
        self._due = False
        self.overtaken = 0
        """Writes that a later, relaxed one overtook."""
        self.torn = 0
        """Writes that appeared in more than one piece."""
        self.lost = 0
        """Writes whose memory was gone when they arrived; a posted write has nobody to tell."""

    def read(self, address: int, length: int) -> bytes:
        """As :meth:`Bus.read`, behind everything written before."""
        self.flush()
        return self._bus.read(address, length)

    def peek(self, address: int, length: int) -> bytes:
        """What is in memory now, without pushing what waits: for those who look on."""
        return self._bus.read(address, length)

    def view(self, address: int, length: int, *, writable: bool = False) -> memoryview:
        """As :meth:`Bus.view`, behind everything written before. What is stored through it does not wait."""
        self.flush()
        return self._bus.view(address, length, writable=writable)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Post a write. :raises BusError: as :meth:`Bus.write`."""
        self._post(address, data, relaxed=False)

    def write_relaxed(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Post a write with the relaxed-ordering attribute. :raises BusError: as :meth:`Bus.write`."""
        self._post(address, data, relaxed=True)

    def trigger(self, vector: int) -> None:
        """Post an MSI-X message."""
        self._waiting.append(_Posted(self._until(), 0, 0, False, vector=vector))
        self._arm()

    def flush(self) -> None:
        """Let everything go, in the order it was posted."""
        waiting, self._waiting = self._waiting, []
        for posted in waiting:
            self._finish(posted)

    def clear(self) -> None:
        """Forget what waits: the function was reset."""
        self._waiting.clear()

    def _post(self, address: int, data: bytes | bytearray | memoryview, *, relaxed: bool) -> None:
        length = data.nbytes if isinstance(data, memoryview) else len(data)
        try:
            self._bus.view(address, length, writable=True)
        except BusError:
            # Unreachable, or several mappings: the bus itself decides, with nothing left in front.
            self.flush()
            self._bus.write(address, data)
            return
        pieces = _words(address, bytes(data)) if self._tear else [(address, bytes(data))]
        if relaxed:
            self._rng.shuffle(pieces)
        self._waiting.append(_Posted(self._until(), address, address + length, relaxed, pieces))
        if len(self._waiting) > _LIMIT:
            self.flush()
        self._arm()

    def _until(self) -> int:
        return self._scheduler.now() + self._hold_ns

    def _arm(self) -> None:
        if self._waiting and not self._due:
            self._due = True
            when = self._scheduler.now() + self._rng.randint(0, self._hold_ns)
            self._scheduler.call_at(min(when, self._waiting[0].due), self._release)

    def _release(self) -> None:
        """What has waited long enough, and some steps more, each of a write that may be next."""
        self._due = False
        now = self._scheduler.now()
        while self._waiting and self._waiting[0].due <= now:
            self._finish(self._waiting.pop(0))
        for _ in range(self._rng.randint(1, 8)):
            if not self._waiting:
                break
            place = self._rng.choice(self._eligible())
            posted = self._waiting[place]
            if place:
                self.overtaken += place
                self._note(
                    f"write at {posted.start:#x} overtakes {place} posted before it (relaxed ordering)"
                )
            if len(posted.pieces) > 1 and self._rng.random() < 0.5:
                for _ in range(self._rng.randrange(1, len(posted.pieces))):
                    self._step(posted)
                self.torn += 1
                self._note(f"write at {posted.start:#x} is visible but for {len(posted.pieces)} pieces")
                break
            self._finish(self._waiting.pop(place))
        self._arm()

    def _eligible(self) -> list[int]:
        """Places in the queue of what may arrive next: the first, and relaxed writes that touch nothing
        before them. What nothing may overtake ends the search only for those that are not relaxed.
        """
        places = [0]
        for place in range(1, min(len(self._waiting), 32)):
            posted = self._waiting[place]
            if posted.relaxed and not any(
                posted.start < other.end and other.start < posted.end for other in self._waiting[:place]
            ):
                places.append(place)
        return places

    def _finish(self, posted: _Posted) -> None:
        while posted.pieces or posted.vector is not None:
            self._step(posted)

    def _step(self, posted: _Posted) -> None:
        if posted.vector is not None:
            vector, posted.vector = posted.vector, None
            self._interrupts.trigger(vector)
            return
        address, data = posted.pieces.pop(0)
        try:
            self._bus.write(address, data)
        except BusError:
            self.lost += 1


def _words(address: int, data: bytes) -> list[tuple[int, bytes]]:
    """``data`` cut at every multiple of 8 bytes of the address."""
    pieces: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        size = min(len(data) - at, _WORD - (address + at) % _WORD)
        pieces.append((address + at, data[at : at + size]))
        at += size
    return pieces
