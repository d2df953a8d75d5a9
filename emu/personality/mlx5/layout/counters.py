# SPDX-License-Identifier: Apache-2.0
"""Counter groups of PPCNT and of congestion control: 64-bit counters in two halves.

Names, bit offsets and widths are those of ``mlx5_ifc.h``.
"""

from __future__ import annotations

from collections.abc import Mapping

from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ETH_802_3_CNTRS_GRP_DATA_LAYOUT",
    "ETH_2819_CNTRS_GRP_DATA_LAYOUT",
    "ETH_2863_CNTRS_GRP_DATA_LAYOUT",
    "ETH_PER_PRIO_GRP_DATA_LAYOUT",
    "IB_PORT_CNTRS_GRP_DATA_LAYOUT",
    "PHYS_LAYER_CNTRS",
    "QUERY_CONG_STATISTICS_IN",
    "QUERY_CONG_STATISTICS_OUT",
    "halves",
]

GROUP_BITS = 0x7C0
HALF = 32


def _wide(**offsets: int) -> dict[str, tuple[int, int | Structure]]:
    """Both halves of 64-bit counters at bit offsets."""
    fields: dict[str, tuple[int, int | Structure]] = {}
    for name, offset in offsets.items():
        fields[f"{name}_high"] = (offset, HALF)
        fields[f"{name}_low"] = (offset + HALF, HALF)
    return fields


def halves(values: Mapping[str, int]) -> dict[str, int]:
    """Fields for counters by their own names."""
    fields: dict[str, int] = {}
    for name, value in values.items():
        fields[f"{name}_high"] = value >> HALF & 0xFFFFFFFF
        fields[f"{name}_low"] = value & 0xFFFFFFFF
    return fields


ETH_802_3_CNTRS_GRP_DATA_LAYOUT = Structure(
    "eth_802_3_cntrs_grp_data_layout",
    GROUP_BITS,
    _wide(
        a_frames_transmitted_ok=0x000,
        a_frames_received_ok=0x040,
        a_octets_transmitted_ok=0x100,
        a_octets_received_ok=0x140,
        a_multicast_frames_xmitted_ok=0x180,
        a_broadcast_frames_xmitted_ok=0x1C0,
        a_multicast_frames_received_ok=0x200,
        a_broadcast_frames_received_ok=0x240,
    ),
)

ETH_2863_CNTRS_GRP_DATA_LAYOUT = Structure(
    "eth_2863_cntrs_grp_data_layout",
    GROUP_BITS,
    _wide(
        if_in_octets=0x000,
        if_in_ucast_pkts=0x040,
        if_in_discards=0x080,
        if_in_errors=0x0C0,
        if_out_octets=0x140,
        if_out_ucast_pkts=0x180,
        if_in_multicast_pkts=0x240,
        if_in_broadcast_pkts=0x280,
        if_out_multicast_pkts=0x2C0,
        if_out_broadcast_pkts=0x300,
    ),
)

ETH_2819_CNTRS_GRP_DATA_LAYOUT = Structure(
    "eth_2819_cntrs_grp_data_layout",
    GROUP_BITS,
    _wide(
        ether_stats_drop_events=0x000,
        ether_stats_octets=0x040,
        ether_stats_pkts=0x080,
        ether_stats_broadcast_pkts=0x0C0,
        ether_stats_multicast_pkts=0x100,
    ),
)

ETH_PER_PRIO_GRP_DATA_LAYOUT = Structure(
    "eth_per_prio_grp_data_layout",
    GROUP_BITS,
    _wide(rx_octets=0x000, rx_frames=0x100, tx_octets=0x140, tx_frames=0x240, rx_discards=0x3C0),
)

PHYS_LAYER_CNTRS = Structure("phys_layer_cntrs", GROUP_BITS, {"link_down_events": (0x600, 32)})

IB_PORT_CNTRS_GRP_DATA_LAYOUT = Structure(
    "ib_port_cntrs_grp_data_layout",
    0x140,
    {"link_downed_counter": (0x018, 8), "port_rcv_errors": (0x020, 16), "port_xmit_discards": (0x050, 16)},
)

QUERY_CONG_STATISTICS_IN = Structure("query_cong_statistics_in", 0x80, {"clear": (0x040, 1)})

QUERY_CONG_STATISTICS_OUT = Structure(
    "query_cong_statistics_out",
    0x880,
    _wide(
        rp_cnp_ignored=0x0C0,
        rp_cnp_handled=0x100,
        np_ecn_marked_roce_packets=0x2A0,
        np_cnp_sent=0x2E0,
    ),
)
