# SPDX-License-Identifier: Apache-2.0
"""The cache directory: entries keyed by the content of their inputs, published whole or not at all.

::

    ~/.cache/vrnic/                 $VRNIC_CACHE moves it
        <kind>/<key>/               one finished entry; .vrnic.json inside says what it was made from
        <kind>/.new-<key>/          an entry being made, or left by a killed set-up (removed by the next one)
        checkout/<id>/<name>        symbolic link: the entry this checkout of the project uses now
        locks/                      flock files, one per entry
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.setup.error import SetupError

__all__ = ["CHECKOUT", "EXTENSION", "Cache", "content_key", "file_digest", "tree_digest"]

CHECKOUT = Path(__file__).resolve().parents[2]
"""Root of the checkout this code runs from."""

EXTENSION = f"vfu-{sysconfig.get_config_var('SOABI')}"
"""Name under which a checkout points at the directory that holds its compiled ``_vfu`` module."""

STAMP = ".vrnic.json"
_KEY_DIGITS = 16


def content_key(inputs: Mapping[str, object]) -> str:
    """Key of an entry made from ``inputs`` (JSON-able values): 16 hexadecimal digits of a SHA-256."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_digest(paths: Iterable[Path]) -> str:
    """SHA-256 over names and bytes of every file below ``paths`` (files or directories), in a fixed order.

    A path that does not exist counts as empty: its later appearance changes the digest.
    """
    digest = hashlib.sha256()
    for top in paths:
        files = (
            sorted(p for p in top.rglob("*") if p.is_file())
            if top.is_dir()
            else [top]
            if top.is_file()
            else []
        )
        for path in files:
            name = path.relative_to(top.parent).as_posix()
            digest.update(f"{name}\0{file_digest(path)}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    """A cache directory.

    :param root: where it lies; made on first use.
    """

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """``$VRNIC_CACHE``, else ``vrnic`` in the user's cache directory."""
        chosen = os.environ.get("VRNIC_CACHE")
        if chosen:
            return cls(Path(chosen).absolute())
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return cls(Path(home) / "vrnic")

    def entry(self, kind: str, key: str) -> Path:
        """Where the entry lies, or would lie."""
        return self.root / kind / key

    def stamp(self, entry: Path) -> dict[str, object] | None:
        """What a finished entry was made from; None when it is absent, half made or its stamp is damaged."""
        try:
            loaded = json.loads((entry / STAMP).read_text())
        except (OSError, ValueError):
            return None
        return loaded if isinstance(loaded, dict) else None

    def obtain(
        self,
        kind: str,
        key: str,
        make: Callable[[Path], Mapping[str, object]],
        *,
        intact: Callable[[Path], bool] = lambda entry: True,
    ) -> Path:
        """The finished entry, made now when it is absent or fails ``intact``.

        ``make`` gets an empty directory, fills it and returns what belongs into the stamp. The directory gets
        its final name, by one rename, only after that; so an entry that has its name is whole. Two set-ups
        that want the same entry wait for each other.

        :raises SetupError: the disk is full or not writable, or ``make`` raised it.
        """
        entry = self.entry(kind, key)
        if self.stamp(entry) is not None and intact(entry):
            return entry
        with self.lock(f"{kind}-{key}"), disk_errors(self.root):
            if self.stamp(entry) is not None and intact(entry):
                return entry
            fresh = entry.parent / f".new-{key}"
            _remove(fresh)
            fresh.mkdir(parents=True)
            try:
                facts = dict(make(fresh))
                (fresh / STAMP).write_text(json.dumps(facts, indent=1, sort_keys=True, default=str) + "\n")
                _remove(entry)
                fresh.rename(entry)
            except BaseException:
                _remove(fresh)
                raise
        return entry

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock ``name`` against other processes; says so on standard error when it has to wait."""
        with disk_errors(self.root):
            folder = self.root / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another set-up that makes {name} ...", file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def point(self, name: str, entry: Path, *, checkout: Path = CHECKOUT) -> None:
        """Let ``checkout`` use ``entry`` under ``name`` from now on."""
        link = self._link(name, checkout)
        with disk_errors(self.root):
            link.parent.mkdir(parents=True, exist_ok=True)
            fresh = link.with_name(f".{name}.{os.getpid()}")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(entry)
            fresh.rename(link)

    def current(self, name: str, *, checkout: Path = CHECKOUT) -> Path | None:
        """The finished entry ``checkout`` uses under ``name``; None when there is none or it was removed."""
        link = self._link(name, checkout)
        entry = Path(os.path.realpath(link))
        return entry if link.is_symlink() and self.stamp(entry) is not None else None

    def prune(self, kind: str, keep: int, *, prefix: str = "") -> None:
        """Remove all but the ``keep`` newest entries of ``kind`` whose key begins with ``prefix``."""
        folder = self.root / kind
        entries = [p for p in folder.glob(f"{prefix}*") if p.is_dir()] if folder.is_dir() else []
        in_use = {
            Path(os.path.realpath(link)) for link in (self.root / "checkout").glob("*/*") if link.is_symlink()
        }
        entries.sort(key=_age)
        for entry in entries[keep:]:
            if entry.resolve() not in in_use:
                # Another process may be removing the same entry.
                with contextlib.suppress(FileNotFoundError):
                    _remove(entry)

    def _link(self, name: str, checkout: Path) -> Path:
        return self.root / "checkout" / hashlib.sha256(str(checkout).encode()).hexdigest()[:12] / name


@contextlib.contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write below ``root`` into a :class:`SetupError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SetupError(
                f"The disk that holds {root} is full.",
                "Free some space (about 2 GB), or put the cache elsewhere with VRNIC_CACHE=DIR.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise SetupError(
                f"{error.filename or root} cannot be written: {error.strerror}.",
                "Make it writable for you, or put the cache elsewhere with VRNIC_CACHE=DIR.",
            ) from error
        raise


def _age(path: Path) -> float:
    """Sorts the newest first; an entry that has just vanished comes last."""
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
