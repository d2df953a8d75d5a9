# SPDX-License-Identifier: Apache-2.0
"""``vrnic serve``: the device side alone, for a QEMU of one's own."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from emu.cli.checks import CheckOption, chosen_actions
from emu.cli.output import console, fail, guarded, print_json
from emu.control.locate import CONTROL_SOCKET, lab_directory
from emu.control.remains import sweep
from emu.lab.file import load_lab
from emu.lab.topology import Lab, default_lab

__all__ = ["ChaosOption", "read_lab", "serve"]

ChaosOption = Annotated[
    str | None, typer.Option("--chaos", help="Chaos profile; `vrnic chaos list` shows them.")
]


def read_lab(
    file: Path | None,
    nodes: int,
    loss: float | None,
    seed: int | None,
    chaos: str | None = None,
    checks: list[str] | None = None,
) -> Lab:
    """The lab of ``file``, or the default one, with the options put over it.

    :raises LabError: an option is out of range
    :raises LabFileError: the file cannot be used
    """
    lab = default_lab(nodes) if file is None else load_lab(file)
    changes: dict[str, object] = {}
    if loss is not None:
        changes["loss"] = loss
    if seed is not None:
        changes["seed"] = seed
    if chaos is not None:
        changes["chaos"] = chaos
    if checks:
        changes["checks"] = (*lab.checks, *chosen_actions(checks))
    return dataclasses.replace(lab, **changes)  # type: ignore[arg-type]


@guarded
def serve(
    file: Annotated[
        Path | None, typer.Argument(help="Lab file; two nodes with a NIC and a vGPU each when left out.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the lab (its folder of sockets).")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Folder for the sockets instead of the default.")
    ] = None,
    capture: Annotated[Path | None, typer.Option("--capture", help="Capture file to write.")] = None,
    no_capture: Annotated[bool, typer.Option("--no-capture", help="Write no capture.")] = False,
    loss: Annotated[float | None, typer.Option("--loss", min=0, max=0.99, help="Loss per link.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of every random decision.")] = None,
    chaos: ChaosOption = None,
    check: CheckOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is served as JSON.")] = False,
) -> None:
    """Serve the functions of a lab on UNIX sockets until Ctrl-C.

    Connect a QEMU (10.1.1 or later, memory-backend-memfd,share=on) with
    -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"SOCKET"}}'.

    Examples: `vrnic serve`, `vrnic serve pair.toml --loss 0.01`,
    `vrnic serve --directory /tmp/lab --no-capture`.
    """
    from emu.lab.server import LabServer

    lab = read_lab(file, 2, loss, seed, chaos, check)
    folder = directory or lab_directory(name or lab.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail(
            f"cannot make the folder {folder}: {error.strerror}", "choose another with --directory"
        ) from None
    sweep()
    path = None if no_capture else capture or folder / "capture.pcapng"
    try:
        server = LabServer(lab, folder, capture=path)
    except OSError as error:
        if path is not None and error.filename == str(path):
            raise fail(
                f"cannot write the capture {path}: {error.strerror}",
                "name another file with --capture, or use --no-capture",
            ) from None
        raise fail(
            f"cannot serve: {error}", "another lab of this name may be running; choose --name"
        ) from None
    sockets = {function: endpoint.path for function, endpoint in server.endpoints.items()}
    try:
        if as_json:
            print_json(
                {"control": str(folder / CONTROL_SOCKET), "capture": path and str(path), "sockets": sockets}
            )
        else:
            for function, socket in sockets.items():
                console.print(f"{function:<14} {socket}", highlight=False, soft_wrap=True)
            console.print(f"control        {folder / CONTROL_SOCKET}", highlight=False, soft_wrap=True)
            if path is not None:
                console.print(f"capture        {path}", highlight=False, soft_wrap=True)
            console.print("Serving; Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
    finally:
        server.close()
