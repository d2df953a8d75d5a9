# SPDX-License-Identifier: Apache-2.0
"""What a demo run found, for people and for programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Check", "DemoReport", "Measurement"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One kernel's run on one guest, as the kernel itself, the driver and the NIC counted it.

    ``latency_ns`` is nanoseconds per message as the guest saw it. ``cpu_touches`` counts work a host CPU
    did on the path, ``syscalls`` calls into the driver on it; both are 0 when the kernel submits by itself.
    None: not reported.
    """

    step: str
    guest: str
    messages: int | None
    octets: int | None
    doorbells: int | None
    retransmitted: int | None
    latency_ns: float | None
    cpu_touches: int | None
    syscalls: int | None
    verified: bool | None


@dataclass(frozen=True, slots=True)
class Check:
    """Something the demo claims, whether it holds, and the numbers behind it."""

    claim: str
    holds: bool
    evidence: str = ""


@dataclass
class DemoReport:
    """A whole run. ``seconds`` is from start to the last check; ``boot_seconds`` by guest."""

    transport: str
    loss: float
    seed: int
    capture: str
    tshark: str
    accelerator: str = ""
    boot_seconds: dict[str, float] = field(default_factory=dict)
    driver_counters: dict[str, dict[str, int]] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {**asdict(self), "passed": self.passed}

    def render(self, console: Console) -> None:
        """Print the tables a person reads."""
        console.print("What the guests' kernels did", style="bold")
        # No borders: nine columns fit 80 characters.
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for column in ("kernel", "guest"):
            table.add_column(column, no_wrap=True)
        for column in ("messages", "bytes", "doorbells", "resent", "latency", "CPU", "calls"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.measurements:
            if not row.messages:
                continue
            table.add_row(
                row.step,
                row.guest,
                *(_count(value) for value in (row.messages, row.octets, row.doorbells, row.retransmitted)),
                _duration(row.latency_ns),
                _count(row.cpu_touches),
                _count(row.syscalls),
            )
        console.print(table)
        console.print(
            "latency: per message, as the guest saw it, on emulated processors.\n"
            "CPU, calls: times a host CPU stepped in and system calls, on the path.\n",
            highlight=False,
        )
        for check in self.checks:
            mark = ("ok  ", "green") if check.holds else ("FAIL", "red")
            evidence = f" ({check.evidence})" if check.evidence else ""
            console.print(Text.assemble(mark, f" {check.claim}{evidence}"), soft_wrap=True)
        boots = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.boot_seconds.items())
        run = f"\nboot ({self.accelerator}): {boots}; whole run {self.seconds:.1f} s"
        console.print(run, highlight=False)
        for line in (
            f"capture: {self.capture}",
            f"read it here:      scripts/vrnic pcap show {shlex.quote(self.capture)}",
            f"or with your own:  {self.tshark}",
        ):
            console.print(line, highlight=False, soft_wrap=True, markup=False)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _duration(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.1f} {unit}"
    return f"{nanoseconds:.0f} ns"
