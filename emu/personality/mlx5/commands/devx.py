# SPDX-License-Identifier: Apache-2.0
"""Direct verbs: user contexts, and user memory that queues live in.

Programs that let a GPU post work make their queues with these: rings and doorbell records lie in memory
that they registered, and the commands name it instead of listing pages.
"""

from __future__ import annotations

from collections.abc import Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.nic.pages import PageList
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_IN, NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device, UserMemory
from emu.personality.mlx5.layout import commands as layout

__all__ = ["COMMANDS"]

PAGE_SHIFT = 12
MAX_PIECES = 1 << 20
"""Separate runs of bus memory behind all user memory together: 16 bytes of the server's memory each."""


def create_uctx(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A user context; the guest's driver keeps apart what belongs to which."""
    table = device.objects.uctxs
    number = table.reserve()
    table.items[number] = number
    return {"uid": number}


def destroy_uctx(device: Mlx5Device, request: Request) -> None:
    """End a user context."""
    device.objects.uctxs.get(request["uid"], "uid")
    del device.objects.uctxs.items[request["uid"]]


def create_umem(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Memory for queues. :raises NicError: BAD_FIELD, the page list does not fit the command."""
    memory = request.within("umem")
    shift, offset, count = PAGE_SHIFT + memory["log_page_size"], memory["page_offset"], memory["num_of_mtt"]
    pages = request.pages(layout.CREATE_UMEM_IN.size)
    if not 0 < count <= len(pages) or offset >= 1 << shift:
        raise NicError(
            ErrorKind.BAD_FIELD, f"{count} pages, of which {len(pages)} are listed, from {offset:#x}", "umem"
        )
    length = (count << shift) - offset
    memory_pages = PageList(pages[:count], shift, offset, length)
    if memory_pages.pieces + sum(other.pages.pieces for other in device.umems) > MAX_PIECES:
        raise NicError(ErrorKind.NO_RESOURCE, f"all user memory together has {MAX_PIECES} pieces at most")
    number = device.umems.reserve()
    device.umems.items[number] = UserMemory(number, memory_pages)
    return {"umem_id": number}


def destroy_umem(device: Mlx5Device, request: Request) -> None:
    """End memory for queues. Those that live in it go on with the pages they have."""
    device.umems.get(request["umem_id"], "umem_id")
    del device.umems.items[request["umem_id"]]


def query_lag(device: Mlx5Device, request: Request) -> None:
    """No link aggregation: all zero."""


COMMANDS = (
    Command(Op.CREATE_UCTX, layout.CREATE_UCTX_IN, layout.CREATE_UCTX_OUT, create_uctx),
    Command(Op.DESTROY_UCTX, layout.DESTROY_UCTX_IN, NOTHING_OUT, destroy_uctx),
    Command(Op.CREATE_UMEM, layout.CREATE_UMEM_IN, layout.CREATE_UMEM_OUT, create_umem),
    Command(Op.DESTROY_UMEM, layout.DESTROY_UMEM_IN, NOTHING_OUT, destroy_umem),
    Command(Op.QUERY_LAG, NOTHING_IN, layout.QUERY_LAG_OUT, query_lag),
)
