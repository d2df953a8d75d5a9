# SPDX-License-Identifier: Apache-2.0
"""CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, preset and final complement all ones."""

from __future__ import annotations

import struct
from functools import cache

__all__ = ["POLYNOMIAL", "crc32c"]

POLYNOMIAL = 0x82F63B78
_HALF = struct.Struct("<H")


@cache
def _tables() -> tuple[list[int], list[int]]:
    """Effect of one byte, and of two: half the steps for 256 KiB."""
    one = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        one.append(value)
    two = [one[value & 0xFF] for value in range(65536)]
    return one, [one[(step ^ value >> 8) & 0xFF] ^ step >> 8 for value, step in enumerate(two)]


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C of ``data``, continuing from ``value``, the CRC of what came before."""
    one, two = _tables()
    state = value ^ 0xFFFF_FFFF
    even = len(data) & ~1
    for (word,) in _HALF.iter_unpack(memoryview(data)[:even]):
        state = state >> 16 ^ two[(state ^ word) & 0xFFFF]
    if even != len(data):
        state = state >> 8 ^ one[(state ^ data[even]) & 0xFF]
    return state ^ 0xFFFF_FFFF
