# SPDX-License-Identifier: Apache-2.0
"""What a link does to frames on their way, apart from carrying them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Impairments"]


@dataclass(frozen=True, slots=True)
class Impairments:
    """Impairments of one direction of a link, applied in the order of the fields.

    ``loss`` is the probability (0 to 1) that a frame vanishes, ``delay_ns`` the time from end to end in
    nanoseconds. ``seed`` fixes the random draws: the same seed, link name and sequence of frames give the
    same losses.

    :raises ValueError: a probability outside 0..1 or a negative delay.
    """

    loss: float = 0.0
    delay_ns: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss {self.loss} is not a probability between 0 and 1")
        if self.delay_ns < 0:
            raise ValueError(f"delay {self.delay_ns} ns is negative")
