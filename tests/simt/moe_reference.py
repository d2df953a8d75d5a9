# SPDX-License-Identifier: Apache-2.0
"""What dispatch and combine must give, computed without sending anything.

Written from the description at the head of ``guest/kernels/simt/moe.cpp``, with the host's own arithmetic:
single precision by packing, bfloat16 by rounding to nearest even.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Moe"]

_MASK = 0xFFFFFFFFFFFFFFFF


def _pattern(seed: int, pe: int, message: int, index: int) -> int:
    """The 64 bits both sides compute (one step of splitmix64)."""
    z = (seed * 0x1000003 + pe * 0x10001 + message * 0x101 + index + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _bfloat16(value: float) -> float:
    bits = int.from_bytes(struct.pack("<f", value), "little")
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return float(struct.unpack("<f", rounded.to_bytes(4, "little"))[0])


@dataclass(frozen=True)
class Moe:
    """Options of a run."""

    seed: int
    ranks: int
    tokens: int = 8
    experts: int = 8
    topk: int = 2
    hidden: int = 128
    steps: int = 3
    routing: str = "uniform"

    def experts_of(self, step: int, pe: int, token: int) -> list[int]:
        """The experts a token chooses, in order."""
        first = (_pattern(self.seed, pe, token, 7000 + step) >> 33) & 0xFFFFFFFF
        if self.routing == "hot":
            return [0] + [1 + (first + k) % (self.experts - 1) for k in range(1, self.topk)]
        if self.routing == "idle":
            return [(first + k) % (self.experts - 1) for k in range(self.topk)]
        return [(first + k) % self.experts for k in range(self.topk)]

    def output(self, pe: int) -> bytes:
        """What rank ``pe`` ends with: single precision, little-endian, by step, token, element."""
        return b"".join(
            struct.pack(f"<{self.hidden}f", *self._combined(step, pe, token))
            for step in range(self.steps)
            for token in range(self.tokens)
        )

    def _combined(self, step: int, pe: int, token: int) -> list[float]:
        sums = [0.0] * self.hidden
        elements = self._elements(step, pe, token)
        for k, expert in enumerate(self.experts_of(step, pe, token)):
            for i, value in enumerate(elements):
                sums[i] = _single(sums[i] + _bfloat16(_single(value * (expert + 1))) / (1 << k))
        return sums

    def _elements(self, step: int, pe: int, token: int) -> list[float]:
        words = [_pattern(self.seed, pe, token, step * 0x10000 + word) for word in range(self.hidden // 8)]
        raw = struct.unpack(f"<{self.hidden}b", struct.pack(f"<{len(words)}Q", *words))
        scales = [
            1 / (1 << _pattern(self.seed, pe, token, 0x8000000 + step * 0x1000 + group) % 4)
            for group in range(self.hidden // 128)
        ]
        return [value * scales[i // 128] for i, value in enumerate(raw)]

    def work(self) -> dict[str, int]:
        """Over all ranks: WRITEs and atomics that need the network."""
        writes = 0
        local = self.experts // self.ranks
        for step in range(self.steps):
            for pe in range(self.ranks):
                for token in range(self.tokens):
                    # One there, one back.
                    writes += 2 * sum(expert // local != pe for expert in self.experts_of(step, pe, token))
        # A count from each rank for each expert elsewhere, and a flag back.
        return {"writes": writes, "atomics": 2 * self.steps * self.experts * (self.ranks - 1)}
