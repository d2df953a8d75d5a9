# SPDX-License-Identifier: Apache-2.0
"""Completions: 64 bytes, the last one opcode and owner bit. In CQs of 128-byte entries the second half.

::

    20 checksum (frames)       24 flags, remote QPN     28 header flags, header types (frames)
    32 shared receive queue    36 immediate             44 byte count            48 time
    54 vendor syndrome, 55 syndrome (errors)            56 opcode of the WQE, QPN
    60 WQE counter             63 opcode << 4 | owner

Source: ``struct mlx5_cqe64`` and ``struct mlx5_err_cqe`` in ``include/linux/mlx5/device.h``.
"""

from __future__ import annotations

import struct

from emu.nic.cq import CompletionQueue, CqMode
from emu.nic.frame import TCP, UDP, FrameInfo
from emu.nic.work import Completion, CompletionOpcode, Status
from emu.personality.mlx5.codes import CqeOpcode, WqeOpcode
from emu.personality.mlx5.formats.syndrome import syndrome, vendor_syndrome

__all__ = ["CQE_SIZE", "CompletionFormat", "finish"]

CQE_SIZE = 64
COMMIT = 8
"""Bytes at an entry's end that are written at once, behind the rest."""
_GOOD = struct.Struct(">24xI4xII4xIQIHx")
_BAD = struct.Struct(">32xI18xBBIHx")
_FRAME = struct.Struct(">12xIB3xH6xBB14xIQ4xHx")
_DEFAULT_PKEY = 0xFFFF
_HAS_HEADER = 1 << 28
_SOURCES = {0: 0, 6: _HAS_HEADER | 1 << 24, 4: _HAS_HEADER | 2 << 24}
"""By IP version of a datagram: that its network header comes first, and which one that is."""
_L2_OK, _L3_OK, _L4_OK = 1, 2, 4
_L3_TYPES = {0: 0, 6: 1, 4: 2}
_L4_TYPES = {TCP: 4, UDP: 2}
_HASH_L3 = {0: 0, 4: 1 << 2, 6: 2 << 2}
_HASH_L4 = {0: 0, TCP: 1 << 6, UDP: 2 << 6}

_WQE_OPCODES = {
    CompletionOpcode.SEND: WqeOpcode.SEND,
    CompletionOpcode.WRITE: WqeOpcode.RDMA_WRITE,
    CompletionOpcode.READ: WqeOpcode.RDMA_READ,
    CompletionOpcode.ATOMIC_CAS: WqeOpcode.ATOMIC_CS,
    CompletionOpcode.ATOMIC_ADD: WqeOpcode.ATOMIC_FA,
    CompletionOpcode.NOP: WqeOpcode.NOP,
}
"""Opcode of the WQE where the completion does not hand it back as its cookie."""


class CompletionFormat:
    """Implements :class:`emu.nic.formats.CqeFormat`."""

    slot_size = CQE_SIZE

    def encode(self, completion: Completion, cq: CompletionQueue, timestamp: int) -> tuple[bytes, bytes]:
        """Body and the last eight bytes."""
        received = completion.opcode >= CompletionOpcode.RECV
        if completion.status is not Status.SUCCESS:
            opcode = CqeOpcode.RESPONDER_ERROR if received else CqeOpcode.REQUESTER_ERROR
            body = _BAD.pack(
                _shared(completion) if received else 0,
                vendor_syndrome(completion),
                syndrome(completion),
                (0 if received else _wqe_opcode(completion) << 24) | completion.qpn,
                completion.index & 0xFFFF,
            )
        elif isinstance(completion.cookie, FrameInfo):
            opcode = CqeOpcode.RESPONDER_SEND
            body = _frame(completion, completion.cookie, timestamp)
        elif received:
            opcode, word = _received(completion)
            body = _GOOD.pack(
                _SOURCES[completion.ip_version] | completion.source_qpn,
                _shared(completion),
                word,
                completion.length,
                timestamp,
                completion.qpn,
                completion.index & 0xFFFF,
            )
        else:
            opcode = CqeOpcode.REQUESTER
            body = _GOOD.pack(
                0,
                0,
                0,
                completion.length,
                timestamp,
                _wqe_opcode(completion) << 24 | completion.qpn,
                completion.index & 0xFFFF,
            )
        return finish(body, opcode, cq)

    def counter(self, value: int) -> bytes:
        """Eight big-endian bytes; no CQ of this interface counts only."""
        return value.to_bytes(8, "big")


def _shared(completion: Completion) -> int:
    """Number of the shared receive queue an element came from, 0 when it was the queue pair's own."""
    cookie = completion.cookie
    return cookie if isinstance(cookie, int) else 0


def _received(completion: Completion) -> tuple[CqeOpcode, int]:
    """Opcode of a receive completion, and the word that depends on it."""
    if completion.invalidated is not None:
        return CqeOpcode.RESPONDER_SEND_INVAL, completion.invalidated
    if completion.opcode is CompletionOpcode.RECV_WRITE_IMM:
        return CqeOpcode.RESPONDER_WRITE_IMM, completion.immediate or 0
    if completion.immediate is not None:
        return CqeOpcode.RESPONDER_SEND_IMM, completion.immediate
    # Drivers look the P_Key of a management datagram up in their table.
    return CqeOpcode.RESPONDER_SEND, _DEFAULT_PKEY if completion.ip_version else 0


def _frame(completion: Completion, info: FrameInfo, timestamp: int) -> bytes:
    """Completion of a received frame: what its headers are, whether their checksums hold, its flow's hash."""
    headers, flow = info.headers, info.flow
    l4 = _L4_TYPES.get(headers.protocol, 0) if not headers.fragment else 0
    return _FRAME.pack(
        flow.value,
        _HASH_L3[flow.version] | _HASH_L4[flow.protocol],
        info.sum,
        _L2_OK | (_L3_OK if info.l3_ok else 0) | (_L4_OK if info.l4_ok else 0),
        l4 << 4 | _L3_TYPES[headers.version] << 2,
        completion.length,
        timestamp,
        completion.index & 0xFFFF,
    )


def finish(body: bytes, opcode: CqeOpcode, cq: CompletionQueue) -> tuple[bytes, bytes]:
    """Body padded to the CQ's entry size, and the last eight bytes, which end in opcode and owner bit.

    Eight, not one: of a collapsed CQ's entry software reads WQE counter and opcode together, and must not
    find the one of this completion with the other of the one before.
    """
    owner = 0 if cq.mode is CqMode.COLLAPSED else cq.producer >> cq.ring.log_size & 1
    entry = body.rjust(cq.ring.slot_size - 1, b"\0") + bytes([opcode << 4 | owner])
    return entry[:-COMMIT], entry[-COMMIT:]


def _wqe_opcode(completion: Completion) -> int:
    cookie = completion.cookie
    return cookie if isinstance(cookie, int) else _WQE_OPCODES.get(completion.opcode, WqeOpcode.SEND)
