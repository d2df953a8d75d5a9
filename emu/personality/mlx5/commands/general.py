# SPDX-License-Identifier: Apache-2.0
"""Start and end of the device, capabilities, and the objects that are only numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.nic.table import ObjectTable
from emu.personality.mlx5.capabilities import CAPABILITIES, CapabilityType
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.commands.command import NOTHING_IN, NOTHING_OUT, Command, Request
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.layout import commands as layout

__all__ = ["COMMANDS"]

CAPABILITY_BYTES = 4096
ISSI = 1
BOARD = b"vrnic-mlx5-vf"
BOARD_AT = 0xF0
"""Byte of the board's name in the adapter's parameter block."""
VENDOR = bytes.fromhex("0002c9")
"""IEEE number by which programs know this interface. The board's name says whose emulation it is."""
VENDOR_AT = 0x19
BLOCK_BYTES = 256


def query_hca_cap(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """One block of capabilities; current and largest values are the same."""
    try:
        block = CAPABILITIES[CapabilityType(request.op_mod >> 1)]
    except ValueError:
        raise NicError(
            ErrorKind.BAD_FIELD, f"capability type {request.op_mod >> 1:#x} is not offered", "op_mod"
        ) from None
    return {"capability": int.from_bytes(block.ljust(CAPABILITY_BYTES, b"\0"), "big")}


def set_hca_cap(device: Mlx5Device, request: Request) -> None:
    """Drivers write back what they read, with page sizes that are the only ones anyway."""
    if request.op_mod >> 1 not in CapabilityType._value2member_map_:
        raise NicError(
            ErrorKind.BAD_FIELD, f"capability type {request.op_mod >> 1:#x} is not offered", "op_mod"
        )


def query_issi(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Revision 1 of the interface step sequence is the only one beside 0."""
    return {"supported_issi_dw0": 1 << ISSI, "current_issi": 0}


def set_issi(device: Mlx5Device, request: Request) -> None:
    """Choose the revision."""
    if request["current_issi"] not in (0, ISSI):
        raise NicError(ErrorKind.BAD_FIELD, f"revision {request['current_issi']} is unknown", "current_issi")


def query_adapter(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """The interface's vendor and the board's name."""
    block = bytearray(BLOCK_BYTES)
    block[VENDOR_AT : VENDOR_AT + len(VENDOR)] = VENDOR
    block[BOARD_AT : BOARD_AT + len(BOARD)] = BOARD
    return {"query_adapter_struct": int.from_bytes(block, "big")}


def disable_hca(device: Mlx5Device, request: Request) -> None:
    """The driver is done: what it left behind goes."""
    device.reset("DISABLE_HCA")


def nothing(device: Mlx5Device, request: Request) -> None:
    """Nothing to do: the device needs no memory of the host and has no state of its own to start or stop."""


def _alloc(
    pick: Callable[[Mlx5Device], ObjectTable[int]], field: str
) -> Callable[[Mlx5Device, Request], Mapping[str, int]]:
    def run(device: Mlx5Device, request: Request) -> Mapping[str, int]:
        table = pick(device)
        number = table.reserve()
        table.items[number] = number
        return {field: number}

    return run


def dealloc_transport_domain(device: Mlx5Device, request: Request) -> None:
    """End a transport domain. :raises NicError: BUSY, a TIS belongs to it."""
    number = request["transport_domain"]
    device.objects.domains.get(number, "transport_domain")
    members = sum(domain == number for domain in device.objects.tises)
    if members:
        raise NicError(ErrorKind.BUSY, f"transport domain {number} has {members} TISes", "transport_domain")
    del device.objects.domains.items[number]


def dealloc_uar(device: Mlx5Device, request: Request) -> None:
    """Free a doorbell page. :raises NicError: BUSY, a queue is still rung through it."""
    number = device.objects.uars.get(request["uar"], "uar")
    users = [queue for queue, door in device.doors.items() if door.uar == number]
    if users:
        raise NicError(ErrorKind.BUSY, f"UAR {number} serves {len(users)} queues", "uar")
    del device.objects.uars.items[number]


def alloc_pd(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """A protection domain."""
    return {"pd": device.nic.alloc_pd(device.context).number}


def dealloc_pd(device: Mlx5Device, request: Request) -> None:
    """End a protection domain. :raises NicError: BUSY, something uses it."""
    pd = device.nic.pds.get(request["pd"], "pd")
    queues = [queue for queue in (*device.sqs, *device.rqs, *device.srqs) if queue.pd is pd]
    if queues:
        raise NicError(ErrorKind.BUSY, f"PD {pd.number} has {len(queues)} queues", "pd")
    device.nic.free_pd(pd)


COMMANDS = (
    Command(Op.QUERY_HCA_CAP, layout.QUERY_HCA_CAP_IN, layout.QUERY_HCA_CAP_OUT, query_hca_cap),
    Command(Op.SET_HCA_CAP, NOTHING_IN, NOTHING_OUT, set_hca_cap),
    Command(Op.QUERY_ADAPTER, NOTHING_IN, layout.QUERY_ADAPTER_OUT, query_adapter),
    Command(Op.QUERY_ISSI, NOTHING_IN, layout.QUERY_ISSI_OUT, query_issi),
    Command(Op.SET_ISSI, layout.SET_ISSI_IN, NOTHING_OUT, set_issi),
    Command(Op.QUERY_PAGES, NOTHING_IN, layout.QUERY_PAGES_OUT, nothing),
    Command(Op.MANAGE_PAGES, layout.MANAGE_PAGES_IN, layout.MANAGE_PAGES_OUT, nothing),
    Command(Op.ENABLE_HCA, NOTHING_IN, NOTHING_OUT, nothing),
    Command(Op.DISABLE_HCA, NOTHING_IN, NOTHING_OUT, disable_hca),
    Command(Op.INIT_HCA, NOTHING_IN, NOTHING_OUT, nothing),
    Command(Op.TEARDOWN_HCA, NOTHING_IN, NOTHING_OUT, nothing),
    Command(
        Op.ALLOC_UAR, NOTHING_IN, layout.ALLOC_UAR_OUT, _alloc(lambda device: device.objects.uars, "uar")
    ),
    Command(Op.DEALLOC_UAR, layout.DEALLOC_UAR_IN, NOTHING_OUT, dealloc_uar),
    Command(Op.ALLOC_PD, NOTHING_IN, layout.ALLOC_PD_OUT, alloc_pd),
    Command(Op.DEALLOC_PD, layout.DEALLOC_PD_IN, NOTHING_OUT, dealloc_pd),
    Command(
        Op.ALLOC_TRANSPORT_DOMAIN,
        NOTHING_IN,
        layout.ALLOC_TRANSPORT_DOMAIN_OUT,
        _alloc(lambda device: device.objects.domains, "transport_domain"),
    ),
    Command(
        Op.DEALLOC_TRANSPORT_DOMAIN,
        layout.DEALLOC_TRANSPORT_DOMAIN_IN,
        NOTHING_OUT,
        dealloc_transport_domain,
    ),
)
