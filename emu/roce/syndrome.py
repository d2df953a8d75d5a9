# SPDX-License-Identifier: Apache-2.0
"""AETH syndromes: bits 6:5 tell ACK, RNR NAK and NAK apart, bits 4:0 are a credit, timer or error code."""

from __future__ import annotations

import enum

__all__ = ["ACK", "Nak", "is_ack", "is_rnr", "rnr"]

ACK = 0x1F
"""Positive, credit field invalid: the requester need not count credits."""


class Nak(enum.IntEnum):
    """Negative acknowledgements of RC."""

    SEQUENCE = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS = 0x62
    REMOTE_OPERATION = 0x63


def rnr(timer: int) -> int:
    """RNR NAK syndrome with a timer code."""
    return 0x20 | timer & 0x1F


def is_ack(syndrome: int) -> bool:
    """True for a positive syndrome, whatever its credits."""
    return syndrome < 0x20


def is_rnr(syndrome: int) -> bool:
    """True for an RNR NAK."""
    return 0x20 <= syndrome < 0x40
