# SPDX-License-Identifier: Apache-2.0
"""``vrnic driver``: build the guest's kernel modules."""

from __future__ import annotations

from typing import Annotated

import typer

from emu.cli.output import JsonFlag, console, fail, guarded, print_json

__all__ = ["app"]

app = typer.Typer(help="The guest driver: build it for the guest's kernel.", no_args_is_help=True)


@app.command()
@guarded
def build(
    flavour: Annotated[
        str | None, typer.Option("--kernel", help="Kernel flavour of the tree; the guests' by default.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Build guest/driver with the tree's compiler and hand it to running guests.

    In a guest started by `vrnic boot`, `reload-driver` then loads it without a reboot.

    Examples: `vrnic driver build`, `vrnic driver build --kernel cloud`.
    """
    from emu.lab.installation import FLAVOUR, publish_modules
    from emu.setup.error import BuildError
    from emu.setup.modules import build_modules
    from emu.setup.tree import Tree

    chosen = flavour or FLAVOUR
    try:
        modules = build_modules(Tree.require(), chosen)
    except BuildError as error:
        raise fail(error.message, error.output) from None
    # Only modules for the guests' own kernel are of use to running guests.
    folder = publish_modules(modules) if chosen == FLAVOUR else modules.directory
    if as_json:
        print_json(
            {
                "release": modules.release,
                "folder": str(folder),
                "files": [path.name for path in modules.files],
                "seconds": modules.seconds,
            }
        )
        return
    if modules.output.strip():
        console.print(modules.output.rstrip(), highlight=False, markup=False)
    names = " ".join(path.name for path in modules.files)
    what = f"built in {modules.seconds:.1f} s" if modules.seconds else "nothing had changed"
    console.print(f"{names} for {modules.release}: {what}", highlight=False)
    console.print("reload-driver in a guest of `vrnic boot` loads it.", highlight=False)
