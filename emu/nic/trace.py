# SPDX-License-Identifier: Apache-2.0
"""One function's way to the event stream."""

from __future__ import annotations

from emu.clock import Scheduler
from emu.events import Event, EventBus, Kind

__all__ = ["Trace"]


class Trace:
    """Stamps events with the time and the function's name.

    The caller tests ``trace.bus.mask`` against the kind's bit first and builds the text only when it is
    wanted.
    """

    __slots__ = ("bus", "function", "scheduler")

    def __init__(self, bus: EventBus, scheduler: Scheduler, function: str) -> None:
        self.bus = bus
        self.scheduler = scheduler
        self.function = function

    def wants(self, kind: Kind) -> bool:
        """True when somebody listens for ``kind``."""
        return bool(self.bus.mask & kind.bit)

    def emit(
        self,
        kind: Kind,
        text: str,
        *,
        qpn: int | None = None,
        index: int | None = None,
        address: int | None = None,
        length: int | None = None,
        value: int | None = None,
        frame: bytes | None = None,
    ) -> None:
        """Emit one event; fields as in :class:`emu.events.Event`."""
        self.bus.emit(
            Event(kind, self.scheduler.now(), self.function, qpn, index, address, length, value, text, frame)
        )
