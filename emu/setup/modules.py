# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel modules, built by the tree's compiler against the tree's kernel headers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.setup.cache import CHECKOUT, Cache, content_key, tree_digest
from emu.setup.error import BuildError
from emu.setup.tree import Tree
from emu.setup.workspace import Workspace

__all__ = ["Modules", "build_modules", "current_modules"]

_FOLDERS = ("driver", "include")


@dataclass(frozen=True)
class Modules:
    """The built modules of one kernel.

    :param directory: holds the ``.ko`` files.
    :param release: the kernel they load into.
    :param files: the modules.
    :param seconds: how long the build took; 0 when nothing had changed.
    :param output: what make printed when they were built; warnings are in here.
    """

    directory: Path
    release: str
    files: tuple[Path, ...]
    seconds: float
    output: str


def build_modules(
    tree: Tree, flavour: str = "cloud", *, cache: Cache | None = None, checkout: Path = CHECKOUT
) -> Modules:
    """The modules of ``guest/driver`` for a kernel of ``tree``, built now when their sources changed.

    :raises BuildError: they do not compile.
    :raises SetupError: the tree has no such kernel, or the disk fails.
    """
    chosen = cache or Cache.default()
    kernel = tree.kernel(flavour)
    guest = checkout / "guest"
    inputs = _inputs(tree, kernel.release, guest)
    seconds = 0.0

    def make(fresh: Path) -> Mapping[str, object]:
        nonlocal seconds
        start = time.monotonic()
        space = Workspace.open(tree, f"modules-{flavour}")
        with space.lock():
            space.mirror(guest, _FOLDERS)
            what = f"the kernel modules for {kernel.release}"
            output = space.make(what, "-C", kernel.headers, f"M={space.inside('driver')}", "modules")
            built = sorted((space.path / "driver").glob("*.ko"))
            if not built:
                raise BuildError(f"Building {what} left no module.", output)
            for module in built:
                shutil.copy2(module, fresh)
        seconds = time.monotonic() - start
        return {"inputs": inputs, "output": output}

    entry = chosen.obtain("modules", f"{flavour}-{content_key(inputs)}", make)
    chosen.point(f"modules-{tree.suite.name}-{flavour}", entry, checkout=checkout)
    chosen.prune("modules", keep=8)
    output = str((chosen.stamp(entry) or {}).get("output", ""))
    return Modules(entry, kernel.release, tuple(sorted(entry.glob("*.ko"))), seconds, output)


def current_modules(
    tree: Tree, flavour: str = "cloud", *, cache: Cache | None = None, checkout: Path = CHECKOUT
) -> Path | None:
    """Where the modules built from the present sources are; None when they are not built."""
    chosen = cache or Cache.default()
    inputs = _inputs(tree, tree.kernel(flavour).release, checkout / "guest")
    entry = chosen.entry("modules", f"{flavour}-{content_key(inputs)}")
    return entry if chosen.stamp(entry) is not None else None


def _inputs(tree: Tree, release: str, guest: Path) -> dict[str, object]:
    return {
        "sources": tree_digest([guest / folder for folder in _FOLDERS]),
        "release": release,
        "tree": tree.path.name,
    }
