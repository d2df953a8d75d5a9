# SPDX-License-Identifier: Apache-2.0
"""How much of everything a NIC offers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NicLimits"]


@dataclass(frozen=True, slots=True)
class NicLimits:
    """Table sizes and bounds. ``contexts`` counts doorbell pages without page 0, ``max_message`` is bytes.

    ``mr_pieces`` bounds the separate runs of bus memory behind all regions together, and so the memory that
    page lists take here: 16 bytes each.

    ``port_mtu`` is the largest path MTU in payload bytes, ``vectors`` the MSI-X vectors (0 is the command
    queue's), ``first_vector`` the first one an event queue may have, ``first_mr`` the lowest index of a key,
    ``min_log_send`` log2 of the smallest send ring, ``port_speed`` the modelled link speed in Mb/s,
    ``multicast_members`` the queue pairs that one multicast group may have.
    ``atomics`` says whether peers may change its memory with atomics.
    """

    contexts: int = 255
    pds: int = 65536
    mrs: int = 1 << 20
    eqs: int = 31
    cqs: int = 1 << 20
    qps: int = 1 << 20
    vectors: int = 32
    first_vector: int = 1
    first_mr: int = 1
    min_log_send: int = 1
    max_log_ring: int = 16
    max_message: int = 1 << 31
    max_inline: int = 32
    max_rd_atomic: int = 16
    max_mr_pages: int = 1 << 20
    mr_pieces: int = 1 << 22
    port_mtu: int = 4096
    port_speed: int = 100_000
    gid_table_size: int = 16
    handles: int = 65536
    multicast_groups: int = 1024
    multicast_members: int = 64
    atomics: bool = True
