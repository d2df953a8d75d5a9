# SPDX-License-Identifier: Apache-2.0
"""The same work over RoCEv2 and over UET on the network of :mod:`emu.bench.network`.

Times are virtual, so what is compared is how the transports recover from loss and spread over paths, not
what a Python process costs.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from emu.bench.network import MTU, Network, QueuePair
from emu.clock import NS_PER_S
from emu.nic.work import Transport

__all__ = ["LOSSES", "PATHS", "TRANSPORTS", "WORKLOADS", "Outcome", "Workload", "compare_transports", "run"]

TRANSPORTS = {"roce-rc": Transport.ROCE_RC, "uet-rud": Transport.UET_RUD}
LOSSES = (0.0, 0.001, 0.01, 0.05)
PATHS = (1, 8)
LIMIT_NS = NS_PER_S
"""Virtual time after which a run has failed."""


@dataclass(frozen=True, slots=True)
class Workload:
    """``senders`` hosts each WRITE messages of ``sizes`` bytes, all posted at once, to one receiver.

    It runs with each loss of ``losses`` and each number of ``paths``.
    """

    name: str
    sizes: tuple[int, ...]
    senders: int = 1
    losses: tuple[float, ...] = LOSSES
    paths: tuple[int, ...] = PATHS


def _moe() -> tuple[int, ...]:
    """Token batches of a mixture-of-experts dispatch: 64 messages of 1 to 16 rows of 4 KiB."""
    draw = random.Random(64)
    return tuple(MTU * draw.randint(1, 16) for _ in range(64))


WORKLOADS = (
    Workload("64 MoE messages", _moe()),
    Workload("8 MiB write", (8 << 20,)),
    Workload("incast of 8", (1 << 20,), senders=8, losses=(0.0,)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. ``time`` is in virtual nanoseconds; ``lost`` and ``resent`` are payload bytes.

    ``tail`` is the slowest message's time as a multiple of the median's, ``reordered`` the data packets that
    arrived after a later one of the same sender, ``queue`` the nanoseconds that a data packet waited in
    switches on average, ``shares`` what each path carried of all bytes. ``failed`` names what
    went wrong, or is empty.
    """

    workload: str
    transport: str
    paths: int
    loss: float
    time: int
    lost: int
    resent: int
    reordered: int
    tail: float
    queue: float
    shares: tuple[float, ...]
    failed: str

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def run(workload: Workload, transport: str, paths: int, loss: float, seed: int = 1) -> Outcome:
    """Play ``workload`` once; the same arguments give the same outcome.

    :raises KeyError: the transport is none of :data:`TRANSPORTS`.
    """
    network = Network(TRANSPORTS[transport], paths, loss, seed)
    room = sum(workload.sizes)
    receiver = network.host(room * workload.senders, receives=True)
    draw = random.Random(seed)
    senders: list[QueuePair] = []
    for _ in range(workload.senders):
        host = network.host(room * workload.senders)
        host.memory[:] = draw.randbytes(len(host.memory))
        there, here = receiver.queue_pair(), host.queue_pair()
        there.connect(host, here.qpn)
        here.connect(receiver, there.qpn)
        senders.append(here)
    expected = bytearray(len(receiver.memory))
    # Switches learn where everybody is before the work begins.
    network.scheduler.run(until=network.round_trip)
    start = network.scheduler.now()
    for number, qp in enumerate(senders):
        address = number * room
        expected[address : address + room] = qp.memory[address : address + room]
        for index, size in enumerate(workload.sizes):
            qp.write(index, address, size)
            address += size
        qp.host.serve(qp)
    wanted = len(workload.sizes)
    while any(len(qp.done) < wanted and not qp.failed for qp in senders):
        before = network.scheduler.now()
        if before - start >= LIMIT_NS:
            break
        network.scheduler.run(until=before + 100_000)
    failed = next((qp.failed for qp in senders if qp.failed), "")
    if not failed and any(len(qp.done) < wanted for qp in senders):
        failed = "not finished"
    if not failed and receiver.memory != expected:
        failed = "wrong bytes"
    times = [time - start for qp in senders for time in qp.done]
    return Outcome(
        workload.name,
        transport,
        paths,
        loss,
        time=max(times, default=0),
        lost=network.lost,
        resent=network.resent,
        reordered=network.reordered,
        tail=max(times) / statistics.median(times) if times else 0.0,
        queue=network.queue,
        shares=network.shares,
        failed=failed,
    )


def compare_transports(
    workloads: Sequence[Workload] = WORKLOADS,
    *,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Every workload over both transports, on each number of paths and with each loss. Takes about a minute.

    ``progress`` is told what comes next.
    """
    outcomes = []
    for workload in workloads:
        for paths in workload.paths:
            for loss in workload.losses:
                progress(f"{workload.name}, {paths} paths, loss {loss:g}")
                outcomes += [run(workload, transport, paths, loss, seed) for transport in TRANSPORTS]
    return outcomes
