# SPDX-License-Identifier: Apache-2.0
"""Queue pairs: creation from a context, the steps between states, and what a query gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emu.nic.errors import ErrorKind, NicError
from emu.nic.gid import GID_BYTES
from emu.nic.pages import PageList
from emu.nic.qp import QpConfig, QueuePair
from emu.nic.record import DbrPolicy
from emu.nic.ring import RingMemory
from emu.nic.srq import SharedReceiveQueue
from emu.nic.work import Access, ModifyMask, QpAttributes, QpState, Transport
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import OptParam, QpService, QpStateCode, RqType
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Handler, Request
from emu.personality.mlx5.device import Door, Mlx5Device, ring_memory
from emu.personality.mlx5.formats.wqe import SLOT
from emu.personality.mlx5.layout import commands as layout
from emu.personality.mlx5.layout.structure import Structure

__all__ = ["COMMANDS"]

QPC = "qpc"
RECEIVE_UNIT = 16
"""Receive slots are this << ``log_rq_stride`` bytes."""
TRANSPORTS = {
    QpService.RC: Transport.ROCE_RC,
    QpService.UC: Transport.ROCE_UC,
    QpService.UD: Transport.ROCE_UD,
    QpService.XRC: Transport.ROCE_XRC,
    QpService.QP1: Transport.ROCE_UD,
    QpService.REG_UMR: Transport.LOCAL,
}
MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
STATES = {
    QpState.RESET: QpStateCode.RESET,
    QpState.INIT: QpStateCode.INIT,
    QpState.RTR: QpStateCode.RTR,
    QpState.RTS: QpStateCode.RTS,
    QpState.SQD: QpStateCode.SQ_DRAINED,
    QpState.SQE: QpStateCode.SQ_ERROR,
    QpState.ERR: QpStateCode.ERROR,
}
RECORD_KEPT = 0
"""``send_dbr_mode``; otherwise the doorbell alone counts."""
PATH = "primary_address_path."
GENERAL_SERVICE = 1
"""Number under which peers reach the queue pair of the general services interface."""
_NO_RING_LOG = 1
_NO_RING = RingMemory(PageList.contiguous(0, SLOT << _NO_RING_LOG), 0)
"""Stands for the send ring of a queue pair that has none: nothing rings it, so nothing is read from it."""


def create_qp(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Make a queue pair in RESET."""
    context = request.within(QPC)
    nic = device.nic
    try:
        transport = TRANSPORTS[QpService(context["st"])]
    except (ValueError, KeyError):
        raise NicError(ErrorKind.UNSUPPORTED, f"service {context['st']:#x} is not offered", "st") from None
    if request.uid and (context["fre"] or context["rlky"] or context["st"] == QpService.REG_UMR):
        raise NicError(
            ErrorKind.BAD_FIELD, "a process's queue pair gets no fast registration and no reserved key", "fre"
        )
    pd = device.pd(context["pd"])
    if not context["no_sq"]:
        device.objects.uars.get(context["uar_page"], "uar_page")
    send_cq, receive_cq = _cqs(device, context)
    receive_bytes, receive = 0, None
    slot = RECEIVE_UNIT << context["log_rq_stride"]
    if context["rq_type"] == RqType.OWN:
        receive_bytes = slot << context["log_rq_size"]
    elif context["rq_type"] not in (RqType.SHARED, RqType.NONE):
        raise NicError(ErrorKind.UNSUPPORTED, f"receive type {context['rq_type']} is not offered", "rq_type")
    send_bytes = 0 if context["no_sq"] else SLOT << context["log_sq_size"]
    whole = _buffer(device, request, context, receive_bytes + send_bytes)
    # One buffer: receives first, sends behind.
    if receive_bytes:
        receive = RingMemory(whole.pages, whole.offset)
    qp = nic.create_qp(
        QpConfig(
            pd=pd,
            send_cq=nic.cqs.get(send_cq, "cqn_snd"),
            recv_cq=nic.cqs.get(receive_cq, "cqn_rcv"),
            transport=transport,
            send=RingMemory(whole.pages, whole.offset + receive_bytes) if send_bytes else _NO_RING,
            send_log_size=context["log_sq_size"] if send_bytes else _NO_RING_LOG,
            receive=receive,
            receive_log_size=context["log_rq_size"],
            receive_slot_size=slot,
            receive_doorbells=False,
            srq=_srq(device, context),
            domain=_domain(device, context),
            record=_record(device, context),
            record_policy=DbrPolicy.LATEST,
            start_index=context["sw_sq_wqebb_counter"],
        )
    )
    if send_bytes:
        device.doors[qp.number] = Door(context["uar_page"], qp.wake, qp)
    qp.page = context["uar_page"]
    if context["st"] == QpService.QP1:
        nic.well_known[GENERAL_SERVICE] = qp
    device.qp_contexts[qp.number] = context
    if context["fre"] or context["st"] == QpService.REG_UMR:
        device.mkeys.registrars.add(qp.number)
    return {"qpn": qp.number}


def _cqs(device: Mlx5Device, context: Mapping[str, int]) -> tuple[int, int]:
    """CQ numbers of sends and receives; a queue pair that has only one kind may name only one."""
    send, receive = context["cqn_snd"], context["cqn_rcv"]
    if context["no_sq"] and send not in device.nic.cqs.items:
        send = receive
    if context["rq_type"] == RqType.NONE and receive not in device.nic.cqs.items:
        receive = send
    return send, receive


def _buffer(device: Mlx5Device, request: Request, context: Mapping[str, int], length: int) -> RingMemory:
    """The memory of both rings. :raises NicError: BAD_OBJECT, BAD_FIELD."""
    if request["wq_umem_valid"]:
        umem = device.umems.get(request["wq_umem_id"], "wq_umem_id")
        return umem.at(request["wq_umem_offset"], length)
    pages = request.pages(layout.CREATE_QP_IN.byte("pas"))
    size = 4096 << context["log_page_size"]
    room = len(pages) * size - context["page_offset"] * size // 64
    if room < length:
        raise NicError(ErrorKind.BAD_FIELD, f"{len(pages)} pages hold {room} bytes of {length}", "pas")
    return ring_memory(context, pages, "log_page_size", length)


def _srq(device: Mlx5Device, context: Mapping[str, int]) -> SharedReceiveQueue | None:
    """The shared receive queue a queue pair names. :raises NicError: BAD_OBJECT; BAD_FIELD, another
    domain."""
    if context["rq_type"] != RqType.SHARED or context["st"] == QpService.XRC:
        return None
    queue = device.srqs.get(context["srqn_rmpn_xrqn"], "srqn")
    if queue.pd.number != context["pd"]:
        raise NicError(
            ErrorKind.BAD_FIELD, f"shared receive queue {queue.number} is of PD {queue.pd.number}", "srqn"
        )
    return queue


def _domain(device: Mlx5Device, context: Mapping[str, int]) -> Mapping[int, SharedReceiveQueue] | None:
    """The shared receive queues that an XRC queue pair serves: a target, which does not send, those of its
    domain. :raises NicError: BAD_OBJECT.
    """
    if context["st"] != QpService.XRC:
        return None
    domain = device.objects.xrcds.get(context["xrcd"], "xrcd")
    return domain if context["no_sq"] else {}


def _record(device: Mlx5Device, context: Mapping[str, int]) -> RingMemory | None:
    """The doorbell record, None of a queue pair that only sends and keeps none.

    :raises NicError: BAD_OBJECT, BAD_FIELD.
    """
    if context["send_dbr_mode"] != RECORD_KEPT and context["rq_type"] != RqType.OWN:
        return None
    return device.record(context)


def destroy_qp(device: Mlx5Device, request: Request) -> None:
    """End a queue pair."""
    qp = _find(device, request)
    device.doors.pop(qp.number, None)
    device.qp_contexts.pop(qp.number, None)
    device.mkeys.registrars.discard(qp.number)
    device.nic.destroy_qp(qp)


def _find(device: Mlx5Device, request: Request) -> QueuePair:
    return device.nic.qps.get(request["qpn"], "qpn")


def _step(source: QpState, target: QpState, required: Mapping[Transport, ModifyMask]) -> Handler:
    """The handler of one step between two states; ``required`` are the attributes it always takes."""

    def run(device: Mlx5Device, request: Request) -> None:
        qp = _find(device, request)
        if qp.state is not source:
            raise NicError(
                ErrorKind.BAD_STATE, f"QP {qp.number:#x} is in {qp.state.name}, not in {source.name}", "qpn"
            )
        given = request.within(QPC)
        context = device.qp_contexts[qp.number]
        optional = OptParam(request["opt_param_mask"] & _KNOWN_OPTIONS)
        mask = ModifyMask.STATE | required.get(qp.transport, required[Transport.ROCE_RC])
        mask |= _optional(optional, qp)
        attributes = _attributes(device, given, context, optional, source)
        if qp.transport is Transport.LOCAL:
            # Nobody is at the other end: the port stands for it.
            attributes = replace(_LOCAL, source_mac=device.port.mac, dest_mac=device.port.mac)
        attributes.state = target
        qp.modify(mask, attributes)
        context.update({name: value for name, value in given.items() if value and name not in _FIXED})

    return run


_KNOWN_OPTIONS = sum(OptParam)
_LOCAL = QpAttributes(dest_gid=bytes(15) + b"\x01")
_FIXED = frozenset(
    (
        "st",
        "pd",
        "log_rq_size",
        "log_rq_stride",
        "no_sq",
        "log_sq_size",
        "uar_page",
        "log_page_size",
        "page_offset",
        "dbr_addr",
        "rq_type",
    )
)
"""Context fields that no step changes."""
_OPTIONAL = {
    OptParam.PKEY_INDEX: ModifyMask.PKEY_INDEX,
    OptParam.Q_KEY: ModifyMask.QKEY,
    OptParam.RNR_TIMEOUT: ModifyMask.MIN_RNR_TIMER,
}
_RIGHTS = OptParam.REMOTE_READ | OptParam.REMOTE_WRITE | OptParam.REMOTE_ATOMIC


def _optional(options: OptParam, qp: QueuePair) -> ModifyMask:
    """Attributes that the driver names besides those of the step."""
    mask = ModifyMask(0)
    datagram = qp.transport is Transport.ROCE_UD
    for option, attribute in _OPTIONAL.items():
        if options & option and (attribute is not ModifyMask.QKEY or datagram):
            mask |= attribute
    if options & _RIGHTS and not datagram:
        mask |= ModifyMask.ACCESS_FLAGS
    return mask


def _attributes(
    device: Mlx5Device,
    given: Mapping[str, int],
    context: Mapping[str, int],
    options: OptParam,
    source: QpState,
) -> QpAttributes:
    """The attributes in a queue pair context."""
    port = device.port
    address = device.addresses.get(given[PATH + "src_addr_index"])
    rgid = given[PATH + "rgid_rip"].to_bytes(16, "big")
    rmac = given[PATH + "rmac_47_32"] << 32 | given[PATH + "rmac_31_0"]
    access = Access.NONE
    for field, right, option in (
        ("rre", Access.REMOTE_READ, OptParam.REMOTE_READ),
        ("rwe", Access.REMOTE_WRITE, OptParam.REMOTE_WRITE),
        ("rae", Access.REMOTE_ATOMIC, OptParam.REMOTE_ATOMIC),
    ):
        # Rights come with the first step, later only where the driver names them.
        chosen = given if source is QpState.RESET or options & option else context
        if chosen[field]:
            access |= right
    return QpAttributes(
        access=access,
        path_mtu=MTUS.get(given["mtu"], 0),
        dest_qpn=given["remote_qpn"],
        rq_psn=given["next_rcv_psn"],
        sq_psn=given["next_send_psn"],
        max_rd_atomic=1 << given["log_sra_max"],
        max_dest_rd_atomic=1 << given["log_rra_max"],
        min_rnr_timer=given["min_rnr_nak"],
        timeout=given[PATH + "ack_timeout"],
        retry_cnt=given["retry_count"],
        rnr_retry=given["rnr_retry"],
        source_mac=address.mac if address is not None else port.mac,
        dest_mac=rmac.to_bytes(6, "big"),
        source_gid=address.gid if address is not None else bytes(16),
        dest_gid=rgid,
        traffic_class=given[PATH + "tclass"],
        hop_limit=given[PATH + "hop_limit"],
        udp_source_port=given[PATH + "udp_sport"],
        qkey=given["q_key"],
        source_qpn=GENERAL_SERVICE if context["st"] == QpService.QP1 else 0,
    )


def to_error(device: Mlx5Device, request: Request) -> None:
    """Any state to ERR."""
    _find(device, request).modify(ModifyMask.STATE, QpAttributes(state=QpState.ERR))


def to_reset(device: Mlx5Device, request: Request) -> None:
    """Any state to RESET."""
    _find(device, request).modify(ModifyMask.STATE, QpAttributes(state=QpState.RESET))


def query_qp(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """The context as the driver set it, with state and sequence numbers as they are now."""
    qp = _find(device, request)
    context = {
        **device.qp_contexts[qp.number],
        "state": STATES[qp.state],
        "next_send_psn": qp.engine.next_psn,
        "next_rcv_psn": qp.engine.expected_psn,
    }
    return {f"{QPC}.{name}": value for name, value in context.items()}


def attach_to_group(device: Mlx5Device, request: Request) -> None:
    """Have a datagram queue pair receive what is sent to a group."""
    gid = request["multicast_gid"].to_bytes(GID_BYTES, "big")
    device.nic.multicast.attach(_find(device, request), gid)


def detach_from_group(device: Mlx5Device, request: Request) -> None:
    """And no more."""
    gid = request["multicast_gid"].to_bytes(GID_BYTES, "big")
    device.nic.multicast.detach(_find(device, request), gid)


M = ModifyMask
_INIT = {
    Transport.ROCE_RC: M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS,
    Transport.ROCE_UD: M.PKEY_INDEX | M.PORT | M.QKEY,
}
_RTR = {
    Transport.ROCE_RC: M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER,
    Transport.ROCE_UC: M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN,
    Transport.ROCE_UD: M(0),
}
_RTS = {
    Transport.ROCE_RC: M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.SQ_PSN | M.MAX_RD_ATOMIC,
    Transport.ROCE_UC: M.SQ_PSN,
    Transport.ROCE_UD: M.SQ_PSN,
}
_NONE = {Transport.ROCE_RC: M(0)}


def _move(
    opcode: Op,
    takes: Structure,
    source: QpState,
    target: QpState,
    required: Mapping[Transport, ModifyMask],
) -> Command:
    return Command(opcode, takes, NOTHING_OUT, _step(source, target, required))


COMMANDS = (
    Command(Op.CREATE_QP, layout.CREATE_QP_IN, layout.CREATE_QP_OUT, create_qp),
    Command(Op.DESTROY_QP, layout.DESTROY_QP_IN, NOTHING_OUT, destroy_qp),
    _move(Op.RST2INIT_QP, layout.RST2INIT_QP_IN, QpState.RESET, QpState.INIT, _INIT),
    _move(Op.INIT2INIT_QP, layout.INIT2INIT_QP_IN, QpState.INIT, QpState.INIT, _NONE),
    _move(Op.INIT2RTR_QP, layout.INIT2RTR_QP_IN, QpState.INIT, QpState.RTR, _RTR),
    _move(Op.RTR2RTS_QP, layout.RTR2RTS_QP_IN, QpState.RTR, QpState.RTS, _RTS),
    _move(Op.RTS2RTS_QP, layout.RTS2RTS_QP_IN, QpState.RTS, QpState.RTS, _NONE),
    _move(Op.SQERR2RTS_QP, layout.SQERR2RTS_QP_IN, QpState.SQE, QpState.RTS, _NONE),
    Command(Op.QP_2ERR, layout.QP_2ERR_IN, NOTHING_OUT, to_error),
    Command(Op.QP_2RST, layout.QP_2RST_IN, NOTHING_OUT, to_reset),
    Command(Op.ATTACH_TO_MCG, layout.ATTACH_TO_MCG_IN, NOTHING_OUT, attach_to_group),
    Command(Op.DETACH_FROM_MCG, layout.DETACH_FROM_MCG_IN, NOTHING_OUT, detach_from_group),
    Command(Op.QUERY_QP, layout.QUERY_QP_IN, layout.QUERY_QP_OUT, query_qp),
)
