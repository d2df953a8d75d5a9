# SPDX-License-Identifier: Apache-2.0
"""Address handles as objects: where datagrams go, made once and named by number in each descriptor."""

from __future__ import annotations

from dataclasses import dataclass

from emu.nic.context import ProtectionDomain
from emu.nic.errors import ErrorKind, NicError
from emu.nic.multicast import is_multicast
from emu.nic.table import ObjectTable
from emu.nic.work import AddressHandle

__all__ = ["HandleTable", "NumberedHandle"]

LAST_NUMBER = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class NumberedHandle:
    """An address handle of one protection domain; queue pairs of other domains cannot use it."""

    number: int
    pd: ProtectionDomain
    address: AddressHandle


class HandleTable(ObjectTable[NumberedHandle]):
    """The address handles of one NIC. Each hangs on its protection domain as well."""

    def __init__(self, limit: int) -> None:
        super().__init__("address handle", limit, 1, LAST_NUMBER)

    def create(self, pd: ProtectionDomain, address: AddressHandle) -> NumberedHandle:
        """Make a handle.

        :raises NicError: BAD_FIELD ``dest_gid`` (none given) or ``dest_mac`` (none given, or one of unicast
            and multicast where the GID is the other), NO_RESOURCE.
        """
        if not any(address.dest_gid):
            raise NicError(ErrorKind.BAD_FIELD, "an address handle needs a destination GID", "dest_gid")
        group = bool(address.dest_mac[0] & 1)
        if not any(address.dest_mac) or group != is_multicast(address.dest_gid):
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"MAC {address.dest_mac.hex(':')} does not fit GID {address.dest_gid.hex()}; "
                "resolve the GID first",
                "dest_mac",
            )
        handle = NumberedHandle(self.reserve(), pd, address)
        self.items[handle.number] = handle
        pd.handles[handle.number] = handle
        return handle

    def destroy(self, handle: NumberedHandle) -> None:
        """End a handle. Datagrams on their way keep the address they were given."""
        del self.items[handle.number]
        del handle.pd.handles[handle.number]
