# SPDX-License-Identifier: Apache-2.0
"""The RoCE address table: the port's own GIDs, as its driver sets them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ROCE_ADDRESSES", "AddressTable", "RoceAddress"]

ROCE_ADDRESSES = 16


@dataclass(frozen=True, slots=True)
class RoceAddress:
    """A GID of 16 bytes (IPv4 as ``::ffff:a.b.c.d``) and the MAC that frames from it carry."""

    gid: bytes
    mac: bytes
    version: int
    l3_type: int


class AddressTable(dict[int, RoceAddress]):
    """Addresses by index; an index that is not there is an empty entry."""
