# SPDX-License-Identifier: Apache-2.0
"""What the device says it can do, each with the reason it says so.

A capability that is absent makes drivers leave the feature alone, so whatever does not work here is simply
not in the tables. Sizes named ``log_*`` are powers of two.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emu.personality.mlx5.addresses import ROCE_ADDRESSES
from emu.personality.mlx5.identity import LIMITS, LOG_BF_SIZE, LOG_RQT_ENTRIES
from emu.personality.mlx5.layout.capabilities import (
    ATOMIC_CAPS,
    CMD_HCA_CAP,
    FLOW_TABLE_NIC_CAP,
    PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS,
    ROCE_CAP,
)
from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ATOMIC",
    "CAPABILITIES",
    "ETHERNET",
    "FLOW_TABLE",
    "GENERAL",
    "ROCE",
    "Capability",
    "CapabilityType",
]


class CapabilityType(enum.IntEnum):
    """Which block QUERY_HCA_CAP asks for."""

    GENERAL = 0
    ETHERNET = 1
    ODP = 2
    ATOMIC = 3
    ROCE = 4
    FLOW_TABLE = 7


@dataclass(frozen=True, slots=True)
class Capability:
    """A field of a capability block, its value, and why it has that."""

    field: str
    value: int
    reason: str


PORT_TYPE_ETHERNET = 1
ODP_BYTES = 256
"""Block about page faults, all zero: no transport waits for a page, a missing one refuses the access."""
PLAIN_AND_MASKED = 0b1111
"""Atomic operations: compare and swap, fetch and add; both with masks."""
FOUR_BYTES, EIGHT_BYTES = 4, 8
UMR_NEEDS_NO_FENCE = 2
ROCE_V2 = 1 << 2
IPV4_AND_IPV6 = 0b110
ROCE_UDP_PORT = 4791
SOURCE_PORTS = (0xC000, 0xFFFF)
INLINE_NOT_NEEDED = 2

_OUTER_FIELDS = (*range(0x08), *range(0x0C, 0x17))
"""Bits of ``flow_table_fields_supported``: addresses, types and ports of the outer headers."""

GENERAL = (
    Capability("port_type", PORT_TYPE_ETHERNET, "the link is Ethernet and carries RoCE v2"),
    Capability("num_ports", 1, "one port"),
    Capability("eth_net_offloads", 1, "Ethernet queues exist; drivers make a network device of them"),
    Capability("nic_flow_table", 1, "received frames are steered by flow tables"),
    Capability("roce", 1, "RoCE address table and queue pairs over Ethernet"),
    Capability("atomic", 1, "atomics; connection managers always ask for remote atomic access"),
    Capability("xrc", 1, "the InfiniBand driver refuses a device without XRC domains"),
    Capability("cd", 1, "completions may be waited for across queue pairs; drivers only pass it on"),
    Capability("max_qp_cnt", 255, "counter sets of queue pairs; without them drivers show no counters"),
    Capability("out_of_seq_cnt", 1, "what came out of sequence is counted"),
    Capability("retransmission_q_counters", 1, "and what was repeated, asked for again, or timed out"),
    Capability("enhanced_error_q_counters", 1, "and completions in error, by their cause"),
    Capability("cc_query_allowed", 1, "congestion marks and notifications are counted"),
    Capability("vport_counters", 1, "frames and bytes are counted"),
    Capability("cq_resize", 1, "a CQ may go on in another ring"),
    Capability("cq_moderation", 1, "completion events can be held back by count and time"),
    Capability("device_frequency_khz", 1_000_000, "the internal timer and time stamps count nanoseconds"),
    Capability("page_request_disable", 1, "the device needs no memory of the host for itself"),
    Capability("imaicl", 1, "memory windows, and keys over pieces of other keys"),
    Capability("umr_extended_translation_offset", 1, "lists of descriptors go anywhere in a translation"),
    Capability("umr_fence", UMR_NEEDS_NO_FENCE, "elements that change keys run in order with the others"),
    Capability("pg", 1, "drivers register memory of other devices only where pages may be missing"),
    Capability("relaxed_ordering_write", 1, "payload may be written with PCIe relaxed ordering"),
    Capability("relaxed_ordering_write_umr", 1, "and a descriptor may choose so"),
    Capability("local_ca_ack_delay", 14, "67 ms: an emulator answers late"),
    Capability("uar_sz", 5, "32 MiB of BAR0 (1 MiB << 5)"),
    Capability("log_bf_reg_size", LOG_BF_SIZE, "distance of the doorbell registers in a region"),
    Capability("log_pg_sz", 12, "page lists are in pages of 4 KiB or more"),
    Capability("log_max_eq", 6, "64 event queues"),
    Capability("log_max_eq_sz", 16, "events a queue holds"),
    Capability("log_max_cq", 16, "completion queues"),
    Capability("log_max_cq_sz", 22, "completions a queue holds"),
    Capability("log_max_qp", 17, "queue pairs"),
    Capability("log_max_qp_sz", 15, "descriptors a queue holds; their counters have 16 bits"),
    Capability("max_wqe_sz_sq", 1024, "bytes of a send descriptor: 63 segments"),
    Capability("max_wqe_sz_rq", 512, "bytes of a receive descriptor: 32 pieces of memory"),
    Capability("log_max_msg", 30, "1 GiB a message"),
    Capability("log_max_ra_req_qp", 4, "16 reads and atomics a queue pair has under way"),
    Capability("log_max_ra_res_qp", 4, "16 that it answers"),
    Capability("log_max_mkey", 20, "memory keys"),
    Capability("log_max_klm_list_size", 16, "pieces of an indirect key; drivers size their tables by it"),
    Capability("log_max_mcg", LIMITS.multicast_groups.bit_length() - 1, "multicast groups"),
    Capability("max_qp_mcg", LIMITS.multicast_members, "queue pairs in one"),
    Capability("log_max_pd", 16, "protection domains"),
    Capability("log_max_xrcd", 10, "XRC domains"),
    Capability("log_max_srq", 10, "shared receive queues"),
    Capability("log_max_srq_sz", 15, "descriptors one holds"),
    Capability("log_max_rmp", 10, "their receive memory pools"),
    Capability("log_max_uctx", 8, "user contexts of direct verbs"),
    Capability("log_max_umem", 10, "memories that their queues live in"),
    Capability("log_max_transport_domain", 10, "transport domains"),
    Capability("log_max_tis", 10, "transport interfaces, send"),
    Capability("log_max_tir", 10, "transport interfaces, receive"),
    Capability("log_max_rqt", 10, "receive queue tables"),
    Capability("log_max_rqt_size", LOG_RQT_ENTRIES, "queues in one"),
    Capability("log_max_sq", 10, "Ethernet send queues"),
    Capability("log_max_rq", 10, "Ethernet receive queues"),
    Capability("log_max_tis_per_sq", 1, "a send queue has one TIS"),
    Capability("log_max_wq_sz", 15, "descriptors an Ethernet queue holds"),
    Capability("log_max_current_uc_list", 7, "unicast addresses the port answers to"),
    Capability("log_max_current_mc_list", 7, "multicast addresses"),
    Capability("log_max_vlan_list", 10, "VLANs"),
)
"""Device capabilities. Zero ``gid_table_size`` and ``pkey_table_size`` mean 8 GIDs and 128 P_Keys, a zero
``cqe_version`` that completions name queue pairs by number."""

ETHERNET = (
    Capability("csum_cap", 1, "checksums are filled in on send and checked on receive"),
    Capability("max_lso_cap", 18, "large sends up to 256 KiB are cut here"),
    Capability("vlan_cap", 1, "tagged frames are carried and matched"),
    Capability("wqe_inline_mode", INLINE_NOT_NEEDED, "headers need not be in the descriptor"),
    Capability("rss_ind_tbl_cap", 7, "128 entries in a receive queue table"),
    Capability("self_lb_en_modifiable", 1, "drivers of network devices insist on it"),
)

ATOMIC = (
    Capability(
        "atomic_operations", PLAIN_AND_MASKED, "compare and swap, fetch and add, with masks or without"
    ),
    Capability("supported_atomic_req_8B_endianness_mode_1", 1, "results are in the host's byte order"),
    Capability("atomic_req_8B_endianness_mode", 1, "and always are"),
    Capability("atomic_size_qp", FOUR_BYTES | EIGHT_BYTES, "of 8 bytes; the masked ones also of 4"),
)

ROCE = (
    Capability("roce_version", ROCE_V2, "RoCE v2 only"),
    Capability("l3_type", IPV4_AND_IPV6, "over both; a port with no RoCE v2 GID does not register"),
    Capability("roce_address_table_size", ROCE_ADDRESSES, "GIDs of the port"),
    Capability("r_roce_dest_udp_port", ROCE_UDP_PORT, "UDP port of RoCE v2"),
    Capability("r_roce_min_src_udp_port", SOURCE_PORTS[0], "source ports tell connections apart"),
    Capability("r_roce_max_src_udp_port", SOURCE_PORTS[1], "up to here"),
)

FLOW_TABLE = (
    Capability("ft_support", 1, "receive tables"),
    Capability("flow_modify_en", 1, "rules may change in place"),
    Capability("modify_root", 1, "drivers choose the first table"),
    Capability("identified_miss_table_mode", 1, "a table may name the one that is tried next"),
    Capability("flow_table_modify", 1, "and change it later"),
    Capability("log_max_ft_size", 20, "places in a table; most of a driver's stay empty"),
    Capability("max_ft_level", 63, "tables in a chain"),
    Capability("log_max_ft_num", 10, "tables"),
    Capability("log_max_destination", 8, "destinations of a rule"),
    Capability("log_max_flow", 12, "rules in a table that are really there"),
    Capability("ft_field_support", sum(1 << 127 - bit for bit in _OUTER_FIELDS), "what rules may look at"),
)
"""Of received frames. Sent frames are not steered."""


def _pack(structure: Structure, table: tuple[Capability, ...], prefix: str = "") -> bytes:
    return bytes(structure.pack({prefix + capability.field: capability.value for capability in table}))


CAPABILITIES: dict[CapabilityType, bytes] = {
    CapabilityType.GENERAL: _pack(CMD_HCA_CAP, GENERAL),
    CapabilityType.ETHERNET: _pack(PER_PROTOCOL_NETWORKING_OFFLOAD_CAPS, ETHERNET),
    CapabilityType.ODP: bytes(ODP_BYTES),
    CapabilityType.ATOMIC: _pack(ATOMIC_CAPS, ATOMIC),
    CapabilityType.ROCE: _pack(ROCE_CAP, ROCE),
    CapabilityType.FLOW_TABLE: _pack(FLOW_TABLE_NIC_CAP, FLOW_TABLE, "flow_table_properties_nic_receive."),
}
"""The blocks as the driver reads them."""
