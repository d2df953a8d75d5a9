# SPDX-License-Identifier: Apache-2.0
"""What messages cost, measured in rounds against the least that any software NIC does.

Times are processor time; of several rounds the best counts, since other load only ever adds. The reference is
a loop that copies the same payloads and takes their CRC32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from emu.wire.icrc import crc32

__all__ = ["BURST", "MTU", "Bench", "Cost", "Report", "measure"]

MTU = 4096
BURST = 16
"""Elements a doorbell covers, of messages of one packet."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement: seconds of processor time a message with the engines, and with the raw loop.

    ``peers`` is the number of connections, of whatever kind, that took turns.
    """

    size: int
    peers: int
    engine: float
    raw: float

    @property
    def messages(self) -> float:
        """Messages a second."""
        return 1 / self.engine

    @property
    def gigabytes(self) -> float:
        """Payload in GB/s."""
        return self.size / self.engine / 1e9

    @property
    def ratio(self) -> float:
        """Cost as a multiple of the raw loop's."""
        return self.engine / self.raw


@dataclass(frozen=True, slots=True)
class Report:
    """All measurements of one run.

    ``kind`` names the peers ("QPs"). ``targets`` are what the benchmark wants to see: ``messages`` of 64
    bytes a second on one, ``gigabytes`` a second of 1 MiB messages on one, ``slowdown`` with the most peers.
    """

    kind: str
    targets: Mapping[str, float]
    costs: tuple[Cost, ...]
    rounds: int

    def of(self, size: int, peers: int) -> Cost:
        """One of them. :raises KeyError: it was not measured."""
        for cost in self.costs:
            if (cost.size, cost.peers) == (size, peers):
                return cost
        raise KeyError(f"{size} bytes on {peers} {self.kind} were not measured")

    @property
    def slowdown(self) -> float:
        """Share by which 64-byte messages are slower with the most peers than with one."""
        most = max(cost.peers for cost in self.costs)
        return self.of(64, most).engine / self.of(64, 1).engine - 1

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        enough = self.of(64, 1).messages >= self.targets["messages"]
        if "gigabytes" in self.targets:
            enough = enough and self.of(1 << 20, 1).gigabytes >= self.targets["gigabytes"]
        return enough and self.slowdown <= self.targets["slowdown"]

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "costs": [
                {
                    "size": cost.size,
                    self.kind.lower(): cost.peers,
                    "messages_per_second": cost.messages,
                    "gigabytes_per_second": cost.gigabytes,
                    "ratio": cost.ratio,
                }
                for cost in self.costs
            ],
            "slowdown": self.slowdown,
            "rounds": self.rounds,
            "targets": dict(self.targets),
            "met": self.met,
        }


class Bench(Protocol):
    """Two ends with some number of connections."""

    def run(self, size: int, messages: int) -> float:
        """Seconds of processor time a message; the connections take turns, each with a burst."""


def measure(
    kind: str,
    targets: Mapping[str, float],
    benches: Mapping[int, Bench],
    sizes: Sequence[int],
    *,
    rounds: int,
    volume: int,
    messages: int,
    progress: Callable[[str], None],
) -> Report:
    """Measure every size with every bench of ``benches``, which are by their number of peers.

    A round is ``messages`` messages, or fewer when they would be more than ``volume`` bytes, or more when
    that is not a burst for each peer; ``progress`` is told what happens.
    """
    best: dict[tuple[int, int], float] = {}
    raw: dict[int, float] = {}
    counts = {size: max(1, min(messages, volume // size)) for size in sizes}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for size in sizes:
            raw[size] = min(raw.get(size, 1.0), _raw_cost(size, counts[size]))
            # The benches take turns, so that a slow moment of the machine does not fall on one of them.
            for peers, bench in benches.items():
                each = peers * BURST if size <= MTU else 0
                cost = bench.run(size, max(counts[size], each))
                best[size, peers] = min(best.get((size, peers), 1.0), cost)
    costs = tuple(Cost(size, peers, best[size, peers], raw[size]) for peers in benches for size in sizes)
    return Report(kind, targets, costs, rounds)


def _raw_cost(size: int, messages: int) -> float:
    """Seconds a message of copying its packets and taking the CRC of each."""
    source, target = bytearray(size), bytearray(size)
    pieces = [(at, min(at + MTU, size)) for at in range(0, size, MTU)]
    start = time.process_time()
    for _ in range(messages):
        for begin, end in pieces:
            payload = bytes(source[begin:end])
            crc32(payload)
            target[begin:end] = payload
    return (time.process_time() - start) / messages
