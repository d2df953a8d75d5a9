# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on running indices: 32 bits that wrap."""

from __future__ import annotations

__all__ = ["MASK", "ahead", "before"]

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def ahead(index: int, of: int) -> int:
    """How far ``index`` is ahead of ``of``, negative when it is behind."""
    distance = (index - of) & MASK
    return distance if distance < _HALF else distance - (MASK + 1)


def before(index: int, other: int) -> bool:
    """True when ``index`` is older than ``other``."""
    return ahead(index, other) < 0
