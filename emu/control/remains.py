# SPDX-License-Identifier: Apache-2.0
"""Folders that ended labs left behind: logs and captures for a day, then they go."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from emu.control.client import ControlClient
from emu.control.locate import CONTROL_SOCKET, runtime_directory
from emu.control.server import ControlError

__all__ = ["KEEP_SECONDS", "sweep"]

KEEP_SECONDS = 24 * 3600
"""How long a lab's folder is kept after its last change: its capture or log may still be wanted."""

_MARKS = (CONTROL_SOCKET, "lab.toml", "server.log")
"""Files of which a lab's folder has at least one; other folders are not ours to remove."""


def sweep(keep_seconds: float = KEEP_SECONDS) -> list[Path]:
    """Remove the folders of labs that are certainly over, and return them.

    Over is a lab on whose control socket nobody answers and in whose folder nothing has changed for
    ``keep_seconds``. What cannot be removed stays.
    """
    gone = []
    for folder in sorted(runtime_directory().iterdir()):
        if not folder.is_dir() or folder.is_symlink():
            continue
        if not any((folder / mark).exists() for mark in _MARKS):
            continue
        if time.time() - _last_change(folder) < keep_seconds or _answers(folder):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            gone.append(folder)
    return gone


def _last_change(folder: Path) -> float:
    """The newest modification of the folder or anything in it; now when it cannot be told."""
    newest = 0.0
    try:
        for path, _, files in os.walk(folder, onerror=_raise):
            for name in ("", *files):
                newest = max(newest, os.lstat(os.path.join(path, name)).st_mtime)
    except OSError:
        return time.time()
    return newest


def _raise(error: OSError) -> None:
    raise error


def _answers(folder: Path) -> bool:
    with contextlib.suppress(ControlError):
        ControlClient(folder / CONTROL_SOCKET, timeout=2.0).close()
        return True
    return False
