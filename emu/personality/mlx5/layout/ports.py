# SPDX-License-Identifier: Apache-2.0
"""Port and vport state: access registers and contexts.

Names, bit offsets and widths are those of ``mlx5_ifc.h``.
"""

from __future__ import annotations

from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ACCESS_REGISTER_IN",
    "ACCESS_REGISTER_OUT",
    "ALLOC_Q_COUNTER_IN",
    "ALLOC_Q_COUNTER_OUT",
    "DEALLOC_Q_COUNTER_IN",
    "MAC_ADDRESS_LAYOUT",
    "MODIFY_NIC_VPORT_CONTEXT_IN",
    "MODIFY_NIC_VPORT_FIELD_SELECT",
    "MODIFY_VPORT_STATE_IN",
    "NIC_VPORT_CONTEXT",
    "PAOS_REG",
    "PMTU_REG",
    "PPCNT_REG",
    "PTYS_REG",
    "PVLC_REG",
    "QUERY_HCA_VPORT_PKEY_IN",
    "QUERY_NIC_VPORT_CONTEXT_IN",
    "QUERY_NIC_VPORT_CONTEXT_OUT",
    "QUERY_Q_COUNTER_IN",
    "QUERY_Q_COUNTER_OUT",
    "QUERY_ROCE_ADDRESS_IN",
    "QUERY_ROCE_ADDRESS_OUT",
    "QUERY_VPORT_COUNTER_IN",
    "QUERY_VPORT_COUNTER_OUT",
    "QUERY_VPORT_STATE_OUT",
    "ROCE_ADDR_LAYOUT",
    "SET_ROCE_ADDRESS_IN",
]

PTYS_REG = Structure(
    "ptys_reg",
    0x200,
    {
        "an_disable_admin": (0x001, 1),
        "local_port": (0x008, 8),
        "proto_mask": (0x01D, 3),
        "an_status": (0x020, 4),
        "ext_eth_proto_capability": (0x040, 32),
        "eth_proto_capability": (0x060, 32),
        "ext_eth_proto_admin": (0x0A0, 32),
        "eth_proto_admin": (0x0C0, 32),
        "ext_eth_proto_oper": (0x100, 32),
        "eth_proto_oper": (0x120, 32),
        "connector_type": (0x17C, 4),
    },
)
"""Port type and speed."""

PMTU_REG = Structure(
    "pmtu_reg",
    0x80,
    {
        "local_port": (0x008, 8),
        "max_mtu": (0x020, 16),
        "admin_mtu": (0x040, 16),
        "oper_mtu": (0x060, 16),
    },
)
"""Port MTU."""

PAOS_REG = Structure(
    "paos_reg",
    0x80,
    {
        "swid": (0x000, 8),
        "local_port": (0x008, 8),
        "admin_status": (0x014, 4),
        "oper_status": (0x01C, 4),
        "ase": (0x020, 1),
        "ee": (0x021, 1),
        "e": (0x03E, 2),
    },
)
"""Port administrative and operational state."""

PVLC_REG = Structure(
    "pvlc_reg",
    0x80,
    {
        "local_port": (0x008, 8),
        "vl_hw_cap": (0x03C, 4),
        "vl_admin": (0x05C, 4),
        "vl_operational": (0x07C, 4),
    },
)
"""Virtual lanes."""

PPCNT_REG = Structure(
    "ppcnt_reg",
    0x800,
    {
        "swid": (0x000, 8),
        "local_port": (0x008, 8),
        "grp": (0x01A, 6),
        "clr": (0x020, 1),
        "prio_tc": (0x03B, 5),
        "counter_set": (0x040, 1984),
    },
)
"""Port counters."""

MAC_ADDRESS_LAYOUT = Structure(
    "mac_address_layout",
    0x40,
    {
        "mac_addr_47_32": (0x010, 16),
        "mac_addr_31_0": (0x020, 32),
    },
)
"""A MAC address."""

ROCE_ADDR_LAYOUT = Structure(
    "roce_addr_layout",
    0x100,
    {
        "source_l3_address": (0x000, 128),
        "vlan_valid": (0x083, 1),
        "vlan_id": (0x084, 12),
        "source_mac_47_32": (0x090, 16),
        "source_mac_31_0": (0x0A0, 32),
        "roce_l3_type": (0x0D4, 4),
        "roce_version": (0x0D8, 8),
    },
)
"""Entry of the RoCE address table."""

NIC_VPORT_CONTEXT = Structure(
    "nic_vport_context",
    0x800,
    {
        "min_wqe_inline_mode": (0x005, 3),
        "disable_mc_local_lb": (0x01D, 1),
        "disable_uc_local_lb": (0x01E, 1),
        "roce_en": (0x01F, 1),
        "mtu": (0x130, 16),
        "system_image_guid": (0x140, 64),
        "port_guid": (0x180, 64),
        "node_guid": (0x1C0, 64),
        "qkey_violation_counter": (0x340, 16),
        "promisc_uc": (0x780, 1),
        "promisc_mc": (0x781, 1),
        "promisc_all": (0x782, 1),
        "allowed_list_type": (0x785, 3),
        "allowed_list_size": (0x790, 16),
        "permanent_address": (0x7A0, MAC_ADDRESS_LAYOUT),
        "current_uc_mac_address": (0x800, 64),
    },
)
"""What a vport is: addresses, MTU, filters; the address list follows."""

QUERY_VPORT_STATE_OUT = Structure(
    "query_vport_state_out",
    0x80,
    {
        "admin_state": (0x078, 4),
        "state": (0x07C, 4),
    },
)

MODIFY_VPORT_STATE_IN = Structure("modify_vport_state_in", 0x80, {"admin_state": (0x078, 4)})

QUERY_NIC_VPORT_CONTEXT_IN = Structure("query_nic_vport_context_in", 0x80, {"allowed_list_type": (0x065, 3)})

QUERY_NIC_VPORT_CONTEXT_OUT = Structure(
    "query_nic_vport_context_out",
    0x880,
    {
        "nic_vport_context": (0x080, NIC_VPORT_CONTEXT),
    },
)

MODIFY_NIC_VPORT_FIELD_SELECT = Structure(
    "modify_nic_vport_field_select",
    0x20,
    {
        "mtu": (0x019, 1),
        "promisc": (0x01B, 1),
        "permanent_address": (0x01C, 1),
        "addresses_list": (0x01D, 1),
        "roce_en": (0x01E, 1),
    },
)
"""Which parts of a vport context a modify names."""

MODIFY_NIC_VPORT_CONTEXT_IN = Structure(
    "modify_nic_vport_context_in",
    0x1000,
    {
        "field_select": (0x060, MODIFY_NIC_VPORT_FIELD_SELECT),
        "nic_vport_context": (0x800, NIC_VPORT_CONTEXT),
    },
)

SET_ROCE_ADDRESS_IN = Structure(
    "set_roce_address_in",
    0x180,
    {
        "roce_address_index": (0x040, 16),
        "vhca_port_num": (0x05C, 4),
        "roce_address": (0x080, ROCE_ADDR_LAYOUT),
    },
)

QUERY_ROCE_ADDRESS_IN = Structure("query_roce_address_in", 0x80, {"roce_address_index": (0x040, 16)})

QUERY_ROCE_ADDRESS_OUT = Structure(
    "query_roce_address_out",
    0x180,
    {
        "roce_address": (0x080, ROCE_ADDR_LAYOUT),
    },
)

ACCESS_REGISTER_IN = Structure(
    "access_register_in",
    0x80,
    {
        "register_id": (0x050, 16),
        "argument": (0x060, 32),
        "register_data": (0x080, 32),
    },
)

ACCESS_REGISTER_OUT = Structure("access_register_out", 0x80, {"register_data": (0x080, 32)})

QUERY_HCA_VPORT_PKEY_IN = Structure("query_hca_vport_pkey_in", 0x80, {"pkey_index": (0x070, 16)})

QUERY_VPORT_COUNTER_IN = Structure("query_vport_counter_in", 0x100, {"clear": (0x0C0, 1)})

QUERY_VPORT_COUNTER_OUT = Structure(
    "query_vport_counter_out",
    0x1080,
    {
        "received_ib_unicast.packets": (0x180, 64),
        "received_ib_unicast.octets": (0x1C0, 64),
        "transmitted_ib_unicast.packets": (0x200, 64),
        "transmitted_ib_unicast.octets": (0x240, 64),
        "received_eth_broadcast.packets": (0x380, 64),
        "received_eth_broadcast.octets": (0x3C0, 64),
        "transmitted_eth_broadcast.packets": (0x400, 64),
        "transmitted_eth_broadcast.octets": (0x440, 64),
        "received_eth_unicast.packets": (0x480, 64),
        "received_eth_unicast.octets": (0x4C0, 64),
        "transmitted_eth_unicast.packets": (0x500, 64),
        "transmitted_eth_unicast.octets": (0x540, 64),
        "received_eth_multicast.packets": (0x580, 64),
        "received_eth_multicast.octets": (0x5C0, 64),
        "transmitted_eth_multicast.packets": (0x600, 64),
        "transmitted_eth_multicast.octets": (0x640, 64),
    },
)

QUERY_Q_COUNTER_IN = Structure(
    "query_q_counter_in",
    0x100,
    {
        "clear": (0x0C0, 1),
        "counter_set_id": (0x0F8, 8),
    },
)

QUERY_Q_COUNTER_OUT = Structure(
    "query_q_counter_out",
    0x800,
    {
        "rx_write_requests": (0x080, 32),
        "rx_read_requests": (0x0C0, 32),
        "rx_atomic_requests": (0x100, 32),
        "out_of_buffer": (0x180, 32),
        "out_of_sequence": (0x1C0, 32),
        "duplicate_request": (0x200, 32),
        "rnr_nak_retry_err": (0x240, 32),
        "packet_seq_err": (0x280, 32),
        "implied_nak_seq_err": (0x2C0, 32),
        "local_ack_timeout_err": (0x300, 32),
        "req_rnr_retries_exceeded": (0x380, 32),
        "resp_local_length_error": (0x3C0, 32),
        "resp_cqe_error": (0x480, 32),
        "req_cqe_error": (0x4A0, 32),
        "req_remote_invalid_request": (0x500, 32),
        "req_remote_access_errors": (0x540, 32),
        "resp_remote_access_errors": (0x560, 32),
        "req_transport_retries_exceeded": (0x5A0, 32),
        "resp_cqe_flush_error": (0x5E0, 32),
        "req_cqe_flush_error": (0x600, 32),
    },
)

ALLOC_Q_COUNTER_IN = Structure("alloc_q_counter_in", 0x80, {})

ALLOC_Q_COUNTER_OUT = Structure("alloc_q_counter_out", 0x80, {"counter_set_id": (0x058, 8)})

DEALLOC_Q_COUNTER_IN = Structure("dealloc_q_counter_in", 0x80, {"counter_set_id": (0x058, 8)})
