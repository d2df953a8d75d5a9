# SPDX-License-Identifier: Apache-2.0
"""``vrnic bench``: speed, as ratios against a reference of the same run."""

from __future__ import annotations

from typing import Annotated

import typer

from emu.cli.output import JsonFlag, console, errors, guarded, print_json, print_table

__all__ = ["app"]

app = typer.Typer(help="Speed, as ratios within one run.", no_args_is_help=True)


@app.command()
@guarded
def mmio(as_json: JsonFlag = False) -> None:
    """Doorbells and register reads through this server against a minimal C server on the same library.

    Example: `vrnic bench mmio`.
    """
    from emu.bench.mmio import READ_TARGET, SUSTAINED_TARGET, run_mmio_bench

    report = run_mmio_bench(progress=lambda line: errors.print(line, style="dim", highlight=False))
    if as_json:
        print_json(report.to_json())
        return
    rows = [
        (name, f"{python:.0f} ns", f"{c:.0f} ns", f"{ratio:.2f}", target)
        for name, python, c, ratio, target in (
            ("store returns", report.python.posted, report.c.posted, report.ratio.posted, "-"),
            (
                "store sustained",
                report.python.sustained,
                report.c.sustained,
                report.ratio.sustained,
                f"{SUSTAINED_TARGET}",
            ),
            ("read", report.python.read, report.c.read, report.ratio.read, f"{READ_TARGET}"),
        )
    ]
    columns = ("8-byte access", "this server", "C server", "ratio", "at most")
    print_table(f"MMIO in the guest ({report.accelerator}, {report.rounds} rounds)", columns, rows)


@app.command()
@guarded
def roce(as_json: JsonFlag = False) -> None:
    """RoCEv2 WRITEs between two engines in this process, against copying the payload and taking its CRC.

    Example: `vrnic bench roce`.
    """
    from emu.bench.roce import BULK_TARGET, MESSAGE_TARGET, SCALE_TARGET, run_roce_bench

    report = run_roce_bench(progress=lambda line: errors.print(line, style="dim", highlight=False))
    if as_json:
        print_json(report.to_json())
        return
    rows = [
        (
            f"{cost.size}",
            f"{cost.peers}",
            f"{cost.messages:,.0f}",
            f"{cost.gigabytes:.3f}",
            f"{cost.ratio:.1f}",
        )
        for cost in report.costs
    ]
    columns = ("bytes", "QPs", "messages/s", "GB/s", "x copy+CRC")
    print_table(f"RoCEv2 WRITE, both ends on one core ({report.rounds} rounds)", columns, rows)
    few, bulk = report.of(64, 1), report.of(1 << 20, 1)
    print_table(
        "Targets",
        ("what", "measured", "target"),
        (
            ("64-byte messages/s", f"{few.messages:,.0f}", f"at least {MESSAGE_TARGET:,}"),
            ("GB/s of 1 MiB", f"{bulk.gigabytes:.2f}", f"at least {BULK_TARGET}"),
            ("4,096 QPs slower by", f"{report.slowdown:.0%}", f"at most {SCALE_TARGET:.0%}"),
        ),
    )


@app.command()
@guarded
def uet(as_json: JsonFlag = False) -> None:
    """UET WRITEs between two endpoints in this process, against copying the payload and taking its CRC.

    Example: `vrnic bench uet`.
    """
    from emu.bench.uet import MESSAGE_TARGET, SCALE_TARGET, run_uet_bench

    report = run_uet_bench(progress=lambda line: errors.print(line, style="dim", highlight=False))
    if as_json:
        print_json(report.to_json())
        return
    rows = [
        (
            f"{cost.size}",
            f"{cost.peers}",
            f"{cost.messages:,.0f}",
            f"{cost.gigabytes:.3f}",
            f"{cost.ratio:.1f}",
        )
        for cost in report.costs
    ]
    columns = ("bytes", "PDCs", "messages/s", "GB/s", "x copy+CRC")
    print_table(f"UET WRITE (RUD), both ends on one core ({report.rounds} rounds)", columns, rows)
    few = report.of(64, 1)
    print_table(
        "Targets",
        ("what", "measured", "target"),
        (
            ("64-byte messages/s", f"{few.messages:,.0f}", f"at least {MESSAGE_TARGET:,}"),
            ("4,096 PDCs slower by", f"{report.slowdown:.0%}", f"at most {SCALE_TARGET:.0%}"),
        ),
    )


@app.command()
@guarded
def submit(
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100, help="Times each form is run.")] = 3,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """8-byte puts between two guests: by one lane, by 1, 4 and 16 warps, and through a CPU.

    Doorbells, fetches, completions and CPU touches are counts for each message, as on hardware; rates are
    the emulator's own, as multiples of each other: of mapped and trapped doorbells, with and without the NIC
    watching its rules, and in weak memory. Exit code 1 when watching costs more than it may.

    Examples: `vrnic bench submit`, `vrnic bench submit --rounds 1 --json`.
    """
    from emu.bench.submit import CHECK_COST_TARGET, run_submit_bench

    report = run_submit_bench(
        rounds=rounds,
        accelerator=accelerator,
        progress=lambda line: errors.print(line, style="dim", highlight=False),
    )
    if as_json:
        print_json(report.to_json())
    else:
        rows = [
            (
                cost.form.name,
                f"{cost.doorbells:.3f}",
                f"{cost.fetches:.3f}",
                f"{cost.completions:.3f}",
                f"{cost.cpu_touches:.1f}",
                f"{report.ratio(cost):.2f}",
            )
            for cost in report.costs
        ]
        columns = ("submitted by", "doorbells", "fetches", "completions", "CPU", "rate")
        print_table(f"For each 8-byte put ({report.accelerator}, {report.rounds} rounds)", columns, rows)
        console.print(
            "rate: of lines with an addition, against the same warps without; of others, against one lane.\n"
            f"Watching the rules costs at most {report.check_cost:.0%} of the rate "
            f"(allowed: {CHECK_COST_TARGET:.0%}).",
            highlight=False,
        )
    if report.check_cost > CHECK_COST_TARGET:
        raise typer.Exit(1)


@app.command()
@guarded
def perftest(
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100, help="Times each case is run.")] = 3,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """perftest between two guests with unmodified drivers, against the same on the kernel's software RoCE.

    Four guests on one switch take turns, with an MTU of 4096 and without a capture. Exit code 1 when a target
    is missed.

    Examples: `vrnic bench perftest`, `vrnic bench perftest --rounds 1 --json`.
    """
    from emu.bench.perftest import LOOPBACK_TARGET, run_perftest_bench

    report = run_perftest_bench(
        rounds=rounds,
        accelerator=accelerator,
        progress=lambda line: errors.print(f"{line} ...", style="dim", highlight=False),
    )
    if as_json:
        print_json(report.to_json())
    else:
        rows = [
            (
                outcome.case.tool,
                f"{outcome.case.octets:,}",
                f"{outcome.ours:,.1f}",
                f"{outcome.rxe:,.1f}",
                outcome.case.unit,
                f"{outcome.ratio:.1f}",
                "-" if outcome.case.target is None else f"{outcome.case.target:.0f}",
            )
            for outcome in report.outcomes
        ]
        columns = ("tool", "bytes", "vrnic", "rxe", "unit", "ratio", "target")
        print_table(f"perftest, two guests ({report.accelerator}, {report.rounds} rounds)", columns, rows)
        console.print(
            f"inside one NIC, 64 KiB: {report.loopback:,.0f} MiB/s (at least {LOOPBACK_TARGET:.0f}); "
            f"the server spent {report.loopback_seconds:.1f} s of processor time for each GiB",
            highlight=False,
        )
    if not report.met:
        raise typer.Exit(1)
