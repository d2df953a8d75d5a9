# SPDX-License-Identifier: Apache-2.0
"""From a doorbell to work in an engine.

A doorbell only moves an index and puts its queue pair on the ready list; the owner loop then serves ready
queue pairs in turn. So a doorbell costs the same with one queue pair and with a million, queue pairs share
the device fairly, and an engine is never entered twice at once, whatever memory its own writes reach.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from emu.checks.rule import Rule
from emu.clock import MS, NS_PER_S, US
from emu.events import Kind
from emu.nic.engine import ProtectionError
from emu.nic.formats import WqeFault
from emu.nic.platform import Platform
from emu.nic.qp import QueuePair
from emu.nic.record import DbrPolicy, DoorbellRecord
from emu.nic.serial import MASK, ahead
from emu.nic.work import Cause, Completion, CompletionOpcode, QpState, SendRequest, Status
from emu.pcie.bus import BusError

__all__ = ["Submission"]

BURST = 64
"""Slots read at once."""
LOOKAHEAD = 512
"""Slots in an engine at most: the rest stays in the ring, so a deep ring costs memory in the guest only."""
BUDGET = 32
"""Frames a queue pair may send before the next one's turn, when few are ready."""
ROUND = 1024
"""Frames until every ready queue pair had its turn, if ``LEAST`` each allow it: a peer's timer waits for the
first one of each.
"""
LEAST = 4
"""Frames that a queue pair may always send."""
TURN = 8
"""Queue pairs with ``BUDGET`` frames each served before the loop looks at its other work: a register read in
the guest waits for them.
"""
BACKLOG = 256
"""Frames at the port from which on nobody is served: a NIC sends at the speed of its link. They take some
milliseconds, which acknowledgement timers have to allow for.
"""
HOLD = 200 * US
"""How long to wait for the port then."""
POSTPONE = 1 * MS
"""How much later a deadline is looked at again while the link is behind."""
GRACE = 1 * NS_PER_S
"""How long a deadline may be put off in all, whatever else the link is busy with."""
ARRIVING = 32
"""Frames on their way here that make the link count as behind."""
RECOVERY_DELAY = 100 * US
"""How long after a doorbell the record is read once more with the RECOVERY policy."""

_DOORBELL = Kind.DOORBELL.bit
_FETCH = Kind.WQE_FETCH.bit


class Submission:
    """The ready list of one NIC."""

    __slots__ = ("_platform", "_ready", "_scheduled")

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._ready: deque[QueuePair] = deque()
        self._scheduled = False

    def clear(self) -> None:
        """Forget who is ready. A turn that is already scheduled finds nothing."""
        self._ready.clear()

    def resume(self) -> None:
        """Serve who became ready while the NIC stood still."""
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._platform.scheduler.call_soon(self._run)

    def kick(self, qp: QueuePair) -> None:
        """Serve ``qp`` soon."""
        if qp.queued or qp.closed:
            return
        qp.queued = True
        self._ready.append(qp)
        if not self._scheduled:
            self._scheduled = True
            self._platform.scheduler.call_soon(self._run)

    def ring(self, qp: QueuePair, index: int) -> None:
        """A send doorbell: every slot before running index ``index`` is posted.

        One that breaks a rule is ignored.
        """
        watch = self._platform.checks.watch
        if watch is not None:
            watch.ringing(qp, index)
        if qp.state in _NO_SEND:
            qp.refuse_doorbell(
                Rule.C21_STATE, index, f"send doorbell in {qp.state.name}; move the QP to RTS before posting"
            )
            return
        record = qp.record
        if record is not None:
            recorded = self._consult(qp, record, index)
            if recorded is None:
                return
            index = recorded
        distance = (index - qp.doorbell) & MASK
        if distance == 0:
            self._platform.counters.doorbells_ignored += 1
            if self._platform.events.mask & _DOORBELL:
                self._trace(qp, index, "repeats index", "ignored")
        elif distance > MASK >> 1:
            if record is not None and record.outrun is not None and ahead(index, record.outrun) >= 0:
                record.outrun = index
                self._platform.counters.doorbells_ignored += 1
                if self._platform.events.mask & _DOORBELL:
                    self._trace(qp, index, "doorbell index", "comes later than the record: ignored")
                return
            if self._cut(qp, index):
                return
            qp.refuse_doorbell(
                Rule.C07_OLDER,
                index,
                f"send doorbell index {index} is older than {qp.doorbell}; serialise the doorbells of a QP",
            )
        elif (index - qp.completed) & MASK > qp.sq.size:
            qp.refuse_doorbell(
                Rule.C06_AHEAD,
                index,
                f"send doorbell index {index} is more than {qp.sq.size} slots ahead of {qp.completed}, "
                "the oldest one not completed; wait for completions before reusing slots",
            )
        else:
            if record is not None:
                record.outrun = None
            self._accept(qp, index)

    @staticmethod
    def _cut(qp: QueuePair, index: int) -> bool:
        """Whether a doorbell that looks older lost its upper bits, and so breaks another rule."""
        for bits in (16, 24):
            width = 1 << bits
            whole = (qp.doorbell & -width | index) + (width if index < qp.doorbell & (width - 1) else 0)
            if index < width <= whole and (whole - qp.completed) & MASK <= qp.sq.size:
                qp.refuse_doorbell(
                    Rule.C18_WRAP,
                    index,
                    f"send doorbell index {index} would follow {qp.doorbell} as {whole}: it was cut to "
                    f"{bits} "
                    "bits; carry all 32",
                )
                return True
        return False

    def ring_receive(self, qp: QueuePair, index: int) -> None:
        """A receive doorbell: every receive slot before ``index`` is posted."""
        receive = qp.receive
        if receive is None:
            qp.refuse_doorbell(
                Rule.C29_UNSUPPORTED, index, "receive doorbell, but the QP has no receive ring"
            )
            return
        receive.advance(index)
        if receive.news:
            if self._platform.events.mask & _DOORBELL:
                self._trace(qp, index, "receive doorbell index", f"taken up to {receive.taken}")
            self.kick(qp)

    def _accept(self, qp: QueuePair, index: int) -> None:
        platform = self._platform
        if platform.events.mask & _DOORBELL:
            self._trace(qp, index, "doorbell index", f"covers slots {qp.doorbell}..{(index - 1) & MASK}")
        qp.doorbell = index
        platform.counters.doorbells += 1
        if not qp.queued:
            self.kick(qp)
        record = qp.record
        if record is not None and record.policy is DbrPolicy.RECOVERY and qp.recovery is None:
            when = platform.scheduler.now() + RECOVERY_DELAY
            qp.recovery = platform.scheduler.call_at(when, partial(self._recover, qp, record))

    def _consult(self, qp: QueuePair, record: DoorbellRecord, index: int) -> int | None:
        """The index that counts by the record's policy, None when the doorbell is to be ignored."""
        if record.policy is DbrPolicy.LATEST:
            return self._later(qp, record, index)
        if record.policy not in (DbrPolicy.AUTHORITATIVE, DbrPolicy.STRICT):
            return index
        try:
            recorded = record.send(qp.doorbell)
        except BusError as error:
            self._platform.counters.doorbells_ignored += 1
            qp.fail_soon(f"doorbell record: {error}")
            return None
        if record.policy is DbrPolicy.AUTHORITATIVE:
            return recorded
        if ahead(index, recorded) > 0:
            qp.refuse_doorbell(
                Rule.C08_DBR,
                index,
                f"send doorbell index {index} is ahead of the doorbell record's {recorded}; "
                "store the record first",
            )
            return None
        return index

    def _later(self, qp: QueuePair, record: DoorbellRecord, index: int) -> int | None:
        """The later one of doorbell and record, None when the record cannot be read.

        The record may be ahead when several doorbells are on their way, and behind where the doorbell is
        stored before and after it.
        """
        try:
            recorded = record.send_near(qp.doorbell)
        except BusError as error:
            self._platform.counters.doorbells_ignored += 1
            qp.fail_soon(f"doorbell record: {error}")
            return None
        if record.rung is not None and ahead(index, record.rung) < 0:
            self._platform.checks.report(
                Rule.C07_OLDER,
                f"QP {qp.number:#x}: send doorbell index {index} is older than the last one's {record.rung}; "
                "serialise the doorbells of a QP",
                qpn=qp.number,
                index=index,
            )
            return recorded if ahead(recorded, qp.doorbell) > 0 else qp.doorbell
        record.rung = index
        return index if ahead(index, recorded) > 0 else recorded

    def push(self, qp: QueuePair, index: int, wqe: bytes, slots: int) -> None:
        """The next descriptor of ``qp``, in ``slots`` slots from ``index`` on, came with its doorbell.

        It is not fetched again. One that the ring has otherwise is fetched and the rule named: words of two
        descriptors may have come together, and the ring is what counts.
        """
        platform = self._platform
        try:
            ring = qp.sq.read(index, slots)
        except BusError as error:
            qp.fail_soon(f"send ring: {error}")
            return
        if ring[: len(wqe)] != wqe:
            at = next(place for place, byte in enumerate(wqe) if ring[place] != byte)
            platform.checks.report(
                Rule.C04_CHANGED,
                f"QP {qp.number:#x}: the descriptor pushed at index {index} differs from the ring's "
                f"from byte {at} on; write the same to both, the ring first",
                qpn=qp.number,
                index=index,
            )
            return
        qp.pushed = ring
        platform.counters.pushed_wqes += 1
        if platform.events.mask & _DOORBELL:
            self._trace(qp, index, "descriptor pushed at index", f"{len(wqe)} bytes")

    def _recover(self, qp: QueuePair, record: DoorbellRecord) -> None:
        qp.recovery = None
        if qp.closed or qp.state in _NO_SEND:
            return
        try:
            index = record.send(qp.doorbell)
        except BusError as error:
            qp.fail(f"doorbell record: {error}")
            return
        if ahead(index, qp.doorbell) > 0 and (index - qp.completed) & MASK <= qp.sq.size:
            if record.outrun is None:
                record.outrun = qp.doorbell
            self._accept(qp, index)

    def _run(self) -> None:
        self._scheduled = False
        ready = self._ready
        platform = self._platform
        if platform.checks.stopped is not None:
            return
        if ready and platform.port.backlog >= BACKLOG:
            self._scheduled = True
            platform.scheduler.call_at(platform.scheduler.now() + HOLD, self._run)
            return
        budget = max(LEAST, min(BUDGET, ROUND // max(1, len(ready))))
        for _ in range(min(len(ready), TURN * BUDGET // budget)):
            if not ready:
                break
            qp = ready.popleft()
            qp.queued = False
            if not qp.closed and self._serve(qp, budget):
                self.kick(qp)
        if ready and not self._scheduled:
            self._scheduled = True
            platform.scheduler.call_soon(self._run)

    def _serve(self, qp: QueuePair, budget: int) -> bool:
        """One turn of at most ``budget`` frames; True when the queue pair could go on at once."""
        engine = qp.engine
        now = self._platform.scheduler.now()
        receive = qp.receive
        if receive is not None and receive.news:
            receive.next_turn()
            engine.receive_posted(now)
        if qp.fetched != qp.doorbell and self._may_fetch(qp):
            self._fetch(qp)
        more = engine.transmit(now, budget)
        if qp.closed:
            return False
        if qp.local is not None:
            self._try_local(qp, qp.local)
        # While draining no new element begins, and so none fails.
        if qp.fault is not None and qp.state is not QpState.SQD:
            self._settle(qp, qp.fault)
        self._arm(qp)
        if receive is not None and receive.news:
            return True
        return more or (qp.fetched != qp.doorbell and self._may_fetch(qp))

    @staticmethod
    def _may_fetch(qp: QueuePair) -> bool:
        if qp.state is QpState.RTS:
            return qp.fault is None and qp.local is None and (qp.fetched - qp.completed) & MASK < LOOKAHEAD
        return qp.state in _FLUSHING

    def _fetch(self, qp: QueuePair) -> None:
        platform = self._platform
        first = qp.fetched
        count = min((qp.doorbell - first) & MASK, BURST)
        pushed, qp.pushed = qp.pushed, None
        if pushed is not None and count * qp.sq.slot_size == len(pushed) and qp.state not in _FLUSHING:
            self._take(qp, first, count, pushed)
            return
        try:
            burst = qp.sq.read(first, count)
        except BusError as error:
            if qp.state in _FLUSHING:
                for distance in range(count):
                    self._flush(qp, (first + distance) & MASK)
            else:
                self._refuse(
                    qp,
                    WqeFault(
                        first, Rule.NONE, Cause.BUS_ERROR, f"send ring: {error}", 1, Status.LOC_PROT_ERR
                    ),
                )
            return
        platform.counters.wqe_fetches += 1
        if platform.events.mask & _FETCH:
            platform.trace.emit(
                Kind.WQE_FETCH,
                f"QP {qp.number:#x}: fetch slots {first}..{(first + count - 1) & MASK}",
                qpn=qp.number,
                index=first,
                length=len(burst),
                value=count,
            )
        self._take(qp, first, count, burst)

    def _take(self, qp: QueuePair, first: int, count: int, burst: bytes) -> None:
        """Hand the descriptors in ``burst`` on."""
        platform = self._platform
        found = platform.formats.wqe.decode(burst, first, count, qp)
        if not found:
            text = f"doorbell index {qp.doorbell} covers only a part of the descriptor at index {first}"
            found = [WqeFault(first, Rule.C03_STALE, Cause.BAD_LENGTH, text, count)]
        watch = platform.checks.watch
        if watch is not None:
            watch.fetched(qp, first, count, burst, found)
        engine = qp.engine
        for request in found:
            if isinstance(request, WqeFault):
                if qp.state not in _FLUSHING:
                    self._refuse(qp, request)
                    return
                self._flush(qp, request.index, request.slots)
            elif request.local is not None and qp.state not in _FLUSHING:
                if not self._try_local(qp, request):
                    return
            else:
                qp.fetched = (request.index + request.slots) & MASK
                platform.counters.wqes += 1
                engine.post(request)

    def _try_local(self, qp: QueuePair, request: SendRequest) -> bool:
        """Carry out an element of the NIC's own when its turn has come. False: not now, or it failed."""
        qp.local = None
        if qp.state is not QpState.RTS or qp.completed != request.index:
            # In error the slot is read again, and flushed like its neighbours.
            qp.local = None if qp.state in _FLUSHING else request
            return False
        if request.ready is not None and not request.ready():
            qp.local = request
            return False
        assert request.local is not None
        qp.fetched = qp.completed = (request.index + request.slots) & MASK
        self._platform.counters.wqes += 1
        try:
            request.local()
        except ProtectionError as error:
            self._platform.counters.protection_errors += 1
            self._complete_local(qp, request, request.local_status, error.cause)
            text = f"QP {qp.number:#x}: {error.rule}"
            self._platform.checks.report(Rule.C22_KEY, text, qpn=qp.number, index=request.index)
            qp.refuse_work(error.rule)
            return False
        if request.signaled:
            self._complete_local(qp, request, Status.SUCCESS, Cause.NONE)
        return True

    @staticmethod
    def _complete_local(qp: QueuePair, request: SendRequest, status: Status, cause: int) -> None:
        qp.host.complete(
            Completion(
                qpn=qp.number,
                index=request.index,
                opcode=CompletionOpcode.NOP,
                status=status,
                cause=cause,
                cookie=request.cookie,
            )
        )

    def _refuse(self, qp: QueuePair, fault: WqeFault) -> None:
        """Stop in front of a bad descriptor until the ones before it are complete."""
        qp.fault = fault
        if fault.rule is not Rule.NONE:
            self._platform.checks.report(
                fault.rule, f"QP {qp.number:#x}: {fault.text}", qpn=qp.number, index=fault.index
            )

    def _settle(self, qp: QueuePair, fault: WqeFault) -> None:
        if qp.state in _FLUSHING:
            # Something else failed first: the slot is read again and flushed like its neighbours.
            qp.fault = None
        elif qp.completed == fault.index:
            qp.fault = None
            qp.fetched = qp.completed = (fault.index + fault.slots) & MASK
            qp.host.complete(
                Completion(
                    qpn=qp.number,
                    index=fault.index,
                    opcode=fault.opcode,
                    status=fault.status,
                    cause=fault.cause,
                )
            )
            qp.refuse_work(fault.text)

    @staticmethod
    def _flush(qp: QueuePair, index: int, slots: int = 1) -> None:
        qp.fetched = qp.completed = (index + slots) & MASK
        qp.host.complete(
            Completion(
                qpn=qp.number,
                index=index,
                opcode=CompletionOpcode.SEND,
                status=Status.WR_FLUSH_ERR,
                cause=Cause.FLUSHED,
            )
        )

    def _arm(self, qp: QueuePair) -> None:
        """Have a timer that runs no later than the engine's deadline.

        An early one is kept: moving it costs more than a call that finds nothing to do.
        """
        deadline = qp.engine.deadline()
        if deadline is None:
            return
        timer = qp.timer
        if timer is not None:
            if timer.pending and timer.when <= deadline:
                return
            timer.cancel()
        qp.timer = self._platform.scheduler.call_at(deadline, partial(self._expire, qp))

    def _expire(self, qp: QueuePair) -> None:
        qp.timer = None
        if qp.closed:
            return
        deadline = qp.engine.deadline()
        if deadline is None:
            return
        platform = self._platform
        now = platform.scheduler.now()
        if now < deadline:
            self._arm(qp)
        elif platform.checks.stopped is not None or (now < deadline + GRACE and self._behind()):
            # The answer may not be lost but wait for the link, or what it answers may.
            qp.timer = platform.scheduler.call_at(now + POSTPONE, partial(self._expire, qp))
        else:
            qp.engine.expire(now)
            self.kick(qp)

    def _behind(self) -> bool:
        port = self._platform.port
        return port.backlog >= BACKLOG // 2 or port.arriving >= ARRIVING

    def _trace(self, qp: QueuePair, index: int, what: str, more: str) -> None:
        self._platform.trace.emit(
            Kind.DOORBELL, f"QP {qp.number:#x}: {what} {index} {more}", qpn=qp.number, index=index
        )


_NO_SEND = (QpState.RESET, QpState.INIT, QpState.RTR)
_FLUSHING = (QpState.ERR, QpState.SQE)
