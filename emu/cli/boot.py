# SPDX-License-Identifier: Apache-2.0
"""``vrnic boot``: one guest with a NIC and a vGPU, and a shell on the terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from emu.cli.output import JsonFlag, console, guarded, print_json

__all__ = ["boot"]


@guarded
def boot(
    name: Annotated[str, typer.Option("--name", help="Name of the lab, to tell several apart.")] = "boot",
    memory: Annotated[str, typer.Option("--memory", help="RAM of the guest.")] = "512M",
    accelerator: Annotated[
        str, typer.Option("--accel", help="auto (KVM where a guest really boots), tcg or kvm.")
    ] = "auto",
    device: Annotated[str, typer.Option("--device", help="Kind of NIC: vrnic, mlx5 or virtio.")] = "vrnic",
    kernel: Annotated[
        str, typer.Option("--kernel", help="6.1, 6.12 or 7; set-up with --kernels has all.")
    ] = "6.12",
    capture: Annotated[Path | None, typer.Option("--capture", help="Capture file to write.")] = None,
    no_capture: Annotated[bool, typer.Option("--no-capture", help="Write no capture.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the QEMU line instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Boot a guest with the NIC and a vGPU into a shell on this terminal.

    The project is mounted read-only at /project, what `vrnic driver build` built at /build. `reload-driver`
    in the guest loads it. All programs of the set-up's Debian tree are there. Leave with `poweroff`, or
    Ctrl-A X.

    Examples: `vrnic boot`, `vrnic boot --device mlx5 --kernel 7`, `vrnic boot --memory 1G`,
    `vrnic boot --dry-run`.
    """
    from emu.control.locate import lab_directory
    from emu.lab.installation import Installation, live_modules
    from emu.lab.qemu import Share
    from emu.lab.runner import ServerProcess, qemu_command
    from emu.lab.topology import Lab, Nic, Node
    from emu.setup.cache import CHECKOUT
    from emu.setup.suite import DEFAULT_KERNEL

    lab = Lab(nodes=(Node("node0", (Nic(device=device),), memory=memory),), name=name)
    directory = lab_directory(name)
    installation = Installation.require(accelerator, kernel=kernel)
    shares = [Share("project", CHECKOUT, "/project")]
    if kernel == DEFAULT_KERNEL:  # The modules built last are for it.
        shares.append(Share("build", live_modules(), "/build"))
    command = qemu_command(lab, "node0", installation, directory, shares=shares, interactive=True)
    if dry_run:
        if as_json:
            print_json({"node0": command.argv()})
        else:
            typer.echo(command.text())
        return
    path = None if no_capture else capture or directory / "capture.pcapng"
    server = ServerProcess(lab, directory, path)
    server.start()
    try:
        command.directory.mkdir(parents=True, exist_ok=True)
        console.print("Booting; leave with `poweroff` or Ctrl-A X.", highlight=False)
        status = subprocess.call(command.argv())
    finally:
        server.stop()
    if as_json:
        print_json({"status": status, "capture": path})
    elif path is not None:
        console.print(f"capture: {path}", highlight=False, soft_wrap=True)
    raise typer.Exit(status)
