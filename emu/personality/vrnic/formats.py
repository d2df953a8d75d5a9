# SPDX-License-Identifier: Apache-2.0
"""The contract's descriptors for the core: send and receive WQEs in, completions and events out.

Runs for every descriptor, so each takes one unpack and one test that all is well; what is wrong is found out
only when that test fails.
"""

from __future__ import annotations

from emu.checks.descriptors import swapped, unlike_index
from emu.checks.rule import Rule
from emu.nic.cq import CompletionQueue, CqMode
from emu.nic.engine import AsyncEvent
from emu.nic.eq import EventQueue
from emu.nic.formats import Formats, WqeFault
from emu.nic.limits import NicLimits
from emu.nic.qp import QueuePair
from emu.nic.serial import MASK
from emu.nic.work import (
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    ReceiveRequest,
    SendRequest,
    Sge,
    Status,
    Transport,
)
from emu.personality.vrnic.codec import packer
from emu.personality.vrnic.contract.codes import EventType
from emu.personality.vrnic.contract.descriptors import (
    CQE_SIZE,
    EQE_SIZE,
    RECV_WQE_SIZE,
    WQE_SIZE,
    Cqe,
    CqeFlags,
    DoorbellRecord,
    Eqe,
    RecvWqe,
    SendWqe,
    WqeFlags,
)

__all__ = ["vrnic_formats"]

COMMIT = 8
"""Bytes of the commit word at the end of a CQE or an EQE."""
INLINE_OFFSET = 32
ATOMIC_BYTES = 8
SMALL_ATOMIC_BYTES = 4
_U32 = 0xFFFFFFFF

_SIGNAL = int(WqeFlags.SIGNAL)
_SOLICITED = int(WqeFlags.SOLICITED)
_FENCE = int(WqeFlags.FENCE)
_INLINE = int(WqeFlags.INLINE)
_SMALL = int(WqeFlags.OPERAND_4B)
_PHASE = int(WqeFlags.PHASE)
_COMMON = _SIGNAL | _SOLICITED | _FENCE | _PHASE

_WITH_PAYLOAD = (Opcode.WRITE, Opcode.WRITE_IMM, Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV)
_ALLOWED = {
    opcode.value: _COMMON
    | (_INLINE if opcode in _WITH_PAYLOAD else 0)  # reads and atomics send none
    | (_SMALL if opcode in (Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS) else 0)
    for opcode in Opcode
}
"""Flags each opcode takes."""
_OPCODES = {opcode.value: opcode for opcode in Opcode}
_ATOMICS = frozenset((Opcode.ATOMIC_ADD.value, Opcode.ATOMIC_CAS.value))
_DATAGRAMS = frozenset((Transport.ROCE_UD, Transport.UET_UUD))
_COMPLETES_AS = {
    Opcode.NOP: CompletionOpcode.NOP,
    Opcode.WRITE: CompletionOpcode.WRITE,
    Opcode.WRITE_IMM: CompletionOpcode.WRITE,
    Opcode.READ: CompletionOpcode.READ,
    Opcode.SEND: CompletionOpcode.SEND,
    Opcode.SEND_IMM: CompletionOpcode.SEND,
    Opcode.ATOMIC_ADD: CompletionOpcode.ATOMIC_ADD,
    Opcode.ATOMIC_CAS: CompletionOpcode.ATOMIC_CAS,
    Opcode.SEND_INV: CompletionOpcode.SEND,
}


def _phase(index: int, start: int, log_size: int) -> int:
    """Phase bit of running index ``index`` in a ring whose first index is ``start``: 1 in the first pass."""
    return (((index - start) & MASK) >> log_size) & 1 ^ 1


class SendFormat:
    """Send WQEs; implements :class:`emu.nic.formats.WqeFormat`."""

    slot_size = WQE_SIZE

    def __init__(self, limits: NicLimits) -> None:
        self._max_message = limits.max_message
        self._max_inline = limits.max_inline
        self._unpack = packer(SendWqe, 0, WQE_SIZE).iter_unpack

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
        """One result per slot."""
        results: list[SendRequest | WqeFault] = []
        number = qp.number
        signal_all = qp.signal_all
        longest = self._max_message
        check_phase, start, log_size = qp.phase, qp.start_index, qp.sq.log_size
        handles = qp.pd.handles if qp.transport in _DATAGRAMS else None
        index = first
        for (
            opcode,
            flags,
            blocks,
            echo,
            qpn,
            immediate,
            remote,
            rkey,
            length,
            local,
            lkey,
            compare_high,
            result,
            result_lkey,
        ) in self._unpack(burst):
            if (
                echo != index
                or qpn != number
                or blocks > 1
                or length > longest
                or flags & ~_ALLOWED.get(opcode, 0)
                or opcode not in _OPCODES
                or (check_phase and flags >> 7 != _phase(index, start, log_size))
            ):
                results.append(self._fault(qp, index, opcode, flags, blocks, echo, qpn, length))
                index = (index + 1) & MASK
                continue
            request = SendRequest(
                index,
                _OPCODES[opcode],
                length=length,
                remote_address=remote,
                rkey=rkey,
                immediate=immediate,
                signaled=signal_all or bool(flags & _SIGNAL),
                solicited=bool(flags & _SOLICITED),
                fence=bool(flags & _FENCE),
            )
            if handles is not None and opcode != Opcode.NOP:
                handle = handles.get(remote & _U32)
                if handle is None:
                    text = (
                        f"index {index}: PD {qp.pd.number} has no address handle {remote & _U32:#x}; "
                        "put its number into the low half of remote_address"
                    )
                    results.append(_bad(index, Cause.HANDLE_UNKNOWN, text, opcode))
                    index = (index + 1) & MASK
                    continue
                request.handle = handle.address
                request.dest_qpn = remote >> 32 & 0xFFFFFF
                request.qkey = rkey
            if opcode in _ATOMICS:
                wanted = SMALL_ATOMIC_BYTES if flags & _SMALL else ATOMIC_BYTES
                if length != wanted:
                    text = (
                        f"index {index}: an atomic {'with' if flags & _SMALL else 'without'} OPERAND_4B is "
                        f"{length} bytes long; set length to {wanted}"
                    )
                    results.append(_bad(index, Cause.BAD_LENGTH, text, opcode))
                    index = (index + 1) & MASK
                    continue
                request.swap_add = local
                request.sges = [Sge(result, wanted, result_lkey)]
                if opcode == Opcode.ATOMIC_CAS:
                    request.compare = lkey | compare_high << 32
            elif flags & _INLINE:
                if length > self._max_inline:
                    text = f"index {index}: {length} bytes inline; at most {self._max_inline} fit a WQE"
                    results.append(_bad(index, Cause.BAD_LENGTH, text, opcode))
                    index = (index + 1) & MASK
                    continue
                at = ((index - first) & MASK) * WQE_SIZE + INLINE_OFFSET
                request.inline = burst[at : at + length]
            elif length and opcode != Opcode.NOP:
                request.sges = [Sge(local, length, lkey)]
            results.append(request)
            index = (index + 1) & MASK
        return results

    def _fault(
        self,
        qp: QueuePair,
        index: int,
        opcode: int,
        flags: int,
        blocks: int,
        echo: int,
        qpn: int,
        length: int,
    ) -> WqeFault:
        known = _OPCODES.get(opcode)
        completes = _COMPLETES_AS[known] if known is not None else CompletionOpcode.SEND
        if qp.phase:
            phase = _phase(index, qp.start_index, qp.sq.log_size)
            if flags >> 7 != phase:
                if echo == index and qpn == qp.number:
                    text = (
                        f"the WQE of index {index} has phase {flags >> 7}, this pass {phase}; take the phase "
                        "from the running index, not from the slot"
                    )
                    return WqeFault(index, Rule.C18_WRAP, Cause.PHASE_STALE, text, opcode=completes)
                text = (
                    f"slot of index {index} has phase {flags >> 7}, this pass {phase}: it was not written in "
                    "this pass; store the first 8 bytes of each WQE last and before the doorbell"
                )
                return WqeFault(index, Rule.C03_STALE, Cause.PHASE_STALE, text, opcode=completes)
        if echo != index:
            rule, why = unlike_index(echo, index)
            text = f"slot of index {index} carries index {echo}; {why}"
            return WqeFault(index, rule, Cause.INDEX_MISMATCH, text, opcode=completes)
        if qpn != qp.number:
            if swapped(qpn) in (qp.number, qp.number << 8):
                text = f"index {index} carries QPN {qpn:#x}, whose bytes are swapped; write it little-endian"
                return WqeFault(index, Rule.C11_BYTE_ORDER, Cause.QPN_MISMATCH, text, opcode=completes)
            text = f"index {index} carries QPN {qpn:#x}; write the QP's own number into each WQE"
            return WqeFault(index, Rule.C02_OWNER, Cause.QPN_MISMATCH, text, opcode=completes)
        if known is None:
            return _bad(index, Cause.BAD_OPCODE, f"index {index}: there is no opcode {opcode:#x}", opcode)
        if stray := flags & ~_ALLOWED[opcode]:
            text = f"index {index}: {known.name} does not take flag bits {stray:#x}"
            return _bad(index, Cause.BAD_FLAGS, text, opcode)
        if blocks > 1:
            text = f"index {index}: {blocks} blocks; every operation takes one slot"
            return _bad(index, Cause.BAD_LENGTH, text, opcode)
        text = f"index {index}: {length} bytes; the longest message has {self._max_message}"
        return WqeFault(index, Rule.NONE, Cause.BAD_LENGTH, text, status=Status.LOC_LEN_ERR, opcode=completes)


def _bad(index: int, cause: Cause, text: str, opcode: int) -> WqeFault:
    known = _OPCODES.get(opcode)
    completes = _COMPLETES_AS[known] if known is not None else CompletionOpcode.SEND
    return WqeFault(index, Rule.C29_UNSUPPORTED, cause, text, opcode=completes)


class RecvFormat:
    """Receive WQEs; implements :class:`emu.nic.formats.ReceiveFormat`."""

    slot_size = RECV_WQE_SIZE

    def __init__(self) -> None:
        self._unpack = packer(RecvWqe, 0, RECV_WQE_SIZE).iter_unpack

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[ReceiveRequest | WqeFault]:
        """One result per slot."""
        results: list[ReceiveRequest | WqeFault] = []
        index = first
        for echo, qpn, address, lkey, length in self._unpack(burst):
            if echo == index and qpn == qp.number:
                results.append(ReceiveRequest(index, [Sge(address, length, lkey)] if length else []))
            elif echo != index:
                text = f"receive slot of index {index} carries index {echo}; it is stale or numbered wrongly"
                results.append(
                    WqeFault(index, Rule.C01_INDEX, Cause.INDEX_MISMATCH, text, opcode=CompletionOpcode.RECV)
                )
            else:
                text = f"receive index {index} carries QPN {qpn:#x}; write the QP's own number into each WQE"
                results.append(
                    WqeFault(index, Rule.C02_OWNER, Cause.QPN_MISMATCH, text, opcode=CompletionOpcode.RECV)
                )
            index = (index + 1) & MASK
        return results


class CompletionFormat:
    """CQEs; implements :class:`emu.nic.formats.CqeFormat`."""

    slot_size = CQE_SIZE

    def __init__(self) -> None:
        self._body = packer(Cqe, 0, CQE_SIZE - COMMIT).pack
        self._commit = packer(Cqe, CQE_SIZE - COMMIT, CQE_SIZE).pack

    def encode(self, completion: Completion, cq: CompletionQueue, timestamp: int) -> tuple[bytes, bytes]:
        """Body and commit word. The one slot of a collapsed CQ always has phase 1."""
        producer = cq.producer
        phase = 1 if cq.mode is CqMode.COLLAPSED else _phase(producer, 0, cq.ring.log_size)
        immediate = completion.immediate
        flags = 0 if immediate is None else int(CqeFlags.WITH_IMM)
        if completion.invalidated is not None:
            flags |= int(CqeFlags.WITH_INV)
            immediate = completion.invalidated
        if completion.solicited:
            flags |= int(CqeFlags.SOLICITED)
        if completion.ip_version:
            flags |= int(CqeFlags.GRH)
        index = completion.index
        return (
            self._body(
                index,
                completion.qpn,
                completion.length,
                immediate or 0,
                timestamp,
                completion.cause,
                flags,
                completion.source_qpn,
            ),
            self._commit(producer, index & 0xFFFF, completion.status, completion.opcode << 4 | phase),
        )

    def counter(self, value: int) -> bytes:
        """A u64."""
        return value.to_bytes(8, "little")


class EventFormat:
    """EQEs; implements :class:`emu.nic.formats.EqeFormat`."""

    slot_size = EQE_SIZE

    def __init__(self) -> None:
        self._body = packer(Eqe, 0, EQE_SIZE - COMMIT).pack
        self._commit = packer(Eqe, EQE_SIZE - COMMIT, EQE_SIZE).pack

    def encode(
        self, event: AsyncEvent | None, number: int, eq: EventQueue, timestamp: int
    ) -> tuple[bytes, bytes]:
        """Body and commit word."""
        kind = EventType.COMPLETION if event is None else event
        return (
            self._body(number, timestamp),
            self._commit(eq.producer, kind, _phase(eq.producer, 0, eq.ring.log_size)),
        )


class DbrFormat:
    """Doorbell records: full 32-bit indices; implements :class:`emu.nic.formats.RecordFormat`."""

    size = int(DoorbellRecord.sizeof())

    def __init__(self) -> None:
        self._unpack = packer(DoorbellRecord, 0, self.size).unpack

    def send(self, record: bytes, last: int) -> int:
        """The send index."""
        return int(self._unpack(record)[1])

    def receive(self, record: bytes, last: int) -> int:
        """The receive index."""
        return int(self._unpack(record)[0])

    def consumer(self, record: bytes, last: int) -> int:
        """The contract's CQs have no record: doorbells tell all."""
        return last


def vrnic_formats(limits: NicLimits) -> Formats:
    """The contract's formats for a NIC with ``limits``."""
    return Formats(SendFormat(limits), RecvFormat(), CompletionFormat(), EventFormat(), DbrFormat())
