# SPDX-License-Identifier: Apache-2.0
"""When long-lived objects leave the garbage collector's sight, and when they come back."""

from __future__ import annotations

import gc

from emu.clock import NS_PER_S, VirtualScheduler
from emu.lab.collector import GROWTH, QuietCollector


class Watched:
    """A collector whose calls are noted; ``objects`` is what the device has."""

    def __init__(self) -> None:
        self.clock = VirtualScheduler()
        self.objects = 100
        self.calls: list[str] = []
        self.full = 5
        self.collector = QuietCollector(
            self.clock,
            lambda: self.objects,
            freeze=lambda: self.calls.append("freeze"),
            unfreeze=lambda: self.calls.append("unfreeze"),
            collections=lambda: self.full,
        )
        self.collector.start()
        self.calls.clear()

    def after_a_second(self, objects: int) -> list[str]:
        """What was called once the device has had ``objects`` for a second."""
        self.objects = objects
        self.clock.run(until=self.clock.now() + NS_PER_S)
        calls, self.calls = self.calls, []
        return calls


def test_objects_that_come_to_stay_are_moved_once() -> None:
    watched = Watched()
    assert watched.after_a_second(100 + GROWTH) == []
    assert watched.after_a_second(101 + GROWTH) == ["freeze"]
    assert watched.after_a_second(101 + GROWTH) == []
    assert watched.after_a_second(20_000) == ["freeze"]
    assert watched.after_a_second(24_000) == []
    assert watched.after_a_second(26_000) == ["freeze"]


def test_when_most_are_gone_the_collector_sees_them_again() -> None:
    watched = Watched()
    watched.after_a_second(20_000)
    assert watched.after_a_second(10_000) == []
    assert watched.after_a_second(9_999) == ["unfreeze"]
    # What was destroyed must not be moved again before it was collected.
    assert watched.after_a_second(9_999) == []
    watched.full += 1
    assert watched.after_a_second(9_999) == ["freeze"]
    assert watched.after_a_second(0) == ["unfreeze"]
    assert watched.after_a_second(0) == []


def test_what_is_frozen_is_not_looked_at() -> None:
    clock = VirtualScheduler()
    try:
        QuietCollector(clock, lambda: 1).start()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
    assert gc.get_freeze_count() == 0
