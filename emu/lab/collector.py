# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's cyclic garbage collector from stopping the device.

A full collection looks at every object, so 20,000 queue pairs (900,000 objects) cost a pause of a quarter of
a second, in which no register read is answered. What has lived for a while is therefore moved out of the
collector's sight (:func:`gc.freeze`, which costs nothing), and back into it once much of it has been
destroyed. Until then that much dead memory is kept, never more than what was alive once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from emu.clock import NS_PER_S, Scheduler

__all__ = ["GROWTH", "QuietCollector"]

INTERVAL = 1 * NS_PER_S
GROWTH = 500
"""Objects of the device that must have come since the last time before anything is moved."""


class QuietCollector:
    """Looks once a second at how many objects the device has, which ``count`` tells.

    ``freeze`` and ``unfreeze`` are the collector's; ``collections`` is how many full ones it has made.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        count: Callable[[], int],
        *,
        freeze: Callable[[], None] = gc.freeze,
        unfreeze: Callable[[], None] = gc.unfreeze,
        collections: Callable[[], int] = lambda: int(gc.get_stats()[2]["collections"]),
    ) -> None:
        self._scheduler = scheduler
        self._count = count
        self._freeze = freeze
        self._unfreeze = unfreeze
        self._collections = collections
        self._frozen = 0
        self._awaited = 0

    def start(self) -> None:
        """Take what there is now out of the collector's sight, and go on looking."""
        self._move(self._count())
        self._again()

    def look(self) -> None:
        """Move what has come to stay; let the collector see again what has mostly gone."""
        now = self._count()
        if self._collections() < self._awaited:
            # What was destroyed has to be collected before anything is moved again, or it would stay.
            pass
        elif now > self._frozen + max(GROWTH, self._frozen // 4):
            self._move(now)
        elif now < self._frozen // 2:
            self._unfreeze()
            self._frozen = 0
            self._awaited = self._collections() + 1
        self._again()

    def _move(self, now: int) -> None:
        self._freeze()
        self._frozen = now

    def _again(self) -> None:
        self._scheduler.call_at(self._scheduler.now() + INTERVAL, self.look)
