# SPDX-License-Identifier: Apache-2.0
"""Ethernet queues, and what stands between them and steering: TIS, TIR, receive queue tables."""

from __future__ import annotations

from collections.abc import Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.nic.ethernet import EthernetReceiveQueue, EthernetSendQueue, QueueConfig, QueueState
from emu.nic.rss import KEY_BYTES, HashField, HashFunction, RssHash
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Door, Mlx5Device, Tir, record_memory, ring_memory
from emu.personality.mlx5.formats.ethernet import EthernetScatterFormat, EthernetSendFormat
from emu.personality.mlx5.formats.wqe import SLOT
from emu.personality.mlx5.identity import LOG_RQT_ENTRIES
from emu.personality.mlx5.layout import commands as layout
from emu.personality.mlx5.layout.structure import Structure

__all__ = ["COMMANDS"]

CYCLIC = 1
"""Type of a work queue whose descriptors follow each other in a ring."""
DIRECT, INDIRECT = 0, 1
"""How a TIR chooses its receive queue."""
MODIFY_HASH = 1 << 1
"""Bit of MODIFY_TIR's mask: take the context's hash."""
HASH_FIELDS, IPSEC_SPI = 0xF, 0x10
"""Addresses and ports among the selected fields; and the index of an IPsec packet's keys."""
RQ_STATE_ERROR = 3
LOG_SLOT = SLOT.bit_length() - 1
QUEUE_ENTRY = 4
RQT_ENTRIES = 1 << LOG_RQT_ENTRIES


def create_tis(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """What a send queue belongs to; nothing of it changes a frame."""
    context = request.within("ctx")
    device.objects.domains.get(context["transport_domain"], "transport_domain")
    table = device.objects.tises
    number = table.reserve()
    table.items[number] = context["transport_domain"]
    return {"tisn": number}


def modify_tis(device: Mlx5Device, request: Request) -> None:
    """Priorities have no effect."""
    device.objects.tises.get(request["tisn"], "tisn")


def destroy_tis(device: Mlx5Device, request: Request) -> None:
    """End a TIS."""
    device.objects.tises.get(request["tisn"], "tisn")
    del device.objects.tises.items[request["tisn"]]


def create_rqt(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A table of receive queues."""
    queues = _queue_list(device, request, layout.CREATE_RQT_IN, "rqt_context")
    number = device.rqts.reserve()
    device.rqts.items[number] = queues
    return {"rqtn": number}


def modify_rqt(device: Mlx5Device, request: Request) -> None:
    """Other receive queues."""
    device.rqts.get(request["rqtn"], "rqtn")
    device.rqts.items[request["rqtn"]] = _queue_list(device, request, layout.MODIFY_RQT_IN, "ctx")


def _queue_list(device: Mlx5Device, request: Request, structure: Structure, member: str) -> list[int]:
    """:raises NicError: BAD_FIELD, more than a table holds or than the command has; BAD_OBJECT, no queue."""
    at, count = structure.size, request[f"{member}.rqt_actual_size"]
    data = request.data[at : at + count * QUEUE_ENTRY]
    if not 0 < count <= RQT_ENTRIES or len(data) < count * QUEUE_ENTRY:
        raise NicError(
            ErrorKind.BAD_FIELD,
            f"{count} queues: a table has 1 to {RQT_ENTRIES}, and they must be in the command",
            "rqt_actual_size",
        )
    numbers = [
        int.from_bytes(data[start : start + QUEUE_ENTRY], "big") & 0xFFFFFF
        for start in range(0, len(data), QUEUE_ENTRY)
    ]
    for number in numbers:
        device.rqs.get(number, "rq_num")
    return numbers


def destroy_rqt(device: Mlx5Device, request: Request) -> None:
    """End a table. :raises NicError: BUSY, a TIR uses it."""
    number = request["rqtn"]
    device.rqts.get(number, "rqtn")
    if any(tir.rqt == number for tir in device.tirs):
        raise NicError(ErrorKind.BUSY, f"a TIR uses table {number}", "rqtn")
    del device.rqts.items[number]


def create_tir(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Where a rule sends frames."""
    number = device.tirs.reserve()
    device.tirs.items[number] = _tir(device, request.within("ctx"))
    return {"tirn": number}


def _tir(device: Mlx5Device, context: Mapping[str, int]) -> Tir:
    if context["disp_type"] == DIRECT:
        device.rqs.get(context["inline_rqn"], "inline_rqn")
        return Tir(context["inline_rqn"], None, _hash(context))
    if context["disp_type"] != INDIRECT:
        raise NicError(ErrorKind.BAD_FIELD, f"dispatch type {context['disp_type']} is unknown", "disp_type")
    device.rqts.get(context["indirect_table"], "indirect_table")
    return Tir(None, context["indirect_table"], _hash(context))


def _hash(context: Mapping[str, int]) -> RssHash:
    """:raises NicError: BAD_FIELD, a function or fields that are not offered."""
    function, fields = context["rx_hash_fn"], context["rx_hash_field_selector_outer"] & 0x3FFFFFFF
    if function not in list(HashFunction):
        raise NicError(ErrorKind.BAD_FIELD, f"hash function {function} is unknown", "rx_hash_fn")
    # Drivers make a TIR for each kind of IPsec packet and ask for its SPI; those are spread by address alone.
    fields &= ~IPSEC_SPI
    if fields & ~HASH_FIELDS:
        text = f"fields {fields:#x} of a hash: only addresses and ports are offered"
        raise NicError(ErrorKind.BAD_FIELD, text, "rx_hash_field_selector_outer")
    return RssHash(
        HashFunction(function),
        context["rx_hash_toeplitz_key"].to_bytes(KEY_BYTES, "big"),
        HashField(fields),
        bool(context["rx_hash_symmetric"]),
    )


def modify_tir(device: Mlx5Device, request: Request) -> None:
    """Another hash. Loopback settings change nothing here."""
    tir = device.tirs.get(request["tirn"], "tirn")
    if request["bitmask"] & MODIFY_HASH:
        tir.hash = _hash(request.within("ctx"))


def destroy_tir(device: Mlx5Device, request: Request) -> None:
    """End a TIR; rules that still name it drop."""
    device.tirs.get(request["tirn"], "tirn")
    del device.tirs.items[request["tirn"]]


def _config(device: Mlx5Device, request: Request, cqn: int) -> QueueConfig:
    """What a work queue is made of. :raises NicError: BAD_FIELD, BAD_OBJECT."""
    work = request.within("ctx.wq")
    if work["wq_type"] != CYCLIC:
        raise NicError(ErrorKind.UNSUPPORTED, f"work queue type {work['wq_type']} is not offered", "wq_type")
    log_size, log_stride = work["log_wq_sz"], work["log_wq_stride"]
    device.nic.check_log_size("log_wq_sz", log_size, 0)
    length = 1 << log_size + log_stride
    pages = request.pages(layout.CREATE_SQ_IN.size)
    size = 4096 << work["log_wq_pg_sz"]
    if len(pages) * size - work["page_offset"] * size // 64 < length:
        raise NicError(ErrorKind.BAD_FIELD, f"{len(pages)} pages hold no {length} bytes", "pas")
    return QueueConfig(
        pd=device.pd(work["pd"]),
        cq=device.nic.cqs.get(cqn, "cqn"),
        ring=ring_memory(work, pages, "log_wq_pg_sz", length),
        log_size=log_size,
        slot_size=1 << log_stride,
        record=record_memory(work["dbr_addr"]),
    )


def create_sq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """An Ethernet send queue in RESET."""
    config = _config(device, request, request["ctx.cqn"])
    if config.slot_size != SLOT:
        raise NicError(ErrorKind.BAD_FIELD, f"a send slot of {config.slot_size} bytes", "log_wq_stride")
    uar = request["ctx.wq.uar_page"]
    device.objects.uars.get(uar, "uar_page")
    number = device.queue_number()
    queue = EthernetSendQueue(
        device.nic.platform, device.ethernet, device.nic.keys, number, config, EthernetSendFormat()
    )
    device.sqs.items[number] = queue
    device.doors[number] = Door(uar, queue.doorbell)
    return {"sqn": number}


def modify_sq(device: Mlx5Device, request: Request) -> None:
    """Change a send queue's state."""
    queue = device.sqs.get(request["sqn"], "sqn")
    _enter(queue, request["sq_state"], request["ctx.state"], "sq_state")


def destroy_sq(device: Mlx5Device, request: Request) -> None:
    """End a send queue."""
    device.sqs.get(request["sqn"], "sqn").close()
    del device.sqs.items[request["sqn"]]
    device.doors.pop(request["sqn"], None)


def query_sq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A send queue as it is now."""
    queue = device.sqs.get(request["sqn"], "sqn")
    return {"sq_context.state": queue.state, "sq_context.cqn": queue.cq.number}


def create_rq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """An Ethernet receive queue in RESET."""
    if request["ctx.counter_set_id"]:
        name = "counter_set_id"
        device.objects.counter_sets.get(request["ctx.counter_set_id"], name).ethernet = True
    config = _config(device, request, request["ctx.cqn"])
    number = device.queue_number()
    device.rqs.items[number] = EthernetReceiveQueue(
        device.nic.platform, device.ethernet, device.nic.keys, number, config, EthernetScatterFormat()
    )
    return {"rqn": number}


def modify_rq(device: Mlx5Device, request: Request) -> None:
    """Change a receive queue's state."""
    queue = device.rqs.get(request["rqn"], "rqn")
    _enter(queue, request["rq_state"], request["ctx.state"], "rq_state")


def destroy_rq(device: Mlx5Device, request: Request) -> None:
    """End a receive queue."""
    device.rqs.get(request["rqn"], "rqn").close()
    del device.rqs.items[request["rqn"]]


def query_rq(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A receive queue as it is now."""
    queue = device.rqs.get(request["rqn"], "rqn")
    return {"rq_context.state": queue.state, "rq_context.cqn": queue.cq.number}


def _enter(queue: EthernetSendQueue | EthernetReceiveQueue, now: int, target: int, field: str) -> None:
    """:raises NicError: BAD_STATE, the driver is wrong about the state, or there is none of that number."""
    if now != queue.state:
        raise NicError(ErrorKind.BAD_STATE, f"queue {queue.number:#x} is {queue.state.name}", field)
    if target not in QueueState._value2member_map_:
        raise NicError(ErrorKind.BAD_STATE, f"there is no state {target}", "state")
    queue.set_state(QueueState(target))


COMMANDS = (
    Command(Op.CREATE_TIS, layout.CREATE_TIS_IN, layout.CREATE_TIS_OUT, create_tis),
    Command(Op.MODIFY_TIS, layout.MODIFY_TIS_IN, NOTHING_OUT, modify_tis),
    Command(Op.DESTROY_TIS, layout.DESTROY_TIS_IN, NOTHING_OUT, destroy_tis),
    Command(Op.CREATE_RQT, layout.CREATE_RQT_IN, layout.CREATE_RQT_OUT, create_rqt),
    Command(Op.MODIFY_RQT, layout.MODIFY_RQT_IN, NOTHING_OUT, modify_rqt),
    Command(Op.DESTROY_RQT, layout.DESTROY_RQT_IN, NOTHING_OUT, destroy_rqt),
    Command(Op.CREATE_TIR, layout.CREATE_TIR_IN, layout.CREATE_TIR_OUT, create_tir),
    Command(Op.MODIFY_TIR, layout.MODIFY_TIR_IN, NOTHING_OUT, modify_tir),
    Command(Op.DESTROY_TIR, layout.DESTROY_TIR_IN, NOTHING_OUT, destroy_tir),
    Command(Op.CREATE_SQ, layout.CREATE_SQ_IN, layout.CREATE_SQ_OUT, create_sq),
    Command(Op.MODIFY_SQ, layout.MODIFY_SQ_IN, NOTHING_OUT, modify_sq),
    Command(Op.DESTROY_SQ, layout.DESTROY_SQ_IN, NOTHING_OUT, destroy_sq),
    Command(Op.QUERY_SQ, layout.QUERY_SQ_IN, layout.QUERY_SQ_OUT, query_sq),
    Command(Op.CREATE_RQ, layout.CREATE_RQ_IN, layout.CREATE_RQ_OUT, create_rq),
    Command(Op.MODIFY_RQ, layout.MODIFY_RQ_IN, NOTHING_OUT, modify_rq),
    Command(Op.DESTROY_RQ, layout.DESTROY_RQ_IN, NOTHING_OUT, destroy_rq),
    Command(Op.QUERY_RQ, layout.QUERY_RQ_IN, layout.QUERY_RQ_OUT, query_rq),
)
