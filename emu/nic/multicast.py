# SPDX-License-Identifier: Apache-2.0
"""Multicast groups: which datagram queue pairs receive what is sent to a group's GID."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.nic.errors import ErrorKind, NicError
from emu.nic.gid import GID_BYTES, gid_of
from emu.nic.work import Transport

if TYPE_CHECKING:
    from emu.nic.limits import NicLimits
    from emu.nic.qp import QueuePair

__all__ = ["MULTICAST_QPN", "MulticastGroups", "is_multicast"]

MULTICAST_QPN = 0xFFFFFF
"""Destination of every datagram to a group; no queue pair has this number."""


def is_multicast(gid: bytes) -> bool:
    """True for an IPv6 multicast address, and for an IPv4 one written as ``::ffff:a.b.c.d``."""
    return gid[0] == 0xFF or (gid == gid_of(gid[12:]) and gid[12] >> 4 == 0xE)


class MulticastGroups:
    """Attachments of one NIC. A group exists while something is attached to it."""

    def __init__(self, limits: NicLimits) -> None:
        self._groups_max = limits.multicast_groups
        self._members_max = limits.multicast_members
        self._groups: dict[bytes, dict[int, QueuePair]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def attach(self, qp: QueuePair, gid: bytes) -> None:
        """Have ``qp`` receive a copy of each datagram to ``gid`` (16 bytes). Doing so again changes nothing.

        :raises NicError: BAD_FIELD ``gid``, it is no multicast address; BAD_STATE ``qpn``, the queue pair is
            not of datagram service; NO_RESOURCE.
        """
        if len(gid) != GID_BYTES or not is_multicast(gid):
            raise NicError(ErrorKind.BAD_FIELD, f"{gid.hex()} is no multicast address", "gid")
        if qp.transport is not Transport.ROCE_UD:
            raise NicError(
                ErrorKind.BAD_STATE,
                f"QP {qp.number:#x} is {qp.transport.name}; only ROCE_UD receives multicast",
                "qpn",
            )
        members = self._groups.get(gid, {})
        if qp.number in members:
            return
        if not members and len(self._groups) >= self._groups_max:
            raise NicError(ErrorKind.NO_RESOURCE, f"all {self._groups_max} multicast groups are in use")
        if len(members) >= self._members_max:
            raise NicError(
                ErrorKind.NO_RESOURCE, f"{self._members_max} queue pairs are attached to the group already"
            )
        members[qp.number] = qp
        self._groups[gid] = members

    def detach(self, qp: QueuePair, gid: bytes) -> None:
        """End an attachment. :raises NicError: BAD_OBJECT ``gid``, there is none."""
        members = self._groups.get(gid, {})
        if members.pop(qp.number, None) is None:
            raise NicError(
                ErrorKind.BAD_OBJECT,
                f"QP {qp.number:#x} is not attached to {gid.hex()}; attach it first",
                "gid",
            )
        if not members:
            del self._groups[gid]

    def forget(self, qp: QueuePair) -> None:
        """A queue pair was destroyed: end its attachments."""
        for gid, members in tuple(self._groups.items()):
            members.pop(qp.number, None)
            if not members:
                del self._groups[gid]

    def members(self, address: bytes) -> tuple[QueuePair, ...]:
        """The queue pairs attached to an IP address (4 or 16 bytes), in the order they were attached."""
        return tuple(self._groups.get(gid_of(address), {}).values())

    def clear(self) -> None:
        """End all attachments."""
        self._groups.clear()
