# SPDX-License-Identifier: Apache-2.0
"""Flow tables, groups and entries.

Names, bit offsets and widths are those of ``mlx5_ifc.h``.
"""

from __future__ import annotations

from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "CREATE_FLOW_GROUP_IN",
    "CREATE_FLOW_GROUP_OUT",
    "CREATE_FLOW_TABLE_IN",
    "CREATE_FLOW_TABLE_OUT",
    "DELETE_FTE_IN",
    "DESTROY_FLOW_GROUP_IN",
    "DESTROY_FLOW_TABLE_IN",
    "DEST_FORMAT_STRUCT",
    "FLOW_CONTEXT",
    "FLOW_TABLE_CONTEXT",
    "FTE_MATCH_SET_LYR_2_4",
    "MODIFY_FLOW_TABLE_IN",
    "SET_FLOW_TABLE_ROOT_IN",
    "SET_FTE_IN",
]

FLOW_TABLE_CONTEXT = Structure(
    "flow_table_context",
    0x140,
    {
        "table_miss_action": (0x004, 4),
        "level": (0x008, 8),
        "log_size": (0x018, 8),
        "table_miss_id": (0x028, 24),
    },
)
"""Flow table."""

DEST_FORMAT_STRUCT = Structure(
    "dest_format_struct",
    0x40,
    {
        "destination_type": (0x000, 8),
        "destination_id": (0x008, 24),
    },
)
"""One destination of a flow entry."""

FTE_MATCH_SET_LYR_2_4 = Structure(
    "fte_match_set_lyr_2_4",
    0x200,
    {
        "smac_47_16": (0x000, 32),
        "smac_15_0": (0x020, 16),
        "ethertype": (0x030, 16),
        "dmac_47_16": (0x040, 32),
        "dmac_15_0": (0x060, 16),
        "first_prio": (0x070, 3),
        "first_cfi": (0x073, 1),
        "first_vid": (0x074, 12),
        "ip_protocol": (0x080, 8),
        "ip_dscp": (0x088, 6),
        "ip_ecn": (0x08E, 2),
        "cvlan_tag": (0x090, 1),
        "svlan_tag": (0x091, 1),
        "frag": (0x092, 1),
        "ip_version": (0x093, 4),
        "tcp_flags": (0x097, 9),
        "tcp_sport": (0x0A0, 16),
        "tcp_dport": (0x0B0, 16),
        "ttl_hoplimit": (0x0D8, 8),
        "udp_sport": (0x0E0, 16),
        "udp_dport": (0x0F0, 16),
        "src_ipv4_src_ipv6": (0x100, 128),
        "dst_ipv4_dst_ipv6": (0x180, 128),
    },
)
"""What a rule may look at in the headers of a packet."""

FLOW_CONTEXT = Structure(
    "flow_context",
    0x1800,
    {
        "group_id": (0x020, 32),
        "flow_tag": (0x048, 24),
        "action": (0x070, 16),
        "destination_list_size": (0x088, 24),
        "flow_counter_list_size": (0x0A8, 24),
        "match_value": (0x200, 4096),
    },
)
"""Flow entry; destinations follow, then counters."""

CREATE_FLOW_TABLE_IN = Structure(
    "create_flow_table_in",
    0x200,
    {
        "table_type": (0x080, 8),
        "flow_table_context": (0x0C0, FLOW_TABLE_CONTEXT),
    },
)

CREATE_FLOW_TABLE_OUT = Structure("create_flow_table_out", 0x80, {"table_id": (0x048, 24)})

DESTROY_FLOW_TABLE_IN = Structure(
    "destroy_flow_table_in",
    0x200,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
    },
)

MODIFY_FLOW_TABLE_IN = Structure(
    "modify_flow_table_in",
    0x200,
    {
        "modify_field_select": (0x070, 16),
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
        "flow_table_context": (0x0C0, FLOW_TABLE_CONTEXT),
    },
)

SET_FLOW_TABLE_ROOT_IN = Structure(
    "set_flow_table_root_in",
    0x200,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
    },
)

CREATE_FLOW_GROUP_IN = Structure(
    "create_flow_group_in",
    0x2000,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
        "start_flow_index": (0x0E0, 32),
        "end_flow_index": (0x120, 32),
        "match_criteria_enable": (0x1F8, 8),
        "match_criteria": (0x200, 4096),
    },
)

CREATE_FLOW_GROUP_OUT = Structure("create_flow_group_out", 0x80, {"group_id": (0x048, 24)})

DESTROY_FLOW_GROUP_IN = Structure(
    "destroy_flow_group_in",
    0x200,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
        "group_id": (0x0C0, 32),
    },
)

SET_FTE_IN = Structure(
    "set_fte_in",
    0x1A00,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
        "modify_enable_mask": (0x0D8, 8),
        "flow_index": (0x100, 32),
        "flow_context": (0x200, FLOW_CONTEXT),
    },
)

DELETE_FTE_IN = Structure(
    "delete_fte_in",
    0x200,
    {
        "table_type": (0x080, 8),
        "table_id": (0x0A8, 24),
        "flow_index": (0x100, 32),
    },
)
