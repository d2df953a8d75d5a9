# SPDX-License-Identifier: Apache-2.0
"""Times that RC encodes in a few bits, in nanoseconds."""

from __future__ import annotations

__all__ = ["RNR_DELAYS", "ack_timeout"]

_RNR_HUNDREDTHS_OF_MS = (
    65536, 1, 2, 3, 4, 6, 8, 12,
    16, 24, 32, 48, 64, 96, 128, 192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip

RNR_DELAYS: tuple[int, ...] = tuple(hundredths * 10_000 for hundredths in _RNR_HUNDREDTHS_OF_MS)
"""Wait before a resend by RNR timer code (0..31); code 0 is the longest."""


def ack_timeout(exponent: int) -> int | None:
    """Local ACK timeout 4.096 us * 2^exponent (1..31); None for 0, which means wait for ever."""
    return 4096 << exponent if exponent else None
