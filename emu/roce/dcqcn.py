# SPDX-License-Identifier: Apache-2.0
"""DCQCN: how fast one queue pair may send after its receiver has reported congestion.

Each notification (CNP) cuts the rate by half of ``alpha``, an estimate of how congested the path is; without
further ones the rate climbs back, first half the way to where it was in each step, then by fixed amounts.
Time comes with each call, so nothing here needs a timer: steps that have come due are taken when asked.

The numbers are those of the paper (Zhu and others, SIGCOMM 2015) where it names them; the hyper increase, the
least rate and the line's speed are choices.
"""

from __future__ import annotations

from emu.clock import NS_PER_S, US

__all__ = ["CNP_INTERVAL", "LINE_RATE", "RateControl"]

LINE_RATE = 12_500_000_000
"""Bytes a second: 100 Gb/s."""
LEAST_RATE = 125_000
"""Bytes a second: 1 Mb/s."""
CNP_INTERVAL = 50 * US
"""A queue pair sends at most one notification in this time, and cuts its own rate at most once in it."""
GAIN = 1 / 256
PERIOD = 55 * US
"""Between two updates of alpha without a notification, and between two steps of the rate."""
BYTE_COUNTER = 10_000_000
"""Bytes sent that count as a step of the rate too."""
FAST_STEPS = 5
ADDITIVE = 5_000_000
"""Bytes a second: 40 Mb/s."""
HYPER = 25_000_000
"""Bytes a second: 200 Mb/s."""


class RateControl:
    """Rate of one queue pair from its first notification on. ``rate`` is in bytes a second."""

    __slots__ = (
        "_alpha_due",
        "_byte_steps",
        "_cut_at",
        "_now",
        "_octets",
        "_step_due",
        "_time_steps",
        "alpha",
        "next",
        "rate",
        "target",
    )

    def __init__(self, now: int) -> None:
        self.rate: float = LINE_RATE
        self.target: float = LINE_RATE
        self.alpha = 1.0
        self.next = now
        """When the next packet may leave (ns)."""
        self._now = now
        self._cut_at: int | None = None
        self._restart(now)

    def notify(self, now: int) -> bool:
        """A notification arrived. False when it changes nothing, so soon after another."""
        if self._cut_at is not None and now - self._cut_at < CNP_INTERVAL:
            return False
        self.advance(now)
        self._cut_at = now
        self.target = self.rate
        self.rate = max(LEAST_RATE, self.rate * (1 - self.alpha / 2))
        self.alpha = (1 - GAIN) * self.alpha + GAIN
        self._restart(now)
        return True

    def _restart(self, now: int) -> None:
        self._time_steps = self._byte_steps = self._octets = 0
        self._alpha_due = self._step_due = now + PERIOD

    def advance(self, now: int) -> None:
        """Take the steps that have come due."""
        while self._alpha_due <= now:
            self._alpha_due += PERIOD
            self.alpha *= 1 - GAIN
        while self._step_due <= now and self.rate < LINE_RATE:
            self._step_due += PERIOD
            self._time_steps += 1
            self._increase()

    @property
    def recovered(self) -> bool:
        """True when it sends at the line's speed again and need not be asked any more."""
        return self.rate >= LINE_RATE

    def ready(self, now: int) -> bool:
        """True when a packet may leave; otherwise ``next`` says when."""
        self._now = now
        self.advance(now)
        return now >= self.next

    def charge(self, octets: int) -> None:
        """A packet of ``octets`` bytes left."""
        self.next = max(self.next, self._now) + round(octets * NS_PER_S / self.rate)
        self._octets += octets
        while self._octets >= BYTE_COUNTER:
            self._octets -= BYTE_COUNTER
            self._byte_steps += 1
            self._increase()

    def _increase(self) -> None:
        if min(self._time_steps, self._byte_steps) > FAST_STEPS:
            self.target += HYPER
        elif max(self._time_steps, self._byte_steps) >= FAST_STEPS:
            self.target += ADDITIVE
        self.target = min(self.target, LINE_RATE)
        self.rate = (self.target + self.rate) / 2
        if LINE_RATE - self.rate < ADDITIVE:
            # Half of what is left in each step never ends.
            self.rate = LINE_RATE
