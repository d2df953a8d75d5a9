# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on 24-bit packet and message sequence numbers."""

from __future__ import annotations

__all__ = ["HALF", "PSN_MASK", "cmp24", "distance24", "packets_of"]

PSN_MASK = 0xFFFFFF
HALF = 0x800000


def cmp24(a: int, b: int) -> int:
    """-1, 0 or +1 as ``a`` is before, at or after ``b`` on the 24-bit circle; a distance of 2^23 counts as
    before.
    """
    distance = (a - b) & PSN_MASK
    if distance == 0:
        return 0
    return -1 if distance >= HALF else 1


def distance24(a: int, b: int) -> int:
    """Steps forward from ``b`` to ``a``, 0 to 2^24 - 1."""
    return (a - b) & PSN_MASK


def packets_of(length: int, mtu: int) -> int:
    """Packets, and so PSNs, of a SEND, WRITE or READ of ``length`` bytes: at least one."""
    return -(-length // mtu) or 1
