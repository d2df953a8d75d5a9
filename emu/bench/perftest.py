# SPDX-License-Identifier: Apache-2.0
"""The distribution's perftest on two guests with this NIC, against the same on the kernel's software RoCE.

All four guests hang on one switch of one server: ``rdma_rxe`` runs over QEMU's virtio network device, whose
frames cross the same links as the NIC's. Tools, kernel and accelerator are the same, and the two pairs take
turns, so what differs is where RoCE is done: here in the server, there in the guests' kernels.

Beside the ratios stands a transfer inside one NIC, from queue pair to queue pair, which no wire slows down.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from emu.lab.failure import LabFailure
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.perftest import latencies, throughputs
from emu.lab.runner import LabRunner
from emu.lab.tools import bring_up_rdma, run_tool, tcp_listens
from emu.lab.topology import Lab, Nic, Node

__all__ = [
    "BANDWIDTH_TARGET",
    "CASES",
    "LOOPBACK",
    "LOOPBACK_TARGET",
    "RATE_TARGET",
    "Case",
    "Outcome",
    "PerftestReport",
    "bench_lab",
    "run_perftest_bench",
]

RATE_TARGET = 2.0
"""Messages a second, as a multiple of rxe's."""
BANDWIDTH_TARGET = 4.0
"""Bytes a second, as a multiple of rxe's."""
LOOPBACK_TARGET = 500.0
"""MiB/s between two queue pairs of one NIC, on an idle machine."""

_OPTIONS = "-F -x 1 -u 17"
"""No complaint about the processor's clock, the IPv4 address, and half a second for an answer: an emulated
guest needs more than the 67 ms the tool would grant.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: ``tool`` with messages of ``octets``, so many ``iterations``.

    ``unit`` says what is taken: "us" the typical latency, "msg/s" or "MiB/s". ``target`` is the least ratio
    that is asked for; None: none is.
    """

    tool: str
    octets: int
    iterations: int
    unit: str
    target: float | None = None

    def command(self, server: str = "") -> str:
        """The command line, of the client when ``server`` is an address."""
        return f"{self.tool} {_OPTIONS} -s {self.octets} -n {self.iterations} {server}".strip()

    def read(self, lines: tuple[str, ...]) -> float:
        """The value in what the tool printed. :raises LabFailure: there is none."""
        if self.unit == "us":
            values = [row.typical for row in latencies(lines) if row.octets == self.octets]
        else:
            values = [
                row.messages if self.unit == "msg/s" else row.mebibytes
                for row in throughputs(lines)
                if row.octets == self.octets
            ]
        if len(values) != 1 or values[0] <= 0:
            raise LabFailure(f"`{self.command()}` printed no result", "\n".join(lines[-12:]))
        return values[0]


CASES = (
    Case("ib_write_lat", 8, 1000, "us"),
    Case("ib_write_bw", 64, 10000, "msg/s", RATE_TARGET),
    Case("ib_write_bw", 4096, 5000, "MiB/s", BANDWIDTH_TARGET),
    Case("ib_write_bw", 1 << 20, 100, "MiB/s", BANDWIDTH_TARGET),
)
LOOPBACK = Case("ib_write_bw", 65536, 10000, "MiB/s")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best of all rounds of one case, on this NIC and on rxe."""

    case: Case
    ours: float
    rxe: float

    @property
    def ratio(self) -> float:
        """How many times better this NIC is."""
        return self.rxe / self.ours if self.case.unit == "us" else self.ours / self.rxe

    @property
    def met(self) -> bool:
        """Whether the case's target is reached."""
        return self.case.target is None or self.ratio >= self.case.target


@dataclass(frozen=True, slots=True)
class PerftestReport:
    """One run. ``loopback`` is MiB/s between two queue pairs of one NIC, ``loopback_seconds`` the server's
    processor time for one GiB of it."""

    outcomes: tuple[Outcome, ...]
    loopback: float
    loopback_seconds: float
    rounds: int
    accelerator: str

    @property
    def met(self) -> bool:
        """Whether every target is reached."""
        return self.loopback >= LOOPBACK_TARGET and all(outcome.met for outcome in self.outcomes)

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        rows = [
            {**asdict(outcome.case), "vrnic": outcome.ours, "rxe": outcome.rxe, "ratio": outcome.ratio}
            for outcome in self.outcomes
        ]
        return {
            "cases": rows,
            "loopback": {
                "octets": LOOPBACK.octets,
                "mebibytes_per_second": self.loopback,
                "server_seconds_per_gibibyte": self.loopback_seconds,
                "target": LOOPBACK_TARGET,
            },
            "rounds": self.rounds,
            "accelerator": self.accelerator,
            "met": self.met,
        }


def bench_lab(name: str = "bench-perftest") -> Lab:
    """Two guests with this NIC, two with a virtio network device, one switch."""
    nodes = [Node(side, (Nic(device="mlx5"),), ()) for side in ("left", "right")]
    nodes += [Node(side, (Nic(device="virtio"),), ()) for side in ("soft-left", "soft-right")]
    return Lab(nodes=tuple(nodes), name=name)


def run_perftest_bench(
    *,
    cases: tuple[Case, ...] = CASES,
    loopback: Case = LOOPBACK,
    rounds: int = 3,
    accelerator: str = "auto",
    installation: Installation | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> PerftestReport:
    """Boot four guests and measure every case ``rounds`` times. Takes two minutes or three.

    :raises LabFailure: a guest or a tool fails.
    :raises emu.setup.error.SetupError: the set-up is missing something.
    """
    lab = bench_lab()
    progress("checking the drivers and programs")
    chosen = installation or Installation.require(accelerator)
    addresses = {nic.node: f"10.77.0.{nic.number}" for nic in lab.nics}
    best: dict[tuple[Case, str], float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="vrnic-bench-") as folder,
        LabRunner(lab, chosen, Path(folder), None) as running,
    ):
        progress(f"booting {len(lab.nodes)} guests ({chosen.accelerator})")
        running.start(240)
        for nic in lab.nics:
            bring_up_rdma(running[nic.node], addresses[nic.node], software=nic.device == "virtio")
        spent = 0.0
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for case in cases:
                for kind, client, server in (("vrnic", "left", "right"), ("rxe", "soft-left", "soft-right")):
                    value = _measure(case, running[client], running[server], addresses[server])
                    known = best.get((case, kind), value)
                    best[case, kind] = min(known, value) if case.unit == "us" else max(known, value)
            guest, address = running["left"], addresses["left"]
            before = running.server.processor_seconds()
            value = _measure(loopback, guest, guest, address)
            seconds = running.server.processor_seconds() - before
            if value >= best.get((loopback, "vrnic"), 0.0):
                best[loopback, "vrnic"], spent = value, seconds
    gibibytes = loopback.octets * loopback.iterations / (1 << 30)
    return PerftestReport(
        tuple(Outcome(case, best[case, "vrnic"], best[case, "rxe"]) for case in cases),
        best[loopback, "vrnic"],
        spent / gibibytes,
        rounds,
        chosen.accelerator,
    )


def _measure(case: Case, client: Guest, server: Guest, address: str) -> float:
    _, result = run_tool(
        (server, case.command()), (client, case.command(address)), ready=tcp_listens(), timeout=240
    )
    return case.read(result.out)
