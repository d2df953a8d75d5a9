# SPDX-License-Identifier: Apache-2.0
"""Send descriptors: segments of 16 bytes in slots of 64 (WQE basic blocks).

::

    control   opmod, index, opcode | QPN, segments | signature, fence, completion flags | immediate
    shared    number of the peer's shared receive queue (4) | reserved        XRC
    datagram  Q_Key (4) ... peer's QPN (4) ... UDP source port (2) ... rmac (6), traffic class,
              hop limit, source index and flow label (4), rgid (16)           UD
    remote    address (8) | rkey (4) | reserved                               WRITE, READ, atomics
    atomic    operands, see atomics.py                                        atomics
    inline    1 << 31 | byte count (4) | bytes, padded to 16                  any number
    data      byte count (4) | lkey (4) | address (8)                         any number

Source: ``struct mlx5_wqe_*`` in ``include/linux/mlx5/qp.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial

from emu.checks.rule import Rule
from emu.nic.formats import WqeFault
from emu.nic.limits import NicLimits
from emu.nic.qp import QueuePair
from emu.nic.serial import MASK
from emu.nic.work import (
    AddressHandle,
    Cause,
    CompletionOpcode,
    Opcode,
    SendRequest,
    Sge,
    Status,
    Transport,
)
from emu.personality.mlx5.addresses import RoceAddress
from emu.personality.mlx5.codes import WqeOpcode
from emu.personality.mlx5.formats.atomics import ATOMIC_OPCODES, BadModifier, operands
from emu.personality.mlx5.formats.onboard import dump, wait
from emu.personality.mlx5.formats.umr import key_change
from emu.personality.mlx5.mkey import MkeyTable

__all__ = [
    "COMPLETE_ALWAYS",
    "COMPLETE_SHIFT",
    "CONTROL",
    "SLOT",
    "UNIT",
    "BadSegment",
    "SendFormat",
    "gather_list",
]

SLOT = 64
UNIT = 16
CONTROL = struct.Struct(">IIxxxBI")
_REMOTE = struct.Struct(">QI4x")
_DATA = struct.Struct(">IIQ")
_DATAGRAM = struct.Struct(">I4xI2xH4x6sBBI16s")
SOURCE_SHIFT = 20
"""Of the word before the peer's GID: index of the own address in bits 27:20."""
MIN_PORT = 0xC000
"""Below it the UDP source port is not one, and follows from the queue pair numbers instead."""

SOLICITED = 1 << 1
COMPLETE_SHIFT, COMPLETE_ALWAYS = 2, 2
FENCE_SHIFT, FENCE_FULL = 5, 2
"""Fence 1 orders only against local operations, which always run in order here."""
INLINE = 1 << 31
INLINE_MASK = 0x3FF

_OPCODES: dict[int, tuple[Opcode, CompletionOpcode]] = {
    WqeOpcode.NOP: (Opcode.NOP, CompletionOpcode.NOP),
    WqeOpcode.SEND_INVAL: (Opcode.SEND_INV, CompletionOpcode.SEND),
    WqeOpcode.RDMA_WRITE: (Opcode.WRITE, CompletionOpcode.WRITE),
    WqeOpcode.RDMA_WRITE_IMM: (Opcode.WRITE_IMM, CompletionOpcode.WRITE),
    WqeOpcode.SEND: (Opcode.SEND, CompletionOpcode.SEND),
    WqeOpcode.SEND_IMM: (Opcode.SEND_IMM, CompletionOpcode.SEND),
    WqeOpcode.RDMA_READ: (Opcode.READ, CompletionOpcode.READ),
    WqeOpcode.ATOMIC_CS: (Opcode.ATOMIC_CAS, CompletionOpcode.ATOMIC_CAS),
    WqeOpcode.ATOMIC_FA: (Opcode.ATOMIC_ADD, CompletionOpcode.ATOMIC_ADD),
    WqeOpcode.ATOMIC_MASKED_CS: (Opcode.ATOMIC_CAS, CompletionOpcode.ATOMIC_CAS),
    WqeOpcode.ATOMIC_MASKED_FA: (Opcode.ATOMIC_ADD, CompletionOpcode.ATOMIC_ADD),
    WqeOpcode.UMR: (Opcode.NOP, CompletionOpcode.NOP),
    WqeOpcode.WAIT: (Opcode.NOP, CompletionOpcode.NOP),
    WqeOpcode.DUMP: (Opcode.NOP, CompletionOpcode.NOP),
}
_REMOTE_OPCODES = frozenset(
    (
        WqeOpcode.RDMA_WRITE,
        WqeOpcode.RDMA_WRITE_IMM,
        WqeOpcode.RDMA_READ,
        *ATOMIC_OPCODES,
    )
)
_RESULT_OPCODES = ATOMIC_OPCODES | {WqeOpcode.RDMA_READ, WqeOpcode.DUMP}
_ONBOARD = frozenset((WqeOpcode.WAIT, WqeOpcode.DUMP))
_UNPARSED = (WqeOpcode.UMR, WqeOpcode.WAIT)
"""What comes behind their control segment is not addresses and data."""


class BadSegment(Exception):
    """A segment that runs past its descriptor."""


def gather_list(wqe: bytes, at: int) -> tuple[list[Sge], bytes | None]:
    """Data segments and inline bytes from byte ``at`` on, which come first.

    :raises BadSegment: inline bytes run past the descriptor, or come behind data segments. (No library posts
        the latter; a device could take it.)
    """
    sges: list[Sge] = []
    inline: bytes | None = None
    end = len(wqe)
    while at + UNIT <= end:
        count, lkey, address = _DATA.unpack_from(wqe, at)
        if count & INLINE:
            size = count & INLINE_MASK
            if sges:
                raise BadSegment("inline data behind data segments")
            if at + 4 + size > end:
                raise BadSegment(f"{size} bytes inline run past the descriptor")
            inline = (inline or b"") + wqe[at + 4 : at + 4 + size]
            at += (4 + size + UNIT - 1) // UNIT * UNIT
        else:
            # A count of 0 stands for the longest piece there is.
            sges.append(Sge(address, count or INLINE, lkey))
            at += UNIT
    return sges, inline


class SendFormat:
    """Implements :class:`emu.nic.formats.WqeFormat`."""

    slot_size = SLOT

    def __init__(self, limits: NicLimits, addresses: Mapping[int, RoceAddress], mkeys: MkeyTable) -> None:
        self._longest = limits.max_message
        self._addresses = addresses
        self._mkeys = mkeys

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
        """The whole descriptors among ``count`` slots."""
        results: list[SendRequest | WqeFault] = []
        number = qp.number
        datagram = qp.transport is Transport.ROCE_UD
        start = 2 * UNIT if qp.transport is Transport.ROCE_XRC else UNIT
        slot = 0
        while slot < count:
            at = slot * SLOT
            index = (first + slot) & MASK
            word, queue, flags, immediate = CONTROL.unpack_from(burst, at)
            units = queue & 0x3F
            slots = (units * UNIT + SLOT - 1) // SLOT or 1
            if slot + slots > count:
                break
            slot += slots
            wqe = burst[at : at + units * UNIT]
            request = self._one(wqe, index, slots, word, queue, flags, immediate, number, datagram, start)
            if word & 0xFF == WqeOpcode.UMR and isinstance(request, SendRequest):
                request = self._change(request, wqe, start, immediate, qp)
            elif word & 0xFF in _ONBOARD and isinstance(request, SendRequest):
                request = _onboard(request, wqe, word, qp)
            results.append(request)
        return results

    def _one(
        self,
        wqe: bytes,
        index: int,
        slots: int,
        word: int,
        queue: int,
        flags: int,
        immediate: int,
        number: int,
        datagram: bool,
        start: int,
    ) -> SendRequest | WqeFault:
        opcode = word & 0xFF
        known = _OPCODES.get(opcode)
        if word >> 8 & 0xFFFF != index & 0xFFFF:
            text = (
                f"slot of index {index} carries index {word >> 8 & 0xFFFF}; "
                "it is stale, overwritten or numbered wrongly"
            )
            return _fault(index, slots, Rule.C01_INDEX, Cause.INDEX_MISMATCH, text, known)
        if queue >> 8 != number:
            text = f"index {index} carries QPN {queue >> 8:#x}; write the QP's own number into each WQE"
            return _fault(index, slots, Rule.C02_OWNER, Cause.QPN_MISMATCH, text, known)
        if known is None:
            text = f"index {index}: opcode {opcode:#x} is not offered"
            return _fault(index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_OPCODE, text, known)
        request = SendRequest(
            index,
            known[0],
            slots=slots,
            immediate=immediate,
            signaled=flags >> COMPLETE_SHIFT & 3 >= COMPLETE_ALWAYS,
            solicited=bool(flags & SOLICITED),
            fence=flags >> FENCE_SHIFT >= FENCE_FULL,
            cookie=opcode,
        )
        at = start
        if at != UNIT and opcode not in _UNPARSED and opcode != WqeOpcode.NOP:
            # The segment in front of all others on an XRC queue pair.
            request.srq = int.from_bytes(wqe[UNIT + 1 : UNIT + 4], "big")
        result_bytes = 0
        if opcode == WqeOpcode.SEND_INVAL:
            request.rkey = immediate
        try:
            if opcode in _UNPARSED:
                return request
            if datagram and opcode != WqeOpcode.NOP:
                self._address(request, wqe)
                at += _DATAGRAM.size
            if opcode in _REMOTE_OPCODES:
                request.remote_address, request.rkey = _REMOTE.unpack_from(wqe, at)
                at += UNIT
            if opcode in ATOMIC_OPCODES:
                taken, result_bytes = operands(request, opcode, word >> 24, wqe, at)
                at += taken
            if opcode != WqeOpcode.NOP:
                request.sges, request.inline = gather_list(wqe, at)
        except struct.error:
            text = f"index {index}: {len(wqe)} bytes are too short for opcode {opcode:#x}"
            return _fault(index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, known)
        except (BadSegment, BadModifier) as error:
            text = f"index {index}: {error}"
            return _fault(index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, known)
        if request.inline is not None and opcode in _RESULT_OPCODES:
            text = f"index {index}: opcode {opcode:#x} is about memory and takes no inline data"
            return _fault(index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, known)
        request.length = sum(sge.length for sge in request.sges)
        if request.inline is not None:
            request.length += len(request.inline)
        if request.length > self._longest:
            text = f"index {index}: {request.length} bytes; the longest message has {self._longest}"
            return _fault(index, slots, Rule.NONE, Cause.BAD_LENGTH, text, known, Status.LOC_LEN_ERR)
        if opcode in ATOMIC_OPCODES and request.length != result_bytes:
            text = f"index {index}: the atomic's result takes {result_bytes} bytes, not {request.length}"
            return _fault(index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, known)
        return request

    def _change(
        self, request: SendRequest, wqe: bytes, at: int, number: int, qp: QueuePair
    ) -> SendRequest | WqeFault:
        """An element that changes a memory key."""
        change = key_change(wqe, at, number)
        if change is None:
            text = f"index {request.index}: {len(wqe)} bytes are too short to change a key"
            known = _OPCODES[WqeOpcode.UMR]
            slots = request.slots
            return _fault(request.index, slots, Rule.C29_UNSUPPORTED, Cause.BAD_LENGTH, text, known)
        request.local = partial(self._mkeys.change, qp, change)
        return request

    def _address(self, request: SendRequest, wqe: bytes) -> None:
        """Read the datagram segment. :raises struct.error: it is cut off; BadSegment: no such source."""
        qkey, peer, port, rmac, traffic_class, hop_limit, flow, rgid = _DATAGRAM.unpack_from(wqe, UNIT)
        source = self._addresses.get(flow >> SOURCE_SHIFT & 0xFF)
        if source is None:
            raise BadSegment(f"entry {flow >> SOURCE_SHIFT & 0xFF} of the RoCE address table is empty")
        request.qkey = qkey
        request.dest_qpn = peer & 0xFFFFFF
        request.handle = AddressHandle(
            source.mac, rmac, source.gid, rgid, traffic_class, hop_limit, port if port >= MIN_PORT else 0
        )


def _onboard(request: SendRequest, wqe: bytes, word: int, qp: QueuePair) -> SendRequest | WqeFault:
    """An element that the NIC carries out by itself."""
    if word & 0xFF == WqeOpcode.WAIT:
        return wait(request, wqe[UNIT:], word >> 24, qp) or request
    dump(request, request.sges, qp)
    return request


def _fault(
    index: int,
    slots: int,
    rule: Rule,
    cause: Cause,
    text: str,
    known: tuple[Opcode, CompletionOpcode] | None,
    status: Status = Status.LOC_QP_OP_ERR,
) -> WqeFault:
    completes = known[1] if known is not None else CompletionOpcode.SEND
    return WqeFault(index, rule, cause, text, slots, status, completes)
