# SPDX-License-Identifier: Apache-2.0
"""The owner loop: one thread that runs everything of a server.

Sockets of the guests, the control socket, taps, timers and deferred work all run here, one callback at a
time, so no device code ever needs a lock. :class:`Loop` is the real-time :class:`emu.clock.Scheduler`; tests
of engines use the virtual one instead.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType

from emu.clock import NS_PER_S, Timer

__all__ = ["Loop"]

log = logging.getLogger(__name__)

Callback = Callable[[], None]

_MAX_EVENTS = 64
_PRUNE_MIN = 1024
"""Timers kept before cancelled ones are looked for."""
_FINE_NS = 5_000_000
"""epoll counts milliseconds; a wait shorter than this goes through select, which counts microseconds."""


class Loop:
    """Selector, timers and deferred calls of one thread.

    Each turn serves the readable descriptors once, then the timers that are due, then the calls that were
    queued when the turn reached them. Work that queues more work never keeps the descriptors waiting.

    A callback that raises is logged and counted in :attr:`faults`; the loop goes on.
    """

    def __init__(self) -> None:
        self.faults = 0
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._readers: dict[int, Callback] = {}
        self._soon: deque[Callback] = deque()
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._prune_at = _PRUNE_MIN
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._readers[self._wake_read] = self._drain_wake

    def now(self) -> int:
        """Monotonic time in nanoseconds."""
        return time.monotonic_ns()

    def call_at(self, when: int, callback: Callback) -> Timer:
        """Run ``callback`` once ``now() >= when``; up to about 100 microseconds late on an idle machine."""
        timer = Timer(when, callback)
        self._sequence += 1
        heap = self._heap
        heapq.heappush(heap, (when, self._sequence, timer))
        if len(heap) > self._prune_at:
            # A protocol sets and cancels a timer per message; cancelled ones must not pile up until due.
            heap[:] = [entry for entry in heap if entry[2].callback is not None]
            heapq.heapify(heap)
            self._prune_at = max(_PRUNE_MIN, 2 * len(heap))
        return timer

    def call_soon(self, callback: Callback) -> None:
        """Run ``callback`` after the current one returned, in call order."""
        self._soon.append(callback)

    def post(self, callback: Callback) -> None:
        """:meth:`call_soon` for another thread or a signal handler: also ends the loop's wait."""
        self._soon.append(callback)
        self._wake()

    def add_reader(self, fd: int, callback: Callback) -> None:
        """Call ``callback`` whenever ``fd`` is readable or hung up; replaces an earlier callback.

        :raises OSError: ``fd`` cannot be polled (a regular file, a closed descriptor).
        """
        if fd in self._readers:
            self._readers[fd] = callback
            return
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        """Forget ``fd``; call it before closing the descriptor. Safe to repeat."""
        if self._readers.pop(fd, None) is not None:
            # A descriptor closed by its owner has left the epoll set on its own.
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    @property
    def idle(self) -> bool:
        """True when no deferred call waits."""
        return not self._soon

    @property
    def timers(self) -> int:
        """Timers kept, cancelled ones that are not yet swept included."""
        return len(self._heap)

    def run(self) -> None:
        """Run turns until :meth:`stop`, which may have come before the call. Can be run again afterwards."""
        step = self.step
        while not self._stopping:
            step()
        self._stopping = False

    def stop(self) -> None:
        """End :meth:`run` after the current turn. Safe from another thread and from a signal handler."""
        self._stopping = True
        self._wake()

    def step(self, timeout: float | None = None) -> None:
        """One turn, waiting for something to do at most ``timeout`` seconds (for ever when None)."""
        # A register read in a guest waits for all of this, so the common turn makes no calls of its own.
        soon = self._soon
        if soon or self._heap or timeout is not None or self._stopping:
            events = self._wait(timeout)
        else:
            events = self._poll(None, _MAX_EVENTS)
        readers = self._readers
        for fd, _ in events:
            reader = readers.get(fd)
            if reader is not None:
                try:
                    reader()
                except Exception:
                    self._failed()
        if self._heap:
            self._run_timers()
        if soon:
            for _ in range(len(soon)):
                self._call(soon.popleft())

    def close(self) -> None:
        """Release the loop's own descriptors. Nothing may be called afterwards."""
        if self._epoll.closed:
            return
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._readers.clear()

    @contextlib.contextmanager
    def signals(self, *numbers: signal.Signals) -> Iterator[None]:
        """While inside, SIGINT and SIGTERM (or ``numbers``) end :meth:`run` cleanly. Main thread only."""

        def handler(number: int, _: FrameType | None) -> None:
            log.info("%s received, stopping", signal.Signals(number).name)
            self.stop()

        saved = {number: signal.signal(number, handler) for number in numbers or _STOP_SIGNALS}
        try:
            yield
        finally:
            for number, previous in saved.items():
                signal.signal(number, previous)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception:
            self._failed()

    def _failed(self) -> None:
        self.faults += 1
        log.exception("a callback of the owner loop failed")

    def _wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """Events of the descriptors, after waiting as long as nothing else is due."""
        if self._soon or self._stopping:
            return self._poll(0, _MAX_EVENTS)
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        if heap:
            left = max(heap[0][0] - time.monotonic_ns(), 0)
            if timeout is None or left < timeout * NS_PER_S:
                if 0 < left < _FINE_NS:
                    select.select((self._epoll,), (), (), left / NS_PER_S)
                    left = 0
                timeout = left / NS_PER_S
        return self._poll(timeout, _MAX_EVENTS)

    def _run_timers(self) -> None:
        """Run what is due now; a timer set meanwhile waits for the next turn even when it is due."""
        heap = self._heap
        now = time.monotonic_ns()
        due: list[Timer] = []
        while heap and (heap[0][0] <= now or heap[0][2].callback is None):
            due.append(heapq.heappop(heap)[2])
        for timer in due:
            callback = timer.callback
            if callback is not None:
                timer.callback = None
                self._call(callback)

    def _wake(self) -> None:
        # A full pipe already wakes the loop.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 512):
                pass


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
