# SPDX-License-Identifier: Apache-2.0
"""Byte layouts of the RoCE headers for the data path. Big-endian; the scapy layers in :mod:`emu.wire.roce`
agree.

BTH, 12 bytes::

      byte 0       byte 1                    bytes 2-3
    +------------+----+---+------+--------+-------------------+
    | opcode     | SE | M | pad  | TVer   | P_Key             |   0
    +------------+----+---+------+--------+-------------------+
    | F | B | reserved 6 | destination QP (24)                |   4
    +------------+---------------------------------------------+
    | A | reserved 7     | PSN (24)                           |   8
    +------------------+---------------------------------------+
"""

from __future__ import annotations

import struct

__all__ = [
    "AETH",
    "ATOMIC_ACK",
    "ATOMIC_ETH",
    "BTH",
    "BTH_ACK_REQUEST",
    "BTH_BECN",
    "BTH_FECN",
    "BTH_MIGRATED",
    "BTH_SIZE",
    "BTH_SOLICITED",
    "DETH",
    "ICRC_SIZE",
    "IETH",
    "IMM_DT",
    "MASKED_ATOMIC_ETH",
    "RETH",
    "ROCE_PORT",
    "UDP_SIZE",
    "XRC_ETH",
    "pack_aeth",
    "pack_atomic_ack",
    "pack_atomic_eth",
    "pack_deth",
    "pack_immediate",
    "pack_invalidate",
    "pack_masked_atomic_eth",
    "pack_reth",
    "pad_count",
]

ROCE_PORT = 4791
UDP_SIZE = 8
BTH_SIZE = 12
ICRC_SIZE = 4

BTH = struct.Struct(">BBHII")
"""opcode, flags byte, P_Key, F/B/reserved/DestQP word, A/reserved/PSN word."""
BTH_SOLICITED = 0x80
BTH_MIGRATED = 0x40
BTH_FECN = 1 << 31
BTH_BECN = 1 << 30
BTH_ACK_REQUEST = 1 << 31

RETH = struct.Struct(">QII")
"""Virtual address, R_Key, DMA length of the whole message in bytes."""
ATOMIC_ETH = struct.Struct(">QIQQ")
"""Virtual address, R_Key, swap or add value, compare value."""
MASKED_ATOMIC_ETH = struct.Struct(">QIIQQQQ")
"""Virtual address, R_Key, bytes of the target (4 or 8), swap or add value, compare value, swap mask (of a
fetch-and-add: field boundaries), compare mask."""
AETH = struct.Struct(">I")
"""Syndrome in bits 31:24, MSN in bits 23:0."""
ATOMIC_ACK = struct.Struct(">Q")
"""Original value of the target."""
IMM_DT = struct.Struct(">I")
"""Immediate data, as the number its bytes make in wire order."""
XRC_ETH = struct.Struct(">I")
"""Number of the shared receive queue in bits 23:0."""
IETH = struct.Struct(">I")
"""R_Key to invalidate."""
DETH = struct.Struct(">II")
"""Q_Key, source QPN in bits 23:0."""


def pad_count(length: int) -> int:
    """Zero bytes after ``length`` payload bytes that make the packet a multiple of four."""
    return -length & 3


def pack_reth(address: int, rkey: int, length: int) -> bytes:
    """RETH bytes; ``length`` is that of the whole message."""
    return RETH.pack(address, rkey, length)


def pack_atomic_eth(address: int, rkey: int, swap_add: int, compare: int) -> bytes:
    """AtomicETH bytes; operands are 64-bit numbers."""
    return ATOMIC_ETH.pack(address, rkey, swap_add, compare)


def pack_masked_atomic_eth(
    address: int, rkey: int, size: int, swap_add: int, compare: int, swap_mask: int, compare_mask: int
) -> bytes:
    """MaskedAtomicETH bytes; operands and masks are 64-bit numbers, ``size`` is 4 or 8 bytes."""
    return MASKED_ATOMIC_ETH.pack(address, rkey, size, swap_add, compare, swap_mask, compare_mask)


def pack_aeth(syndrome: int, msn: int) -> bytes:
    """AETH bytes from an 8-bit syndrome and a 24-bit message sequence number."""
    return AETH.pack(syndrome << 24 | msn)


def pack_atomic_ack(syndrome: int, msn: int, original: int) -> bytes:
    """AETH and AtomicAckETH bytes."""
    return AETH.pack(syndrome << 24 | msn) + ATOMIC_ACK.pack(original)


def pack_immediate(immediate: int) -> bytes:
    """ImmDt bytes."""
    return IMM_DT.pack(immediate)


def pack_invalidate(rkey: int) -> bytes:
    """IETH bytes."""
    return IETH.pack(rkey)


def pack_deth(qkey: int, source_qpn: int) -> bytes:
    """DETH bytes from a 32-bit Q_Key and a 24-bit QP number."""
    return DETH.pack(qkey, source_qpn)
