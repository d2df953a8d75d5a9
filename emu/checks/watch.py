# SPDX-License-Identifier: Apache-2.0
"""What the data path tells the rules: one call at each step, handed on to those who look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.completions import CompletionWatch
from emu.checks.declared import DeclaredWatch
from emu.checks.doorbells import IdleWatch
from emu.checks.hint import Hint, HintKind, Part, SignalOp, Wait
from emu.checks.hintring import BadHint
from emu.checks.lifecycle import LifecycleWatch
from emu.checks.ordering import OrderJudge
from emu.checks.path import PathWatch
from emu.checks.recorder import Recorder
from emu.checks.registers import RegisterWatch
from emu.checks.reuse import ReuseWatch
from emu.checks.rule import Rule
from emu.nic.serial import ahead
from emu.nic.work import Completion, CompletionOpcode, QpState, Status

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.context import Context
    from emu.nic.cq import CompletionQueue
    from emu.nic.device import Nic
    from emu.nic.eq import EventQueue
    from emu.nic.formats import WqeFault
    from emu.nic.qp import QueuePair
    from emu.nic.work import SendRequest, Sge

__all__ = ["WATCHED", "Watch"]

WATCHED = frozenset(Rule) - {
    Rule.NONE,
    Rule.C01_INDEX,
    Rule.C02_OWNER,
    Rule.C03_STALE,
    Rule.C06_AHEAD,
    Rule.C07_OLDER,
    Rule.C11_BYTE_ORDER,
    Rule.C12_WIDTH,
    Rule.C15_CQ_OVERRUN,
    Rule.C18_WRAP,
    Rule.C19_CONSUMER,
    Rule.C21_STATE,
    Rule.C22_KEY,
    Rule.C23_ATOMIC,
    Rule.C29_UNSUPPORTED,
}
"""Rules that need to be told; the core meets the others by itself."""

_KINDS = frozenset(int(kind) for kind in HintKind)
_PARTS = frozenset(int(part) for part in Part)
_SCOPES = range(4)


class Watch:
    """Fans the steps of one NIC out to the families."""

    def __init__(self, nic: Nic, checks: Checks) -> None:
        self._nic = nic
        self._checks = checks
        self.recorder = Recorder()
        self.reuse = ReuseWatch(nic, checks)
        self.idle = IdleWatch(nic, checks)
        self.completions = CompletionWatch(nic, checks)
        self.order = OrderJudge(checks)
        self.declared = DeclaredWatch(checks)
        self.path = PathWatch(nic, checks)
        self.lifecycle = LifecycleWatch(checks)
        self.registers = RegisterWatch(checks)
        self.reusing = True
        """Whether copies of descriptors and payload are kept."""

    def clear(self) -> None:
        """The NIC starts anew."""
        self.recorder.clear()
        for part in (self.reuse, self.idle, self.completions, self.declared):
            part.clear()

    def refresh(self) -> None:
        """Actions changed."""
        self.reuse.slots = self._checks.on(Rule.C04_CHANGED)
        self.reuse.payload = self._checks.on(Rule.C05_REUSE)
        self.reusing = self.reuse.slots or self.reuse.payload
        if not self.reusing:
            self.reuse.clear()

    def ringing(self, qp: QueuePair, index: int) -> None:
        """A send doorbell arrived and was not looked at yet."""
        if qp.pd.context.hints is not None:
            self.drain(qp.pd.context)
        self.recorder.doorbells.append((self._nic.platform.scheduler.now(), qp.number, index, "send"))
        self.idle.rang(qp)
        if qp.state is QpState.ERR:
            self.completions.rang(qp, index)

    def fetched(
        self, qp: QueuePair, first: int, count: int, burst: bytes, found: list[SendRequest | WqeFault]
    ) -> None:
        """A span of a send ring was read."""
        self.recorder.fetches.append((self._nic.platform.scheduler.now(), qp.number, first, count))
        if self.reusing:
            self.reuse.fetched(qp, first, count, burst, found)

    def gathered(self, qpn: int, sges: list[Sge], offset: int, data: bytes) -> None:
        """Payload was read to be sent."""
        if self.reuse.payload:
            self.reuse.gathered(qpn, sges, offset, data)

    def completing(self, qp: QueuePair, completion: Completion) -> None:
        """A completion is about to be written."""
        if completion.status is Status.SUCCESS:
            if self.reusing and completion.opcode < CompletionOpcode.RECV:
                self.reuse.completing(qp, completion)
        else:
            self.reuse.forget(qp.number)
            self.completions.completing(qp, completion)
            self.path.completing(qp, completion)

    def landed(self, qp: QueuePair, address: int, length: int, added: bool) -> None:
        """A peer changed memory here."""
        if self.declared.signals:
            self.declared.landed(qp, address, length, added)

    def modified(self, qp: QueuePair) -> None:
        """Software changed a queue pair."""
        self.completions.acted(qp.number)
        if qp.state is QpState.RESET:
            self.reuse.forget(qp.number)
        self.path.moved(qp)

    def stuck(self, qp: QueuePair) -> None:
        """A queue pair makes no progress."""
        self.path.stuck(qp)

    def qp_made(self, qp: QueuePair) -> None:
        """A queue pair was made."""
        self.completions.qp_made(qp)

    def qp_ends(self, qp: QueuePair) -> None:
        """A queue pair is about to be destroyed."""
        self.lifecycle.qp_ends(qp)
        self.completions.acted(qp.number)
        self.reuse.forget(qp.number)
        self.declared.forget_qp(qp.number)

    def cq_made(self, cq: CompletionQueue) -> None:
        """A CQ was made."""
        self.completions.cq_made(cq)

    def context_ends(self, context: Context) -> None:
        """A process is about to go."""
        self.lifecycle.context_ends(context)
        self.declared.forget_context(context.number)

    def eq_waits(self, eq: EventQueue) -> None:
        """An event waits without an interrupt."""
        self.completions.eq_waits(eq)

    def drain(self, context: Context) -> None:
        """Take in what a process has hinted so far."""
        if context.hints is None:
            return
        bad: list[str] = []
        hints = context.hints.drain()
        for hint in hints:
            try:
                if isinstance(hint, BadHint):
                    raise hint
                self._take(hint, context)
            except BadHint as error:
                bad.append(str(error))
        if bad:
            more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
            self._checks.report(
                Rule.C34_HINT,
                f"context {context.number}: bad hint: {bad[0]}{more}; write entries first, then the "
                "producer index",
            )

    def _take(self, hint: Hint, context: Context) -> None:
        """One hint. :raises BadHint: it says nothing."""
        kind = hint.kind
        if kind not in _KINDS:
            raise BadHint(f"there is no kind {kind}")
        qp = self._nic.qps.items.get(hint.qpn)
        if kind in (HintKind.SCOPE, HintKind.MISSING, HintKind.SIGNAL):
            if hint.qpn and (qp is None or qp.pd.context is not context):
                raise BadHint(f"QP {hint.qpn:#x} is not this process's")
        elif qp is None or qp.pd.context is not context:
            raise BadHint(f"QP {hint.qpn:#x} is not this process's")
        if kind in (HintKind.ORDER, HintKind.REUSE):
            if hint.detail not in _PARTS:
                raise BadHint(f"a WQE has no part {hint.detail}")
            if hint.scope not in _SCOPES or hint.needed not in _SCOPES:
                raise BadHint(f"scope {hint.scope} or {hint.needed} does not exist")
        if qp is not None:
            self._about(hint, qp)
        if kind == HintKind.SCOPE:
            self.order.shared_word(hint)
        elif kind == HintKind.MISSING:
            self.order.missing(hint)
        elif kind == HintKind.SIGNAL:
            if hint.length not in (4, 8) or hint.detail not in (SignalOp.ADD, SignalOp.SET):
                raise BadHint(f"a signal of {hint.length} bytes and way {hint.detail}")
            if not self.declared.signal(hint, context.number):
                raise BadHint("too many signals are declared")

    def _about(self, hint: Hint, qp: QueuePair) -> None:
        kind = hint.kind
        if kind == HintKind.ORDER:
            self.order.doorbell(hint, qp)
        elif kind == HintKind.REUSE:
            self.order.reuse(hint, qp)
        elif kind == HintKind.LOCK:
            self.order.lock(hint, qp)
        elif kind == HintKind.PEER:
            self.declared.peer(hint, qp)
        elif kind == HintKind.USE:
            self.declared.use(hint, qp)
        elif kind == HintKind.STALL:
            self._stall(hint, qp)

    def _stall(self, hint: Hint, qp: QueuePair) -> None:
        try:
            wait = Wait(hint.detail)
        except ValueError:
            raise BadHint(f"there is no way {hint.detail} to wait") from None
        who = f"lane {hint.lane} waits for {wait.name.lower()} of index {hint.index}"
        if qp.state is QpState.RESET:
            self._checks.report(
                Rule.C31_SPIN,
                f"QP {qp.number:#x} is in RESET and completes nothing, while {who}; stop waiting",
                qpn=qp.number,
                index=hint.index,
            )
        elif ahead(hint.value & 0xFFFFFFFF, qp.doorbell) > 0:
            self.idle.stalled(qp, hint.value & 0xFFFFFFFF, who)
        elif wait is Wait.COMPLETION:
            self.completions.polls(qp.number, hint.index, who)
