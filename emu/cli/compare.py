# SPDX-License-Identifier: Apache-2.0
"""``vrnic compare``: transports side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from emu.bench.chart import draw
from emu.bench.compare import Outcome, compare_transports
from emu.cli.output import JsonFlag, console, errors, guarded, print_json

__all__ = ["app"]

app = typer.Typer(help="Transports side by side, in virtual time.", no_args_is_help=True)

_BAR = 36


@app.callback()
def _group() -> None:
    pass


@app.command()
@guarded
def transports(
    seed: Annotated[int, typer.Option("--seed", help="Of all random draws.")] = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the comparison too.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """The same messages over RoCEv2 and UET: on one path and on eight, with loss, and as incast.

    Exit code 1 when a run did not end right.

    Examples: `vrnic compare transports`, `vrnic compare transports --plot compare.svg`,
    `vrnic compare transports --seed 7 --json`.
    """
    if plot is not None:
        # Before the minutes of work: a file that cannot be written is known now.
        plot.write_text("", encoding="utf-8")
    outcomes = compare_transports(
        seed=seed, progress=lambda line: errors.print(line, style="dim", highlight=False)
    )
    if as_json:
        print_json([outcome.to_json() for outcome in outcomes])
    else:
        _show(outcomes)
    if plot is not None:
        plot.write_text(draw(outcomes), encoding="utf-8")
        errors.print(f"drawn in {plot}", style="dim", highlight=False, soft_wrap=True)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)


def _show(outcomes: Sequence[Outcome]) -> None:
    for workload in dict.fromkeys(outcome.workload for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.workload == workload]
        console.print(f"{workload}, in virtual time", style="bold", highlight=False)
        _line("paths", "loss", "transport", "time", "lost", "resent", "reordered", "tail", "queue", "share")
        for outcome in runs:
            _line(
                f"{outcome.paths}",
                f"{outcome.loss:.1%}",
                outcome.transport,
                "failed" if outcome.failed else f"{outcome.time / 1e6:.3f} ms",
                f"{outcome.lost / 1024:,.0f}",
                f"{outcome.resent / 1024:,.0f}",
                f"{outcome.reordered:,}",
                f"{outcome.tail:.1f}",
                f"{outcome.queue / 1e3:.1f}",
                f"{max(outcome.shares):.0%}",
            )
        for outcome in runs:
            if outcome.failed:
                where = f"{outcome.transport}, {outcome.paths} paths, loss {outcome.loss:g}"
                console.print(f"failed: {where}: {outcome.failed}", markup=False, highlight=False)
        _plot(runs)
    console.print("lost, resent: KiB. reordered: packets. tail: slowest message to median.")
    console.print("queue: mean wait in switches, us. share: of the busiest path.", highlight=False)


def _line(*cells: str) -> None:
    """One line of a table that fits 80 columns."""
    widths = (5, 6, 10, 10, 8, 8, 10, 5, 6, 6)
    text = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _plot(outcomes: Sequence[Outcome]) -> None:
    """Bars of completion time, as long as the time is compared with the longest."""
    longest = max(outcome.time for outcome in outcomes) or 1
    for outcome in outcomes:
        bar = "█" * max(1, round(_BAR * outcome.time / longest))
        label = f"{outcome.paths} paths {outcome.loss:5.1%} {outcome.transport:8}"
        console.print(f"{label} {bar} {outcome.time / 1e6:.3f} ms", highlight=False, soft_wrap=True)
    console.print()
