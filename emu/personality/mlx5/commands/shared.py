# SPDX-License-Identifier: Apache-2.0
"""Shared receive queues: receive memory pools, and those of XRC domains."""

from __future__ import annotations

from collections.abc import Mapping

from emu.nic.cq import CompletionQueue
from emu.nic.errors import ErrorKind, NicError
from emu.nic.ring import RingMemory
from emu.nic.srq import SharedFormat, SharedReceiveQueue
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_IN, NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device, record_memory, ring_memory
from emu.personality.mlx5.formats.rwqe import CyclicReceiveFormat, SharedReceiveFormat
from emu.personality.mlx5.layout import commands as layout

__all__ = ["COMMANDS"]

LINKED_LIST, CYCLIC = 0, 1
"""Types of a work queue: its slots name each other, or are used in order."""
READY = 1
LOG_UNIT = 4
XRC = "xrc_srq_context_entry"


def _add(
    device: Mlx5Device,
    pd: int,
    memory: RingMemory,
    log_size: int,
    log_stride: int,
    record: RingMemory,
    form: SharedFormat,
    cq: CompletionQueue | None = None,
) -> SharedReceiveQueue:
    number = device.srqs.reserve()
    queue = SharedReceiveQueue(
        device.nic.platform,
        number,
        device.pd(pd),
        memory,
        log_size,
        1 << log_stride,
        record,
        form,
        cq,
    )
    device.srqs.items[number] = queue
    return queue


def _check_room(pages: list[int], size: int, offset: int, length: int) -> None:
    if len(pages) * size - offset * size // 64 < length:
        raise NicError(ErrorKind.BAD_FIELD, f"{len(pages)} pages hold no {length} bytes", "pas")


def create_rmp(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A receive memory pool."""
    work = request.within("ctx.wq")
    if work["wq_type"] not in (LINKED_LIST, CYCLIC):
        raise NicError(ErrorKind.UNSUPPORTED, f"work queue type {work['wq_type']} is not offered", "wq_type")
    device.nic.check_log_size("log_wq_sz", work["log_wq_sz"], 0)
    length = 1 << work["log_wq_sz"] + work["log_wq_stride"]
    if work["wq_umem_valid"]:
        memory = device.umems.get(work["wq_umem_id"], "wq_umem_id").at(work["wq_umem_offset"], length)
    else:
        pages = request.pages(layout.CREATE_RMP_IN.size)
        _check_room(pages, 4096 << work["log_wq_pg_sz"], work["page_offset"], length)
        memory = ring_memory(work, pages, "log_wq_pg_sz", length)
    queue = _add(
        device,
        work["pd"],
        memory,
        work["log_wq_sz"],
        work["log_wq_stride"],
        device.record(work),
        CyclicReceiveFormat() if work["wq_type"] == CYCLIC else SharedReceiveFormat(),
    )
    queue.arm(work["lwm"])
    return {"rmpn": queue.number}


def create_xrc_srq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A shared receive queue of an XRC domain; what it receives completes on its own CQ."""
    context = request.within(XRC)
    domain = device.objects.xrcds.get(context["xrcd"], "xrcd")
    cq = device.nic.cqs.get(context["cqn"], "cqn")
    device.nic.check_log_size("log_xrc_srq_size", context["log_xrc_srq_size"], 0)
    log_stride = context["log_rq_stride"] + LOG_UNIT
    length = 1 << context["log_xrc_srq_size"] + log_stride
    pages = request.pages(layout.CREATE_XRC_SRQ_IN.size)
    _check_room(pages, 4096 << context["log_page_size"], context["page_offset"], length)
    queue = _add(
        device,
        context["pd"],
        ring_memory(context, pages, "log_page_size", length),
        context["log_xrc_srq_size"],
        log_stride,
        record_memory(context["db_record_addr_h"] << 32 | context["db_record_addr_l"] << 2),
        SharedReceiveFormat(),
        cq,
    )
    queue.arm(context["lwm"])
    domain[queue.number] = queue
    cq.queues.add(queue.number)
    return {"xrc_srqn": queue.number}


def alloc_xrcd(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A domain: the shared receive queues that targets of connections in it serve."""
    table = device.objects.xrcds
    number = table.reserve()
    table.items[number] = {}
    return {"xrcd": number}


def dealloc_xrcd(device: Mlx5Device, request: Request) -> None:
    """End a domain. :raises NicError: BUSY, it has shared receive queues or targets."""
    number = request["xrcd"]
    domain = device.objects.xrcds.get(number, "xrcd")
    targets = sum(qp.domain is domain for qp in device.nic.qps)
    if domain or targets:
        raise NicError(
            ErrorKind.BUSY,
            f"XRC domain {number} has {len(domain)} shared receive queues and {targets} targets",
            "xrcd",
        )
    del device.objects.xrcds.items[number]


def _destroy(device: Mlx5Device, number: int, field: str) -> None:
    queue = device.srqs.get(number, field)
    if queue.users:
        raise NicError(
            ErrorKind.BUSY, f"shared receive queue {number} serves {len(queue.users)} queue pairs", field
        )
    del device.srqs.items[number]


def destroy_rmp(device: Mlx5Device, request: Request) -> None:
    """End a pool. :raises NicError: BUSY, queue pairs receive from it."""
    _destroy(device, request["rmpn"], "rmpn")


def destroy_xrc_srq(device: Mlx5Device, request: Request) -> None:
    """End a shared receive queue of an XRC domain; targets refuse what still comes for it."""
    number = request["xrc_srqn"]
    queue = device.srqs.get(number, "xrc_srqn")
    _destroy(device, number, "xrc_srqn")
    for domain in device.objects.xrcds:
        domain.pop(number, None)
    if queue.cq is not None:
        queue.cq.queues.discard(number)


def modify_rmp(device: Mlx5Device, request: Request) -> None:
    """Set the limit below which an event is raised."""
    queue = device.srqs.get(request["rmpn"], "rmpn")
    if request["bitmask"] & 1:
        queue.arm(request["ctx.wq.lwm"])


def arm_rq(device: Mlx5Device, request: Request) -> None:
    """Set the limit below which an event is raised."""
    device.srqs.get(request["srq_number"], "srq_number").arm(request["lwm"])


def arm_xrc_srq(device: Mlx5Device, request: Request) -> None:
    """Set the limit below which an event is raised."""
    device.srqs.get(request["xrc_srqn"], "xrc_srqn").arm(request["lwm"])


def query_rmp(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A pool as it is now."""
    queue = device.srqs.get(request["rmpn"], "rmpn")
    return {
        "rmp_context.state": READY,
        "rmp_context.wq.lwm": queue.limit,
        "rmp_context.wq.log_wq_sz": queue.ring.log_size,
        "rmp_context.wq.pd": queue.pd.number,
    }


def query_xrc_srq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A shared receive queue of an XRC domain as it is now."""
    queue = device.srqs.get(request["xrc_srqn"], "xrc_srqn")
    return {f"{XRC}.lwm": queue.limit, f"{XRC}.log_xrc_srq_size": queue.ring.log_size}


COMMANDS = (
    Command(Op.CREATE_RMP, layout.CREATE_RMP_IN, layout.CREATE_RMP_OUT, create_rmp),
    Command(Op.MODIFY_RMP, layout.MODIFY_RMP_IN, NOTHING_OUT, modify_rmp),
    Command(Op.DESTROY_RMP, layout.DESTROY_RMP_IN, NOTHING_OUT, destroy_rmp),
    Command(Op.QUERY_RMP, layout.QUERY_RMP_IN, layout.QUERY_RMP_OUT, query_rmp),
    Command(Op.ARM_RQ, layout.ARM_RQ_IN, NOTHING_OUT, arm_rq),
    Command(Op.ALLOC_XRCD, NOTHING_IN, layout.ALLOC_XRCD_OUT, alloc_xrcd),
    Command(Op.DEALLOC_XRCD, layout.DEALLOC_XRCD_IN, NOTHING_OUT, dealloc_xrcd),
    Command(Op.CREATE_XRC_SRQ, layout.CREATE_XRC_SRQ_IN, layout.CREATE_XRC_SRQ_OUT, create_xrc_srq),
    Command(Op.DESTROY_XRC_SRQ, layout.DESTROY_XRC_SRQ_IN, NOTHING_OUT, destroy_xrc_srq),
    Command(Op.QUERY_XRC_SRQ, layout.QUERY_XRC_SRQ_IN, layout.QUERY_XRC_SRQ_OUT, query_xrc_srq),
    Command(Op.ARM_XRC_SRQ, layout.ARM_XRC_SRQ_IN, NOTHING_OUT, arm_xrc_srq),
)
