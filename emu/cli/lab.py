# SPDX-License-Identifier: Apache-2.0
"""``vrnic lab``: run the guests of a lab file."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emu.cli.checks import CheckOption
from emu.cli.output import JsonFlag, console, guarded, print_json, print_table
from emu.cli.serve import ChaosOption, read_lab

if TYPE_CHECKING:
    from emu.lab.runner import LabRunner

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
    chaos: ChaosOption = None,
    check: CheckOption = None,
    accelerator: Annotated[str, typer.Option("--accel", help="auto, tcg or kvm.")] = "auto",
    kernel: Annotated[str, typer.Option("--kernel", help="Kernel of the guests: 6.1, 6.12 or 7.")] = "6.12",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the QEMU lines instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start the server and every guest of a lab, load the drivers, and keep them until Ctrl-C.

    With --command, run those instead and end with the first failure's exit code. Kernels beside 6.12 come
    with `scripts/setup --kernels`.

    Examples: `vrnic lab run pair.toml`, `vrnic lab run pair.toml --dry-run`,
    `vrnic lab run pair.toml -c "left: vrnic-selftest" -c "right: dmesg | tail"`.
    """
    from emu.control.locate import lab_directory
    from emu.lab.installation import Installation
    from emu.lab.runner import LabRunner, qemu_command

    lab = read_lab(file, 2, loss, seed, chaos, check)
    steps = [_step(text, {node.name for node in lab.nodes}) for text in command or []]
    directory = lab_directory(lab.name)
    installation = Installation.require(accelerator, kernel=kernel)
    if dry_run:
        commands = {node.name: qemu_command(lab, node.name, installation, directory) for node in lab.nodes}
        if as_json:
            print_json({name: qemu.argv() for name, qemu in commands.items()})
        else:
            for qemu in commands.values():
                typer.echo(qemu.text())
        return
    path = None if no_capture else capture or directory / "capture.pcapng"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with LabRunner(lab, installation, directory, path) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", timeout=30).check()
        if steps:
            status = _run_steps(running, steps, as_json)
            if status:
                raise typer.Exit(status)
            return
        _show_guests(running, as_json)
        while any(guest.pid for guest in running.guests):
            running.server.check()
            time.sleep(0.5)
        if not as_json:
            console.print("Every guest has powered off.")


def _run_steps(running: LabRunner, steps: list[tuple[str, str]], as_json: bool) -> int:
    """Run commands in guests one after the other; the first status that is not 0 ends it."""
    results: list[dict[str, object]] = []
    status = 0
    for name, text in steps:
        result = running[name].run(text, timeout=300)
        results.append({"node": name, **dataclasses.asdict(result)})
        if not as_json:
            typer.echo("\n".join((*result.out, *result.err)))
        status = result.status
        if status:
            break
    if as_json:
        print_json(results)
    return status


def _show_guests(running: LabRunner, as_json: bool) -> None:
    """Say that the lab is up, and where to look."""
    lab = running.lab
    if as_json:
        guests = [
            {
                "name": guest.name,
                "boot": guest.boot_seconds,
                "pid": guest.pid,
                "console": guest.command.console_log,
            }
            for guest in running.guests
        ]
        print_json({"lab": lab.name, "control": running.server.control_socket, "guests": guests})
        sys.stdout.flush()
        return
    rows = [
        (guest.name, f"{guest.boot_seconds:.1f} s", guest.pid, str(guest.command.console_log))
        for guest in running.guests
    ]
    print_table(f"lab {lab.name}", ("guest", "boot", "QEMU pid", "console"), rows)
    console.print(f"vrnic counters --lab {lab.name} looks inside; Ctrl-C ends it.", highlight=False)


def _step(text: str, nodes: set[str]) -> tuple[str, str]:
    node, colon, command = text.partition(":")
    if not colon or node.strip() not in nodes:
        raise typer.BadParameter(f'{text!r} is not "NODE: COMMAND"; nodes: {", ".join(sorted(nodes))}')
    return node.strip(), command.strip()
