# SPDX-License-Identifier: Apache-2.0
"""What software declared of itself: which rank a queue pair leads to, which words are signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.check import Check, Found
from emu.checks.hint import Hint, SignalOp
from emu.checks.rule import Rule

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "DeclaredWatch"]

CHECKS = (
    Check(
        Rule.C25_SIGNAL,
        "A declared signal changes as declared: its whole width, by adding or by setting.",
        "QPN, address, declared and actual width and way",
        "Nothing: the access is carried out.",
        "Use one width for a signal on both sides; 4-byte counts do not fit 8-byte slots.",
        found=Found.DECLARED,
        personalities=("vrnic",),
        limits="At most 4096 signals a process.",
    ),
    Check(
        Rule.C28_PEER,
        "A queue pair is used for the rank it was declared for.",
        "QPN, index, declared rank, the rank it is used for",
        "Nothing: the work goes where the queue pair leads.",
        "Index the array of queue pairs in one order on host and device.",
        found=Found.DECLARED,
        personalities=("vrnic",),
    ),
)

MOST_SIGNALS = 4096


class DeclaredWatch:
    """Remembers what was declared and compares with what happens.

    ``signals`` is by number of the context, then by address.
    """

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self.signals: dict[int, dict[int, tuple[int, int]]] = {}
        self._ranks: dict[int, int] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.signals.clear()
        self._ranks.clear()

    def forget_qp(self, qpn: int) -> None:
        """A queue pair is gone."""
        self._ranks.pop(qpn, None)

    def forget_context(self, number: int) -> None:
        """A process is gone."""
        self.signals.pop(number, None)

    def peer(self, hint: Hint, qp: QueuePair) -> None:
        """A queue pair leads to a rank."""
        self._ranks[qp.number] = hint.writer

    def use(self, hint: Hint, qp: QueuePair) -> None:
        """A WQE is meant for a rank."""
        rank = self._ranks.get(qp.number)
        if rank is not None and rank != hint.writer:
            self._checks.report(
                Rule.C28_PEER,
                f"QP {qp.number:#x} leads to rank {rank}, the WQE of index {hint.index} is meant for rank "
                f"{hint.writer}; index queue pairs in the same order on host and device",
                qpn=qp.number,
                index=hint.index,
            )

    def signal(self, hint: Hint, context: int) -> bool:
        """A word is a signal. False when there are too many."""
        known = self.signals.setdefault(context, {})
        if len(known) >= MOST_SIGNALS:
            return False
        known[hint.address] = (hint.length, hint.detail)
        return True

    def landed(self, qp: QueuePair, address: int, length: int, added: bool) -> None:
        """A peer changed memory of the process that owns ``qp``: by an atomic addition, or otherwise."""
        known = self.signals.get(qp.pd.context.number)
        if not known:
            return
        if length <= 16:
            places = [at for at in range(address - 7, address + length) if at in known]
        else:
            places = [at for at in known if at < address + length and address < at + known[at][0]]
        for at in places:
            width, op = known[at]
            if at + width <= address:
                continue
            right = address == at and length == width and added == (op == SignalOp.ADD)
            if not right:
                how = "adds to" if added else "writes"
                want = "adds to" if op == SignalOp.ADD else "writes"
                self._checks.report(
                    Rule.C25_SIGNAL,
                    f"QP {qp.number:#x}: a peer {how} {length} bytes at {address:#x}; the signal at "
                    f"{at:#x} was "
                    f"declared as one that a peer {want}, {width} bytes at a time",
                    qpn=qp.number,
                    address=address,
                )
                return
