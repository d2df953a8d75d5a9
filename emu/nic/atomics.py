# SPDX-License-Identifier: Apache-2.0
"""What an atomic does to one word of memory, whatever transport asked for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALL_ONES", "ATOMIC_SIZES", "AtomicMasks", "AtomicOperation"]

ALL_ONES = 0xFFFFFFFFFFFFFFFF
ATOMIC_SIZES = (4, 8)
"""Bytes of memory that an atomic can work on."""


@dataclass(frozen=True, slots=True)
class AtomicMasks:
    """Which bits of an atomic count.

    Of a compare-and-swap only the bits of ``compare`` are compared and only those of ``swap`` are replaced. A
    fetch-and-add adds fields side by side: each bit of ``boundary`` is the highest of a field, and no carry
    leaves it. The word's own highest bit ends a field anyway.
    """

    compare: int = ALL_ONES
    swap: int = ALL_ONES
    boundary: int = 0


@dataclass(frozen=True, slots=True)
class AtomicOperation:
    """Fetch-and-add of ``operand`` when ``add``, else compare-and-swap of ``compare`` for ``operand``.

    ``size`` is 4 or 8 bytes. Operands are unsigned host integers; bits beyond ``size`` do not count.
    """

    add: bool
    operand: int
    compare: int = 0
    size: int = 8
    masks: AtomicMasks | None = None

    def apply(self, old: int) -> int | None:
        """The word that replaces ``old``; None when nothing is to be written."""
        word = (1 << 8 * self.size) - 1
        masks = self.masks
        if self.add:
            if masks is None or not masks.boundary & word >> 1:
                return (old + self.operand) & word
            # The highest bits of all fields are added without their carry, the others cannot reach further.
            highest = (masks.boundary | 1 << 8 * self.size - 1) & word
            below = word & ~highest
            return ((old & below) + (self.operand & below)) ^ ((old ^ self.operand) & highest)
        if masks is None:
            return self.operand & word if old == self.compare & word else None
        if (old ^ self.compare) & masks.compare & word:
            return None
        return (old & ~masks.swap | self.operand & masks.swap) & word
