# SPDX-License-Identifier: Apache-2.0
"""The tests of rdma-core's own Python binding, which Debian ships as documentation of a package."""

from __future__ import annotations

import gzip
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

__all__ = ["current_verbs_tests", "obtain_verbs_tests"]

_KIND = "verbs-tests"
_PACKAGE = "python3-pyverbs"
_FOLDER = "usr/share/doc/rdma-core/tests"


def current_verbs_tests(cache: Cache | None = None) -> Path | None:
    """The folder with the package ``tests``, if the set-up has been asked for it."""
    return (cache or Cache.default()).current(_KIND)


def obtain_verbs_tests(tree: Tree, cache: Cache | None = None) -> Path:
    """A folder that holds the Python package ``tests`` for the binding the tree has; fetched once.

    The tree itself holds no documentation.

    :raises SetupError: they cannot be fetched, or the package does not hold them.
    """
    chosen = cache or Cache.default()
    version = tree.package_version(_PACKAGE)
    if version is None:
        raise SetupError(f"The Debian tree has no {_PACKAGE}.", "Run scripts/setup again.")

    def make(fresh: Path) -> Mapping[str, object]:
        with tempfile.TemporaryDirectory(prefix="vrnic-") as folder:
            _unpack(tree, version, Path(folder), fresh, chosen.root / f"logs/{_KIND}.log")
        return {"version": version}

    entry = chosen.obtain(_KIND, content_key({"version": version}), make)
    chosen.point(_KIND, entry)
    return entry


def _unpack(tree: Tree, version: str, folder: Path, fresh: Path, log: Path) -> None:
    what = "the tests of the verbs binding"
    release = tree.suite.release
    line = source_line(tree_sources(tree), release, release, debian_keyring(), kind="deb")
    apt = private_apt(folder, line, what, log)
    run([*apt, "download", f"{_PACKAGE}={version}"], what=what, log=log, cwd=folder)
    archive = next(iter(folder.glob(f"{_PACKAGE}_*.deb")), None)
    if archive is None:
        raise SetupError(f"Debian's package {_PACKAGE} {version} did not arrive.", f"See {log}.")
    done = subprocess.run(
        ["dpkg-deb", "--extract", str(archive), str(folder / "files")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SetupError(f"{archive.name} cannot be unpacked: {done.stderr.strip()[-200:]}", f"See {log}.")
    found = folder / "files" / _FOLDER
    package = fresh / "tests"
    package.mkdir()
    # Debian compresses documentation above a few kilobytes.
    for path in found.glob("*.py"):
        (package / path.name).write_bytes(path.read_bytes())
    for path in found.glob("*.py.gz"):
        (package / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    if not (package / "base.py").is_file():
        raise SetupError(f"{_PACKAGE} {version} ships no tests in /{_FOLDER}.", f"See {log}.")
