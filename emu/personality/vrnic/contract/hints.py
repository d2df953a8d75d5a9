# SPDX-License-Identifier: Apache-2.0
"""The hint ring: what a submitter tells the device's checks of itself, in memory of its own. Little-endian.

A header of 64 bytes and, right behind it, ``1 << log_size`` entries of 64 bytes. Software writes an entry,
then the producer index; the device reads what is there whenever a doorbell of the process arrives, and writes
the consumer index. So hints speak of what came before the doorbell behind them, whenever they are read.
"""

from __future__ import annotations

from construct import Array, Byte, Int16ul, Int32ul, Int64ul, Struct

HINT_SIZE = 64
HINT_HEADER_SIZE = 64
NO_HINTS = 255
"""SET_HINTS ``log_size``: no hint ring."""
MAX_LOG_HINTS = 16

HintHeader = Struct(
    "producer" / Int32ul * "running index of the next entry software will write",
    "reserved0" / Array(7, Int32ul) * "0",
    "consumer" / Int32ul * "device: running index of the next entry it will read",
    "reserved1" / Array(7, Int32ul) * "0",
)

HintEntry = Struct(
    "kind" / Byte * "HintKind",
    "detail" / Byte * "by kind: HintPart, HintWait, HintSignal, or 1 for a lock that is held",
    "cta" / Int16ul * "CTA of the lane that hints",
    "sequence" / Int32ul * "running index of this entry",
    "lane" / Int32ul * "lane that hints, in the grid",
    "qpn" / Int32ul * "queue pair it is about, 0 if none",
    "index" / Int32ul * "running WQE index it is about",
    "length" / Int32ul * "bytes at address; of a signal its width",
    "address" / Int64ul * "virtual address of what was stored, is reused, shared, missing or a signal",
    "writer" / Int32ul * "lane that stored; for LOCK the holder (0xffffffff nobody); PEER and USE: the rank",
    "writer_cta" / Int16ul * "its CTA",
    "scope" / Byte * "ORDER: widest fence between, 0 none, 1 CTA, 2 GPU, 3 system",
    "needed" / Byte * "ORDER: scope that the NIC needs there",
    "writer_clock" / Int32ul * "ORDER: the writer's clock at the store",
    "known_clock" / Int32ul * "ORDER: clock of the writer up to which its stores are known to be visible",
    "loose_clock" / Int32ul * "ORDER: the same if every fence and atomic had been wide enough",
    "reserved" / Int32ul * "0",
    "value" / Int64ul * "STALL: ready index; REUSE: first index not complete; MISSING: the flag's address",
)
