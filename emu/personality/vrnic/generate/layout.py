# SPDX-License-Identifier: Apache-2.0
"""The contract's layouts and numbers in a form both writers use: byte offsets, widths, notes, and C names."""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from construct import Array, Bytes, Construct, FormatField, Renamed, Struct

from emu.checks import hint
from emu.checks.catalogue import CHECKS
from emu.checks.rule import Rule
from emu.nic import work
from emu.personality.vrnic.contract import codes, commands, descriptors, hints, registers

__all__ = ["ENUMS", "STRUCTS", "EnumEntry", "Field", "StructEntry", "fields_of", "notes_of", "struct_of"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: byte ``offset``, byte ``width`` of an element, ``count`` elements (0: not an array)."""

    name: str
    offset: int
    width: int
    count: int
    note: str

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.width * max(self.count, 1)

    @property
    def end(self) -> int:
        """Byte offset just past the field."""
        return self.offset + self.size

    @property
    def aligned(self) -> bool:
        """True when every element lies on a multiple of its width."""
        return self.offset % self.width == 0


@dataclass(frozen=True, slots=True)
class StructEntry:
    """A layout, the C structure it becomes, and what it is."""

    layout: Struct
    c_name: str
    title: str

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.layout.sizeof())


@dataclass(frozen=True, slots=True)
class EnumEntry:
    """A set of numbers, its C enum (None: bit masks, written as macros), the C prefix, and what it is."""

    numbers: type[enum.IntEnum] | type[enum.IntFlag]
    c_name: str | None
    prefix: str
    title: str
    named: bool = False
    """True when the header has a function that turns a value into its name, for a driver's messages."""

    def members(self) -> list[enum.IntEnum | enum.IntFlag]:
        """Members that are numbers or bits of their own (the "none" of a flag class is not)."""
        numbers: Iterable[enum.IntEnum | enum.IntFlag] = self.numbers
        return [
            member
            for member in numbers
            if self.c_name is not None or not issubclass(self.numbers, enum.IntFlag) or member
        ]

    def constant(self, member: enum.IntEnum | enum.IntFlag) -> str:
        """C name of a member."""
        return f"{self.prefix}_{member.name}"


STRUCTS: tuple[StructEntry, ...] = (
    StructEntry(commands.Command, "vrnic_cmd", "any admin command"),
    StructEntry(commands.Reply, "vrnic_reply", "any admin reply"),
    StructEntry(commands.ObjectCommand, "vrnic_cmd_object", "command that names one object"),
    StructEntry(commands.ObjectReply, "vrnic_reply_object", "reply that names the new object"),
    StructEntry(commands.AllocCtxReply, "vrnic_reply_alloc_ctx", "ALLOC_CTX reply"),
    StructEntry(commands.FreeCtx, "vrnic_cmd_free_ctx", "FREE_CTX command"),
    StructEntry(commands.AllocPd, "vrnic_cmd_alloc_pd", "ALLOC_PD command"),
    StructEntry(commands.RegMr, "vrnic_cmd_reg_mr", "REG_MR command"),
    StructEntry(commands.CreateEq, "vrnic_cmd_create_eq", "CREATE_EQ command"),
    StructEntry(commands.CreateCq, "vrnic_cmd_create_cq", "CREATE_CQ command"),
    StructEntry(commands.CreateQp, "vrnic_cmd_create_qp", "CREATE_QP command"),
    StructEntry(commands.CreateQpReply, "vrnic_reply_create_qp", "CREATE_QP reply"),
    StructEntry(commands.ModifyQp, "vrnic_cmd_modify_qp", "MODIFY_QP command"),
    StructEntry(commands.QueryQpReply, "vrnic_reply_query_qp", "QUERY_QP reply"),
    StructEntry(commands.GidCommand, "vrnic_cmd_gid", "QUERY_GID and SET_GID command"),
    StructEntry(commands.GidReply, "vrnic_reply_gid", "QUERY_GID reply"),
    StructEntry(commands.CreateAh, "vrnic_cmd_create_ah", "CREATE_AH command"),
    StructEntry(
        commands.MulticastCommand, "vrnic_cmd_multicast", "ATTACH_MULTICAST and DETACH_MULTICAST command"
    ),
    StructEntry(commands.QueryObjectsReply, "vrnic_reply_query_objects", "QUERY_OBJECTS reply"),
    StructEntry(commands.SetHints, "vrnic_cmd_set_hints", "SET_HINTS command"),
    StructEntry(hints.HintHeader, "vrnic_hint_header", "start of a hint ring"),
    StructEntry(hints.HintEntry, "vrnic_hint", "hint"),
    StructEntry(descriptors.SendWqe, "vrnic_wqe", "send WQE"),
    StructEntry(descriptors.RecvWqe, "vrnic_recv_wqe", "receive WQE"),
    StructEntry(descriptors.Cqe, "vrnic_cqe", "completion queue entry"),
    StructEntry(descriptors.Eqe, "vrnic_eqe", "event queue entry"),
    StructEntry(descriptors.DoorbellRecord, "vrnic_dbr", "doorbell record"),
)
"""Every layout a guest uses."""

ENUMS: tuple[EnumEntry, ...] = (
    EnumEntry(registers.ControlBits, None, "VRNIC_CONTROL", "bits of CONTROL"),
    EnumEntry(registers.StatusBits, None, "VRNIC_STATUS", "bits of STATUS"),
    EnumEntry(codes.FatalCause, "vrnic_fatal_cause", "VRNIC_FATAL", "FATAL_CAUSE", True),
    EnumEntry(
        codes.CheckId, "vrnic_check", "VRNIC_CHECK", "rules a driver or kernel can break (CHECK_ID)", True
    ),
    EnumEntry(codes.CheckAction, "vrnic_check_action", "VRNIC_CHECK_ACTION", "what CHECK_ACTION takes"),
    EnumEntry(hint.HintKind, "vrnic_hint_kind", "VRNIC_HINT", "what a hint is about"),
    EnumEntry(hint.Part, "vrnic_hint_part", "VRNIC_HINT_PART", "which of a WQE's memories (HintPart)"),
    EnumEntry(hint.Wait, "vrnic_hint_wait", "VRNIC_HINT_WAIT", "what a lane waits for (HintWait)"),
    EnumEntry(hint.SignalOp, "vrnic_hint_signal", "VRNIC_HINT_SIGNAL", "how a signal changes (HintSignal)"),
    EnumEntry(codes.AdminOpcode, "vrnic_admin_opcode", "VRNIC_CMD", "admin opcodes"),
    EnumEntry(codes.AdminStatus, "vrnic_admin_status", "VRNIC_ADMIN", "admin reply statuses", True),
    EnumEntry(codes.EventType, "vrnic_event", "VRNIC_EVENT", "event types", True),
    EnumEntry(codes.MrKind, "vrnic_mr_kind", "VRNIC_MR_KIND", "where a region's pages are"),
    EnumEntry(codes.MrFlags, None, "VRNIC_MR", "REG_MR flags"),
    EnumEntry(codes.CqMode, "vrnic_cq_mode", "VRNIC_CQ_MODE", "how a CQ reports"),
    EnumEntry(codes.CqOverrun, "vrnic_cq_overrun", "VRNIC_CQ_OVERRUN", "what happens when a ring CQ is full"),
    EnumEntry(codes.DbrPolicy, "vrnic_dbr_policy", "VRNIC_DBR", "what the doorbell record means"),
    EnumEntry(codes.QpFlags, None, "VRNIC_QP", "CREATE_QP flags"),
    EnumEntry(work.Transport, "vrnic_transport", "VRNIC_TRANSPORT", "transport service of a QP"),
    EnumEntry(work.QpState, "vrnic_qp_state", "VRNIC_QPS", "QP states (enum ibv_qp_state)", True),
    EnumEntry(work.ModifyMask, None, "VRNIC_ATTR", "MODIFY_QP mask (enum ibv_qp_attr_mask)"),
    EnumEntry(work.Access, None, "VRNIC_ACCESS", "access rights (enum ibv_access_flags)"),
    EnumEntry(work.Opcode, "vrnic_opcode", "VRNIC_OP", "send WQE opcodes", True),
    EnumEntry(descriptors.WqeFlags, None, "VRNIC_WQE", "send WQE flags"),
    EnumEntry(work.CompletionOpcode, "vrnic_wc_opcode", "VRNIC_WC_OP", "CQE opcodes", True),
    EnumEntry(work.Status, "vrnic_wc_status", "VRNIC_WC", "CQE statuses (enum ibv_wc_status)", True),
    EnumEntry(codes.VendorCause, "vrnic_cause", "VRNIC_CAUSE", "cause of an error completion", True),
    EnumEntry(descriptors.CqeFlags, None, "VRNIC_CQE", "CQE flags"),
    EnumEntry(descriptors.DoorbellType, "vrnic_doorbell_type", "VRNIC_DB_TYPE", "doorbell queue type"),
    EnumEntry(descriptors.DoorbellOffset, None, "VRNIC_DB", "byte offsets in a doorbell page"),
)
"""Every set of numbers a guest uses."""


def struct_of(layout: Struct) -> StructEntry:
    """The entry of a layout. :raises KeyError: it is not in STRUCTS, so no guest could name it."""
    for entry in STRUCTS:
        if entry.layout is layout:
            return entry
    raise KeyError(f"layout {layout!r} has no C name: add it to STRUCTS")


def fields_of(layout: Struct) -> tuple[Field, ...]:
    """Fields in memory order.

    :raises TypeError: a field is of a kind the guest's header has no form for.
    """
    fields = []
    offset = 0
    for renamed in layout.subcons:
        width, count = _shape(renamed)
        field = Field(renamed.name, offset, width, count, renamed.docs or "")
        fields.append(field)
        offset = field.end
    return tuple(fields)


def _shape(construct: Construct) -> tuple[int, int]:
    """Element width and count of one field."""
    while isinstance(construct, Renamed):
        construct = construct.subcon
    if isinstance(construct, FormatField):
        return int(construct.length), 0
    if isinstance(construct, Bytes):
        return 1, int(construct.length)
    if isinstance(construct, Array):
        width, inner = _shape(construct.subcon)
        if inner == 0:
            return width, int(construct.count)
    raise TypeError(f"no C form for {construct!r}")


def notes_of(numbers: type[enum.Enum]) -> dict[str, str]:
    """The string literal after each member of the class, as one line; members without one are absent.

    Rules have their sentences in the catalogue.
    """
    if numbers is Rule:
        return {"NONE": "Nothing since the last reset."} | {
            rule.name: check.sentence for rule, check in CHECKS.items()
        }
    tree = ast.parse(textwrap.dedent(inspect.getsource(numbers)))
    notes: dict[str, str] = {}
    name: str | None = None
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name is not None:
            notes[name] = " ".join(str(node.value.value).split())
            name = None
        else:
            name = None
    return notes
