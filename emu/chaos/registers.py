# SPDX-License-Identifier: Apache-2.0
"""Register writes that come late; doorbells among them that come twice, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from emu.chaos.profile import Doorbells
from emu.clock import Scheduler
from emu.nic.interference import QueueOf
from emu.pcie.bar import BarHandler, LosesDoorbells

__all__ = ["RegisterPath"]


@dataclass(frozen=True, slots=True)
class _Write:
    handler: BarHandler
    queue: int | None
    offset: int
    data: bytes

    def deliver(self) -> None:
        self.handler.write(self.offset, self.data)


class RegisterPath:
    """The way from a guest to all registers of one function.

    Writes are posted: they arrive in order, whatever BAR they are for, at a time nobody promised. A read
    pushes them, and its answer pushes what the function wrote.

    :param before_read: called before each read has its effect
    """

    def __init__(
        self,
        settings: Doorbells,
        scheduler: Scheduler,
        rng: random.Random,
        *,
        before_read: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._rng = rng
        self._before_read = before_read
        self._note = note
        self._waiting: list[_Write] = []
        self._due = False
        self._era = 0

    def front(self, handler: BarHandler, queue_of: QueueOf) -> BarHandler:
        """What the guest sees of ``handler``. Only what rings a queue is ever lost, repeated or replaced."""
        return _Front(self, handler, queue_of)

    def read(self, handler: BarHandler, offset: int, size: int) -> bytes:
        """Read, behind the writes before it."""
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            write.deliver()
        data = handler.read(offset, size)
        self._before_read()
        return data

    def write(self, write: _Write) -> None:
        """Post a write."""
        settings, rng = self._settings, self._rng
        if write.queue is not None:
            what = f"doorbell {write.data.hex()} at {write.offset:#x}"
            if rng.random() < settings.lose:
                self._note(f"{what} is lost")
                if isinstance(write.handler, LosesDoorbells):
                    write.handler.lost(write.offset, write.data)
                return
            if settings.collapse:
                left = [other for other in self._waiting if other.queue != write.queue]
                if len(left) < len(self._waiting):
                    self._note(f"{what} replaces the one before it")
                    self._waiting = left
            if rng.random() < settings.repeat:
                self._note(f"{what} will come twice")
                self._repeat(write)
        if settings.late_ns:
            self._waiting.append(write)
            self._arm()
        else:
            write.deliver()

    def clear(self) -> None:
        """Forget what waits: the function was reset."""
        self._waiting.clear()
        self._era += 1

    def _repeat(self, write: _Write) -> None:
        era, late = self._era, self._settings.late_ns

        def again() -> None:
            if era == self._era:
                write.deliver()

        self._scheduler.call_at(self._scheduler.now() + late + self._rng.randint(0, late), again)

    def _arm(self) -> None:
        if not self._due:
            self._due = True
            when = self._scheduler.now() + self._rng.randint(0, self._settings.late_ns)
            self._scheduler.call_at(when, self._deliver)

    def _deliver(self) -> None:
        self._due = False
        count = self._rng.randint(1, 4)
        first, self._waiting = self._waiting[:count], self._waiting[count:]
        for write in first:
            write.deliver()
        if self._waiting:
            self._arm()


class _Front:
    """One BAR; implements :class:`emu.pcie.bar.BarHandler`."""

    def __init__(self, path: RegisterPath, handler: BarHandler, queue_of: QueueOf) -> None:
        self._path = path
        self._handler = handler
        self._queue_of = queue_of

    def read(self, offset: int, size: int) -> bytes:
        return self._path.read(self._handler, offset, size)

    def write(self, offset: int, data: bytes) -> None:
        self._path.write(_Write(self._handler, self._queue_of(offset, data), offset, bytes(data)))
