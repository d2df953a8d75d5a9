# SPDX-License-Identifier: Apache-2.0
"""Descriptors in guest memory: WQE, receive WQE, CQE, event, doorbell, doorbell record. Little-endian.

Send WQE, 64 bytes (the first 8 bytes are the commit word: with phase mode, store them last, with release)::

     0        1        2        4               8              12            15
    +--------+--------+--------+---------------+--------------+--------------+
    | opcode | flags  | blocks | running index | QPN echo     | immediate    |   0
    +--------+--------+--------+---------------+--------------+--------------+
    | remote address                           | rkey         | byte length  |  16
    | datagram: AH, remote QPN                 | Q_Key        |              |
    +------------------------------------------+--------------+--------------+
    | local address | operand (add/swap)       | lkey | compare               |  32
    +------------------------------------------+-----------------------------+
    | atomic: result address                   | result lkey  | reserved     |  48
    +------------------------------------------+--------------+--------------+
      INLINE: bytes 32..63 are the payload
"""

from __future__ import annotations

import enum

from construct import Array, Byte, Int16ul, Int32ul, Int64ul, Struct

WQE_SIZE = 64
CQE_SIZE = 64
EQE_SIZE = 32
RECV_WQE_SIZE = 32
MAX_INLINE = 32


class WqeFlags(enum.IntFlag):
    """Send WQE flag byte."""

    SIGNAL = 1 << 0
    """Write a completion."""
    SOLICITED = 1 << 1
    """Mark the message solicited."""
    FENCE = 1 << 2
    """Wait until earlier READs and atomics of this QP are complete; on UET_RUD, whose messages may overtake
    each other, until every earlier element is. A WRITE that is a flag for the data before it needs this."""
    INLINE = 1 << 4
    """Payload is in the WQE."""
    OPERAND_4B = 1 << 5
    """Atomic on 4 bytes; ``length`` is 4 then. ROCE_RC has them; between two of these devices only, as the
    standard's atomics are on 8."""
    PHASE = 1 << 7
    """Phase bit."""


SendWqe = Struct(
    "opcode" / Byte * "operation",
    "flags" / Byte * "WqeFlags",
    "blocks" / Int16ul * "slots taken; 1 for every operation of this version (0 reads as 1)",
    "index" / Int32ul * "running index of this slot",
    "qpn" / Int32ul * "own QP number",
    "immediate" / Int32ul * "immediate data for the peer's CQE, or a tag",
    "remote_address"
    / Int64ul
    * "virtual address at the peer; datagrams: AHN in bits 31:0, QPN in bits 55:32",
    "rkey"
    / Int32ul
    * "the peer's key; SEND_INV: the key to invalidate there; datagrams: Q_Key, or the QP's own "
    "when bit 31 is set",
    "length" / Int32ul * "payload bytes; atomics: 8, with OPERAND_4B 4",
    "local_address" / Int64ul * "payload or READ destination; ATOMIC_ADD: addend; ATOMIC_CAS: swap value",
    "lkey" / Int32ul * "key of local_address; ATOMIC_CAS: compare value bits 31:0",
    "compare_high" / Int32ul * "ATOMIC_CAS: compare value bits 63:32",
    "result_address" / Int64ul * "atomics: where the old value goes (as many bytes as the atomic works on)",
    "result_lkey" / Int32ul * "atomics: its key",
    "reserved" / Int32ul * "0",
)

RecvWqe = Struct(
    "index" / Int32ul * "running index of this slot",
    "qpn" / Int32ul * "own QP number",
    "address" / Int64ul * "where the message goes",
    "lkey" / Int32ul * "its key",
    "length" / Int32ul * "bytes it can take",
    "reserved" / Int64ul * "0",
)

Cqe = Struct(
    "index" / Int32ul * "running index of the completed WQE (send or receive ring, see opcode)",
    "qpn" / Int32ul * "queue pair",
    "length" / Int32ul * "bytes transferred",
    "immediate" / Int32ul * "immediate data received; with WITH_INV the key that was invalidated",
    "timestamp" / Int64ul * "nanoseconds on the device's clock",
    "cause" / Int32ul * "VendorCause; 0 on success",
    "flags" / Int32ul * "CqeFlags",
    "source_qpn" / Int32ul * "datagrams received: the sender's QP",
    "reserved" / Array(5, Int32ul) * "0",
    "producer" / Int32ul * "commit word: running index of this entry in the CQ",
    "index16" / Int16ul * "commit word: low 16 bits of index",
    "status" / Byte * "commit word: completion status (enum ibv_wc_status)",
    "opcode_phase" / Byte * "commit word: opcode in bits 7:4, phase in bit 0",
)


class CqeFlags(enum.IntFlag):
    """CQE flags."""

    WITH_IMM = 1 << 0
    SOLICITED = 1 << 1
    WITH_INV = 1 << 2
    GRH = 1 << 3
    """Datagrams received: the first 40 bytes of the buffer, which ``length`` counts, are the network header:
    an IPv6 header, or 20 zero bytes and an IPv4 header."""


Eqe = Struct(
    "object" / Int32ul * "CQN or QPN, by type",
    "reserved0" / Int32ul * "0",
    "timestamp" / Int64ul * "nanoseconds on the device's clock",
    "reserved1" / Int64ul * "0",
    "index" / Int32ul * "commit word: running index of this entry",
    "type" / Byte * "commit word: EventType",
    "reserved2" / Int16ul * "commit word: 0",
    "phase" / Byte * "commit word: bit 0 flips each pass (first pass 1)",
)

DoorbellRecord = Struct(
    "receive" / Int32ul * "running index of the next free receive slot",
    "send" / Int32ul * "running index of the next free send slot",
)

# Doorbell, one 64-bit store:
#
#   63    62..60    59..56       55..........32   31..............0
#   valid reserved  queue type   QPN or CQN       next running index
DOORBELL_INDEX_SHIFT = 0
DOORBELL_QPN_SHIFT = 32
DOORBELL_QPN_MASK = 0xFFFFFF
DOORBELL_TYPE_SHIFT = 56
DOORBELL_VALID = 1 << 63


class DoorbellType(enum.IntEnum):
    """Queue type field; must match the offset written."""

    SQ = 0
    RQ = 1
    CQ_CONSUMER = 2
    CQ_ARM = 3
    """Index is the consumer index; the next completion beyond it raises one COMPLETION event."""
    CQ_ARM_SOLICITED = 4
    HINTS = 5
    """Look at the process's hint ring now; number and index do not matter."""


class DoorbellOffset(enum.IntEnum):
    """Byte offsets in a doorbell page."""

    SQ = 0x000
    RQ = 0x008
    CQ_CONSUMER = 0x010
    CQ_ARM = 0x020
    HINTS = 0x030
