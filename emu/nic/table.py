# SPDX-License-Identifier: Apache-2.0
"""Numbered objects of one kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from emu.nic.errors import ErrorKind, NicError

__all__ = ["ObjectTable"]

T = TypeVar("T")


class ObjectTable(Generic[T]):
    """Objects by number.

    Numbers go round ``first..last`` so that a freed one stays unused for as long as possible.

    A stale number (in a late packet, a late doorbell, a bug) then names nothing rather than somebody else's
    object.
    """

    def __init__(self, kind: str, limit: int, first: int, last: int) -> None:
        self.kind = kind
        self.limit = min(limit, last - first + 1)
        self.items: dict[int, T] = {}
        """The objects; the data path looks up here directly."""
        self._first = first
        self._last = last
        self._next = first

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self.items.values()))

    def reserve(self) -> int:
        """An unused number. :raises NicError: NO_RESOURCE, the table is full."""
        if len(self.items) >= self.limit:
            raise NicError(ErrorKind.NO_RESOURCE, f"all {self.limit} {self.kind}s are in use")
        number = self._next
        while number in self.items:
            number = self._first if number >= self._last else number + 1
        self._next = self._first if number >= self._last else number + 1
        return number

    def get(self, number: int, field: str) -> T:
        """The object. :raises NicError: BAD_OBJECT naming ``field``."""
        found = self.items.get(number)
        if found is None:
            raise NicError(ErrorKind.BAD_OBJECT, f"there is no {self.kind} {number:#x}", field)
        return found

    def clear(self) -> None:
        """Forget every object. Numbers go on: after a reset, too, a peer's late packets must name nothing."""
        self.items.clear()
