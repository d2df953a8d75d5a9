# SPDX-License-Identifier: Apache-2.0
"""Packet sequence numbers of a PDC: 32 bits, compared serially."""

from __future__ import annotations

__all__ = ["PSN_MASK", "advance", "before", "distance"]

PSN_MASK = 0xFFFFFFFF
_HALF = 0x80000000


def advance(psn: int, count: int = 1) -> int:
    """The number ``count`` after ``psn`` (before it when negative)."""
    return (psn + count) & PSN_MASK


def before(a: int, b: int) -> bool:
    """True when ``a`` comes before ``b``."""
    return (a - b) & PSN_MASK >= _HALF


def distance(a: int, b: int) -> int:
    """How far ``a`` lies after ``b``; negative when before it."""
    value = (a - b) & PSN_MASK
    return value - (1 << 32) if value >= _HALF else value
