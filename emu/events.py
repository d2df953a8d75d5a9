# SPDX-License-Identifier: Apache-2.0
"""The one stream of what happens in the device.

Capture, ``vrnic trace``, counters, checks and tests all read it. An emitter asks ``bus.mask & kind.bit``
first, so an event nobody listens for costs one integer test.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Event", "EventBus", "Kind"]


class Kind(enum.IntEnum):
    """What happened. The value is stored in captures: append, never renumber."""

    MMIO_READ = 1
    MMIO_WRITE = 2
    DOORBELL = 3
    WQE_FETCH = 4
    DMA_READ = 5
    DMA_WRITE = 6
    FRAME_OUT = 7
    FRAME_IN = 8
    FRAME_DROP = 9
    RETRANSMIT = 10
    TIMER = 11
    CQE = 12
    EQE = 13
    MSIX = 14
    STATE = 15
    COMMAND = 16
    RESET = 17
    CHECK = 18
    LINK = 19
    CHAOS = 20
    """Something was made to go wrong, or to happen in an unusual order, because a chaos profile says so."""
    QUEUE = 21
    """A switch marked or trimmed a frame, as the queue it came to was long."""

    @property
    def bit(self) -> int:
        """This kind's bit in an :attr:`EventBus.mask`."""
        return 1 << self


@dataclass(slots=True)
class Event:
    """One observation.

    ``time`` is nanoseconds on the scheduler's clock, ``function`` the PCI function's name ("node0.nic0"),
    ``qpn`` and ``index`` the queue pair and running WQE index (or None), ``address``/``length``/``value`` as
    the kind needs them, ``text`` a short line for a person. ``frame`` carries the bytes of FRAME_* events.
    """

    kind: Kind
    time: int
    function: str
    qpn: int | None = None
    index: int | None = None
    address: int | None = None
    length: int | None = None
    value: int | None = None
    text: str = ""
    frame: bytes | None = None


Listener = Callable[[Event], None]


class EventBus:
    """Fans events out to listeners, each with the kinds it wants."""

    def __init__(self) -> None:
        self.mask = 0
        # Replaced as a whole, so that emit may iterate while a listener comes or goes.
        self._listeners: tuple[tuple[int, Listener], ...] = ()

    def subscribe(self, listener: Listener, kinds: Iterable[Kind] = tuple(Kind)) -> Callable[[], None]:
        """Call ``listener`` for every event of ``kinds``; the returned function ends it."""
        entry = (sum({kind.bit for kind in kinds}), listener)
        self._listeners = (*self._listeners, entry)
        self._recompute()

        def unsubscribe() -> None:
            if entry in self._listeners:
                self._listeners = tuple(other for other in self._listeners if other is not entry)
                self._recompute()

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Hand ``event`` to every listener that wants its kind."""
        kind = event.kind
        for mask, listener in self._listeners:
            if mask >> kind & 1:
                listener(event)

    def _recompute(self) -> None:
        self.mask = 0
        for mask, _ in self._listeners:
            self.mask |= mask
