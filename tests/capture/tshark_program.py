# SPDX-License-Identifier: Apache-2.0
"""Finds a tshark and runs it: the private tree's, or the one on the path."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from emu.capture.tshark import tshark_arguments
from emu.setup.tree import Tree

__all__ = ["require_scripts", "require_tshark", "run_tshark"]


@functools.cache
def find_tshark() -> tuple[str, ...] | None:
    tree = Tree.find()
    if tree is not None:
        return tuple(tree.tshark_command())
    program = shutil.which("tshark")
    return (program,) if program else None


def require_tshark() -> tuple[str, ...]:
    """The words that start tshark; skips the test when there is none."""
    program = find_tshark()
    if program is None:
        pytest.skip("no tshark: neither the private Debian tree nor the path has one")
    return program


@functools.cache
def _runs_scripts() -> bool:
    # A script of its own: were the real one broken, its test must fail, not be skipped.
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as probe:
        probe.write('print("scripts run")\n')
        probe.flush()
        words = [*require_tshark(), "-X", f"lua_script:{probe.name}", "-G", "protocols"]
        return "scripts run" in subprocess.run(words, capture_output=True, text=True, check=False).stdout


def require_scripts() -> None:
    """Skips the test when this tshark loads no Lua scripts (as when root runs one set up not to)."""
    require_tshark()
    if not _runs_scripts():
        pytest.skip("this tshark loads no Lua scripts (root, and no run_user_scripts_when_superuser)")


def run_tshark(path: Path, *more: str, plain: bool = False) -> list[str]:
    """Output lines of tshark over ``path``; ``plain`` leaves out our options, as a stranger would."""
    options = ["-r", str(path), *more] if plain else tshark_arguments(path, *more)
    done = subprocess.run([*require_tshark(), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
