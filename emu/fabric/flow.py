# SPDX-License-Identifier: Apache-2.0
"""Which of several equal links a frame takes: a hash over what is the same in all packets of one flow."""

from __future__ import annotations

from emu.wire.congestion import locate_network

__all__ = ["flow_hash"]


def flow_hash(frame: bytes) -> int:
    """16 bits from IP addresses, protocol and the 4 bytes behind the IP header (UDP ports, or UET's entropy
    header); from the MAC addresses of what is not IP.

    The words are folded with XOR, so that values which differ in their low bits only, as the entropy values
    of one sender do, spread evenly over a power of two of links.
    """
    start, version = locate_network(frame)
    if version == 4:
        folded = frame[start + 9]
        words = frame[start + 12 : start + 24]
    elif version == 6:
        folded = frame[start + 6]
        words = frame[start + 8 : start + 44]
    else:
        folded = 0
        words = frame[0:12]
    for at in range(0, len(words) - 1, 2):
        folded ^= words[at] << 8 | words[at + 1]
    return folded
