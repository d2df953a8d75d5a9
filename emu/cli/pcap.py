# SPDX-License-Identifier: Apache-2.0
"""``vrnic pcap``: what is in a capture, and how to open it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from emu.capture.reader import PcapngError
from emu.capture.summary import Summary, summarize
from emu.capture.tshark import tshark_arguments
from emu.cli.output import JsonFlag, console, fail, guarded, print_json, print_table

__all__ = ["app"]

app = typer.Typer(help="Captures: what is in them, and how to open them.", no_args_is_help=True)

CaptureArgument = Annotated[Path, typer.Argument(help="A pcapng file that vrnic wrote.")]


@app.command()
@guarded
def summary(file: CaptureArgument, as_json: JsonFlag = False) -> None:
    """Flows, opcodes, retransmissions, acknowledgements and device events of a capture.

    Exit code 1 when the file is damaged; what could be read of it is printed all the same.

    Examples: `vrnic pcap summary out/capture.pcapng`, `vrnic pcap summary out/capture.pcapng --json`.
    """
    try:
        found = summarize(file)
    except OSError as error:
        raise fail(f"{file}: {error.strerror}", "name a capture that `vrnic demo` or `serve` wrote") from None
    except PcapngError as error:
        raise fail(f"{file}: {error}", "only pcapng files can be read") from None
    if as_json:
        print_json(found.to_json())
    else:
        _show(found)
    if found.damage or found.bad_records:
        raise typer.Exit(1)


@app.command()
@guarded
def show(
    file: CaptureArgument,
    expression: Annotated[
        str | None, typer.Option("--filter", "-Y", help="Wireshark display filter.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every field of every packet as JSON.")
    ] = False,
) -> None:
    """Print a capture with the set-up's tshark: frames and device events in order.

    Examples: `vrnic pcap show out/capture.pcapng`,
    `vrnic pcap show out/capture.pcapng -Y 'vrnic.qpn == 0x100'`.
    """
    from emu.setup.tree import Tree

    more: tuple[str, ...] = () if expression is None else ("-Y", expression)
    if as_json:
        more += ("-T", "json")
    argv = [*Tree.require().tshark_command(), *tshark_arguments(file.resolve(), *more)]
    if dry_run:
        typer.echo(shlex.join(argv))
        return
    if not file.exists():
        raise fail(f"{file}: no such file", "name a capture that `vrnic demo` or `serve` wrote")
    raise typer.Exit(subprocess.run(argv, check=False).returncode)


def _show(found: Summary) -> None:
    rows = []
    opcodes = []
    for flow in found.flows:
        traffic = flow.sent if flow.sender else flow.received
        number = f"QP {flow.dest_qpn:#x}" if flow.pdc is None else f"PDC {flow.pdc:#x}"
        name = f"{flow.sender or flow.source} > {flow.receiver or flow.destination} {number}"
        rows.append(
            (
                name,
                traffic.packets,
                traffic.payload,
                flow.lost,
                flow.retransmitted,
                traffic.naks,
                traffic.bad_icrc,
            )
        )
        opcodes += [(name, opcode, count) for opcode, count in traffic.opcodes.most_common()]
    print_table(
        f"{found.path}: {found.duration / 1e9:.3f} s",
        ("flow", "packets", "payload", "lost", "resent", "NAKs", "bad ICRC"),
        rows,
    )
    print_table("packets by opcode", ("flow", "opcode", "packets"), opcodes)
    events = [
        (function, name, count)
        for function, counts in found.events.items()
        for name, count in counts.most_common()
    ]
    if events:
        print_table("device events", ("function", "event", "count"), events)
    if found.damage:
        console.print(Text.assemble(("reading ended early:", "yellow"), f" {found.damage}"))
