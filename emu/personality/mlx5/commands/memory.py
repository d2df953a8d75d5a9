# SPDX-License-Identifier: Apache-2.0
"""Memory keys."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.nic.pages import Memory, Part
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.layout import commands as layout
from emu.personality.mlx5.mkey import ALL_MEMORY, AccessMode, word_list

__all__ = ["COMMANDS"]

ENTRY = "memory_key_mkey_entry"


def create_mkey(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Make a key over bus memory, a page list, user memory, or other keys; or one that is still free."""
    context = request.within(ENTRY)
    mode = context["access_mode_4_2"] << 2 | context["access_mode_1_0"]
    memory: Memory | None = None
    words = array("Q")
    if request["mkey_umem_valid"]:
        umem = device.umems.get(request["mkey_umem_id"], "mkey_umem_id")
        if not context["free"]:
            place = umem.at(request["mkey_umem_offset"], context["len"])
            memory = Part(place.pages, place.offset, context["len"])
    elif request.uid and mode in (AccessMode.PHYSICAL, AccessMode.PAGES):
        raise NicError(ErrorKind.BAD_FIELD, "a process names its memory by a umem", "mkey_umem_valid")
    else:
        words = word_list(request.data[layout.CREATE_MKEY_IN.byte("klm_pas_mtt") :])
    key = device.mkeys.create(context, words, partial=bool(request["pg_access"]), memory=memory)
    return {"mkey_index": key.region.key >> 8}


def query_mkey(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A key as it is now."""
    key = device.mkeys.get(request["mkey_index"], "mkey_index")
    context = key.context | {
        "free": int(key.free),
        "mkey_7_0": key.region.key & 0xFF,
        "pd": key.region.pd.number,
        "length64": int(key.region.length == ALL_MEMORY),
    }
    return {f"{ENTRY}.{name}": value for name, value in context.items()}


def destroy_mkey(device: Mlx5Device, request: Request) -> None:
    """End a key."""
    device.mkeys.destroy(request["mkey_index"], "mkey_index")


COMMANDS = (
    Command(Op.CREATE_MKEY, layout.CREATE_MKEY_IN, layout.CREATE_MKEY_OUT, create_mkey),
    Command(Op.QUERY_MKEY, layout.QUERY_MKEY_IN, layout.QUERY_MKEY_OUT, query_mkey),
    Command(Op.DESTROY_MKEY, layout.DESTROY_MKEY_IN, NOTHING_OUT, destroy_mkey),
)
