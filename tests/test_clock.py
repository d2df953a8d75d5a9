# SPDX-License-Identifier: Apache-2.0
"""Virtual time moves only as far as it is told."""

from __future__ import annotations

import pytest

from emu.clock import VirtualScheduler


def test_calls_run_in_time_order_and_in_call_order_at_one_time() -> None:
    clock = VirtualScheduler()
    seen: list[str] = []
    clock.call_at(20, lambda: seen.append("late"))
    clock.call_at(10, lambda: seen.append("first"))
    clock.call_at(10, lambda: seen.append("second"))
    clock.call_soon(lambda: seen.append("now"))
    assert clock.run() == 4
    assert seen == ["now", "first", "second", "late"]
    assert clock.now() == 20


def test_run_until_stops_there_even_behind_a_cancelled_timer() -> None:
    clock = VirtualScheduler()
    seen: list[int] = []
    clock.call_at(5, lambda: seen.append(5)).cancel()
    clock.call_at(50, lambda: seen.append(50))
    assert clock.run(until=10) == 0
    assert (seen, clock.now()) == ([], 10)
    clock.run(until=60)
    assert (seen, clock.now()) == ([50], 60)


def test_a_timer_in_the_past_runs_at_once_without_turning_the_clock_back() -> None:
    clock = VirtualScheduler(start=100)
    times: list[int] = []
    clock.call_at(1, lambda: times.append(clock.now()))
    clock.run()
    assert times == [100]


def test_something_that_reschedules_itself_for_ever_is_named() -> None:
    clock = VirtualScheduler()

    def again() -> None:
        clock.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="pending"):
        clock.run(limit=1000)
