# SPDX-License-Identifier: Apache-2.0
"""What unmodified tools said in a demonstration, for people and for programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from emu.lab.report import Check

__all__ = ["StockReport", "ToolRow"]


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool's run. ``result`` is "ok", "failed" or "not run", and ``reason`` says why it is not "ok".

    ``mebibytes`` is MiB/s and ``latency_us`` microseconds as the tool printed them (None: it measures
    another thing). ``packets`` both NICs sent meanwhile, RoCE and Ethernet; ``retransmitted`` of them again.
    """

    tool: str
    result: str
    mebibytes: float | None = None
    latency_us: float | None = None
    packets: int = 0
    retransmitted: int = 0
    reason: str = ""
    command: str = ""


@dataclass
class StockReport:
    """A whole run. ``seconds`` is from start to the last check; ``boot_seconds`` by guest."""

    device: str
    loss: float
    seed: int
    capture: str
    tshark: str
    accelerator: str = ""
    kernel: str = ""
    boot_seconds: dict[str, float] = field(default_factory=dict)
    tools: list[ToolRow] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every tool succeeded and every claim holds."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {**asdict(self), "passed": self.passed}

    def render(self, console: Console) -> None:
        """Print the table a person reads, the claims, and where the capture is."""
        console.print(f"What the distribution's tools said (kernel {self.kernel})", style="bold")
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for column in ("tool", "result"):
            table.add_column(column, no_wrap=True)
        for column in ("MiB/s", "latency us", "packets", "resent"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in self.tools:
            table.add_row(
                row.tool,
                row.result,
                "-" if row.mebibytes is None else f"{row.mebibytes:,.2f}",
                "-" if row.latency_us is None else f"{row.latency_us:,.1f}",
                f"{row.packets:,}",
                f"{row.retransmitted:,}",
            )
        console.print(table)
        console.print(
            "packets: sent by both NICs, RoCE and Ethernet; times are an emulator's.\n", highlight=False
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
