# SPDX-License-Identifier: Apache-2.0
"""What a responder remembers of READs and atomics, so that a repeated request gets its answer again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emu.roce.psn import PSN_MASK, distance24

__all__ = ["Resource", "ResourceRing", "ring_size"]


@dataclass(slots=True)
class Resource:
    """One accepted READ or atomic. ``replied`` turns true when its last response left; ``srq`` is the shared
    receive queue that it named, on an XRC connection."""

    opcode: int
    first: int
    packets: int
    address: int
    rkey: int
    length: int
    original: int = 0
    replied: bool = False
    srq: int | None = None

    @property
    def last(self) -> int:
        """Last PSN it takes."""
        return (self.first + self.packets - 1) & PSN_MASK

    def covers(self, psn: int) -> bool:
        """True when ``psn`` is one of its PSNs."""
        return distance24(psn, self.first) < self.packets


def ring_size(max_dest_rd_atomic: int) -> int:
    """Entries to keep: the next power of two, since Linux rxe requesters round their limit up to one."""
    return 1 << (max_dest_rd_atomic - 1).bit_length() if max_dest_rd_atomic else 0


class ResourceRing:
    """The last READs and atomics in request order; the oldest goes when a new one needs the room."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: list[Resource] = []

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._entries)

    @property
    def full(self) -> bool:
        """True when a further request would push out one that is not answered yet."""
        entries = self._entries
        return len(entries) >= self._size and (not entries or not entries[0].replied)

    def resize(self, size: int) -> None:
        """Keep ``size`` requests from now on."""
        self._size = size
        del self._entries[: max(0, len(self._entries) - size)]

    def add(self, resource: Resource) -> None:
        """Remember a newly accepted request."""
        self._entries.append(resource)
        self.resize(self._size)

    def find(self, psn: int) -> Resource | None:
        """The last request that owned ``psn``: PSNs come round while an entry stays."""
        return next((entry for entry in reversed(self._entries) if entry.covers(psn)), None)

    def after(self, psn: int, epsn: int) -> Resource | None:
        """The earliest request after ``psn`` and before the expected PSN ``epsn``."""
        reach = distance24(epsn, psn)
        return next((entry for entry in self._entries if 0 < distance24(entry.first, psn) < reach), None)
