# SPDX-License-Identifier: Apache-2.0
"""``vrnic lab``: run the guests of a lab file."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from emu.cli.output import console, guarded, print_table
from emu.cli.serve import read_lab

__all__ = ["app"]

app = typer.Typer(help="Labs: guests, NICs, vGPUs and the network between them.", no_args_is_help=True)


@app.command()
@guarded
def run(
    file: Annotated[Path, typer.Argument(help="Lab file (TOML).")],
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", help='"NODE: COMMAND" to run once all are up; repeat.'),
    ] = None,
    capture: Annotated[Path | None, typer.Option("--capture", help="Capture file to write.")] = None,
    no_capture: Annotated[bool, typer.Option("--no-capture", help="Write no capture.")] = False,
    loss: Annotated[float | None, typer.Option("--loss", min=0, max=0.99, help="Loss per link.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of random decisions.")] = None,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the QEMU lines instead.")] = False,
) -> None:
    """Start the server and every guest of a lab, load the drivers, and keep them until Ctrl-C.

    With --command, run those instead and end with the first failure's exit code.

    Examples: `vrnic lab run pair.toml`, `vrnic lab run pair.toml --dry-run`,
    `vrnic lab run pair.toml -c "left: lspci" -c "right: dmesg | tail"`.
    """
    from emu.control.locate import lab_directory
    from emu.lab.installation import Installation
    from emu.lab.runner import LabRunner, qemu_command

    lab = read_lab(file, 2, loss, seed)
    steps = [_step(text, {node.name for node in lab.nodes}) for text in command or []]
    directory = lab_directory(lab.name)
    installation = Installation.require(accelerator)
    if dry_run:
        for node in lab.nodes:
            typer.echo(qemu_command(lab, node.name, installation, directory).text())
        return
    path = None if no_capture else capture or directory / "capture.pcapng"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with LabRunner(lab, installation, directory, path) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", timeout=30).check()
        if steps:
            for name, text in steps:
                result = running[name].run(text, timeout=300)
                typer.echo("\n".join((*result.out, *result.err)))
                if result.status:
                    raise typer.Exit(result.status)
            return
        rows = [
            (guest.name, f"{guest.boot_seconds:.1f} s", guest.pid, str(guest.command.console_log))
            for guest in running.guests
        ]
        print_table(f"lab {lab.name}", ("guest", "boot", "QEMU pid", "console"), rows)
        console.print(f"vrnic counters --lab {lab.name} looks inside; Ctrl-C ends it.", highlight=False)
        while any(guest.pid for guest in running.guests):
            running.server.check()
            time.sleep(0.5)
        console.print("Every guest has powered off.")


def _step(text: str, nodes: set[str]) -> tuple[str, str]:
    node, colon, command = text.partition(":")
    if not colon or node.strip() not in nodes:
        raise typer.BadParameter(f'{text!r} is not "NODE: COMMAND"; nodes: {", ".join(sorted(nodes))}')
    return node.strip(), command.strip()
