# SPDX-License-Identifier: Apache-2.0
"""What perftest prints: one line a message size, below a heading that begins with ``#bytes``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Latency", "Throughput", "latencies", "throughputs"]


@dataclass(frozen=True, slots=True)
class Throughput:
    """A bandwidth test of ``octets`` a message: average MiB/s, and million messages a second."""

    octets: int
    iterations: int
    mebibytes: float
    megamessages: float

    @property
    def messages(self) -> float:
        """Messages a second."""
        return self.megamessages * 1e6


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency test of ``octets`` a message, in microseconds (half a round trip where both ends send)."""

    octets: int
    iterations: int
    typical: float
    average: float


def throughputs(lines: Iterable[str]) -> list[Throughput]:
    """Columns: bytes, iterations, peak MiB/s, average MiB/s, million messages a second."""
    return [
        Throughput(int(words[0]), int(words[1]), float(words[3]), float(words[4]))
        for words in _rows(lines, "BW average[MiB/sec]")
        if len(words) >= 5
    ]


def latencies(lines: Iterable[str]) -> list[Latency]:
    """Columns: bytes, iterations, least, most, typical, average, deviation, percentiles, in microseconds."""
    return [
        Latency(int(words[0]), int(words[1]), float(words[4]), float(words[5]))
        for words in _rows(lines, "t_typical[usec]")
        if len(words) >= 6
    ]


def _rows(lines: Iterable[str], column: str) -> list[list[str]]:
    rows: list[list[str]] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith("#bytes"):
            inside = column in line
        elif inside:
            words = line.split()
            try:
                numbers = [float(word) for word in words]
            except ValueError:
                inside = False
                continue
            if len(numbers) > 1:
                rows.append(words)
            else:
                inside = False
    return rows
