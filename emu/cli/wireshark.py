# SPDX-License-Identifier: Apache-2.0
"""``vrnic wireshark``: the dissectors in the user's own Wireshark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from emu.capture.plugins import ForeignFile, Plugin, plan, plugin_folder
from emu.capture.plugins import install as write_plugins
from emu.capture.plugins import uninstall as remove_plugins
from emu.cli.output import JsonFlag, console, fail, guarded, print_json

__all__ = ["app"]

app = typer.Typer(
    help="Your own Wireshark: teach it device events and Ultra Ethernet Transport.", no_args_is_help=True
)

FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="Plugin folder; Wireshark's own answer by default.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", "--print", help="Say what would be done and do nothing.")
]


@app.command()
@guarded
def install(folder: FolderOption = None, dry_run: DryRunOption = False, as_json: JsonFlag = False) -> None:
    """Copy the dissectors of device events and of UET into the folder that Wireshark loads at every start.

    A Wireshark that has UET itself keeps its own. Safe to repeat.

    Examples: `vrnic wireshark install`, `vrnic wireshark install --dry-run`.
    """
    plugins = plan(folder or plugin_folder())
    changes = [plugin.path for plugin in plugins if plugin.state != "current"]
    _carry_out(plugins, changes, "write", write_plugins, dry_run, as_json)
    if os.geteuid() == 0 and not as_json:
        console.print("Wireshark started by root loads no scripts; start it as another user.")


@app.command()
@guarded
def uninstall(folder: FolderOption = None, dry_run: DryRunOption = False, as_json: JsonFlag = False) -> None:
    """Remove what `install` wrote.

    Examples: `vrnic wireshark uninstall`, `vrnic wireshark uninstall --print`.
    """
    plugins = plan(folder or plugin_folder())
    changes = [plugin.path for plugin in plugins if plugin.state != "absent"]
    _carry_out(plugins, changes, "remove", remove_plugins, dry_run, as_json)


def _carry_out(
    plugins: Sequence[Plugin],
    changes: Sequence[Path],
    verb: str,
    act: Callable[[Iterable[Plugin]], list[Path]],
    dry_run: bool,
    as_json: bool,
) -> None:
    if not dry_run:
        try:
            act(plugins)
        except ForeignFile as error:
            raise fail(str(error), "move it away, or name another folder with --folder") from None
    if as_json:
        print_json({"folder": plugins[0].path.parent, verb: changes, "done": not dry_run})
        return
    told = {"write": ("wrote", "would write"), "remove": ("removed", "would remove")}[verb][dry_run]
    for path in changes:
        console.print(f"{told} {path}", highlight=False, markup=False, soft_wrap=True)
    if not changes:
        console.print(
            f"nothing to {verb} in {plugins[0].path.parent}", highlight=False, markup=False, soft_wrap=True
        )
