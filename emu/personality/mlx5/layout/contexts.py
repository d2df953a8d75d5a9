# SPDX-License-Identifier: Apache-2.0
"""What the driver tells about queues, memory keys and paths, and what queries give back.

Bit offsets from the start of the structure, most significant bit of the first byte first; bit widths.
Source: the kernel's ``include/linux/mlx5/mlx5_ifc.h``, whose names these are.
"""

from __future__ import annotations

from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ADS",
    "CQC",
    "EQC",
    "MKC",
    "QPC",
    "RMPC",
    "RQC",
    "RQTC",
    "SQC",
    "TIRC",
    "TISC",
    "WQ",
    "XRC_SRQC",
]

MKC = Structure(
    "mkc",
    0x200,
    {
        "free": (0x001, 1),
        "access_mode_4_2": (0x003, 3),
        "relaxed_ordering_write": (0x00D, 1),
        "umr_en": (0x010, 1),
        "a": (0x011, 1),
        "rw": (0x012, 1),
        "rr": (0x013, 1),
        "lw": (0x014, 1),
        "lr": (0x015, 1),
        "access_mode_1_0": (0x016, 2),
        "qpn": (0x020, 24),
        "mkey_7_0": (0x038, 8),
        "length64": (0x060, 1),
        "en_rinval": (0x067, 1),
        "pd": (0x068, 24),
        "start_addr": (0x080, 64),
        "len": (0x0C0, 64),
        "translations_octword_size": (0x1A0, 32),
        "log_page_size": (0x1DA, 6),
    },
)
"""Memory key."""

EQC = Structure(
    "eqc",
    0x200,
    {
        "status": (0x000, 4),
        "oi": (0x00E, 1),
        "st": (0x014, 4),
        "page_offset": (0x054, 6),
        "log_eq_size": (0x063, 5),
        "uar_page": (0x068, 24),
        "intr": (0x0B4, 12),
        "log_page_size": (0x0C3, 5),
        "consumer_counter": (0x148, 24),
        "producer_counter": (0x168, 24),
    },
)
"""Event queue."""

CQC = Structure(
    "cqc",
    0x200,
    {
        "status": (0x000, 4),
        "dbr_umem_valid": (0x006, 1),
        "cqe_sz": (0x008, 3),
        "dbr_umem_id": (0x020, 32),
        "cc": (0x00B, 1),
        "oi": (0x00E, 1),
        "st": (0x014, 4),
        "page_offset": (0x054, 6),
        "log_cq_size": (0x063, 5),
        "uar_page": (0x068, 24),
        "cq_period": (0x084, 12),
        "cq_max_count": (0x090, 16),
        "c_eqn_or_apu_element": (0x0A0, 32),
        "log_page_size": (0x0C3, 5),
        "consumer_counter": (0x148, 24),
        "producer_counter": (0x168, 24),
        "dbr_addr": (0x1C0, 64),
    },
)
"""Completion queue."""

ADS = Structure(
    "ads",
    0x160,
    {
        "fl": (0x000, 1),
        "pkey_index": (0x010, 16),
        "grh": (0x028, 1),
        "rlid": (0x030, 16),
        "ack_timeout": (0x040, 5),
        "src_addr_index": (0x048, 8),
        "hop_limit": (0x058, 8),
        "tclass": (0x064, 8),
        "flow_label": (0x06C, 20),
        "rgid_rip": (0x080, 128),
        "dscp": (0x10A, 6),
        "udp_sport": (0x110, 16),
        "eth_prio": (0x121, 3),
        "vhca_port_num": (0x128, 8),
        "rmac_47_32": (0x130, 16),
        "rmac_31_0": (0x140, 32),
    },
)
"""Address vector of a queue pair: the path to its peer."""

QPC = Structure(
    "qpc",
    0x740,
    {
        "state": (0x000, 4),
        "st": (0x008, 8),
        "pm_state": (0x013, 2),
        "pd": (0x028, 24),
        "mtu": (0x040, 3),
        "log_msg_max": (0x043, 5),
        "log_rq_size": (0x049, 4),
        "log_rq_stride": (0x04D, 3),
        "no_sq": (0x050, 1),
        "log_sq_size": (0x051, 4),
        "rlky": (0x05B, 1),
        "counter_set_id": (0x060, 8),
        "uar_page": (0x068, 24),
        "send_dbr_mode": (0x080, 2),
        "user_index": (0x088, 24),
        "log_page_size": (0x0A3, 5),
        "remote_qpn": (0x0A8, 24),
        "primary_address_path": (0x0C0, ADS),
        "log_sra_max": (0x388, 3),
        "retry_count": (0x38D, 3),
        "rnr_retry": (0x390, 3),
        "fre": (0x394, 1),
        "next_send_psn": (0x3C8, 24),
        "cqn_snd": (0x3E8, 24),
        "log_rra_max": (0x488, 3),
        "atomic_mode": (0x48C, 4),
        "rre": (0x490, 1),
        "rwe": (0x491, 1),
        "rae": (0x492, 1),
        "page_offset": (0x494, 6),
        "min_rnr_nak": (0x4A3, 5),
        "next_rcv_psn": (0x4A8, 24),
        "xrcd": (0x4C8, 24),
        "cqn_rcv": (0x4E8, 24),
        "dbr_addr": (0x500, 64),
        "q_key": (0x540, 32),
        "rq_type": (0x565, 3),
        "srqn_rmpn_xrqn": (0x568, 24),
        "hw_sq_wqebb_counter": (0x5A0, 16),
        "sw_sq_wqebb_counter": (0x5B0, 16),
        "dbr_umem_valid": (0x683, 1),
        "dbr_umem_id": (0x720, 32),
    },
)
"""Queue pair."""

WQ = Structure(
    "wq",
    0x600,
    {
        "wq_type": (0x000, 4),
        "page_offset": (0x02B, 5),
        "lwm": (0x030, 16),
        "pd": (0x048, 24),
        "uar_page": (0x068, 24),
        "dbr_addr": (0x080, 64),
        "log_wq_stride": (0x10C, 4),
        "log_wq_pg_sz": (0x113, 5),
        "log_wq_sz": (0x11B, 5),
        "dbr_umem_valid": (0x120, 1),
        "wq_umem_valid": (0x121, 1),
        "dbr_umem_id": (0x140, 32),
        "wq_umem_id": (0x160, 32),
        "wq_umem_offset": (0x180, 64),
    },
)
"""Work queue of an Ethernet queue or a shared receive queue."""

SQC = Structure(
    "sqc",
    0x780,
    {
        "min_wqe_inline_mode": (0x005, 3),
        "state": (0x008, 4),
        "reg_umr": (0x00C, 1),
        "cqn": (0x048, 24),
        "tis_lst_sz": (0x100, 16),
        "tis_num_0": (0x168, 24),
        "wq": (0x180, WQ),
    },
)
"""Ethernet send queue."""

RQC = Structure(
    "rqc",
    0x780,
    {
        "scatter_fcs": (0x002, 1),
        "vsd": (0x003, 1),
        "mem_rq_type": (0x004, 4),
        "state": (0x008, 4),
        "cqn": (0x048, 24),
        "counter_set_id": (0x060, 8),
        "rmpn": (0x088, 24),
        "wq": (0x180, WQ),
    },
)
"""Ethernet receive queue."""

RMPC = Structure("rmpc", 0x780, {"state": (0x008, 4), "basic_cyclic_rcv_wqe": (0x020, 1), "wq": (0x180, WQ)})
"""Receive memory pool: the work queue of a shared receive queue."""

XRC_SRQC = Structure(
    "xrc_srqc",
    0x200,
    {
        "state": (0x000, 4),
        "log_xrc_srq_size": (0x004, 4),
        "log_rq_stride": (0x025, 3),
        "xrcd": (0x028, 24),
        "page_offset": (0x040, 6),
        "cqn": (0x048, 24),
        "log_page_size": (0x082, 6),
        "pd": (0x0C8, 24),
        "lwm": (0x0E0, 16),
        "db_record_addr_h": (0x140, 32),
        "db_record_addr_l": (0x160, 30),
    },
)
"""Shared receive queue of an XRC domain."""

TISC = Structure("tisc", 0x500, {"prio": (0x00C, 4), "transport_domain": (0x128, 24), "pd": (0x168, 24)})
"""Transport interface send: what an Ethernet send queue belongs to."""

TIRC = Structure(
    "tirc",
    0x780,
    {
        "disp_type": (0x020, 4),
        "inline_rqn": (0x0E8, 24),
        "rx_hash_symmetric": (0x100, 1),
        "indirect_table": (0x108, 24),
        "rx_hash_fn": (0x120, 4),
        "self_lb_block": (0x126, 2),
        "transport_domain": (0x128, 24),
        "rx_hash_toeplitz_key": (0x140, 320),
        "rx_hash_field_selector_outer": (0x280, 32),
    },
)
"""Transport interface receive: where a steering rule sends a packet."""

RQTC = Structure("rqtc", 0x780, {"rqt_max_size": (0x0B0, 16), "rqt_actual_size": (0x0D0, 16)})
"""Receive queue table; the queue numbers follow, 32 bits each."""
