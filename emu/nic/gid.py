# SPDX-License-Identifier: Apache-2.0
"""Addresses of the port: its MAC and the table of GIDs it answers to."""

from __future__ import annotations

from collections.abc import Sequence

from emu.nic.errors import ErrorKind, NicError

__all__ = ["GID_BYTES", "GidTable"]

GID_BYTES = 16
_EMPTY = bytes(GID_BYTES)


class GidTable:
    """GIDs by index, 16 bytes in network order, zero when empty. IPv4 addresses are ``::ffff:a.b.c.d``."""

    def __init__(self, mac: bytes, gids: Sequence[bytes], size: int) -> None:
        if len(mac) != 6 or len(gids) > size or any(len(gid) != GID_BYTES for gid in gids):
            raise ValueError(f"a port has a 6-byte MAC and up to {size} GIDs of 16 bytes")
        self.mac = mac
        self._initial = [*gids, *[_EMPTY] * (size - len(gids))]
        self._gids = list(self._initial)

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

    def clear(self) -> None:
        """Back to the entries it started with."""
        self._gids = list(self._initial)
