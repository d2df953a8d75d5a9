# SPDX-License-Identifier: Apache-2.0
"""Memory keys."""

from __future__ import annotations

from collections.abc import Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.nic.mr import MemoryKind, MemoryRegion
from emu.nic.pages import PageList
from emu.nic.work import Access
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.layout import commands as layout

__all__ = ["COMMANDS"]

ENTRY = "memory_key_mkey_entry"
PHYSICAL, TRANSLATED = 0, 1
"""Access modes: bus addresses as they are, or a list of pages."""
RIGHTS = {
    "lw": Access.LOCAL_WRITE,
    "rw": Access.REMOTE_WRITE,
    "rr": Access.REMOTE_READ,
    "a": Access.REMOTE_ATOMIC,
}
MIN_SHIFT, MAX_SHIFT = 3, 47
ALL_MEMORY = 1 << 64


def create_mkey(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Make a key over bus memory or over a page list."""
    key = request.within(ENTRY)
    pd = device.nic.pds.get(key["pd"], "pd")
    mode = key["access_mode_4_2"] << 2 | key["access_mode_1_0"]
    access = Access.NONE
    for name, right in RIGHTS.items():
        if key[name]:
            access |= right
    address = key["start_addr"]
    pages = _pages(request, key, mode)
    if key["free"] or not pages.length:
        # A key that waits for its translation: it allows nothing until it has one.
        region = device.nic.keys.add(
            pd, Access.NONE, address, PageList((), 12, 0, 0), MemoryKind.HOST, False, key["mkey_7_0"]
        )
    else:
        region = device.nic.register_mr(
            pd,
            access=access,
            address=address,
            pages=pages,
            atomic_capable=bool(key["a"]),
            invalidatable=bool(key["en_rinval"]),
            variant=key["mkey_7_0"],
        )
    return {"mkey_index": region.key >> 8}


def _pages(request: Request, key: Mapping[str, int], mode: int) -> PageList:
    """The memory a key names. :raises NicError: BAD_FIELD."""
    length = ALL_MEMORY if key["length64"] else key["len"]
    if mode == PHYSICAL:
        if key["length64"]:
            return PageList.contiguous(0, ALL_MEMORY)
        return PageList.contiguous(key["start_addr"], length)
    if mode != TRANSLATED:
        raise NicError(ErrorKind.UNSUPPORTED, f"access mode {mode} is not offered", "access_mode")
    pages = request.pages(layout.CREATE_MKEY_IN.byte("klm_pas_mtt"))
    if not pages or not key["translations_octword_size"]:
        return PageList((), 12, 0, 0)
    shift = key["log_page_size"]
    if not MIN_SHIFT <= shift <= MAX_SHIFT:
        raise NicError(ErrorKind.BAD_FIELD, f"log_page_size {shift} is not in 3..47", "log_page_size")
    offset = key["start_addr"] & ((1 << shift) - 1)
    if offset + length > len(pages) << shift:
        raise NicError(
            ErrorKind.BAD_FIELD, f"{len(pages)} pages of {1 << shift:#x} bytes hold no {length:#x}", "len"
        )
    return PageList(pages, shift, offset, length)


def query_mkey(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A key as it is now."""
    region = device.nic.keys.at(request["mkey_index"], "mkey_index")
    return {f"{ENTRY}.{name}": value for name, value in _context(region).items()}


def _context(region: MemoryRegion) -> dict[str, int]:
    whole = region.length == ALL_MEMORY
    return {
        "free": int(not region.length),
        "mkey_7_0": region.key & 0xFF,
        "pd": region.pd.number,
        "start_addr": region.address,
        "length64": int(whole),
        "len": 0 if whole else region.length,
        "lr": 1,
        **{name: int(bool(region.access & right)) for name, right in RIGHTS.items()},
    }


def destroy_mkey(device: Mlx5Device, request: Request) -> None:
    """Invalidate a key."""
    device.nic.deregister_mr(device.nic.keys.at(request["mkey_index"], "mkey_index"))


COMMANDS = (
    Command(Op.CREATE_MKEY, layout.CREATE_MKEY_IN, layout.CREATE_MKEY_OUT, create_mkey),
    Command(Op.QUERY_MKEY, layout.QUERY_MKEY_IN, layout.QUERY_MKEY_OUT, query_mkey),
    Command(Op.DESTROY_MKEY, layout.DESTROY_MKEY_IN, NOTHING_OUT, destroy_mkey),
)
