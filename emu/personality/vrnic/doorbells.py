# SPDX-License-Identifier: Apache-2.0
"""BAR2: doorbell pages.

The hottest path of the device: a good doorbell is one integer, two look-ups and a hand-over to the core,
which does the work later. Everything that is wrong with it is sorted out apart.
"""

from __future__ import annotations

from emu.checks.rule import Rule
from emu.events import Kind
from emu.nic.cq import Arm
from emu.nic.device import Nic
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.contract.descriptors import (
    DOORBELL_QPN_MASK,
    DOORBELL_QPN_SHIFT,
    DOORBELL_TYPE_SHIFT,
    DOORBELL_VALID,
    DoorbellOffset,
    DoorbellType,
)
from emu.personality.vrnic.contract.identity import (
    DOORBELL_BLOCK_BASE,
    DOORBELL_BLOCK_SIZE,
    DOORBELL_PAGE_SIZE,
)

__all__ = ["Doorbells", "doorbell_queue"]

_PAGE_SHIFT = DOORBELL_PAGE_SIZE.bit_length() - 1
_PAGE_MASK = DOORBELL_PAGE_SIZE - 1
_INDEX_MASK = 0xFFFFFFFF
_DOORBELL = Kind.DOORBELL.bit
_SHIFT, _MASK = DOORBELL_QPN_SHIFT, DOORBELL_QPN_MASK


def _top(kind: DoorbellType) -> int:
    """Bits 63..56 of a valid doorbell of this type."""
    return DOORBELL_VALID >> DOORBELL_TYPE_SHIFT | kind


_SQ_TOP = _top(DoorbellType.SQ)
_TOPS = {
    int(DoorbellOffset.SQ): (_SQ_TOP,),
    int(DoorbellOffset.RQ): (_top(DoorbellType.RQ),),
    int(DoorbellOffset.CQ_CONSUMER): (_top(DoorbellType.CQ_CONSUMER),),
    int(DoorbellOffset.HINTS): (_top(DoorbellType.HINTS),),
    int(DoorbellOffset.CQ_ARM): (_top(DoorbellType.CQ_ARM), _top(DoorbellType.CQ_ARM_SOLICITED)),
}
"""Bits 63..56 that each offset takes."""
_SOLICITED_TOP = _top(DoorbellType.CQ_ARM_SOLICITED)


def doorbell_queue(offset: int, data: bytes) -> int | None:
    """A number for the queue that a store rings, by page, register and object; None for no doorbell."""
    if len(data) != 8:
        return None
    return offset << 32 | int.from_bytes(data, "little") >> _SHIFT


class Doorbells:
    """Handler of BAR2; implements :class:`emu.pcie.bar.BarHandler`."""

    def __init__(self, nic: Nic, blocks: DoorbellBlocks) -> None:
        self._nic = nic
        self._blocks = blocks
        self._qps = nic.qps.items
        self._cqs = nic.cqs.items
        self._counters = nic.counters
        self._ring = nic.submission.ring

    def read(self, offset: int, size: int) -> bytes:
        """Doorbells are write-only: zero, counted."""
        self._counters.bad_mmio += 1
        return bytes(size)

    def write(self, offset: int, data: bytes) -> None:
        """One doorbell; anything but a valid one of its page and offset is ignored, counted and reported."""
        if len(data) == 8 and not offset & _PAGE_MASK:
            value = int.from_bytes(data, "little")
            qp = self._qps.get(value >> _SHIFT & _MASK)
            if (
                qp is not None
                and value >> DOORBELL_TYPE_SHIFT == _SQ_TOP
                and qp.pd.context.number == offset >> _PAGE_SHIFT
            ):
                self._ring(qp, value & _INDEX_MASK)
                return
        self._other(offset, data)

    def lost(self, offset: int, data: bytes) -> None:
        """A fault took this store away; see :class:`emu.pcie.bar.LosesDoorbells`."""
        watch, value = self._nic.checks.watch, int.from_bytes(data, "little")
        if watch is not None and len(data) == 8 and value >> DOORBELL_TYPE_SHIFT == _SQ_TOP:
            watch.idle.lost(value >> _SHIFT & _MASK, value & _INDEX_MASK)

    def _other(self, offset: int, data: bytes) -> None:
        page, register = offset >> _PAGE_SHIFT, offset & _PAGE_MASK
        if len(data) != 8 or offset & 7:
            self._ignore(
                Rule.C12_WIDTH,
                f"{len(data)}-byte store at {register:#x} of doorbell page {page}; "
                "ring with one aligned 64-bit store",
            )
            return
        value = int.from_bytes(data, "little")
        number = value >> _SHIFT & _MASK
        top = value >> DOORBELL_TYPE_SHIFT
        if register >= DOORBELL_BLOCK_BASE:
            block = register & -DOORBELL_BLOCK_SIZE
            register -= block
            if register in (DoorbellOffset.SQ, DoorbellOffset.RQ) and value:
                owner = self._blocks.owner(page, block)
                if owner != number:
                    whose = "nobody's" if owner is None else f"that of QP {owner:#x}"
                    self._ignore(
                        Rule.C02_OWNER,
                        f"QP {number:#x} was rung in block {block:#x} of page {page}, which is {whose}",
                        number,
                    )
                    return
        tops = _TOPS.get(register)
        if tops is None:
            self._ignore(Rule.C29_UNSUPPORTED, f"no doorbell at {register:#x} of page {page}")
        elif not value & DOORBELL_VALID and (value & _INDEX_MASK) >> 24 in tops:
            self._ignore(
                Rule.C11_BYTE_ORDER,
                f"doorbell {value:#018x} at {register:#x} would be valid with its halves swapped; the "
                "index is "
                "in the low half",
                value & _MASK,
            )
        elif not value & DOORBELL_VALID:
            self._ignore(
                Rule.C12_WIDTH,
                f"doorbell {value:#018x} at {register:#x} lacks the valid bit; set bit 63",
                number,
            )
        elif top not in tops:
            self._ignore(
                Rule.C29_UNSUPPORTED,
                f"doorbell {value:#018x} has a type or reserved bits that offset {register:#x} does not take",
                number,
            )
        elif register == DoorbellOffset.HINTS:
            self._hints(page)
        elif register in (DoorbellOffset.SQ, DoorbellOffset.RQ):
            self._queue_pair(page, register, number, value & _INDEX_MASK)
        else:
            self._completion_queue(page, top, register, number, value & _INDEX_MASK)

    def _hints(self, page: int) -> None:
        """Take in what the page's owner has hinted."""
        context, watch = self._nic.contexts.items.get(page), self._nic.checks.watch
        if context is None or context.hints is None:
            self._ignore(Rule.C29_UNSUPPORTED, f"page {page} has no hint ring; SET_HINTS makes one")
            return
        if watch is not None:
            watch.drain(context)

    def _queue_pair(self, page: int, register: int, number: int, index: int) -> None:
        qp = self._qps.get(number)
        if qp is None:
            self._ignore(
                Rule.C02_OWNER, f"doorbell on page {page} for QP {number:#x}, which does not exist", number
            )
        elif qp.pd.context.number != page:
            self._ignore(
                Rule.C02_OWNER,
                f"QP {number:#x} was rung through page {page} but belongs to page {qp.pd.context.number}",
                number,
            )
        elif register == DoorbellOffset.RQ:
            self._nic.submission.ring_receive(qp, index)
        else:
            self._ring(qp, index)

    def _completion_queue(self, page: int, top: int, register: int, number: int, index: int) -> None:
        cq = self._cqs.get(number)
        if cq is None:
            self._ignore(Rule.C02_OWNER, f"doorbell on page {page} for CQ {number}, which does not exist")
            return
        if cq.context.number != page:
            self._ignore(
                Rule.C02_OWNER,
                f"CQ {number} was rung through page {page} but belongs to page {cq.context.number}",
            )
            return
        if register == DoorbellOffset.CQ_CONSUMER:
            accepted = cq.consume(index)
        else:
            accepted = cq.arm(index, Arm.SOLICITED if top == _SOLICITED_TOP else Arm.NEXT)
        if accepted:
            self._counters.doorbells += 1
            if self._nic.platform.events.mask & _DOORBELL:
                what = DoorbellType(top & ~(DOORBELL_VALID >> DOORBELL_TYPE_SHIFT)).name
                self._nic.platform.trace.emit(
                    Kind.DOORBELL, f"CQ {number}: {what} index {index}", index=index
                )
        else:
            self._counters.doorbells_ignored += 1

    def _ignore(self, rule: Rule, text: str, qpn: int | None = None) -> None:
        self._counters.doorbells_ignored += 1
        self._nic.checks.report(rule, f"{text}; doorbell ignored", qpn=qpn)
