# SPDX-License-Identifier: Apache-2.0
"""The port: state, addresses, the RoCE address table, registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emu.nic.errors import ErrorKind, NicError
from emu.personality.mlx5.addresses import ROCE_ADDRESSES, RoceAddress
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import Register
from emu.personality.mlx5.commands.command import NOTHING_IN, NOTHING_OUT, Command, Request
from emu.personality.mlx5.commands.counters import port_counters
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.layout import ports as layout
from emu.personality.mlx5.layout.structure import Structure
from emu.personality.mlx5.port import LARGEST_MTU

__all__ = ["COMMANDS"]

UP, DOWN = 1, 0
PORT = 1
ADMIN_UP, ADMIN_DOWN = 1, 2
ETHERNET_PROTOCOLS = 1 << 2
"""Protocol mask of PTYS: Ethernet."""
SPEED_100G = 1 << 23
"""100GBASE-LR4, the speed that the port's model has."""
UNICAST, MULTICAST, VLANS = 0, 1, 2
"""Types of a vport's lists."""
MAC_ENTRY, VLAN_ENTRY = 8, 4
GID_BYTES = 16
PKEYS, EVERY_PKEY, DEFAULT_PKEY = 128, 0xFFFF, 0xFFFF
MAX_REGISTER = 512
READ = 1
"""Operation modifier of ACCESS_REG."""


def query_vport_state(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Administrative state, and that of the link."""
    port = device.port
    return {"admin_state": UP if port.admin_up else DOWN, "state": UP if port.up else DOWN}


def modify_vport_state(device: Mlx5Device, request: Request) -> None:
    """Administrative state; a port that is down still answers, as a virtual function's does."""
    device.port.admin_up = request["admin_state"] == UP


def query_nic_vport_context(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Addresses, MTU, and one of the lists."""
    port = device.port
    mac = int.from_bytes(port.mac, "big")
    context = {
        "roce_en": int(port.roce_enabled),
        "mtu": port.mtu,
        "system_image_guid": port.guid,
        "port_guid": port.guid,
        "node_guid": port.guid,
        "promisc_uc": int(port.promiscuous_unicast),
        "promisc_mc": int(port.promiscuous_multicast),
        "promisc_all": int(port.promiscuous_all),
        "allowed_list_type": request["allowed_list_type"],
        "permanent_address.mac_addr_47_32": mac >> 32,
        "permanent_address.mac_addr_31_0": mac & 0xFFFFFFFF,
    }
    return {f"nic_vport_context.{name}": value for name, value in context.items()}


def modify_nic_vport_context(device: Mlx5Device, request: Request) -> None:
    """What the driver selects: RoCE, MTU, filters, address lists."""
    port = device.port
    context = request.within("nic_vport_context")
    select = request.within("field_select")
    if select["roce_en"]:
        port.roce_enabled = bool(context["roce_en"])
    if select["mtu"]:
        if not 68 <= context["mtu"] <= LARGEST_MTU:
            raise NicError(ErrorKind.BAD_FIELD, f"MTU {context['mtu']} is not in 68..{LARGEST_MTU}", "mtu")
        port.mtu = context["mtu"]
    if select["promisc"]:
        port.listen(
            unicast=bool(context["promisc_uc"]),
            multicast=bool(context["promisc_mc"]),
            every=bool(context["promisc_all"]),
        )
    if select["permanent_address"]:
        address = context["permanent_address.mac_addr_47_32"] << 32
        address |= context["permanent_address.mac_addr_31_0"]
        _set_mac(device, address.to_bytes(6, "big"))
    if select["addresses_list"]:
        _set_list(device, request, context["allowed_list_type"], context["allowed_list_size"])


def _set_mac(device: Mlx5Device, mac: bytes) -> None:
    if mac[0] & 1 or not any(mac):
        raise NicError(ErrorKind.BAD_FIELD, f"{mac.hex(':')} is no unicast MAC", "permanent_address")
    device.port.mac = mac
    device.answer_to()


def _set_list(device: Mlx5Device, request: Request, kind: int, size: int) -> None:
    at = layout.MODIFY_NIC_VPORT_CONTEXT_IN.byte("nic_vport_context.current_uc_mac_address")
    entry = VLAN_ENTRY if kind == VLANS else MAC_ENTRY
    data = request.data[at : at + size * entry]
    if len(data) < size * entry:
        raise NicError(ErrorKind.BAD_FIELD, f"{size} entries do not fit the command", "allowed_list_size")
    parts = [data[start : start + entry] for start in range(0, len(data), entry)]
    if kind == UNICAST:
        device.port.unicast = tuple(part[2:] for part in parts)
        device.answer_to()
    elif kind == MULTICAST:
        device.port.multicast = tuple(part[2:] for part in parts)
    elif kind == VLANS:
        device.port.vlans = tuple(int.from_bytes(part, "big") & 0xFFF for part in parts)
    else:
        raise NicError(ErrorKind.BAD_FIELD, f"list type {kind} is unknown", "allowed_list_type")


def set_roce_address(device: Mlx5Device, request: Request) -> None:
    """An entry of the RoCE address table; all zero empties it."""
    index = _address_index(request)
    gid = request["roce_address.source_l3_address"].to_bytes(GID_BYTES, "big")
    if not any(gid):
        device.addresses.pop(index, None)
        device.nic.gids.set(index, gid)
        return
    if gid[0] == 0xFF:
        raise NicError(ErrorKind.BAD_FIELD, "a multicast address is no GID of a port", "source_l3_address")
    device.nic.gids.set(index, gid)
    mac = request["roce_address.source_mac_47_32"] << 32 | request["roce_address.source_mac_31_0"]
    device.addresses[index] = RoceAddress(
        gid,
        mac.to_bytes(6, "big"),
        request["roce_address.roce_version"],
        request["roce_address.roce_l3_type"],
    )


def query_roce_address(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """An entry of the RoCE address table."""
    address = device.addresses.get(_address_index(request))
    if address is None:
        return {}
    mac = int.from_bytes(address.mac, "big")
    return {
        "roce_address.source_l3_address": int.from_bytes(address.gid, "big"),
        "roce_address.source_mac_47_32": mac >> 32,
        "roce_address.source_mac_31_0": mac & 0xFFFFFFFF,
        "roce_address.roce_version": address.version,
        "roce_address.roce_l3_type": address.l3_type,
    }


def _address_index(request: Request) -> int:
    index = request["roce_address_index"]
    if index >= ROCE_ADDRESSES:
        raise NicError(ErrorKind.BAD_FIELD, f"index {index} is not in 0..15", "roce_address_index")
    return index


def query_pkeys(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """One or all P_Keys: RoCE has the default one only, at index 0."""
    index = request["pkey_index"]
    if index >= PKEYS and index != EVERY_PKEY:
        raise NicError(ErrorKind.BAD_FIELD, f"index {index} is not in 0..{PKEYS - 1}", "pkey_index")
    return {"first": DEFAULT_PKEY if index in (0, EVERY_PKEY) else 0}


def access_register(device: Mlx5Device, request: Request) -> Mapping[str, int]:
    """Read or write a register. :raises NicError: BAD_FIELD, the device has none of that number."""
    number = request["register_id"]
    data = request.data[layout.ACCESS_REGISTER_IN.byte("register_data") :]
    access = _REGISTERS.get(number)
    if access is None:
        raise NicError(ErrorKind.BAD_FIELD, f"there is no register {number:#x}", "register_id")
    value = access(device, data, request.op_mod == READ)
    room = max(0, min(request.output - layout.ACCESS_REGISTER_OUT.byte("register_data"), MAX_REGISTER))
    return {"register_data": int.from_bytes(value[:room].ljust(MAX_REGISTER, b"\0"), "big")}


def _mtu(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    if not read:
        wanted = layout.PMTU_REG.read(data, "admin_mtu")
        if wanted > LARGEST_MTU:
            raise NicError(ErrorKind.BAD_FIELD, f"MTU {wanted} is above {LARGEST_MTU}", "admin_mtu")
    values = dict.fromkeys(("max_mtu", "admin_mtu", "oper_mtu"), LARGEST_MTU)
    return bytes(layout.PMTU_REG.pack({"local_port": PORT, **values}))


def _speed(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    values = dict.fromkeys(("eth_proto_capability", "eth_proto_admin", "eth_proto_oper"), SPEED_100G)
    if not device.port.up:
        values["eth_proto_oper"] = 0
    return bytes(layout.PTYS_REG.pack({"local_port": PORT, "proto_mask": ETHERNET_PROTOCOLS, **values}))


def _state(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    if not read:
        device.port.admin_up = layout.PAOS_REG.read(data, "admin_status") == ADMIN_UP
    values = {
        "local_port": PORT,
        "admin_status": ADMIN_UP if device.port.admin_up else ADMIN_DOWN,
        "oper_status": ADMIN_UP if device.port.up else ADMIN_DOWN,
    }
    return bytes(layout.PAOS_REG.pack(values))


def _lanes(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    return bytes(
        layout.PVLC_REG.pack({"local_port": PORT, "vl_hw_cap": 1, "vl_admin": 1, "vl_operational": 1})
    )


def _no_pause(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    """Pause frames are off."""
    return bytes((0, PORT))


def _description(device: Mlx5Device, data: bytes, read: bool) -> bytes:
    if not read:
        device.port.node_description = data[:64].ljust(64, b"\0")
    return device.port.node_description


_REGISTERS: dict[int, Callable[[Mlx5Device, bytes, bool], bytes]] = {
    Register.PMTU: _mtu,
    Register.PTYS: _speed,
    Register.PAOS: _state,
    Register.PFCC: _no_pause,
    Register.PPCNT: port_counters,
    Register.PVLC: _lanes,
    Register.NODE_DESCRIPTION: _description,
}

_REGISTER_OUT = Structure(
    "register_out", 0x80 + MAX_REGISTER * 8, {"register_data": (0x80, MAX_REGISTER * 8)}
)
"""ACCESS_REG's output with the whole register; the kernel's structure names its first word only."""

_PKEYS_OUT = Structure("pkeys_out", 0x80 + PKEYS * 32, {"first": (0x90, 16)})
"""QUERY_HCA_VPORT_PKEY's output with the whole table, 32 bits an entry."""

COMMANDS = (
    Command(Op.QUERY_HCA_VPORT_PKEY, layout.QUERY_HCA_VPORT_PKEY_IN, _PKEYS_OUT, query_pkeys),
    Command(Op.QUERY_VPORT_STATE, NOTHING_IN, layout.QUERY_VPORT_STATE_OUT, query_vport_state),
    Command(Op.MODIFY_VPORT_STATE, layout.MODIFY_VPORT_STATE_IN, NOTHING_OUT, modify_vport_state),
    Command(
        Op.QUERY_NIC_VPORT_CONTEXT,
        layout.QUERY_NIC_VPORT_CONTEXT_IN,
        layout.QUERY_NIC_VPORT_CONTEXT_OUT,
        query_nic_vport_context,
    ),
    Command(
        Op.MODIFY_NIC_VPORT_CONTEXT,
        layout.MODIFY_NIC_VPORT_CONTEXT_IN,
        NOTHING_OUT,
        modify_nic_vport_context,
    ),
    Command(Op.SET_ROCE_ADDRESS, layout.SET_ROCE_ADDRESS_IN, NOTHING_OUT, set_roce_address),
    Command(
        Op.QUERY_ROCE_ADDRESS, layout.QUERY_ROCE_ADDRESS_IN, layout.QUERY_ROCE_ADDRESS_OUT, query_roce_address
    ),
    Command(Op.ACCESS_REG, layout.ACCESS_REGISTER_IN, _REGISTER_OUT, access_register),
)
