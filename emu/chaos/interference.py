# SPDX-License-Identifier: Apache-2.0
"""One NIC's share of a chaos profile."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from emu.chaos.path import UnrulyPort
from emu.chaos.profile import Doorbells, Profile
from emu.chaos.registers import RegisterPath
from emu.chaos.work import FailingWork
from emu.clock import Scheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.port import Port
from emu.nic.formats import Formats
from emu.nic.interference import QueueOf
from emu.nic.limits import NicLimits
from emu.pcie.bar import BarHandler
from emu.pcie.bus import Bus, Interrupts
from emu.pcie.ordering import PostedWrites

__all__ = ["NicChaos"]

_CHAOS = Kind.CHAOS.bit


class NicChaos:
    """Stands where a profile wants to; implements :class:`emu.nic.interference.Interference`.

    :param seed: of all decisions; those of memory, registers, path and work are independent of each other, so
        that one profile's do not change when another joins it
    :param name: the function, in events
    """

    def __init__(
        self, profile: Profile, seed: int, name: str, scheduler: Scheduler, events: EventBus
    ) -> None:
        self.profile = profile
        self.acts = 0
        """How often something was done to the NIC."""
        self._seed = seed
        self._name = name
        self._scheduler = scheduler
        self._events = events
        self._posted: PostedWrites | None = None
        self._registers: RegisterPath | None = None
        self._work: FailingWork | None = None
        self._reset: Callable[[], None] | None = None

    def port(self, port: Port) -> Port:
        """The way from the network."""
        if self.profile.path is None:
            return port
        return UnrulyPort(port, self.profile.path, self._scheduler, self._rng("path"), note=self._note)

    def upstream(self, bus: Bus, interrupts: Interrupts) -> tuple[Bus, Interrupts]:
        """The way to memory."""
        memory = self.profile.memory
        if memory is None:
            return bus, interrupts
        self._posted = PostedWrites(
            bus,
            interrupts,
            self._scheduler,
            self._rng("memory"),
            hold_ns=memory.hold_ns,
            tear=memory.tear,
            note=self._note,
        )
        return self._posted, self._posted

    def registers(self, handler: BarHandler, queue_of: QueueOf) -> BarHandler:
        """The way from the guest."""
        profile = self.profile
        if profile.doorbells is None and profile.memory is None and not profile.reset_ns:
            return handler
        if self._registers is None:
            self._registers = RegisterPath(
                profile.doorbells or Doorbells(),
                self._scheduler,
                self._rng("registers"),
                before_read=self.push,
                note=self._note,
            )
        front = self._registers.front(handler, queue_of)
        return _Watched(front, queue_of, self._rang) if profile.reset_ns else front

    def formats(self, formats: Formats) -> Formats:
        """How descriptors are read."""
        failure = self.profile.failure
        if failure is None:
            return formats
        self._work = FailingWork(formats.wqe, failure, self._rng("work"), self._note)
        return dataclasses.replace(formats, wqe=self._work)

    def limits(self, limits: NicLimits) -> NicLimits:
        """What the NIC offers."""
        return limits if self.profile.atomics else dataclasses.replace(limits, atomics=False)

    def reset_with(self, reset: Callable[[], None]) -> None:
        """How the function is reset, for profiles that do."""
        self._reset = reset

    def clear(self) -> None:
        """The function was reset: nothing is on its way any more."""
        for part in (self._posted, self._registers, self._work):
            if part is not None:
                part.clear()

    def _rang(self) -> None:
        """The first doorbell: from here on time runs."""
        reset, self._reset = self._reset, None
        if reset is None:
            return
        delay = self._rng("reset").randint(self.profile.reset_ns // 2, 2 * self.profile.reset_ns)

        def now() -> None:
            self._note(f"function-level reset, {delay // 1_000_000} ms after the first doorbell")
            reset()

        self._scheduler.call_at(self._scheduler.now() + delay, now)

    def push(self) -> None:
        """Let everything the function wrote arrive, as the answer to a register read does."""
        if self._posted is not None:
            self._posted.flush()

    def _rng(self, part: str) -> random.Random:
        return random.Random(f"{self._seed} {self._name} {part}")

    def _note(self, text: str) -> None:
        self.acts += 1
        if self._events.mask & _CHAOS:
            self._events.emit(Event(Kind.CHAOS, self._scheduler.now(), self._name, text=text))


class _Watched:
    """Registers that tell of a doorbell; implements :class:`emu.pcie.bar.BarHandler`."""

    def __init__(self, handler: BarHandler, queue_of: QueueOf, rang: Callable[[], None]) -> None:
        self._handler = handler
        self._queue_of = queue_of
        self._rang = rang

    def read(self, offset: int, size: int) -> bytes:
        return self._handler.read(offset, size)

    def write(self, offset: int, data: bytes) -> None:
        if self._queue_of(offset, data) is not None:
            self._rang()
        self._handler.write(offset, data)
