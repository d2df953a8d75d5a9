# SPDX-License-Identifier: Apache-2.0
"""What a lab says of the speed of its links, of the queues that come with it, and of its shared secret."""

from __future__ import annotations

import re

from emu.fabric.egress import UNLIMITED, Queueing

__all__ = ["DEFAULT_QUEUE_KIB", "SPEED_MAX", "parse_secret", "queueing"]

SPEED_MAX = 400_000
"""Fastest link in Mb/s."""
DEFAULT_QUEUE_KIB = 512
_KIB = 1024


def queueing(
    speed_mbps: float,
    *,
    queue_kib: int = DEFAULT_QUEUE_KIB,
    ecn_min_kib: int | None = None,
    ecn_max_kib: int | None = None,
    trim_kib: int | None = None,
    pause: bool | None = None,
) -> Queueing:
    """The queues before a link of ``speed_mbps`` (0: without a limit, and without queues).

    :raises ValueError: a value out of range, with the lab's name for it
    """
    if not 0 <= speed_mbps <= SPEED_MAX:
        raise ValueError(f"speed_mbps {speed_mbps} is not in 0..{SPEED_MAX}")
    if not 16 <= queue_kib <= 1 << 20:
        raise ValueError(f"queue_kib {queue_kib} is not in 16..{1 << 20}: the longest frame has 9 KiB")
    if (ecn_min_kib is None) != (ecn_max_kib is None):
        raise ValueError("marking needs ecn_min_kib, where it begins, and ecn_max_kib, where it is certain")
    if ecn_min_kib is not None and ecn_max_kib is not None and not 0 <= ecn_min_kib <= ecn_max_kib:
        raise ValueError(f"ecn_min_kib {ecn_min_kib} is negative, or above ecn_max_kib {ecn_max_kib}")
    if trim_kib is not None and not 0 <= trim_kib <= queue_kib:
        raise ValueError(f"trim_kib {trim_kib} is not in 0..{queue_kib}, the size of the queue")
    if not speed_mbps:
        return UNLIMITED
    return Queueing(
        max(1, round(speed_mbps * 125_000)),
        limit=queue_kib * _KIB,
        mark_min=None if ecn_min_kib is None else ecn_min_kib * _KIB,
        mark_max=None if ecn_max_kib is None else ecn_max_kib * _KIB,
        trim_at=None if trim_kib is None else trim_kib * _KIB,
        pause=bool(pause),
    )


def parse_secret(text: str) -> bytes:
    """The 32 bytes of a secret written as 64 hexadecimal digits; none for "".

    :raises ValueError: anything else. The message does not repeat it.
    """
    if text and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("a secret is 64 hexadecimal digits (`openssl rand -hex 32` makes one)")
    return bytes.fromhex(text)
