# SPDX-License-Identifier: Apache-2.0
"""Which counters of a source were seen: a window behind the newest, in which each may come once."""

from __future__ import annotations

__all__ = ["WINDOW", "ReplayWindow"]

WINDOW = 4096
"""Packets that a late one may be behind the newest. No source gives a size: spraying over paths of different
length needs some thousand.
"""


class ReplayWindow:
    """Of one source and association number. The epoch is part of a counter (its upper 16 of 64 bits)."""

    __slots__ = ("_newest", "_seen")

    def __init__(self) -> None:
        self._newest = -1
        self._seen = 0

    def fresh(self, tsc: int) -> bool:
        """Whether ``tsc`` may still come."""
        behind = self._newest - tsc
        if behind < 0:
            return True
        return behind < WINDOW and not self._seen >> behind & 1

    def note(self, tsc: int) -> None:
        """Remember ``tsc``, whose packet proved to be genuine."""
        ahead = tsc - self._newest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & (1 << WINDOW) - 1 if ahead < WINDOW else 1
            self._newest = tsc
        else:
            self._seen |= 1 << -ahead
