# SPDX-License-Identifier: Apache-2.0
"""``vrnic demo``: two guests, RDMA between them from GPU-style kernels or from unmodified tools."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from emu.cli.output import JsonFlag, console, errors, fail, guarded, print_json
from emu.lab.topology import TRANSPORTS, Lab

__all__ = ["demo"]


@guarded
def demo(
    device: Annotated[
        str,
        typer.Option("--device", help="vrnic: our driver and kernels. mlx5: unmodified drivers and tools."),
    ] = "vrnic",
    transport: Annotated[
        str, typer.Option("--transport", help=f"{', '.join(TRANSPORTS)}; for --device vrnic.")
    ] = "roce-rc",
    loss: Annotated[float, typer.Option("--loss", help="Probability that a link loses a frame.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of every random decision.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the capture.")] = None,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the QEMU lines instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Boot two guests, have them use RDMA, check what happened, leave a capture.

    With --device vrnic GPU-style code of both writes into the other's memory: puts, a ping-pong, atomics,
    1 MiB from video memory to video memory both ways, and the same put through a CPU proxy for contrast. With
    --device mlx5 the guests run the distribution's kernel, drivers and tools: ping, iperf3, the ibv examples,
    rping and perftest. Exit code 1 when a check fails.

    Examples: `vrnic demo`, `vrnic demo --loss 0.02 --seed 7 --out /tmp/first`, `vrnic demo --device mlx5`.
    """
    from emu.lab.demo import DemoOptions, run_demo
    from emu.lab.demo_mlx5 import run_stock_demo, stock_lab
    from emu.lab.report import DemoReport
    from emu.lab.stock_report import StockReport
    from emu.lab.topology import default_lab

    if device not in ("vrnic", "mlx5"):
        raise fail(f"there is no demonstration with a device {device!r}", "--device is vrnic or mlx5")
    stock = device == "mlx5"
    if stock and transport != "roce-rc":
        raise fail("--transport is for --device vrnic", "the kernel's drivers speak RoCEv2; leave it out")
    lab = stock_lab(loss, seed) if stock else default_lab(transport=transport, loss=loss, seed=seed)
    if dry_run:
        _print_commands(lab, accelerator, as_json)
        return
    folder = out or Path(tempfile.mkdtemp(prefix="vrnic-demo-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def progress(line: str) -> None:
        errors.print(f"{line} ...", style="dim", highlight=False)

    options = DemoOptions(
        out=folder, transport=transport, loss=loss, seed=seed, accelerator=accelerator, progress=progress
    )
    report: DemoReport | StockReport = run_stock_demo(options) if stock else run_demo(options)
    if as_json:
        print_json(report.to_json())
    else:
        report.render(console)
    if not report.passed:
        raise typer.Exit(1)


def _print_commands(lab: Lab, accelerator: str, as_json: bool) -> None:
    from emu.control.locate import lab_directory
    from emu.lab.installation import Installation
    from emu.lab.runner import qemu_command

    installation = Installation.require(accelerator)
    folder = lab_directory("demo")
    commands = {node.name: qemu_command(lab, node.name, installation, folder) for node in lab.nodes}
    if as_json:
        print_json({name: command.argv() for name, command in commands.items()})
    else:
        for command in commands.values():
            typer.echo(command.text())
