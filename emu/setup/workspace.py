# SPDX-License-Identifier: Apache-2.0
"""A directory inside the tree where guest sources are built: a mirror of the checkout's files.

It persists, so that make rebuilds only what changed, and it lies below the tree's root, so that the tree's
compiler sees it without any mount.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emu.setup.cache import disk_errors
from emu.setup.error import BuildError, SetupError
from emu.setup.tree import Tree

__all__ = ["Workspace"]

_MANIFEST = ".mirrored"


@dataclass(frozen=True)
class Workspace:
    """The build directory for one purpose. Checkouts share it: only what differs between them is rebuilt.

    :param tree: the tree whose programs work in it.
    :param path: the directory on the host.
    """

    tree: Tree
    path: Path

    @classmethod
    def open(cls, tree: Tree, name: str) -> Workspace:
        """The workspace ``name`` in a tree, made when it does not exist."""
        path = tree.path / "build" / name
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(tree, path)

    def inside(self, relative: str = "") -> str:
        """The name of a file of the workspace for the tree's programs."""
        return self.tree.inside(self.path / relative)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from building in the workspace."""
        with disk_errors(self.path), open(self.path / ".lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def mirror(self, sources: Path, folders: Sequence[str]) -> None:
        """Make ``folders`` (below ``sources``) the same here, touching only files whose bytes differ.

        A file that vanished from the checkout is removed here; files a build left here stay.
        """
        manifest = self.path / _MANIFEST
        before = set(manifest.read_text().splitlines()) if manifest.is_file() else set()
        now: set[str] = set()
        for folder in folders:
            for source in sorted((sources / folder).rglob("*")):
                if source.is_file():
                    name = source.relative_to(sources).as_posix()
                    now.add(name)
                    _copy(source, self.path / name)
        for name in before - now:
            (self.path / name).unlink(missing_ok=True)
        manifest.write_text("".join(f"{name}\n" for name in sorted(now)))

    def make(self, what: str, *arguments: str) -> str:
        """Run the tree's make; what it printed.

        :param what: what is built, as a noun phrase.
        :raises BuildError: it failed; the error carries its output.
        :raises SetupError: the tree's programs cannot be run by this user.
        """
        argv = self.tree.command(["make", f"-j{os.cpu_count() or 1}", *arguments], cwd=self.inside())
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        except FileNotFoundError as error:
            raise SetupError(
                f"Building {what} needs the program {argv[0]}, which is not installed.",
                "Install it (package bubblewrap or coreutils), then try again.",
            ) from error
        if done.returncode != 0:
            # The compiler names files by their place in the mirror; the user edits those in the checkout.
            raise BuildError(f"Building {what} failed.", done.stdout.replace(f"{self.inside()}/", "guest/"))
        return done.stdout


def _copy(source: Path, target: Path) -> None:
    data = source.read_bytes()
    try:
        if target.read_bytes() == data:
            return
    except OSError:
        target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    shutil.copymode(source, target)
