# SPDX-License-Identifier: Apache-2.0
"""Memory regions and the keys that name them."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

from emu.nic.context import ProtectionDomain
from emu.nic.engine import ProtectionError
from emu.nic.errors import ErrorKind, NicError
from emu.nic.pages import Memory
from emu.nic.table import ObjectTable
from emu.nic.work import Access, Cause

__all__ = ["MemoryKeys", "MemoryKind", "MemoryRegion"]

_VARIANTS = 256
_GROWTH = 4096
"""Indices by which the table of variants grows."""
_DEPTH = 4
"""Keys behind keys behind keys, at most: a key may even name itself."""


class MemoryKind(enum.IntEnum):
    """Where a region's pages are."""

    HOST = 0
    GPU = 1


class MemoryRegion:
    """``length`` bytes from virtual address ``address`` on, behind ``pages``.

    ``key`` serves as lkey and rkey: table index in bits 31:8, and in bits 7:0 a variant that changes at each
    reuse of the index, so a freed key is recognised. ``pins`` counts the rings and records that live in the
    region. ``invalidatable`` regions lose their key when a peer says so. Payload written to a ``relaxed`` one
    may overtake what was written before (PCIe relaxed ordering); rings and records in it keep their order.
    ``rights`` is ``access`` as a plain integer: the operators of flags are slow.
    """

    __slots__ = (
        "access",
        "address",
        "atomic_capable",
        "enabled",
        "end",
        "invalidatable",
        "key",
        "kind",
        "length",
        "pages",
        "pd",
        "pins",
        "qpn",
        "relaxed",
        "rights",
    )

    def __init__(
        self,
        key: int,
        pd: ProtectionDomain,
        access: Access,
        address: int,
        pages: Memory,
        kind: MemoryKind,
        atomic_capable: bool,
        invalidatable: bool = False,
    ) -> None:
        self.key = key
        self.pd = pd
        self.access = access
        self.rights = int(access)
        self.address = address
        self.length = pages.length
        self.end = address + pages.length
        self.pages = pages
        self.kind = kind
        self.atomic_capable = atomic_capable
        self.invalidatable = invalidatable
        self.relaxed = False
        self.enabled = True
        self.qpn: int | None = None
        self.pins = 0

    def translate(self, address: int, length: int) -> list[tuple[int, int]]:
        """Bus address and length of each piece of ``[address, address + length)``, which must lie inside."""
        return self.pages.segments(address - self.address, length)


class MemoryKeys:
    """The key table of one NIC, and the checks every access goes through."""

    def __init__(self, limit: int, first: int = 1, pieces: int = 1 << 22) -> None:
        """At most ``limit`` regions, from table index ``first`` on, over ``pieces`` runs of memory in all."""
        self._table: ObjectTable[MemoryRegion] = ObjectTable("memory region", limit, first, 0xFFFFFF)
        # Last variant plus 1 of each index ever used, 0 for none. Indices go round all 24 bits, so a guest
        # that registers for ever reaches all of them: two bytes each.
        self._variants = array("H")
        self._by_key: dict[int, MemoryRegion] = {}
        self._pieces = 0
        self._most_pieces = pieces
        self._nesting = 0

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Around the use of the keys that lie behind another one. :raises ProtectionError: too deep."""
        if self._nesting == _DEPTH:
            raise ProtectionError(f"keys lie behind keys more than {_DEPTH} deep", cause=Cause.LKEY_ACCESS)
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1

    def __len__(self) -> int:
        return len(self._table)

    def add(
        self,
        pd: ProtectionDomain,
        access: Access,
        address: int,
        pages: Memory,
        kind: MemoryKind,
        atomic_capable: bool,
        variant: int | None = None,
        invalidatable: bool = False,
    ) -> MemoryRegion:
        """Make a region under a fresh key, with bits 7:0 of the driver's choice when it gives ``variant``.

        :raises NicError: NO_RESOURCE.
        """
        self._check_pieces(pages.pieces)
        index = self._table.reserve()
        if index >= len(self._variants):
            self._variants.frombytes(bytes(2 * (index + _GROWTH - len(self._variants))))
        if variant is None:
            variant = max(self._variants[index], 1) % _VARIANTS
        self._variants[index] = variant + 1
        region = MemoryRegion(
            index << 8 | variant, pd, access, address, pages, kind, atomic_capable, invalidatable
        )
        self._table.items[index] = region
        self._by_key[region.key] = region
        pd.regions[region.key] = region
        self._pieces += pages.pieces
        return region

    def remove(self, region: MemoryRegion) -> None:
        """End a region, and its key with it."""
        del self._table.items[region.key >> 8]
        self._by_key.pop(region.key, None)
        del region.pd.regions[region.key]
        self._pieces -= region.pages.pieces

    def invalidate(self, key: int, pd: ProtectionDomain) -> None:
        """Take a key out of use because a peer of domain ``pd`` said so. The region waits to be deregistered.

        :raises ProtectionError: unknown, of another domain, not made to be invalidated, or used by a ring.
        """
        region = self._by_key.get(key)
        if region is None or region.pd is not pd:
            raise self._refusal(region, key, 0, 0, pd, Access.NONE, True)
        if not region.invalidatable or region.pins:
            raise ProtectionError(
                f"rkey {key:#x} is not for peers to invalidate; register the memory with that flag",
                cause=Cause.RKEY_ACCESS,
            )
        self.disable(region)

    def disable(self, region: MemoryRegion) -> None:
        """Take a region's key out of use until :meth:`replace` gives it one again."""
        region.enabled = False
        self._by_key.pop(region.key, None)

    def replace(
        self,
        region: MemoryRegion,
        *,
        variant: int,
        pd: ProtectionDomain,
        access: Access,
        address: int,
        pages: Memory,
        atomic_capable: bool,
        invalidatable: bool,
        enabled: bool,
    ) -> None:
        """Make a region another one under the same index.

        :raises NicError: BUSY, a ring lives in it; NO_RESOURCE, too many pieces. Nothing changed then.
        """
        if region.pins:
            raise NicError(ErrorKind.BUSY, f"key {region.key:#x} holds {region.pins} rings", "key")
        self._check_pieces(pages.pieces - region.pages.pieces)
        self._by_key.pop(region.key, None)
        del region.pd.regions[region.key]
        self._pieces += pages.pieces - region.pages.pieces
        region.key = region.key & ~0xFF | variant
        self._variants[region.key >> 8] = variant + 1
        region.pd = pd
        region.access = access
        region.rights = int(access)
        region.address = address
        region.pages = pages
        region.length = pages.length
        region.end = address + pages.length
        region.atomic_capable = atomic_capable
        region.invalidatable = invalidatable
        region.enabled = enabled
        pd.regions[region.key] = region
        if enabled:
            self._by_key[region.key] = region

    def _check_pieces(self, more: int) -> None:
        """:raises NicError: NO_RESOURCE, ``more`` runs of memory are too many."""
        if self._pieces + more > self._most_pieces:
            raise NicError(
                ErrorKind.NO_RESOURCE,
                f"{more} separate runs of memory on top of {self._pieces}, at most "
                f"{self._most_pieces}; deregister regions, or use larger pages",
            )

    def region(self, key: int) -> MemoryRegion | None:
        """The region of a key in use."""
        return self._by_key.get(key)

    def get(self, key: int, field: str) -> MemoryRegion:
        """The region of a command's parameter. :raises NicError: BAD_OBJECT with the reason."""
        region = self._by_key.get(key) or self._table.items.get(key >> 8)
        if region is None or region.key != key:
            raise NicError(ErrorKind.BAD_OBJECT, self._missing("key", key), field)
        return region

    def at(self, index: int, field: str) -> MemoryRegion:
        """The region at a table index, whatever its variant. :raises NicError: BAD_OBJECT naming
        ``field``."""
        return self._table.get(index, field)

    def clear(self) -> None:
        """Forget every region. Variants are kept: a key from before a reset stays invalid after it."""
        self._table.clear()
        self._by_key.clear()
        self._pieces = 0

    def check(
        self, key: int, address: int, length: int, pd: ProtectionDomain, access: Access, *, remote: bool
    ) -> MemoryRegion:
        """The region that allows ``access`` to ``[address, address + length)`` in domain ``pd``.

        :raises ProtectionError: unknown or freed key, other domain, missing right, or outside the region.
        """
        region = self._by_key.get(key)
        needed = int(access)
        if (
            region is not None
            and region.pd is pd
            and region.rights & needed == needed
            and region.address <= address
            and address + length <= region.end
        ):
            return region
        raise self._refusal(region, key, address, length, pd, access, remote)

    def _refusal(
        self,
        region: MemoryRegion | None,
        key: int,
        address: int,
        length: int,
        pd: ProtectionDomain,
        access: Access,
        remote: bool,
    ) -> ProtectionError:
        name = "rkey" if remote else "lkey"
        if region is None:
            cause = Cause.RKEY_UNKNOWN if remote else Cause.LKEY_UNKNOWN
            return ProtectionError(self._missing(name, key), cause=cause)
        if region.pd is not pd:
            cause = Cause.RKEY_PD if remote else Cause.LKEY_PD
            return ProtectionError(
                f"{name} {key:#x} belongs to PD {region.pd.number}, the QP to PD {pd.number}; "
                "register the memory in the QP's domain",
                cause=cause,
            )
        if region.access & access != access:
            cause = Cause.RKEY_ACCESS if remote else Cause.LKEY_ACCESS
            missing = access & ~region.access
            return ProtectionError(
                f"{name} {key:#x} lacks {missing.name or hex(missing)}; register the memory with that right",
                cause=cause,
            )
        cause = Cause.RKEY_BOUNDS if remote else Cause.LKEY_BOUNDS
        return ProtectionError(
            f"{name} {key:#x} covers {region.address:#x}..{region.end:#x}, "
            f"the access is {address:#x}..{address + length:#x}; check address and length",
            cause=cause,
        )

    def _missing(self, name: str, key: int) -> str:
        index = key >> 8
        last = self._variants[index] - 1 if index < len(self._variants) else -1
        if last < 0:
            return f"{name} {key:#x} was never given out; use the key of REG_MR in host byte order"
        current = self._table.items.get(index)
        if current is not None and current.key == key:
            return f"{name} {key:#x} was invalidated by a peer or is not enabled; register the memory anew"
        if current is None and key & 0xFF == last:
            return f"{name} {key:#x} was deregistered; post no work after freeing its memory"
        if current is None:
            return f"{name} {key:#x} was deregistered long ago or never existed"
        return f"{name} {key:#x} is stale: its index now belongs to key {current.key:#x}"
