# SPDX-License-Identifier: Apache-2.0
"""Which event queue an asynchronous event goes to, where the driver subscribes by kind of event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from emu.nic.engine import AsyncEvent

if TYPE_CHECKING:
    from emu.nic.eq import EventQueue

__all__ = ["EventRoutes"]


class EventRoutes:
    """Subscriptions of event queues.

    While there are none, an event about a queue pair or CQ goes to the event queue of its CQ, and one about
    the device to every event queue.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[AsyncEvent, EventQueue] = {}

    def subscribe(self, eq: EventQueue, events: Iterable[AsyncEvent]) -> None:
        """Send ``events`` to ``eq`` from now on; a later subscriber replaces an earlier one."""
        self._queues.update(dict.fromkeys(events, eq))

    def forget(self, eq: EventQueue) -> None:
        """End the subscriptions of ``eq``."""
        self._queues = {event: queue for event, queue in self._queues.items() if queue is not eq}

    def clear(self) -> None:
        """End all subscriptions."""
        self._queues.clear()

    def about_object(self, event: AsyncEvent, own: EventQueue | None) -> EventQueue | None:
        """Where an event about an object goes whose CQ reports to ``own``; None: nowhere."""
        return self._queues.get(event) if self._queues else own

    def about_device(self, event: AsyncEvent, every: Iterable[EventQueue]) -> Iterable[EventQueue]:
        """Where an event about the device goes."""
        if not self._queues:
            return every
        queue = self._queues.get(event)
        return () if queue is None else (queue,)
