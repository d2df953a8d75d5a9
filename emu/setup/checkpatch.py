# SPDX-License-Identifier: Apache-2.0
"""The kernel's style checker. Debian ships it nowhere but inside the package with the kernel's sources."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from emu.setup.apt import private_apt, source_line, tree_sources
from emu.setup.bootstrap import debian_keyring
from emu.setup.cache import Cache, content_key
from emu.setup.error import SetupError
from emu.setup.process import run
from emu.setup.tree import Tree

__all__ = ["current_checkpatch", "obtain_checkpatch"]

_KIND = "checkpatch"
_FILES = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
"""The script and the word lists it reads from its own folder."""


def current_checkpatch(cache: Cache | None = None) -> Path | None:
    """The script, if the set-up has been asked for it."""
    entry = (cache or Cache.default()).current(_KIND)
    return None if entry is None else entry / _FILES[0]


def obtain_checkpatch(tree: Tree, cache: Cache | None = None) -> Path:
    """``checkpatch.pl`` of the tree's own kernel; fetches the kernel's sources (about 150 MB) once.

    :raises SetupError: they cannot be fetched or do not hold it.
    """
    chosen = cache or Cache.default()
    version = ".".join(tree.kernel("full").release.split(".")[:2])

    def make(fresh: Path) -> Mapping[str, object]:
        with tempfile.TemporaryDirectory(prefix="vrnic-") as folder:
            _unpack(tree, Path(folder), version, fresh, chosen.root / "logs/checkpatch.log")
        return {"version": version}

    key = content_key({"version": version, "files": _FILES})
    entry = chosen.obtain(_KIND, key, make, intact=lambda path: (path / _FILES[0]).is_file())
    chosen.point(_KIND, entry)
    return entry / _FILES[0]


def _unpack(tree: Tree, folder: Path, version: str, fresh: Path, log: Path) -> None:
    what = "the kernel's style checker"
    package = f"linux-source-{version}"
    line = source_line(
        tree_sources(tree), tree.suite.release, tree.suite.release, debian_keyring(), kind="deb"
    )
    apt = private_apt(folder, line, what, log)
    run([*apt, "download", package], what=what, log=log, cwd=folder)
    archive = next(iter(folder.glob(f"{package}_*.deb")), None)
    if archive is None:
        raise SetupError(f"Debian's package {package} did not arrive.", f"See {log}.")
    # The sources lie in an archive inside the package: unpack it in passing, it is a gigabyte.
    members = " ".join(f"{package}/scripts/{name}" for name in _FILES)
    script = (
        f"set -o pipefail; dpkg-deb --fsys-tarfile {archive} | tar -xO ./usr/src/{package}.tar.xz | "
        f"tar -xJ --strip-components=2 -C {fresh} {members}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{package} cannot be unpacked: {done.stderr.strip()[-200:]}", f"See {log}.")
