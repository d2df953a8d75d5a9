# SPDX-License-Identifier: Apache-2.0
"""What a link does to frames on their way, apart from carrying them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Impairments"]


@dataclass(frozen=True, slots=True)
class Impairments:
    """Impairments of one direction of a link: a frame is lost, or else perhaps trimmed and perhaps marked.

    ``loss``, ``trim`` and ``mark`` are probabilities (0 to 1): that a frame vanishes, that a UET data packet
    has its payload cut off, that a packet whose sender takes part in ECN is marked CE, as a congested switch
    does. ``last_hop`` says that the link ends at the receiver, which a trimmed packet tells.

    ``delay_ns`` is the time from end to end in nanoseconds, ``jitter_ns`` up to how much longer it may take
    (frames keep their order all the same). ``rate`` are the bytes a second that fit on the link (0: any
    number): a frame also takes the time of its length and of those before it. ``seed`` fixes the random
    draws: the same seed, link name and sequence of frames give the same fates.

    Two properties of the physical layer are modelled. With ``llr`` (link-level retry) the link itself repeats
    a frame that it lost, until it gets through: order is kept, the transport sees a delay and no loss.
    Sequence numbers, ordered sets and buffers of LLR are not built. ``symbol_errors`` is the probability that
    a code word of 5,140 bits has errors which error correction (FEC) mends; a lost frame counts as one code
    word that it could not. Code words are counted, not computed.

    :raises ValueError: a probability outside 0..1 or a negative delay.
    """

    loss: float = 0.0
    delay_ns: int = 0
    seed: int = 0
    trim: float = 0.0
    mark: float = 0.0
    last_hop: bool = False
    llr: bool = False
    symbol_errors: float = 0.0
    rate: int = 0
    jitter_ns: int = 0

    def __post_init__(self) -> None:
        for name in ("loss", "trim", "mark", "symbol_errors"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} {value} is not a probability between 0 and 1")
        if self.delay_ns < 0:
            raise ValueError(f"delay {self.delay_ns} ns is negative")
        for name in ("rate", "jitter_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is negative")
