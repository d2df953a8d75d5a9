# SPDX-License-Identifier: Apache-2.0
"""Addresses of the port: its MAC and the table of GIDs it answers to."""

from __future__ import annotations

from collections.abc import Sequence

from emu.nic.errors import ErrorKind, NicError

__all__ = ["GID_BYTES", "GidTable", "gid_of"]

GID_BYTES = 16
_EMPTY = bytes(GID_BYTES)
_V4_MAPPED = bytes(10) + b"\xff\xff"


def gid_of(address: bytes) -> bytes:
    """The GID of an IP address of 4 or 16 bytes."""
    return address if len(address) == GID_BYTES else _V4_MAPPED + address


class GidTable:
    """GIDs by index, 16 bytes in network order, zero when empty. IPv4 addresses are ``::ffff:a.b.c.d``."""

    def __init__(self, mac: bytes, gids: Sequence[bytes], size: int) -> None:
        if len(mac) != 6 or len(gids) > size or any(len(gid) != GID_BYTES for gid in gids):
            raise ValueError(f"a port has a 6-byte MAC and up to {size} GIDs of 16 bytes")
        self.mac = mac
        self._initial = [*gids, *[_EMPTY] * (size - len(gids))]
        self._gids = list(self._initial)
        self._own: frozenset[bytes] = frozenset()
        self._note()

    def __len__(self) -> int:
        return len(self._gids)

    def get(self, index: int) -> bytes:
        """The GID at ``index``, which may be empty. :raises NicError: BAD_FIELD ``gid_index``."""
        if not 0 <= index < len(self._gids):
            raise NicError(
                ErrorKind.BAD_FIELD, f"GID index {index} is not in 0..{len(self._gids) - 1}", "gid_index"
            )
        return self._gids[index]

    def source(self, index: int) -> bytes:
        """The GID at ``index`` as a packet's source.

        :raises NicError: BAD_FIELD ``gid_index``, also when empty.
        """
        gid = self.get(index)
        if gid == _EMPTY:
            raise NicError(ErrorKind.BAD_FIELD, f"GID {index} is empty; set it first", "gid_index")
        return gid

    def set(self, index: int, gid: bytes) -> None:
        """Change an entry; all zero empties it.

        :raises NicError: BAD_FIELD, bad index or a multicast address.
        """
        self.get(index)
        if gid[0] == 0xFF:
            raise NicError(ErrorKind.BAD_FIELD, "a port's own GID cannot be a multicast address", "gid")
        self._gids[index] = gid
        self._note()

    def holds(self, address: bytes) -> bool:
        """True when an entry is this IP address (4 or 16 bytes)."""
        return gid_of(address) in self._own

    def clear(self) -> None:
        """Back to the entries it started with."""
        self._gids = list(self._initial)
        self._note()

    def _note(self) -> None:
        self._own = frozenset(gid for gid in self._gids if gid != _EMPTY)
