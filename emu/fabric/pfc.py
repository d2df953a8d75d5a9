# SPDX-License-Identifier: Apache-2.0
"""Priority flow control at both ends of a link: a port that obeys pauses, and a switch's side that asks for
them.

A paused priority waits in a queue of its own while the others go on, so nothing is lost and nobody else is
held up; what is in the same priority is, which is the known price (head-of-line blocking).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from emu.clock import NS_PER_S, US, Scheduler, Timer
from emu.fabric.port import LinkWatcher, Port, Receiver
from emu.wire.pause import (
    PRIORITIES,
    QUANTA_MAX,
    QUANTUM_BITS,
    is_pause,
    pack_pause,
    parse_pause,
    priority_of,
)

__all__ = ["HELD_FREE", "LINE_RATE", "PauseCounters", "PauseSource", "PfcPort"]

LINE_RATE = 12_500_000_000
"""Bytes a second of a link without a speed of its own, for the length of a quantum: 100 Gb/s."""
HELD_FREE = 1024
"""Frames that may wait in paused priorities before they count as the port's backlog: up to here a sender that
holds back when the port is behind still serves the priorities that are not paused.
"""
BURST = 16
"""Frames of a priority that leave in one turn after its pause."""
REVIEW = 20 * US
"""How often a source that asked for a pause looks whether it is still needed."""
PAUSE = QUANTA_MAX
"""Quanta it asks for: 335 microseconds at 100 Gb/s, renewed and ended by the review."""


@dataclass(slots=True)
class PauseCounters:
    """Of each priority: pauses that the far end began and that ended, and frames that waited.

    ``malformed`` are frames of MAC control that were something else.
    """

    paused: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    resumed: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    held: list[int] = field(default_factory=lambda: [0] * PRIORITIES)
    malformed: int = 0

    def snapshot(self) -> dict[str, int]:
        """By name; ``rx_prio3_pause`` are the pauses of priority 3."""
        found = {"pause_malformed": self.malformed}
        for name, values in (("pause", self.paused), ("resume", self.resumed), ("held", self.held)):
            found |= {f"rx_prio{priority}_{name}": value for priority, value in enumerate(values) if value}
        return found


class PfcPort:
    """Implements :class:`emu.fabric.port.Port` in front of another and obeys the pauses that arrive there.

    ``rate`` is the link's speed in bytes a second, of which a quantum is 512 bits. Frames of MAC control stay
    here. ``observe`` is told of each, for the capture.
    """

    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        rate: int = 0,
        observe: Callable[[bytes], None] = lambda frame: None,
    ) -> None:
        self.name = port.name
        self.counters = PauseCounters()
        self._port = port
        self._scheduler = scheduler
        self._quantum = QUANTUM_BITS / 8 * NS_PER_S / (rate or LINE_RATE)
        self._observe = observe
        self._receiver: Receiver | None = None
        self._held: list[deque[bytes]] = [deque() for _ in range(PRIORITIES)]
        self._until: list[int | None] = [None] * PRIORITIES
        """When the pause of each priority ends, None when there is none."""
        self._pauses = 0
        """Priorities paused now."""
        self._draining = False
        self._timer: Timer | None = None
        port.attach(self._arrived)
        port.watch(self._link_changed)

    def send(self, frame: bytes) -> None:
        """To the link, unless the frame's priority is paused or others of it wait already."""
        if self._pauses or self._draining:
            priority = priority_of(frame)
            if self._until[priority] is not None or self._held[priority]:
                self.counters.held[priority] += 1
                self._held[priority].append(frame)
                return
        self._port.send(frame)

    def attach(self, receiver: Receiver) -> None:
        """As the port behind, without frames of MAC control."""
        self._receiver = receiver

    def watch(self, watcher: LinkWatcher) -> None:
        """As the port behind."""
        self._port.watch(watcher)

    @property
    def held(self) -> int:
        """Frames that wait for the end of a pause."""
        return sum(map(len, self._held))

    @property
    def backlog(self) -> int:
        """As the port behind, and what waits here beyond :data:`HELD_FREE`."""
        return self._port.backlog + max(0, self.held - HELD_FREE)

    @property
    def arriving(self) -> int:
        """As the port behind."""
        return self._port.arriving

    @property
    def up(self) -> bool:
        """State of the link behind."""
        return self._port.up

    def paused(self, priority: int) -> bool:
        """True while frames of ``priority`` wait."""
        return self._until[priority] is not None

    def _arrived(self, frame: bytes) -> None:
        if not is_pause(frame):
            if self._receiver is not None:
                self._receiver(frame)
            return
        self._observe(frame)
        quanta = parse_pause(frame)
        if quanta is None:
            self.counters.malformed += 1
            return
        now = self._scheduler.now()
        for priority, count in quanta.items():
            if count:
                if self._until[priority] is None:
                    self.counters.paused[priority] += 1
                    self._pauses += 1
                self._until[priority] = now + max(1, round(count * self._quantum))
            elif self._until[priority] is not None:
                self._until[priority] = now
        self._release()

    def _release(self) -> None:
        """End the pauses that are over, let what waited go, and come back when the next one ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._scheduler.now()
        for priority, until in enumerate(self._until):
            if until is not None and until <= now:
                self._until[priority] = None
                self._pauses -= 1
                self.counters.resumed[priority] += 1
        if not self._draining:
            self._drain()
        pending = [until for until in self._until if until is not None]
        if pending:
            self._timer = self._scheduler.call_at(min(pending), self._release)

    def _drain(self) -> None:
        """Send some of what waited: the far end must be able to ask for another pause in between."""
        self._draining = False
        for until, held in zip(self._until, self._held, strict=True):
            if until is None:
                for _ in range(min(len(held), BURST)):
                    self._port.send(held.popleft())
                self._draining = self._draining or bool(held)
        if self._draining:
            self._scheduler.call_soon(self._drain)

    def _link_changed(self, up: bool) -> None:
        """A pause does not outlive its link; what waited is lost with it, and counted there."""
        if not up:
            now = self._scheduler.now()
            self._until = [None if until is None else now for until in self._until]
            self._release()


class PauseSource:
    """A switch's side of one link: asks the far end to pause a priority, and to go on when that is over.

    ``send`` puts a frame on the link towards the sender.
    """

    def __init__(self, scheduler: Scheduler, send: Callable[[bytes], None], mac: bytes) -> None:
        self.pauses = 0
        """Times that a pause began."""
        self._scheduler = scheduler
        self._send = send
        self._mac = mac
        self._needed: dict[int, Callable[[], bool]] = {}
        self._timer: Timer | None = None

    def pause(self, priority: int, needed: Callable[[], bool]) -> None:
        """Pause ``priority`` for as long as ``needed`` says so."""
        if priority in self._needed:
            self._needed[priority] = needed
            return
        self.pauses += 1
        self._needed[priority] = needed
        self._send(pack_pause(self._mac, {priority: PAUSE}))
        if self._timer is None:
            self._timer = self._scheduler.call_at(self._scheduler.now() + REVIEW, self._review)

    def _review(self) -> None:
        self._timer = None
        over = [priority for priority, needed in self._needed.items() if not needed()]
        for priority in over:
            del self._needed[priority]
        if over:
            self._send(pack_pause(self._mac, dict.fromkeys(over, 0)))
        if self._needed:
            # Well before it would end by itself.
            self._send(pack_pause(self._mac, dict.fromkeys(self._needed, PAUSE)))
            self._timer = self._scheduler.call_at(self._scheduler.now() + REVIEW, self._review)
