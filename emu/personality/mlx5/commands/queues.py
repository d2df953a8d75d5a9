# SPDX-License-Identifier: Apache-2.0
"""Event queues and completion queues."""

from __future__ import annotations

from collections.abc import Mapping

from emu.clock import US
from emu.nic.cq import CompletionQueue, CqMode, CqOverrun
from emu.nic.errors import ErrorKind, NicError
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CqeOpcode, EventCode
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device, ring_memory
from emu.personality.mlx5.formats.cqe import CQE_SIZE, finish
from emu.personality.mlx5.formats.eqe import EQE_SIZE, EVENTS
from emu.personality.mlx5.layout import commands as layout

__all__ = ["COMMANDS"]

EQ, CQ = "eq_context_entry", "cq_context"
INDEX_MASK = 0xFFFFFF
LARGEST_CQE_CODE = 1
RESIZE = 1
"""Operation modifier of MODIFY_CQ that asks for another ring."""
SELECT_PERIOD, SELECT_COUNT = 1 << 0, 1 << 1
RESIZE_FIELDS = 0b111
"""What a request for another ring names: its size, the place in its first page, the size of its pages."""


def create_eq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """An event queue, and what it subscribes to."""
    context = request.within(EQ)
    log_size = context["log_eq_size"]
    device.nic.check_log_size("log_eq_size", log_size, 1)
    pages = request.pages(layout.CREATE_EQ_IN.byte("pas"))
    _check_room(pages, context, "log_page_size", EQE_SIZE << log_size)
    memory = ring_memory(context, pages, "log_page_size", EQE_SIZE << log_size)
    eq = device.nic.create_eq(context["intr"], log_size, memory)
    mask = request["event_bitmask"]
    device.nic.platform.routes.subscribe(eq, [event for event, code in EVENTS.items() if mask >> code & 1])
    if mask >> EventCode.COMMAND & 1:
        device.command_eq = eq
    return {"eq_number": eq.number}


def destroy_eq(device: Mlx5Device, request: Request) -> None:
    """End an event queue; commands are polled again when it was theirs."""
    eq = device.nic.eqs.get(request["eq_number"], "eq_number")
    device.nic.destroy_eq(eq)
    if device.command_eq is eq:
        device.command_eq = None


def query_eq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """An event queue as it is now."""
    eq = device.nic.eqs.get(request["eq_number"], "eq_number")
    return {
        f"{EQ}.log_eq_size": eq.ring.log_size,
        f"{EQ}.intr": eq.vector,
        f"{EQ}.consumer_counter": eq.consumer & INDEX_MASK,
        f"{EQ}.producer_counter": eq.producer & INDEX_MASK,
    }


def create_cq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A completion queue; its consumer index is in a doorbell record."""
    context = request.within(CQ)
    nic = device.nic
    eq = nic.eqs.get(context["c_eqn_or_apu_element"], "c_eqn")
    device.objects.uars.get(context["uar_page"], "uar_page")
    if context["cqe_sz"] > LARGEST_CQE_CODE:
        raise NicError(ErrorKind.BAD_FIELD, f"entry size {context['cqe_sz']} is unknown", "cqe_sz")
    log_size = context["log_cq_size"]
    nic.check_log_size("log_cq_size", log_size, 0)
    slot = CQE_SIZE << context["cqe_sz"]
    mode = CqMode.COLLAPSED if context["cc"] else CqMode.RING
    length = slot if context["cc"] else slot << log_size
    if request["cq_umem_valid"]:
        umem = device.umems.get(request["cq_umem_id"], "cq_umem_id")
        memory = umem.at(request["cq_umem_offset"], length)
    else:
        pages = request.pages(layout.CREATE_CQ_IN.byte("pas"))
        _check_room(pages, context, "log_page_size", length)
        memory = ring_memory(context, pages, "log_page_size", length)
    cq = nic.create_cq(
        device.context,
        eq,
        mode=mode,
        overrun=CqOverrun.IGNORE if context["oi"] else CqOverrun.ERROR,
        log_size=log_size,
        memory=memory,
        slot_size=slot,
        record=device.record(context),
    )
    cq.page = context["uar_page"]
    cq.moderate(context["cq_max_count"], context["cq_period"] * US)
    return {"cqn": cq.number}


def destroy_cq(device: Mlx5Device, request: Request) -> None:
    """End a completion queue."""
    device.nic.destroy_cq(device.nic.cqs.get(request["cqn"], "cqn"))


def query_cq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A completion queue as it is now."""
    cq = device.nic.cqs.get(request["cqn"], "cqn")
    return {
        f"{CQ}.log_cq_size": cq.ring.log_size,
        f"{CQ}.cqe_sz": int(cq.ring.slot_size > CQE_SIZE),
        f"{CQ}.c_eqn_or_apu_element": cq.eq.number if cq.eq is not None else 0,
        f"{CQ}.consumer_counter": cq.consumer & INDEX_MASK,
        f"{CQ}.producer_counter": cq.producer & INDEX_MASK,
    }


def modify_cq(device: Mlx5Device, request: Request) -> None:
    """Another ring, or how events are moderated. :raises NicError: BAD_FIELD, BUSY, UNSUPPORTED."""
    cq = device.nic.cqs.get(request["cqn"], "cqn")
    select = request["modify_field_select_resize_field_select"]
    if request.op_mod == RESIZE:
        _resize(device, cq, request, select)
        return
    count, period = cq.moderation_count, cq.moderation_period
    if select & SELECT_PERIOD:
        period = request[f"{CQ}.cq_period"] * US
    if select & SELECT_COUNT:
        count = request[f"{CQ}.cq_max_count"]
    cq.moderate(count, period)


def _resize(device: Mlx5Device, cq: CompletionQueue, request: Request, select: int) -> None:
    """:raises NicError: as :meth:`CompletionQueue.resize`; BAD_FIELD, the list of pages is too short."""
    if select & RESIZE_FIELDS != RESIZE_FIELDS:
        raise NicError(
            ErrorKind.BAD_FIELD, f"fields {select:#x} say nothing of size and pages", "resize_field_select"
        )
    context = request.within(CQ)
    if context["cqe_sz"] > LARGEST_CQE_CODE:
        raise NicError(ErrorKind.BAD_FIELD, f"entry size {context['cqe_sz']} is unknown", "cqe_sz")
    log_size = context["log_cq_size"]
    device.nic.check_log_size("log_cq_size", log_size, 0)
    slot = CQE_SIZE << context["cqe_sz"]
    pages = request.pages(layout.MODIFY_CQ_IN.byte("pas"))
    _check_room(pages, context, "log_page_size", slot << log_size)
    memory = ring_memory(context, pages, "log_page_size", slot << log_size)
    cq.resize(memory, log_size, slot, lambda: finish(b"", CqeOpcode.RESIZED, cq))


def _check_room(pages: list[int], context: Mapping[str, int], log_page: str, length: int) -> None:
    size = 4096 << context[log_page]
    room = len(pages) * size - context["page_offset"] * size // 64
    if room < length:
        raise NicError(ErrorKind.BAD_FIELD, f"{len(pages)} pages hold {room} bytes, not {length}", "pas")


COMMANDS = (
    Command(Op.CREATE_EQ, layout.CREATE_EQ_IN, layout.CREATE_EQ_OUT, create_eq),
    Command(Op.DESTROY_EQ, layout.DESTROY_EQ_IN, NOTHING_OUT, destroy_eq),
    Command(Op.QUERY_EQ, layout.QUERY_EQ_IN, layout.QUERY_EQ_OUT, query_eq),
    Command(Op.CREATE_CQ, layout.CREATE_CQ_IN, layout.CREATE_CQ_OUT, create_cq),
    Command(Op.DESTROY_CQ, layout.DESTROY_CQ_IN, NOTHING_OUT, destroy_cq),
    Command(Op.QUERY_CQ, layout.QUERY_CQ_IN, layout.QUERY_CQ_OUT, query_cq),
    Command(Op.MODIFY_CQ, layout.MODIFY_CQ_IN, NOTHING_OUT, modify_cq),
)
