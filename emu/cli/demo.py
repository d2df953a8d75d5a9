# SPDX-License-Identifier: Apache-2.0
"""``vrnic demo``: two guests, GPU-style kernels, RDMA between them."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from emu.cli.output import JsonFlag, console, errors, guarded, print_json

__all__ = ["demo"]


@guarded
def demo(
    transport: Annotated[str, typer.Option("--transport", help="roce-rc, uet-rud or uet-rod.")] = "roce-rc",
    loss: Annotated[float, typer.Option("--loss", help="Probability that a link loses a frame.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of every random decision.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the capture.")] = None,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the QEMU lines instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Boot two guests with a NIC and a vGPU each; GPU-style code of both writes into the other's memory.

    Puts, a ping-pong, atomics, 1 MiB from video memory to video memory both ways, and the same put through a
    CPU proxy for contrast. Every byte is checked. Exit code 1 when a check fails.

    Examples: `vrnic demo`, `vrnic demo --loss 0.02 --seed 7 --out /tmp/first`.
    """
    from emu.lab.demo import DemoOptions, run_demo

    if dry_run:
        _print_commands(transport, loss, seed, accelerator, as_json)
        return
    folder = out or Path(tempfile.mkdtemp(prefix="vrnic-demo-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def progress(line: str) -> None:
        errors.print(f"{line} ...", style="dim", highlight=False)

    options = DemoOptions(
        out=folder, transport=transport, loss=loss, seed=seed, accelerator=accelerator, progress=progress
    )
    report = run_demo(options)
    if as_json:
        print_json(report.to_json())
    else:
        report.render(console)
    if not report.passed:
        raise typer.Exit(1)


def _print_commands(transport: str, loss: float, seed: int, accelerator: str, as_json: bool) -> None:
    from emu.control.locate import lab_directory
    from emu.lab.installation import Installation
    from emu.lab.runner import qemu_command
    from emu.lab.topology import default_lab

    lab = default_lab(transport=transport, loss=loss, seed=seed)
    installation = Installation.require(accelerator)
    folder = lab_directory("demo")
    commands = {node.name: qemu_command(lab, node.name, installation, folder) for node in lab.nodes}
    if as_json:
        print_json({name: command.argv() for name, command in commands.items()})
    else:
        for command in commands.values():
            typer.echo(command.text())
