# SPDX-License-Identifier: Apache-2.0
"""Writer of the "newc" cpio archives the Linux kernel unpacks as initial RAM file systems.

Format: Documentation/driver-api/early-userspace/buffer-format.rst in the kernel tree. Each member is a header
of 110 ASCII bytes, the NUL-terminated name and the data, both padded to 4 bytes; a member ``TRAILER!!!`` ends
the archive.
"""

from __future__ import annotations

import posixpath
import stat
from dataclasses import dataclass

__all__ = ["CpioArchive", "CpioError"]

_NAME_MAX = 4096
"""PATH_MAX of the kernel's unpacker, which skips members with longer names without a word."""


class CpioError(ValueError):
    """A member the kernel's unpacker would refuse or misplace."""


@dataclass(frozen=True, slots=True)
class _Member:
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


class CpioArchive:
    """A set of members, written sorted by path with time stamp 0: equal content gives equal bytes.

    Paths are absolute in the guest (``/bin/sh``). Missing parent directories are added with mode 0755. Adding
    a path twice keeps the later one.
    """

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}

    def add_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file; ``mode`` holds its permission bits.

        :raises CpioError: the path is not absolute and normal, or the data is 4 GiB or more.
        """
        if len(data) >= 1 << 32:
            raise CpioError(f"{path}: {len(data)} bytes do not fit the archive's 32-bit size field")
        self._add(path, _Member(stat.S_IFREG | mode, data))

    def add_directory(self, path: str, mode: int = 0o755) -> None:
        """Add an empty directory.

        :raises CpioError: the path is not absolute and normal.
        """
        self._add(path, _Member(stat.S_IFDIR | mode))

    def add_symlink(self, path: str, target: str) -> None:
        """Add a symbolic link to ``target``.

        :raises CpioError: the path is not absolute and normal.
        """
        self._add(path, _Member(stat.S_IFLNK | 0o777, target.encode()))

    def add_character_device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device node.

        :raises CpioError: the path is not absolute and normal.
        """
        self._add(path, _Member(stat.S_IFCHR | mode, device=(major, minor)))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every member's path, in archive order: parents come before what they hold."""
        return tuple(sorted(self._members))

    def to_bytes(self) -> bytes:
        """The whole archive, padded to 512 bytes like ``cpio`` does."""
        parts: list[bytes] = []
        for inode, path in enumerate(self.paths, start=1):
            parts.append(_encode(path[1:], inode, self._members[path]))
        parts.append(_encode("TRAILER!!!", 0, _Member(0)))
        archive = b"".join(parts)
        return archive + bytes(-len(archive) % 512)

    def _add(self, path: str, member: _Member) -> None:
        if not path.startswith("/") or path == "/" or posixpath.normpath(path) != path:
            raise CpioError(f"{path!r} is not a normal absolute path")
        if "\0" in path or len(path.encode()) >= _NAME_MAX:
            raise CpioError(f"{path[:40]!r}...: names hold no NUL and at most {_NAME_MAX - 1} bytes")
        parent = posixpath.dirname(path)
        if parent != "/":
            holder = self._members.get(parent)
            if holder is None:
                self.add_directory(parent)
            elif stat.S_ISREG(holder.mode):
                raise CpioError(f"{path}: {parent} is a file")
        self._members[path] = member


def _encode(name: str, inode: int, member: _Member) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(member.mode) else 1
    fields = (
        inode,
        member.mode,
        0,  # uid
        0,  # gid
        links,
        0,  # mtime
        len(member.data),
        0,  # device the file is on
        0,
        *member.device,
        len(encoded),
        0,  # checksum, unused in "newc"
    )
    header = b"070701" + b"".join(b"%08X" % value for value in fields)
    start = header + encoded
    return start + bytes(-len(start) % 4) + member.data + bytes(-len(member.data) % 4)
