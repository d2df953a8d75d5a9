# SPDX-License-Identifier: Apache-2.0
"""``vrnic link``: pull a cable, plug it in again, see which are in."""

from __future__ import annotations

from typing import Annotated, Any

import typer

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

__all__ = ["app"]

app = typer.Typer(help="Links between the NICs of a lab and its switch.", no_args_is_help=True)

NicArguments = Annotated[list[str], typer.Argument(help='NICs, for example "node0.nic0".')]

_SHOWN = ("delivered", "lost", "down", "trimmed", "marked", "replayed")
"""Counters of a lane that tell most, in the table; --json has all."""
_QUEUE = ("depth", "peak", "sent", "marked", "trimmed", "dropped")
"""Likewise of a queue."""


@app.command()
@guarded
def show(
    nic: Annotated[str | None, typer.Argument(help="Only this NIC's link.")] = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """State and counters of each link: frames delivered, lost, dropped while down, and so on.

    Of the queue before a link with a speed: bytes that wait (depth) and waited at most (peak), frames.

    Examples: `vrnic link show`, `vrnic link show node0.nic0 --json`.
    """
    with connect(socket, lab) as client:
        links: dict[str, dict[str, Any]] = client.call("links")
    if nic is not None:
        if nic not in links:
            raise fail(f"no NIC {nic!r}", "NICs: " + ", ".join(links))
        links = {nic: links[nic]}
    if as_json:
        print_json(links)
        return
    rows = []
    for name, link in links.items():
        for direction, word in (("out", "sends"), ("in", "receives")):
            values = [link["counters"][f"{direction}.{counter}"] for counter in _SHOWN]
            rows.append((name, link["device"], "up" if link["up"] else "DOWN", word, *values))
    print_table("links", ("NIC", "device", "link", "NIC ...", *_SHOWN), rows)
    queues = [
        (name, *(link["counters"][f"queue.{counter}"] for counter in _QUEUE))
        for name, link in links.items()
        if "queue.depth" in link["counters"]
    ]
    if queues:
        print_table("the switch's queues before links with a speed", ("NIC", *_QUEUE), queues)


@app.command()
@guarded
def down(
    nics: NicArguments, as_json: JsonFlag = False, lab: LabOption = None, socket: SocketOption = None
) -> None:
    """Pull the cable of NICs: drivers see the carrier go, frames under way are lost.

    Reliable connections end with RETRY_EXC_ERR when it stays out longer than their retries last.

    Examples: `vrnic link down node0.nic0`, `vrnic link down node0.nic0 node1.nic0 --json`.
    """
    with connect(socket, lab) as client:
        _set(client, nics, False, as_json)


@app.command()
@guarded
def up(
    nics: NicArguments, as_json: JsonFlag = False, lab: LabOption = None, socket: SocketOption = None
) -> None:
    """Plug the cable of NICs in again.

    Example: `vrnic link up node0.nic0`.
    """
    with connect(socket, lab) as client:
        _set(client, nics, True, as_json)


def _set(client: Any, nics: list[str], wanted: bool, as_json: bool) -> None:
    """Set all or, when one of the names is wrong, none."""
    known = client.call("links")
    for name in nics:
        if name not in known:
            raise fail(f"no NIC {name!r}; no link was touched", "NICs: " + ", ".join(known))
    results = [client.call("link", function=name, up=wanted) for name in nics]
    if as_json:
        print_json(results)
        return
    state = "up" if wanted else "down"
    for result in results:
        news = "is now" if result["changed"] else "was already"
        console.print(f"{result['function']}: link {news} {state}", highlight=False)
