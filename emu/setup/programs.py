# SPDX-License-Identifier: Apache-2.0
"""The guest's own programs (agent, test kernels): static binaries built by the tree's compiler."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from emu.setup.cache import CHECKOUT, Cache, content_key, tree_digest
from emu.setup.error import BuildError
from emu.setup.tree import Tree
from emu.setup.workspace import Workspace

__all__ = ["build_programs", "current_programs"]

_FOLDERS = ("include", "driver", "lib", "simt", "kernels", "verbs", "init")
_BUILT = ("init", "kernels", "verbs")


def build_programs(tree: Tree, *, cache: Cache | None = None, checkout: Path = CHECKOUT) -> Path:
    """The directory with every program the guests run, built now when a source changed.

    :raises BuildError: one does not compile.
    :raises SetupError: the tree's programs cannot be run, or the disk fails.
    """
    chosen = cache or Cache.default()
    guest = checkout / "guest"
    inputs = _inputs(tree, guest)

    def make(fresh: Path) -> Mapping[str, object]:
        space = Workspace.open(tree, "programs")
        out = space.path / "out"
        with space.lock():
            space.mirror(guest, _FOLDERS)
            out.mkdir(exist_ok=True)
            output = ""
            for folder in _BUILT:
                if (guest / folder / "Makefile").is_file():
                    output += space.make(
                        f"guest/{folder}", "-C", space.inside(folder), f"OUT={space.inside('out')}"
                    )
            binaries = [path for path in sorted(out.iterdir()) if path.is_file() and _is_program(path)]
            if not binaries:
                raise BuildError("Building the guest's programs left none.", output)
            for binary in binaries:
                shutil.copy2(binary, fresh)
        return {"inputs": inputs}

    entry = chosen.obtain("programs", content_key(inputs), make)
    chosen.point("programs", entry, checkout=checkout)
    chosen.prune("programs", keep=6)
    return entry


def current_programs(tree: Tree, *, cache: Cache | None = None, checkout: Path = CHECKOUT) -> Path | None:
    """Where the programs built from the present sources are; None when they are not built."""
    chosen = cache or Cache.default()
    entry = chosen.entry("programs", content_key(_inputs(tree, checkout / "guest")))
    return entry if chosen.stamp(entry) is not None else None


def _inputs(tree: Tree, guest: Path) -> dict[str, object]:
    return {"sources": tree_digest([guest / folder for folder in _FOLDERS]), "tree": tree.path.name}


def _is_program(path: Path) -> bool:
    # An object file is ELF too, but not executable by mode.
    with path.open("rb") as handle:
        return handle.read(4) == b"\x7fELF" and bool(path.stat().st_mode & 0o100)
