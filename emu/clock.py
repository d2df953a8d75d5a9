# SPDX-License-Identifier: Apache-2.0
"""Time as the emulator sees it.

Engines and links never ask the operating system for the time: they are given a :class:`Scheduler`. The
server's owner loop is one implementation, :class:`VirtualScheduler` the other; with it a protocol test runs
hours of timers in milliseconds and gives the same result every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

__all__ = ["MS", "NS_PER_S", "US", "Scheduler", "Timer", "VirtualScheduler"]

US = 1_000
MS = 1_000_000
NS_PER_S = 1_000_000_000


class Timer:
    """A pending call; :meth:`cancel` makes it a no-op."""

    __slots__ = ("callback", "when")

    def __init__(self, when: int, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the call. Safe to repeat and safe after it ran."""
        self.callback = None

    @property
    def pending(self) -> bool:
        """True until the call ran or was cancelled."""
        return self.callback is not None


class Scheduler(Protocol):
    """Clock and deferred calls of one owner thread. Times are nanoseconds on a monotonic clock."""

    def now(self) -> int:
        """Current time in nanoseconds."""

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` once ``now() >= when``."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after the current one returns, in call order."""


class VirtualScheduler:
    """A scheduler whose clock only moves when :meth:`run` says so."""

    def __init__(self, start: int = 0) -> None:
        self._now = start
        self._sequence = 0
        self._heap: list[tuple[int, int, Timer]] = []

    def now(self) -> int:
        """Current virtual time in nanoseconds."""
        return self._now

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` when the virtual clock reaches ``when`` (at once if that has passed)."""
        timer = Timer(max(when, self._now), callback)
        self._sequence += 1
        heapq.heappush(self._heap, (timer.when, self._sequence, timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` at the current virtual time, after those already waiting for it."""
        self.call_at(self._now, callback)

    def step(self) -> bool:
        """Run the next due call, moving the clock to it. False when nothing is pending."""
        while self._heap:
            when, _, timer = heapq.heappop(self._heap)
            callback = timer.callback
            if callback is None:
                continue
            timer.callback = None
            self._now = max(self._now, when)
            callback()
            return True
        return False

    def run(self, until: int | None = None, limit: int = 1_000_000) -> int:
        """Run calls up to time ``until`` (or until none is left); return how many ran.

        :raises RuntimeError: more than ``limit`` calls ran: something reschedules itself for ever.
        """
        ran = 0
        while self._heap and (until is None or self._heap[0][0] <= until):
            if not self._heap[0][2].pending:
                heapq.heappop(self._heap)
                continue
            self.step()
            ran += 1
            if ran >= limit:
                raise RuntimeError(f"{limit} calls ran by t={self._now} ns and more are pending")
        if until is not None:
            self._now = max(self._now, until)
        return ran
