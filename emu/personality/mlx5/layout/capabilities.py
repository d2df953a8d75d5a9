# SPDX-License-Identifier: Apache-2.0
"""Capability blocks of QUERY_HCA_CAP.

Names, bit offsets and widths are those of ``mlx5_ifc.h``.
"""

from __future__ import annotations

from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ATOMIC_CAPS",
    "CMD_HCA_CAP",
    "FLOW_TABLE_NIC_CAP",
    "FLOW_TABLE_PROP_LAYOUT",
    "PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS",
    "ROCE_CAP",
]

CMD_HCA_CAP = Structure(
    "cmd_hca_cap",
    0x800,
    {
        "page_request_disable": (0x006, 1),
        "log_max_srq_sz": (0x080, 8),
        "log_max_qp_sz": (0x088, 8),
        "log_max_qp": (0x09B, 5),
        "log_max_srq": (0x0AB, 5),
        "log_max_cq_sz": (0x0C8, 8),
        "relaxed_ordering_write_umr": (0x0D0, 1),
        "log_max_cq": (0x0DB, 5),
        "log_max_eq_sz": (0x0E0, 8),
        "relaxed_ordering_write": (0x0E8, 1),
        "log_max_mkey": (0x0EA, 6),
        "log_max_eq": (0x0FC, 4),
        "umr_extended_translation_offset": (0x118, 1),
        "log_max_klm_list_size": (0x11A, 6),
        "log_max_ra_req_qp": (0x14A, 6),
        "log_max_ra_res_qp": (0x15A, 6),
        "cc_query_allowed": (0x161, 1),
        "gid_table_size": (0x170, 16),
        "out_of_seq_cnt": (0x180, 1),
        "vport_counters": (0x181, 1),
        "retransmission_q_counters": (0x182, 1),
        "max_qp_cnt": (0x186, 10),
        "pkey_table_size": (0x190, 16),
        "ib_virt": (0x1A2, 1),
        "nic_flow_table": (0x1A6, 1),
        "local_ca_ack_delay": (0x1AB, 5),
        "enhanced_error_q_counters": (0x1B1, 1),
        "port_type": (0x1B6, 2),
        "num_ports": (0x1B8, 8),
        "log_max_msg": (0x1C3, 5),
        "max_tc": (0x1CC, 4),
        "cqe_version": (0x1FC, 4),
        "umr_modify_entity_size_disabled": (0x207, 1),
        "umr_fence": (0x20A, 2),
        "cmdif_checksum": (0x210, 2),
        "eth_net_offloads": (0x21C, 1),
        "roce": (0x21D, 1),
        "atomic": (0x21E, 1),
        "device_frequency_khz": (0x4E0, 32),
        "cq_resize": (0x221, 1),
        "cq_moderation": (0x222, 1),
        "pg": (0x227, 1),
        "cd": (0x22C, 1),
        "imaicl": (0x231, 1),
        "xrc": (0x23C, 1),
        "uar_4k": (0x240, 1),
        "uar_sz": (0x24A, 6),
        "log_pg_sz": (0x258, 8),
        "bf": (0x260, 1),
        "log_bf_reg_size": (0x26B, 5),
        "max_wqe_sz_sq": (0x290, 16),
        "max_wqe_sz_rq": (0x2B0, 16),
        "max_qp_mcg": (0x2E7, 25),
        "log_max_mcg": (0x318, 8),
        "log_max_transport_domain": (0x323, 5),
        "log_max_pd": (0x32B, 5),
        "log_max_xrcd": (0x33B, 5),
        "log_max_rq": (0x363, 5),
        "log_max_sq": (0x36B, 5),
        "log_max_tir": (0x373, 5),
        "log_max_tis": (0x37B, 5),
        "log_max_rmp": (0x383, 5),
        "log_max_rqt": (0x38B, 5),
        "log_max_rqt_size": (0x393, 5),
        "log_max_tis_per_sq": (0x39B, 5),
        "log_max_wq_sz": (0x3DB, 5),
        "log_max_vlan_list": (0x3EB, 5),
        "log_max_current_mc_list": (0x3F3, 5),
        "log_max_current_uc_list": (0x3FB, 5),
        "log_max_uctx": (0x463, 5),
        "log_max_umem": (0x46B, 5),
        "uctx_cap": (0x6A0, 32),
        "log_uar_page_sz": (0x490, 16),
    },
)

PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS = Structure(
    "per_protocol_networking_offload_caps",
    0x800,
    {
        "csum_cap": (0x000, 1),
        "vlan_cap": (0x001, 1),
        "self_lb_en_modifiable": (0x008, 1),
        "max_lso_cap": (0x00B, 5),
        "wqe_inline_mode": (0x012, 2),
        "rss_ind_tbl_cap": (0x014, 4),
    },
)

ATOMIC_CAPS = Structure(
    "atomic_caps",
    0x800,
    {
        "atomic_req_8B_endianness_mode": (0x040, 2),
        "supported_atomic_req_8B_endianness_mode_1": (0x046, 1),
        "atomic_operations": (0x090, 16),
        "atomic_size_qp": (0x0B0, 16),
    },
)

ROCE_CAP = Structure(
    "roce_cap",
    0x800,
    {
        "sw_r_roce_src_udp_port": (0x004, 1),
        "l3_type": (0x08C, 4),
        "roce_version": (0x098, 8),
        "r_roce_dest_udp_port": (0x0B0, 16),
        "r_roce_max_src_udp_port": (0x0C0, 16),
        "r_roce_min_src_udp_port": (0x0D0, 16),
        "roce_address_table_size": (0x0F0, 16),
    },
)

FLOW_TABLE_PROP_LAYOUT = Structure(
    "flow_table_prop_layout",
    0x200,
    {
        "ft_support": (0x000, 1),
        "flow_counter": (0x002, 1),
        "flow_modify_en": (0x003, 1),
        "modify_root": (0x004, 1),
        "identified_miss_table_mode": (0x005, 1),
        "flow_table_modify": (0x006, 1),
        "log_max_ft_size": (0x022, 6),
        "max_ft_level": (0x038, 8),
        "log_max_ft_num": (0x078, 8),
        "log_max_destination": (0x098, 8),
        "log_max_flow": (0x0B8, 8),
        "ft_field_support": (0x100, 128),
    },
)

FLOW_TABLE_NIC_CAP = Structure(
    "flow_table_nic_cap",
    0x8000,
    {
        "flow_table_properties_nic_receive": (0x200, FLOW_TABLE_PROP_LAYOUT),
        "flow_table_properties_nic_transmit": (0x800, FLOW_TABLE_PROP_LAYOUT),
    },
)
