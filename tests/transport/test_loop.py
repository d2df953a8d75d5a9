# SPDX-License-Identifier: Apache-2.0
"""The owner loop runs descriptors, timers and deferred calls in a fair order and ends when it is told to."""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from emu.clock import MS, US
from emu.transport.loop import Loop


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_deferred_calls_run_in_order_and_later_ones_wait_a_turn(loop: Loop) -> None:
    seen: list[int] = []

    def first() -> None:
        seen.append(1)
        loop.call_soon(lambda: seen.append(3))

    loop.call_soon(first)
    loop.call_soon(lambda: seen.append(2))
    loop.step(0)
    assert seen == [1, 2]
    assert not loop.idle
    loop.step(0)
    assert seen == [1, 2, 3]
    assert loop.idle


def test_a_call_that_reschedules_itself_does_not_starve_a_descriptor(
    loop: Loop, pipe: tuple[int, int]
) -> None:
    seen: list[str] = []

    def again() -> None:
        seen.append("soon")
        loop.call_soon(again)

    loop.add_reader(pipe[0], lambda: seen.append("fd"))
    os.write(pipe[1], b"x")
    loop.call_soon(again)
    for _ in range(3):
        loop.step(0)
    assert seen == ["fd", "soon"] * 3


def test_timers_run_at_their_time_in_time_order(loop: Loop) -> None:
    seen: list[int] = []
    start = loop.now()
    for delay in (3 * MS, 200 * US, 1 * MS):
        loop.call_at(start + delay, functools.partial(seen.append, delay))
    loop.call_at(start + 3 * MS, loop.stop)
    loop.run()
    assert seen == [200 * US, 1 * MS, 3 * MS]
    assert loop.now() >= start + 3 * MS


def test_a_short_timer_is_not_rounded_to_a_millisecond(loop: Loop) -> None:
    def note(fired: list[int]) -> None:
        fired.append(loop.now())

    late = []
    for _ in range(20):
        due = loop.now() + 100 * US
        fired: list[int] = []
        loop.call_at(due, functools.partial(note, fired))
        while not fired:
            loop.step()
        late.append(fired[0] - due)
    assert min(late) >= 0
    assert min(late) < 800 * US


def test_a_cancelled_timer_neither_runs_nor_keeps_the_loop_waiting(loop: Loop) -> None:
    seen: list[str] = []
    timer = loop.call_at(loop.now(), lambda: seen.append("cancelled"))
    loop.call_at(loop.now(), lambda: seen.append("kept"))
    timer.cancel()
    loop.step()
    assert seen == ["kept"]
    assert not timer.pending


def test_cancelled_timers_do_not_pile_up_and_the_others_stay(loop: Loop) -> None:
    seen: list[int] = []
    start = loop.now()
    for delay in (2, 1):
        loop.call_at(start + delay * US, functools.partial(seen.append, delay))
    for _ in range(20_000):
        loop.call_at(loop.now() + 3600 * 1000 * MS, loop.stop).cancel()
    assert loop.timers < 2_000
    while len(seen) < 2:
        loop.step()
    assert seen == [1, 2]


def test_a_timer_cancelled_by_an_earlier_one_of_the_same_turn_does_not_run(loop: Loop) -> None:
    seen: list[str] = []
    now = loop.now()
    loop.call_at(now, lambda: second.cancel())
    second = loop.call_at(now, lambda: seen.append("second"))
    loop.step()
    assert seen == []


def test_a_timer_in_the_past_that_sets_itself_again_does_not_hang_the_turn(loop: Loop) -> None:
    seen: list[int] = []

    def again() -> None:
        seen.append(len(seen))
        loop.call_at(0, again)

    loop.call_at(0, again)
    loop.step()
    loop.step()
    assert seen == [0, 1]


def test_a_removed_reader_is_not_called_even_when_it_is_already_readable(loop: Loop) -> None:
    seen: list[str] = []
    first, second = os.pipe(), os.pipe()

    def reader(name: str, other: int) -> Callable[[], None]:
        def read() -> None:
            seen.append(name)
            loop.remove_reader(other)

        return read

    for name, own, other in (("first", first, second), ("second", second, first)):
        loop.add_reader(own[0], reader(name, other[0]))
        os.write(own[1], b"x")
    loop.step()
    assert len(seen) == 1
    for fd in (*first, *second):
        loop.remove_reader(fd)
        os.close(fd)


def test_a_reader_of_a_regular_file_is_refused(loop: Loop) -> None:
    with open(__file__, "rb") as file, pytest.raises(OSError, match="not permitted"):
        loop.add_reader(file.fileno(), lambda: None)


def test_a_callback_that_raises_is_counted_and_logged_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    seen: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError("boom")

    loop.call_soon(broken)
    loop.call_at(0, broken)
    loop.call_soon(lambda: seen.append(1))
    with caplog.at_level(logging.ERROR):
        loop.step(0)
    assert seen == [1]
    assert loop.faults == 2
    assert "boom" in caplog.text
    loop.close()
    loop.close()


def test_another_thread_wakes_a_waiting_loop(loop: Loop) -> None:
    thread = threading.Thread(target=lambda: loop.post(loop.stop))
    loop.call_soon(thread.start)
    loop.run()
    thread.join()
    assert loop.idle


def test_a_stop_before_run_counts(loop: Loop) -> None:
    loop.stop()
    loop.run()
    loop.call_soon(loop.stop)
    loop.run()
    assert loop.idle


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_a_waiting_loop_and_the_old_handler_returns(
    loop: Loop, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    thread = threading.Thread(target=lambda: os.kill(os.getpid(), number))
    with loop.signals():
        loop.call_soon(thread.start)
        loop.run()
    thread.join()
    assert signal.getsignal(number) is before
