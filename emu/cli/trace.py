# SPDX-License-Identifier: Apache-2.0
"""``vrnic trace``: what the device does, live."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from emu.cli.output import LabOption, SocketOption, connect, fail, guarded
from emu.events import Kind

__all__ = ["trace"]


@guarded
def trace(
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help="Only this kind of event; repeat for several.")
    ] = None,
    function: Annotated[
        str | None, typer.Option("--function", "-f", help="Only this function (node0.nic0).")
    ] = None,
    number: Annotated[str | None, typer.Option("--qpn", help="Only this QP (decimal or 0x...).")] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many events.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Print events as they happen: doorbells, fetches, DMA, frames, completions, interrupts, violations.

    Examples: `vrnic trace`, `vrnic trace -k DOORBELL -k CQE --qpn 0x100`, `vrnic trace -k CHECK --json`.
    Ctrl-C ends it.
    """
    kinds = [name.upper().replace("-", "_") for name in kind or []]
    unknown = [name for name in kinds if name not in Kind.__members__]
    if unknown:
        raise fail(f"no event kind {unknown[0]!r}", "kinds: " + ", ".join(Kind.__members__))
    try:
        qpn = None if number is None else int(number, 0)
    except ValueError:
        raise fail(f"--qpn {number!r} is not a number", "write it like 257 or 0x101") from None
    with connect(socket, lab) as client:
        stream = client.stream("trace", kinds=kinds, function=function, qpn=qpn)
        for shown, item in enumerate(stream, 1):
            sys.stdout.write(json.dumps(item) + "\n" if as_json else render(item) + "\n")
            sys.stdout.flush()
            if count is not None and shown >= count:
                return


def render(item: dict[str, Any]) -> str:
    """One event as one line."""
    seconds, nanoseconds = divmod(int(item["time"]), 1_000_000_000)
    line = f"{seconds}.{nanoseconds:09d} {item['function']:<12} {item['kind']:<10} {item['text']}"
    if item.get("lost"):
        line += f"  [{item['lost']} events lost: the reader is too slow]"
    return line
