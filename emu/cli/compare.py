# SPDX-License-Identifier: Apache-2.0
"""``vrnic compare``: transports side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from emu.bench.compare import Outcome, compare_transports
from emu.cli.output import JsonFlag, console, errors, guarded, print_json, print_table

__all__ = ["app"]

app = typer.Typer(help="Transports side by side, in virtual time.", no_args_is_help=True)

_BAR = 50


@app.callback()
def _group() -> None:
    pass


@app.command()
@guarded
def transports(
    seed: Annotated[int, typer.Option("--seed", help="Of all random draws.")] = 1, as_json: JsonFlag = False
) -> None:
    """The same messages over RoCEv2 and UET: on one path and on eight, with loss, and as incast.

    Exit code 1 when a run did not end right.

    Examples: `vrnic compare transports`, `vrnic compare transports --seed 7 --json`.
    """
    outcomes = compare_transports(
        seed=seed, progress=lambda line: errors.print(line, style="dim", highlight=False)
    )
    if as_json:
        print_json([outcome.to_json() for outcome in outcomes])
    else:
        _show(outcomes)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)


def _show(outcomes: Sequence[Outcome]) -> None:
    rows = [
        (
            outcome.workload,
            f"{outcome.paths}",
            f"{outcome.loss:.1%}",
            outcome.transport,
            "failed" if outcome.failed else f"{outcome.time / 1e6:.3f} ms",
            f"{outcome.lost:,}",
            f"{outcome.resent:,}",
            f"{outcome.reordered:,}",
            f"{outcome.tail:.1f}",
            f"{outcome.queue / 1e3:.1f} us",
            f"{max(outcome.shares):.0%}",
        )
        for outcome in outcomes
    ]
    columns = (
        "work",
        "paths",
        "loss",
        "transport",
        "time",
        "lost",
        "resent",
        "reordered",
        "tail",
        "queue",
        "share",
    )
    print_table("RoCEv2 and UET in virtual time", columns, rows)
    console.print("lost, resent: payload bytes. tail: slowest message to median.", highlight=False)
    console.print("queue: mean wait in switches. share: of the busiest path.", highlight=False)
    for outcome in outcomes:
        if outcome.failed:
            where = f"{outcome.workload}, {outcome.transport}, {outcome.paths} paths, loss {outcome.loss:g}"
            console.print(f"failed: {where}: {outcome.failed}", markup=False, highlight=False, soft_wrap=True)
    for workload in dict.fromkeys(outcome.workload for outcome in outcomes):
        _plot([outcome for outcome in outcomes if outcome.workload == workload])


def _plot(outcomes: Sequence[Outcome]) -> None:
    """Bars of completion time, as long as the time is compared with the longest."""
    longest = max(outcome.time for outcome in outcomes) or 1
    console.print(f"\n{outcomes[0].workload}: time", highlight=False)
    for outcome in outcomes:
        bar = "█" * max(1, round(_BAR * outcome.time / longest))
        label = f"{outcome.paths} paths {outcome.loss:5.1%} {outcome.transport:8}"
        console.print(f"{label} {bar} {outcome.time / 1e6:.3f} ms", highlight=False, soft_wrap=True)
