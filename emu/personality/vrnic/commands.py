# SPDX-License-Identifier: Apache-2.0
"""What each admin command does, in terms of the core's operations.

A refusal is the core's :class:`NicError`; the names of its fields are the contract's, so the queue finds the
byte offset to report. Parameters the core does not know by number (enums, flags, page lists) are checked
here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from emu.checks.hintring import HintRing
from emu.nic.cq import CqMode, CqOverrun
from emu.nic.device import Nic
from emu.nic.errors import ErrorKind, NicError
from emu.nic.mr import MemoryKind
from emu.nic.pages import PageList
from emu.nic.qp import QpConfig
from emu.nic.record import DbrPolicy
from emu.nic.ring import RingMemory
from emu.nic.work import Access, AddressHandle, ModifyMask, QpAttributes, QpState, Transport
from emu.pcie.bus import BusError
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.codec import Fields
from emu.personality.vrnic.contract.codes import AdminOpcode, MrFlags, QpFlags
from emu.personality.vrnic.contract.commands import NO_EQ, NO_RECEIVE_RING
from emu.personality.vrnic.contract.descriptors import EQE_SIZE, RECV_WQE_SIZE, WQE_SIZE, DoorbellRecord
from emu.personality.vrnic.contract.hints import HINT_HEADER_SIZE, HINT_SIZE, MAX_LOG_HINTS, NO_HINTS
from emu.personality.vrnic.hints import HintRingFormat

__all__ = ["Commands", "Values"]

Values = dict[str, int | bytes]
"""Fields of a reply by name."""

Number = TypeVar("Number", bound=IntEnum)

RING_ALIGN = 64
RECV_ALIGN = 32
RECORD_ALIGN = 8
MIN_PAGE_SHIFT, MAX_PAGE_SHIFT = 12, 21
LIST_BLOCK = 4096
ENTRY = 8
# Plain integers: the complement of an IntFlag holds known bits only.
ALL_ACCESS = sum(Access)
ALL_MR_FLAGS = sum(MrFlags)
ALL_QP_FLAGS = sum(QpFlags)
DEFAULT_HOP_LIMIT = 64


class Commands:
    """Carries out admin commands on one NIC."""

    def __init__(self, nic: Nic, blocks: DoorbellBlocks) -> None:
        self._nic = nic
        self._blocks = blocks
        self._handlers: dict[AdminOpcode, Callable[[Fields], Values]] = {
            AdminOpcode.NOP: self._nop,
            AdminOpcode.ALLOC_CTX: self._alloc_ctx,
            AdminOpcode.FREE_CTX: self._free_ctx,
            AdminOpcode.ALLOC_PD: self._alloc_pd,
            AdminOpcode.FREE_PD: self._free_pd,
            AdminOpcode.REG_MR: self._reg_mr,
            AdminOpcode.DEREG_MR: self._dereg_mr,
            AdminOpcode.CREATE_EQ: self._create_eq,
            AdminOpcode.DESTROY_EQ: self._destroy_eq,
            AdminOpcode.CREATE_CQ: self._create_cq,
            AdminOpcode.DESTROY_CQ: self._destroy_cq,
            AdminOpcode.CREATE_QP: self._create_qp,
            AdminOpcode.MODIFY_QP: self._modify_qp,
            AdminOpcode.QUERY_QP: self._query_qp,
            AdminOpcode.DESTROY_QP: self._destroy_qp,
            AdminOpcode.QUERY_GID: self._query_gid,
            AdminOpcode.SET_GID: self._set_gid,
            AdminOpcode.QUERY_OBJECTS: self._query_objects,
            AdminOpcode.SET_HINTS: self._set_hints,
            AdminOpcode.CREATE_AH: self._create_ah,
            AdminOpcode.DESTROY_AH: self._destroy_ah,
            AdminOpcode.ATTACH_MULTICAST: self._attach_multicast,
            AdminOpcode.DETACH_MULTICAST: self._detach_multicast,
        }

    def run(self, opcode: AdminOpcode, command: Fields) -> Values:
        """The reply's fields. :raises NicError: refused; nothing changed."""
        return self._handlers[opcode](command)

    def _nop(self, command: Fields) -> Values:
        return {}

    def _alloc_ctx(self, command: Fields) -> Values:
        return {"ctx": self._nic.alloc_context().number}

    def _free_ctx(self, command: Fields) -> Values:
        if command["force"] > 1:
            raise NicError(ErrorKind.BAD_FIELD, f"force {command['force']} is neither 0 nor 1", "force")
        context = self._nic.contexts.get(command["ctx"], "ctx")
        self._nic.free_context(context, force=bool(command["force"]))
        return {}

    def _alloc_pd(self, command: Fields) -> Values:
        return {"object": self._nic.alloc_pd(self._nic.contexts.get(command["ctx"], "ctx")).number}

    def _free_pd(self, command: Fields) -> Values:
        self._nic.free_pd(self._nic.pds.get(command["object"], "object"))
        return {}

    def _reg_mr(self, command: Fields) -> Values:
        pd = self._nic.pds.get(command["pd"], "pd")
        flags = command["flags"]
        if flags & ~ALL_MR_FLAGS or (flags & MrFlags.INDIRECT and flags & MrFlags.CONTIGUOUS):
            raise NicError(ErrorKind.BAD_FIELD, f"flags {flags:#x} are unknown or contradict", "flags")
        if command["access"] & ~ALL_ACCESS:
            raise NicError(ErrorKind.BAD_FIELD, f"access {command['access']:#x} has unknown bits", "access")
        region = self._nic.register_mr(
            pd,
            access=Access(command["access"]),
            address=command["address"],
            pages=self._pages(command),
            kind=_number(MemoryKind, command, "kind"),
            atomic_capable=bool(flags & MrFlags.ATOMIC_CAPABLE),
            invalidatable=bool(flags & MrFlags.INVALIDATABLE),
            relaxed=bool(flags & MrFlags.RELAXED_ORDERING),
        )
        return {"object": region.key}

    def _dereg_mr(self, command: Fields) -> Values:
        self._nic.deregister_mr(self._nic.keys.get(command["object"], "object"))
        return {}

    def _create_eq(self, command: Fields) -> Values:
        base, log_size = command["base"], command["log_size"]
        if base == 0 or base % RING_ALIGN:
            raise NicError(ErrorKind.BAD_FIELD, f"base {base:#x} is not {RING_ALIGN}-byte aligned", "base")
        self._nic.check_log_size("log_size", log_size, 1)
        pages = PageList.contiguous(base, EQE_SIZE << log_size)
        for offset in (0, pages.length - EQE_SIZE):
            self._reach(base + offset, EQE_SIZE, "base")
        return {"object": self._nic.create_eq(command["vector"], log_size, RingMemory(pages, 0)).number}

    def _destroy_eq(self, command: Fields) -> Values:
        self._nic.destroy_eq(self._nic.eqs.get(command["object"], "object"))
        return {}

    def _create_cq(self, command: Fields) -> Values:
        nic = self._nic
        context = nic.contexts.get(command["ctx"], "ctx")
        eq = None if command["eq"] == NO_EQ else nic.eqs.get(command["eq"], "eq")
        mode = _number(CqMode, command, "mode")
        overrun = _number(CqOverrun, command, "overrun")
        log_size = command["log_size"]
        nic.check_log_size("log_size", log_size, 0)
        memory = nic.ring_memory(
            nic.keys.get(command["ring_key"], "ring_key"),
            command["ring_address"],
            nic.cq_bytes(mode, log_size),
            RING_ALIGN,
            "ring_address",
        )
        cq = nic.create_cq(context, eq, mode=mode, overrun=overrun, log_size=log_size, memory=memory)
        return {"object": cq.number}

    def _destroy_cq(self, command: Fields) -> Values:
        self._nic.destroy_cq(self._nic.cqs.get(command["object"], "object"))
        return {}

    def _create_qp(self, command: Fields) -> Values:
        nic = self._nic
        context = nic.contexts.get(command["ctx"], "ctx")
        pd = nic.pds.get(command["pd"], "pd")
        if pd.context is not context:
            raise NicError(ErrorKind.NOT_OWNER, f"PD {pd.number} belongs to another context", "pd")
        send_cq = nic.cqs.get(command["send_cq"], "send_cq")
        recv_cq = nic.cqs.get(command["recv_cq"], "recv_cq")
        transport = _number(Transport, command, "transport")
        policy = _number(DbrPolicy, command, "dbr_policy")
        flags = command["flags"]
        if flags & ~ALL_QP_FLAGS:
            raise NicError(ErrorKind.BAD_FIELD, f"flags {flags:#x} are unknown", "flags")
        send_log, receive_log = command["sq_log_size"], command["rq_log_size"]
        has_receive = receive_log != NO_RECEIVE_RING
        nic.check_log_size("sq_log_size", send_log, 1)
        if has_receive:
            nic.check_log_size("rq_log_size", receive_log, 0)
        if self._blocks.mapped and not self._blocks.free(context.number):
            raise NicError(
                ErrorKind.NO_RESOURCE, f"page {context.number} has no doorbell block left; open another one"
            )
        region = nic.keys.get(command["ring_key"], "ring_key")

        def ring(field: str, size: int, align: int) -> RingMemory:
            return nic.ring_memory(region, command[field], size, align, field)

        qp = nic.create_qp(
            QpConfig(
                pd=pd,
                send_cq=send_cq,
                recv_cq=recv_cq,
                transport=transport,
                send=ring("sq_address", WQE_SIZE << send_log, RING_ALIGN),
                send_log_size=send_log,
                receive=ring("rq_address", RECV_WQE_SIZE << receive_log, RECV_ALIGN) if has_receive else None,
                receive_log_size=receive_log if has_receive else 0,
                record=(
                    None
                    if policy is DbrPolicy.NONE
                    else ring("dbr_address", int(DoorbellRecord.sizeof()), RECORD_ALIGN)
                ),
                record_policy=policy,
                start_index=command["start_index"],
                phase=bool(flags & QpFlags.PHASE),
                signal_all=bool(flags & QpFlags.SIGNAL_ALL),
            )
        )
        return {"object": qp.number, "doorbell": self._blocks.take(qp)}

    def _modify_qp(self, command: Fields) -> Values:
        nic = self._nic
        qp = nic.qps.get(command["qpn"], "qpn")
        if command["mask"] & ~_ALL_MASK:
            raise NicError(ErrorKind.BAD_FIELD, f"mask {command['mask']:#x} has unknown bits", "mask")
        mask = ModifyMask(command["mask"])
        attributes = QpAttributes()
        state = command["state"]
        if mask & ModifyMask.CUR_STATE:
            attributes.current = _enum(QpState, state >> 4, "state")
            state &= 0xF
        if mask & ModifyMask.STATE:
            attributes.state = _enum(QpState, state, "state")
            if qp.state is QpState.RESET and attributes.state is QpState.INIT:
                # One port and one partition: the contract has no fields for them, verbs drivers name them
                # anyway.
                mask |= ModifyMask.PORT | ModifyMask.PKEY_INDEX
        if mask & ModifyMask.PATH_MTU:
            if not 1 <= command["path_mtu"] <= 5:
                raise NicError(
                    ErrorKind.BAD_FIELD, f"path_mtu {command['path_mtu']} is not in 1..5", "path_mtu"
                )
            attributes.path_mtu = 128 << command["path_mtu"]
        if mask & ModifyMask.AV:
            attributes.source_gid = nic.gids.source(command["gid_index"])
            attributes.source_mac = nic.gids.mac
            attributes.dest_gid = command.blobs["dest_gid"]
            attributes.dest_mac = command.blobs["dest_mac"]
            attributes.traffic_class = command["traffic_class"]
            attributes.hop_limit = command["hop_limit"] or DEFAULT_HOP_LIMIT
            attributes.udp_source_port = command["udp_source_port"]
        attributes.access = Access(command["access"])
        for name in _PLAIN:
            setattr(attributes, name, command[name])
        # Datagrams have no one peer, so the field is free for what they have instead.
        attributes.qkey = command["dest_qpn"]
        attributes.sqd_notify = bool(mask & ModifyMask.EN_SQD_ASYNC_NOTIFY)
        qp.modify(mask, attributes)
        return {}

    def _query_qp(self, command: Fields) -> Values:
        shot = self._nic.qps.get(command["object"], "object").snapshot()
        error = shot.first_error
        return {
            "state": shot.state,
            "transport": shot.transport,
            "sq_draining": shot.draining,
            "doorbell_index": shot.doorbell,
            "fetched_index": shot.fetched,
            "completed_index": shot.completed,
            "receive_index": shot.receive_index,
            "receive_doorbell": shot.receive_doorbell,
            "first_error_index": error.index if error else 0,
            "first_error_status": error.status if error else 0,
            "first_error_cause": error.cause if error else 0,
            "next_psn": shot.next_psn,
            "expected_psn": shot.expected_psn,
        }

    def _destroy_qp(self, command: Fields) -> Values:
        self._nic.destroy_qp(self._nic.qps.get(command["object"], "object"))
        return {}

    def _query_gid(self, command: Fields) -> Values:
        return {"gid": self._nic.gids.get(command["gid_index"]), "mac": self._nic.gids.mac}

    def _set_gid(self, command: Fields) -> Values:
        self._nic.gids.set(command["gid_index"], command.blobs["gid"])
        return {}

    def _create_ah(self, command: Fields) -> Values:
        nic = self._nic
        pd = nic.pds.get(command["pd"], "pd")
        address = AddressHandle(
            source_mac=nic.gids.mac,
            dest_mac=command.blobs["dest_mac"],
            source_gid=nic.gids.source(command["gid_index"]),
            dest_gid=command.blobs["dest_gid"],
            traffic_class=command["traffic_class"],
            hop_limit=command["hop_limit"] or DEFAULT_HOP_LIMIT,
            udp_source_port=command["udp_source_port"],
        )
        return {"object": nic.handles.create(pd, address).number}

    def _destroy_ah(self, command: Fields) -> Values:
        self._nic.handles.destroy(self._nic.handles.get(command["object"], "object"))
        return {}

    def _attach_multicast(self, command: Fields) -> Values:
        self._nic.multicast.attach(self._nic.qps.get(command["qpn"], "qpn"), command.blobs["gid"])
        return {}

    def _detach_multicast(self, command: Fields) -> Values:
        self._nic.multicast.detach(self._nic.qps.get(command["qpn"], "qpn"), command.blobs["gid"])
        return {}

    def _query_objects(self, command: Fields) -> Values:
        return dict(self._nic.objects().to_json())

    def _set_hints(self, command: Fields) -> Values:
        nic = self._nic
        context = nic.contexts.get(command["ctx"], "ctx")
        log_size = command["log_size"]
        if log_size == NO_HINTS:
            nic.set_hints(context, None)
            return {}
        if log_size > MAX_LOG_HINTS:
            raise NicError(
                ErrorKind.BAD_FIELD, f"log_size {log_size} is not in 0..{MAX_LOG_HINTS}", "log_size"
            )
        region = nic.keys.get(command["ring_key"], "ring_key")
        if region.pd.context is not context:
            raise NicError(ErrorKind.NOT_OWNER, f"key {region.key:#x} belongs to another context", "ring_key")
        length = HINT_HEADER_SIZE + (HINT_SIZE << log_size)
        memory = nic.ring_memory(region, command["ring_address"], length, RING_ALIGN, "ring_address")
        nic.set_hints(context, HintRing(memory, log_size, HintRingFormat(), nic.platform.dma))
        return {}

    def _pages(self, command: Fields) -> PageList:
        """The memory of a REG_MR."""
        length, first = command["length"], command["address"]
        if not length or first + length > 1 << 64:
            raise NicError(
                ErrorKind.BAD_FIELD, f"{length} bytes at {first:#x} are not a range of memory", "length"
            )
        flags, where = command["flags"], command["pages"]
        if flags & MrFlags.CONTIGUOUS:
            if command["page_count"]:
                raise NicError(ErrorKind.BAD_FIELD, "a contiguous region has no page list", "page_count")
            if where + length > 1 << 64:
                raise NicError(
                    ErrorKind.BAD_FIELD, f"pages {where:#x} + {length:#x} is no bus range", "pages"
                )
            return PageList.contiguous(where, length)
        shift, count = command["page_shift"], command["page_count"]
        if not MIN_PAGE_SHIFT <= shift <= MAX_PAGE_SHIFT:
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"page_shift {shift} is not in {MIN_PAGE_SHIFT}..{MAX_PAGE_SHIFT}",
                "page_shift",
            )
        size = 1 << shift
        offset = first % size
        needed = (offset + length + size - 1) >> shift
        if count != needed or count > self._nic.limits.max_mr_pages:
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"page_count {count}, but the range takes {needed} pages of {size} bytes "
                f"(at most {self._nic.limits.max_mr_pages})",
                "page_count",
            )
        pages = self._list(where, count, indirect=bool(flags & MrFlags.INDIRECT))
        if any(page % size for page in pages):
            raise NicError(ErrorKind.BAD_FIELD, f"a page of the list is not {size}-byte aligned", "pages")
        return PageList(pages, shift, offset, length)

    def _list(self, where: int, count: int, *, indirect: bool) -> tuple[int, ...]:
        if not indirect:
            return struct.unpack(f"<{count}Q", self._reach(where, count * ENTRY, "pages"))
        per_block = LIST_BLOCK // ENTRY
        pages: list[int] = []
        for block in self._list(where, (count + per_block - 1) // per_block, indirect=False):
            pages += self._list(block, min(count - len(pages), per_block), indirect=False)
        return tuple(pages)

    def _reach(self, address: int, length: int, field: str) -> bytes:
        try:
            return self._nic.platform.dma.read(address, length)
        except BusError as error:
            raise NicError(ErrorKind.DMA_ERROR, str(error), field) from None


_PLAIN = (
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "min_rnr_timer",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "dest_qpn",
    "rq_psn",
    "sq_psn",
)
"""MODIFY_QP fields that are attributes as they stand."""
_ALL_MASK = sum(ModifyMask)


def _number(numbers: type[Number], command: Fields, field: str) -> Number:
    return _enum(numbers, command[field], field)


def _enum(numbers: type[Number], value: int, field: str) -> Number:
    try:
        return numbers(value)
    except ValueError:
        raise NicError(ErrorKind.BAD_FIELD, f"{field} {value} is not a {numbers.__name__}", field) from None
