# SPDX-License-Identifier: Apache-2.0
"""Partition keys: bits 14:0 name the partition, bit 15 tells full members from limited ones."""

from __future__ import annotations

__all__ = ["pkeys_match"]

_PARTITION = 0x7FFF
_FULL = 0x8000


def pkeys_match(theirs: int, ours: int) -> bool:
    """True for one partition, not the invalid one, and at least one full member."""
    return not (theirs ^ ours) & _PARTITION and bool(theirs & _PARTITION) and bool((theirs | ours) & _FULL)
