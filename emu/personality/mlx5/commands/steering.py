# SPDX-License-Identifier: Apache-2.0
"""Flow tables, groups and entries of the receive side."""

from __future__ import annotations

from collections.abc import Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.layout import steering as layout
from emu.personality.mlx5.steering import Entry, FlowTable

__all__ = ["COMMANDS"]

NIC_RECEIVE = 0
MISS_FORWARDS = 1
DROP, FORWARD = 1 << 1, 1 << 2
SUPPORTED_ACTIONS = 1 | DROP | FORWARD
TO_TABLE, TO_TIR = 1, 2
DESTINATION_BYTES = 8
MODIFY_MISS_TABLE = 1
LAST_NUMBER = 0xFFFFFF


def _table(device: Mlx5Device, request: Request) -> FlowTable:
    table = device.steering.tables.get(request["table_id"])
    if table is None or table.kind != request["table_type"]:
        raise NicError(
            ErrorKind.BAD_OBJECT,
            f"there is no flow table {request['table_id']} of type {request['table_type']}",
            "table_id",
        )
    return table


def create_flow_table(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A table. :raises NicError: UNSUPPORTED, not a table of received frames."""
    if request["table_type"] != NIC_RECEIVE:
        raise NicError(
            ErrorKind.UNSUPPORTED, f"tables of type {request['table_type']} are not offered", "table_type"
        )
    steering = device.steering
    number = steering.number()
    table = FlowTable(number, request["table_type"])
    _set_miss(table, request)
    steering.tables[number] = table
    return {"table_id": number}


def _set_miss(table: FlowTable, request: Request) -> None:
    forwards = request["flow_table_context.table_miss_action"] == MISS_FORWARDS
    table.miss = request["flow_table_context.table_miss_id"] if forwards else None


def modify_flow_table(device: Mlx5Device, request: Request) -> None:
    """Another table for what nothing matches."""
    table = _table(device, request)
    if request["modify_field_select"] & MODIFY_MISS_TABLE:
        _set_miss(table, request)


def destroy_flow_table(device: Mlx5Device, request: Request) -> None:
    """End a table with what is left in it."""
    table = _table(device, request)
    del device.steering.tables[table.number]
    if device.steering.root == table.number:
        device.steering.root = None


def set_flow_table_root(device: Mlx5Device, request: Request) -> None:
    """Where received frames start."""
    device.steering.root = _table(device, request).number


def create_flow_group(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A group: which bits its entries look at."""
    table = _table(device, request)
    number = device.steering.number()
    table.groups[number] = request["match_criteria"] if request["match_criteria_enable"] else 0
    return {"group_id": number}


def destroy_flow_group(device: Mlx5Device, request: Request) -> None:
    """End a group."""
    table = _table(device, request)
    if table.groups.pop(request["group_id"], None) is None:
        raise NicError(ErrorKind.BAD_OBJECT, f"there is no flow group {request['group_id']}", "group_id")


def set_entry(device: Mlx5Device, request: Request) -> None:
    """Put a rule in or change it. :raises NicError: UNSUPPORTED, an action or destination not offered."""
    table = _table(device, request)
    context = request.within("flow_context")
    group = context["group_id"]
    if group not in table.groups:
        raise NicError(ErrorKind.BAD_OBJECT, f"there is no flow group {group}", "group_id")
    action = context["action"]
    if action & ~SUPPORTED_ACTIONS:
        raise NicError(ErrorKind.UNSUPPORTED, f"action {action:#x} is not offered", "action")
    tables: list[int] = []
    tirs: list[int] = []
    if action & FORWARD:
        at = layout.SET_FTE_IN.size
        for number in range(context["destination_list_size"]):
            place = request.data[at + number * DESTINATION_BYTES : at + (number + 1) * DESTINATION_BYTES]
            destination = layout.DEST_FORMAT_STRUCT.unpack(place)
            kind, target = destination["destination_type"], destination["destination_id"]
            if kind not in (TO_TABLE, TO_TIR):
                raise NicError(
                    ErrorKind.UNSUPPORTED, f"destination type {kind} is not offered", "destination"
                )
            (tables if kind == TO_TABLE else tirs).append(target)
    mask = table.groups[group]
    table.set(request["flow_index"], Entry(mask, context["match_value"] & mask, tuple(tables), tuple(tirs)))


def delete_entry(device: Mlx5Device, request: Request) -> None:
    """Take a rule out."""
    table = _table(device, request)
    if table.entries.pop(request["flow_index"], None) is None:
        raise NicError(ErrorKind.BAD_OBJECT, f"there is no rule {request['flow_index']}", "flow_index")


COMMANDS = (
    Command(
        Op.CREATE_FLOW_TABLE, layout.CREATE_FLOW_TABLE_IN, layout.CREATE_FLOW_TABLE_OUT, create_flow_table
    ),
    Command(Op.MODIFY_FLOW_TABLE, layout.MODIFY_FLOW_TABLE_IN, NOTHING_OUT, modify_flow_table),
    Command(Op.DESTROY_FLOW_TABLE, layout.DESTROY_FLOW_TABLE_IN, NOTHING_OUT, destroy_flow_table),
    Command(Op.SET_FLOW_TABLE_ROOT, layout.SET_FLOW_TABLE_ROOT_IN, NOTHING_OUT, set_flow_table_root),
    Command(
        Op.CREATE_FLOW_GROUP, layout.CREATE_FLOW_GROUP_IN, layout.CREATE_FLOW_GROUP_OUT, create_flow_group
    ),
    Command(Op.DESTROY_FLOW_GROUP, layout.DESTROY_FLOW_GROUP_IN, NOTHING_OUT, destroy_flow_group),
    Command(Op.SET_FLOW_TABLE_ENTRY, layout.SET_FTE_IN, NOTHING_OUT, set_entry),
    Command(Op.DELETE_FLOW_TABLE_ENTRY, layout.DELETE_FTE_IN, NOTHING_OUT, delete_entry),
)
