# SPDX-License-Identifier: Apache-2.0
"""``vrnic counters``, ``qp``, ``regs``: look into a running NIC."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emu.cli.checks import print_dump
from emu.cli.output import (
    JsonFlag,
    LabOption,
    SocketOption,
    connect,
    console,
    fail,
    guarded,
    print_json,
    print_table,
)

__all__ = ["counters", "qp", "regs"]

FunctionArgument = Annotated[
    str | None, typer.Argument(help='PCI function, for example "node0.nic0"; all of them when left out.')
]


def _selected(functions: dict[str, Any], wanted: str | None) -> dict[str, Any]:
    if wanted is None:
        return functions
    if wanted not in functions:
        raise fail(f"no function {wanted!r}", "functions: " + ", ".join(functions))
    return {wanted: functions[wanted]}


@guarded
def counters(
    function: FunctionArgument = None,
    every: Annotated[bool, typer.Option("--all", help="Show counters that are zero too.")] = False,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Counters and object counts of each NIC.

    Examples: `vrnic counters`, `vrnic counters node0.nic0 --all`, `vrnic counters --json`.
    """
    with connect(socket, lab) as client:
        functions = _selected(client.call("counters"), function)
    if as_json:
        print_json(functions)
        return
    for name, groups in functions.items():
        rows = [
            (group, counter, value)
            for group, values in groups.items()
            for counter, value in values.items()
            if every or value or group == "objects"
        ]
        print_table(name, ("group", "counter", "value"), rows)


@guarded
def qp(
    function: FunctionArgument = None,
    number: Annotated[str | None, typer.Option("--qpn", help="Only this QP (decimal or 0x...).")] = None,
    dump: Annotated[
        str | None, typer.Option("--dump", help="Everything about this QP: last doorbells, pending WQEs.")
    ] = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Queue pairs: state, indices, peer, first error.

    Examples: `vrnic qp`, `vrnic qp node1.nic0 --qpn 0x100`, `vrnic qp --dump 0x100`.
    """
    if dump is not None:
        print_dump(function, dump, as_json, lab, socket)
        return
    try:
        wanted = None if number is None else int(number, 0)
    except ValueError:
        raise fail(f"--qpn {number!r} is not a number", "write it like 257 or 0x101") from None
    with connect(socket, lab) as client:
        functions = _selected(client.call("qps"), function)
    found = {
        name: [row for row in rows if wanted is None or row["qpn"] == wanted]
        for name, rows in functions.items()
    }
    if wanted is not None and not any(found.values()):
        raise fail(f"no queue pair {wanted:#x}", "`vrnic qp` lists them")
    if as_json:
        print_json(found)
        return
    for name, rows in found.items():
        if not rows:
            console.print(f"{name}: no queue pairs", highlight=False)
            continue
        cells = [
            [f"{value:#x}" if key in ("qpn", "dest_qpn") else value for key, value in row.items()]
            for row in rows
        ]
        print_table(f"{name}: {len(rows)} queue pairs", tuple(rows[0]), cells)


@guarded
def regs(
    function: FunctionArgument = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Registers of each function's BAR0, read without side effects.

    Examples: `vrnic regs`, `vrnic regs node0.gpu0 --json`.
    """
    with connect(socket, lab) as client:
        functions = _selected(client.call("regs"), function)
    if as_json:
        print_json(functions)
        return
    for name, rows in functions.items():
        print_table(
            name,
            ("offset", "register", "value", "meaning"),
            [(f"{row['offset']:#05x}", row["name"], f"{row['value']:#x}", row["meaning"]) for row in rows],
        )
