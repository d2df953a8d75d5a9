# SPDX-License-Identifier: Apache-2.0
"""Which path the next packet takes: an entropy value, which switches hash into a choice of links."""

from __future__ import annotations

import random
from array import array

__all__ = ["EntropySelector"]

_FIRST, _COUNT = 0xC000, 0x4000
"""Entropy values come from the dynamic range of UDP ports."""


class EntropySelector:
    """Sprays over a fixed set of entropy values, each once in turn, and leaves out congested ones.

    A value reported with a congestion mark, a trim or a loss that speaks of congestion is barred for a while,
    unless more than half of the set is: then the congestion is not the path's.
    """

    __slots__ = ("_barred", "_next", "_values")

    def __init__(self, paths: int, seed: int) -> None:
        draw = random.Random(seed)
        # Neighbours, since switches that fold or divide what they hash send these different ways.
        first = _FIRST + draw.randrange(_COUNT - paths + 1)
        # An array is one line of the cache, a list one for each number, and there may be thousands of sets.
        self._values = array("H", draw.sample(range(first, first + paths), paths))
        self._barred: dict[int, int] = {}
        self._next = 0

    @property
    def values(self) -> list[int]:
        """The whole set, in the order of its use."""
        return list(self._values)

    def pick(self, now: int) -> int:
        """The entropy value of a packet sent ``now``."""
        values, barred = self._values, self._barred
        if not barred:
            at = self._next
            self._next = at + 1 if at + 1 < len(values) else 0
            return values[at]
        for value in [value for value, until in barred.items() if until <= now]:
            del barred[value]
        for _ in values:
            value = values[self._next]
            self._next = (self._next + 1) % len(values)
            if value not in barred or 2 * len(barred) > len(values):
                return value
        return values[0]

    def bar(self, value: int, until: int) -> None:
        """Leave ``value`` out before time ``until`` (ns); values of other sets are ignored."""
        if len(self._values) > 1 and value in self._values:
            self._barred[value] = max(until, self._barred.get(value, 0))
