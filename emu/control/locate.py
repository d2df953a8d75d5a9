# SPDX-License-Identifier: Apache-2.0
"""Where running labs keep their sockets, and how a command finds the one it means."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from emu.control.client import ControlClient
from emu.control.server import ControlError

__all__ = [
    "CONTROL_SOCKET",
    "LAB_NAME",
    "LAB_NAME_RULE",
    "find_socket",
    "lab_directory",
    "runtime_directory",
]

CONTROL_SOCKET = "control.sock"

LAB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
"""Names of labs: they are folders."""
LAB_NAME_RULE = "32 letters, digits, '.', '_', '-' at most, a letter or digit first"


def runtime_directory() -> Path:
    """The folder of this user's running labs, created with mode 0700.

    ``$VRNIC_RUN``, else below ``$XDG_RUNTIME_DIR``, else below the temporary folder.

    :raises ControlError: it exists and belongs to someone else, or cannot be made.
    """
    configured = os.environ.get("VRNIC_RUN")
    session = os.environ.get("XDG_RUNTIME_DIR")
    if configured:
        directory = Path(configured)
    elif session and os.access(session, os.W_OK):
        directory = Path(session) / "vrnic"
    else:
        directory = Path(tempfile.gettempdir()) / f"vrnic-{os.getuid()}"
    _make(directory, "set VRNIC_RUN to a folder of your own")
    if directory.stat().st_uid != os.getuid():
        raise ControlError(f"{directory} belongs to another user", "set VRNIC_RUN to a folder of your own")
    return directory


def lab_directory(name: str) -> Path:
    """The folder of the lab ``name``'s sockets, created when missing.

    :raises ControlError: the name does not suit a folder, or the folder cannot be made.
    """
    directory = _folder_of(name)
    _make(directory, "choose another name for the lab")
    return directory


def find_socket(explicit: Path | None = None, lab: str | None = None) -> Path:
    """The control socket meant: ``explicit``, the lab's, or the only running lab's.

    :raises ControlError: none runs, or several do and none was named.
    """
    if explicit is not None:
        return explicit
    if lab is not None:
        return _folder_of(lab) / CONTROL_SOCKET
    alive = []
    for path in sorted(runtime_directory().glob(f"*/{CONTROL_SOCKET}")):
        try:
            ControlClient(path, timeout=2.0).close()
        except ControlError:
            continue
        alive.append(path)
    if not alive:
        raise ControlError(
            "no lab is running", "start one: `vrnic serve`, `vrnic boot`, `vrnic lab run FILE`"
        )
    if len(alive) > 1:
        names = ", ".join(path.parent.name for path in alive)
        raise ControlError(f"several labs are running: {names}", "name one with --lab")
    return alive[0]


def _folder_of(name: str) -> Path:
    if not LAB_NAME.fullmatch(name):
        raise ControlError(f"{name!r} is no name for a lab", LAB_NAME_RULE)
    return runtime_directory() / name


def _make(directory: Path, hint: str) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ControlError(f"cannot make the folder {directory}: {error.strerror}", hint) from None
