# SPDX-License-Identifier: Apache-2.0
"""What is behind a base address register: registers that are called, or memory that is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Bar", "BarHandler", "BarMemory", "MemoryHandler"]


class BarHandler(Protocol):
    """Registers behind a trapped BAR. Neither call may raise or block, whatever the access."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes (1..8 from a guest's instruction) at ``offset``, in memory order."""

    def write(self, offset: int, data: bytes) -> None:
        """A posted write of ``data`` at ``offset``."""


@runtime_checkable
class LosesDoorbells(Protocol):
    """Registers that want to know of a write that a fault took away."""

    def lost(self, offset: int, data: bytes) -> None:
        """A write of ``data`` at ``offset`` was lost on its way."""


class BarMemory(Protocol):
    """Memory behind a mappable BAR."""

    @property
    def fd(self) -> int:
        """Descriptor a client may map, of exactly ``size`` bytes."""

    @property
    def size(self) -> int:
        """Bytes, a power of two."""

    @property
    def view(self) -> memoryview:
        """All of it, writable."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One BAR. ``handler`` answers accesses that arrive as messages; ``memory`` is set for a mappable one."""

    index: int
    size: int
    handler: BarHandler
    memory: BarMemory | None = None


class MemoryHandler:
    """Answers accesses to a mappable BAR that a client did not map."""

    def __init__(self, memory: BarMemory) -> None:
        self._memory = memory

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the memory; all ones beyond its end."""
        data = bytes(self._memory.view[offset : offset + size])
        return data + b"\xff" * (size - len(data))

    def write(self, offset: int, data: bytes) -> None:
        """Store ``data``; what lies beyond the end is dropped."""
        target = self._memory.view[offset : offset + len(data)]
        target[:] = data[: len(target)]
