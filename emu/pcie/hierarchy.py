# SPDX-License-Identifier: Apache-2.0
"""The functions of one guest that reach each other by bus address.

A client does not share the BAR of one function with the server of another, so the functions of one guest live
in one server and find each other here: the guest wrote every BAR's address into the configuration space of
its function.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from emu.pcie.bar import Bar

__all__ = ["Hierarchy", "Window"]


class Window(NamedTuple):
    """Bus addresses ``[start, end)`` that a BAR of the function called ``owner`` answers."""

    start: int
    end: int
    owner: str
    bar: Bar


class Hierarchy:
    """Windows of all functions below one root complex, sorted; looked up by binary search.

    ``low`` and ``high`` bound the windows, so that an access to RAM is told apart by two comparisons. After
    :meth:`invalidate` they are as wide as can be until the next lookup gathers the windows anew.
    """

    def __init__(self) -> None:
        self.low = 0
        self.high = 1 << 64
        self._sources: list[Callable[[], Iterable[Window]]] = []
        self._starts: list[int] = []
        self._windows: list[Window] = []
        self._current = False

    def add(self, source: Callable[[], Iterable[Window]]) -> None:
        """Add a function; ``source`` lists the windows that answer now."""
        self._sources.append(source)
        self.invalidate()

    def invalidate(self) -> None:
        """A BAR or a command register changed."""
        self.low, self.high = 0, 1 << 64
        self._current = False

    def find(self, address: int) -> Window | None:
        """The window that holds ``address``; where windows overlap, the one that starts last."""
        if not self._current:
            self._gather()
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._windows[at].end:
            return self._windows[at]
        return None

    def _gather(self) -> None:
        self._windows = sorted(
            (window for source in self._sources for window in source()), key=lambda window: window.start
        )
        self._starts = [window.start for window in self._windows]
        self.low = self._starts[0] if self._windows else 0
        self.high = max((window.end for window in self._windows), default=0)
        self._current = True
