# SPDX-License-Identifier: Apache-2.0
"""Queue pairs: a send ring, a receive ring, a state, and the transport engine that carries out what is in
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from emu.checks.rule import Rule
from emu.clock import MS, Timer
from emu.events import Kind
from emu.fabric.run import FrameRun
from emu.nic.context import ProtectionDomain
from emu.nic.cq import CompletionQueue
from emu.nic.engine import AsyncEvent, Engine, EngineFactory
from emu.nic.errors import ErrorKind, NicError
from emu.nic.formats import WqeFault
from emu.nic.host import QpHost
from emu.nic.mr import MemoryKeys
from emu.nic.platform import Platform
from emu.nic.receive import ReceiveQueue
from emu.nic.record import DbrPolicy, DoorbellRecord
from emu.nic.ring import Ring, RingMemory
from emu.nic.srq import SharedReceiveQueue
from emu.nic.transitions import check_transition
from emu.nic.work import (
    Access,
    Cause,
    Completion,
    ModifyMask,
    QpAttributes,
    QpState,
    SendRequest,
    Status,
    Transport,
)

if TYPE_CHECKING:
    from emu.nic.submission import Submission

__all__ = ["FirstError", "QpConfig", "QpSnapshot", "QueuePair"]

_STATE = Kind.STATE.bit
ERROR_WATCH = 10 * MS
"""How often a queue pair in error looks for receives that ring no doorbell."""

_ATTRIBUTES: dict[ModifyMask, tuple[str, ...]] = {
    ModifyMask.EN_SQD_ASYNC_NOTIFY: ("sqd_notify",),
    ModifyMask.ACCESS_FLAGS: ("access",),
    ModifyMask.PKEY_INDEX: ("pkey",),
    ModifyMask.QKEY: ("qkey", "source_qpn"),
    ModifyMask.AV: (
        "source_mac",
        "dest_mac",
        "source_gid",
        "dest_gid",
        "traffic_class",
        "hop_limit",
        "udp_source_port",
    ),
    ModifyMask.PATH_MTU: ("path_mtu",),
    ModifyMask.TIMEOUT: ("timeout",),
    ModifyMask.RETRY_CNT: ("retry_cnt",),
    ModifyMask.RNR_RETRY: ("rnr_retry",),
    ModifyMask.RQ_PSN: ("rq_psn",),
    ModifyMask.MAX_RD_ATOMIC: ("max_rd_atomic",),
    ModifyMask.MIN_RNR_TIMER: ("min_rnr_timer",),
    ModifyMask.SQ_PSN: ("sq_psn",),
    ModifyMask.MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    ModifyMask.DEST_QPN: ("dest_qpn",),
}
"""Attributes behind each bit of a modify mask. PORT has none, the NIC has one port; neither has
PATH_MIG_STATE, paths do not migrate; CUR_STATE is only compared.
"""


@dataclass(frozen=True, slots=True)
class QpConfig:
    """What a queue pair is made of.

    ``receive`` and ``record`` are None when it has no receive ring or doorbell record.

    ``receive_slot_size`` is the bytes of a receive element where queue pairs differ in that (None: the
    format's), ``receive_doorbells`` False when software only counts receives in the record, ``srq`` where it
    receives instead of in a ring of its own, ``domain`` the shared receive queues that an XRC target serves
    by number (empty on an initiator). ``start_index`` is the first
    running index of both rings, ``phase`` tells the personality to look for phase bits, ``signal_all`` to
    complete every send.
    """

    pd: ProtectionDomain
    send_cq: CompletionQueue
    recv_cq: CompletionQueue
    transport: Transport
    send: RingMemory
    send_log_size: int
    receive: RingMemory | None = None
    receive_log_size: int = 0
    receive_slot_size: int | None = None
    receive_doorbells: bool = True
    srq: SharedReceiveQueue | None = None
    domain: Mapping[int, SharedReceiveQueue] | None = None
    record: RingMemory | None = None
    record_policy: DbrPolicy = DbrPolicy.NONE
    start_index: int = 0
    phase: bool = False
    signal_all: bool = False


@dataclass(frozen=True, slots=True)
class FirstError:
    """The completion that failed first; later ones are only flushed."""

    index: int
    status: Status
    cause: int


@dataclass(frozen=True, slots=True)
class QpSnapshot:
    """A queue pair as people and QUERY_QP see it. Indices are running; PSNs 24 bits."""

    qpn: int
    state: QpState
    transport: Transport
    context: int
    pd: int
    send_cq: int
    recv_cq: int
    dest_qpn: int
    doorbell: int
    fetched: int
    completed: int
    receive_doorbell: int
    receive_index: int
    next_psn: int
    expected_psn: int
    draining: bool
    first_error: FirstError | None

    def to_json(self) -> dict[str, object]:
        """Plain values for JSON: names of states and statuses, numbers otherwise."""
        row: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        row["state"] = self.state.name
        row["transport"] = self.transport.name
        error = self.first_error
        row["first_error"] = error and f"{error.status.name} cause {error.cause} at index {error.index}"
        return row


class QueuePair:
    """One queue pair.

    ``doorbell`` is the running index software rang last, ``fetched`` of the next slot to read, ``completed``
    of the oldest slot not done. ``fault`` is a malformed descriptor at ``fetched``, ``local`` one there for
    the NIC itself; either waits for those before it to complete.
    """

    __slots__ = (
        "_drain_wanted",
        "_failing",
        "_platform",
        "_submission",
        "_watch",
        "_watch_receives",
        "attributes",
        "closed",
        "completed",
        "condemned",
        "domain",
        "doorbell",
        "engine",
        "fatal",
        "fault",
        "fetched",
        "first_error",
        "host",
        "local",
        "number",
        "page",
        "pd",
        "phase",
        "pushed",
        "queued",
        "receive",
        "receive_run",
        "record",
        "recovery",
        "recv_cq",
        "send_cq",
        "signal_all",
        "sq",
        "srq",
        "start_index",
        "state",
        "timer",
        "transport",
    )

    def __init__(
        self,
        platform: Platform,
        number: int,
        config: QpConfig,
        keys: MemoryKeys,
        submission: Submission,
        create_engine: EngineFactory,
    ) -> None:
        self._platform = platform
        self._submission = submission
        self.number = number
        self.pd = config.pd
        self.send_cq = config.send_cq
        self.recv_cq = config.recv_cq
        self.transport = config.transport
        self.start_index = config.start_index
        self.phase = config.phase
        self.signal_all = config.signal_all
        self.attributes = self._blank()
        self.state = QpState.RESET
        self.closed = False
        self.page = 0
        """Doorbell page it is rung through, where that says which CQs it may wait for."""
        self.queued = False
        self.condemned = False
        """Ended by a rule, and no completion has said so yet."""
        self._failing = False
        self.timer: Timer | None = None
        self.recovery: Timer | None = None
        self._watch: Timer | None = None
        self.fault: WqeFault | None = None
        self.pushed: bytes | None = None
        """The one descriptor to fetch, if it came with its doorbell."""
        self.local: SendRequest | None = None
        self.first_error: FirstError | None = None
        self.fatal = False
        self.srq = config.srq
        self.domain = config.domain
        self.host = QpHost(platform, self, keys, submission)
        try:
            self.engine: Engine = create_engine(config.transport, self.host)
        except ValueError as error:
            raise NicError(ErrorKind.UNSUPPORTED, str(error), "transport") from None
        # Engines without it get every frame by itself.
        self.receive_run: Callable[[FrameRun, int], None] | None = getattr(self.engine, "receive_run", None)
        self.sq = Ring(config.send, platform.formats.wqe.slot_size, config.send_log_size, platform.dma)
        self.receive = (
            None
            if config.receive is None
            else ReceiveQueue(
                platform, self, config.receive_log_size, config.receive, config.receive_slot_size
            )
        )
        self._watch_receives = self.receive is not None and not config.receive_doorbells
        if self.srq is not None:
            self.srq.users.add(number)
        self.record = (
            None
            if config.record is None
            else DoorbellRecord(config.record, config.record_policy, platform.formats.record, platform.dma)
        )
        self.pd.qps[number] = self
        self.send_cq.qps[number] = self
        self.recv_cq.qps[number] = self
        self._rewind()

    def modify(self, mask: ModifyMask, given: QpAttributes) -> None:
        """Change the attributes that ``mask`` names, and the state when it names that.

        :raises NicError: as :func:`check_transition`; BAD_STATE while draining, or when the state is not the
            one that the caller takes for it; BAD_FIELD for a value out of range; UNSUPPORTED for an alternate
            path.
        """
        previous = self.state
        target = given.state if mask & ModifyMask.STATE else previous
        check_transition(previous, target, mask, self.transport)
        if mask & ModifyMask.CUR_STATE and given.current is not previous:
            raise NicError(
                ErrorKind.BAD_STATE, f"the state is {previous.name}, not {given.current.name}", "state"
            )
        if self._drain_wanted and target not in (QpState.ERR, QpState.RESET):
            raise NicError(ErrorKind.BAD_STATE, "the send queue still drains; wait for SQ_DRAINED", "state")
        self._check_values(mask, given)
        if target is QpState.RESET:
            self._rewind()
            attributes = self._blank()
        else:
            names = [name for bit, attribute in _ATTRIBUTES.items() if mask & bit for name in attribute]
            attributes = replace(self.attributes, **{name: getattr(given, name) for name in names})
            if not mask & ModifyMask.EN_SQD_ASYNC_NOTIFY:
                attributes.sqd_notify = False
        attributes.state = target
        self._enter(attributes, previous, "modify")
        watch = self._platform.checks.watch
        if watch is not None:
            watch.modified(self)

    def moved(self, state: QpState, reason: str) -> None:
        """The engine changed the state itself; SQD means that the send queue is drained now."""
        previous = self.state
        self.state = state
        self.attributes.state = state
        self._drain_wanted = False
        self._trace_state(previous, reason)
        self._after_error(previous)
        self._submission.kick(self)

    def fail(self, reason: str) -> None:
        """Enter ERR because the device cannot go on, and say so with QP_FATAL (once)."""
        self._failing = False
        if self.closed or self.state is QpState.RESET:
            return
        self.enter_error(reason)
        if not self.fatal:
            self.fatal = True
            self.raise_event(AsyncEvent.QP_FATAL, reason)

    def fail_soon(self, reason: str) -> None:
        """:meth:`fail` after the current call: the engine may be in the middle of one.

        A RESET in between is a fresh start and calls it off.
        """
        if self._failing or self.fatal:
            return
        self._failing = True
        self._platform.scheduler.call_soon(lambda: self.fail(reason) if self._failing else None)

    def enter_error(self, reason: str) -> None:
        """Enter ERR; the engine flushes what it has, :class:`Submission` what is still in the ring."""
        if self.state is not QpState.ERR:
            self._enter(replace(self.attributes, state=QpState.ERR), self.state, reason)

    def refuse_work(self, reason: str) -> None:
        """A send element is malformed, which stops its queue; UC and UD still receive then (SQE)."""
        if self.transport in _UNRELIABLE and self.state is QpState.RTS:
            self._enter(replace(self.attributes, state=QpState.SQE), self.state, reason)
        else:
            self.enter_error(reason)

    def wake(self) -> None:
        """Look at the send queue again soon."""
        self._submission.kick(self)

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        """Put an event about this queue pair on its subscriber's event queue, without subscribers on that of
        its send CQ, else of its receive CQ. SQ_DRAINED is for those who asked for it.
        """
        if event is AsyncEvent.SQ_DRAINED and not self.attributes.sqd_notify:
            return
        eq = self._platform.routes.about_object(event, self.send_cq.eq or self.recv_cq.eq)
        if eq is not None:
            eq.post(event, self.number, f"QP {self.number:#x} {event.name}: {reason}")

    def refuse_doorbell(self, rule: Rule, index: int, text: str) -> None:
        """Count and report a doorbell that is ignored."""
        self._platform.counters.doorbells_ignored += 1
        self._platform.checks.report(
            rule, f"QP {self.number:#x}: {text}; doorbell ignored", qpn=self.number, index=index
        )

    def condemn(self, rule: Rule) -> None:
        """Enter ERR because of a broken rule; the first element that is flushed completes with that cause."""
        if self.closed or self.state in (QpState.RESET, QpState.ERR):
            return
        self.condemned = True
        self.enter_error(f"{rule.code} ends its queue pair")

    def note_completion(self, completion: Completion) -> None:
        """Latch the first failure."""
        if self.first_error is None and completion.cause != Cause.FLUSHED:
            self.first_error = FirstError(completion.index, completion.status, completion.cause)

    def close(self) -> None:
        """End it: timers stop, memory is unpinned, whatever its engine still says is ignored."""
        self.closed = True
        self._stop_timers()
        self.sq.release()
        if self.receive is not None:
            self.receive.ring.release()
        if self.record is not None:
            self.record.release()
        if self.srq is not None:
            self.srq.users.discard(self.number)
        self.pd.qps.pop(self.number, None)
        self.send_cq.qps.pop(self.number, None)
        self.recv_cq.qps.pop(self.number, None)

    def snapshot(self) -> QpSnapshot:
        """Its state now."""
        receive = self.receive
        return QpSnapshot(
            qpn=self.number,
            state=self.state,
            transport=self.transport,
            context=self.pd.context.number,
            pd=self.pd.number,
            send_cq=self.send_cq.number,
            recv_cq=self.recv_cq.number,
            dest_qpn=self.attributes.dest_qpn,
            doorbell=self.doorbell,
            fetched=self.fetched,
            completed=self.completed,
            receive_doorbell=receive.doorbell if receive else 0,
            receive_index=receive.taken if receive else 0,
            next_psn=self.engine.next_psn,
            expected_psn=self.engine.expected_psn,
            draining=self._drain_wanted,
            first_error=self.first_error,
        )

    def _enter(self, attributes: QpAttributes, previous: QpState, reason: str) -> None:
        self.attributes = attributes
        self.state = attributes.state
        self._drain_wanted = attributes.state is QpState.SQD and previous is QpState.RTS
        self._trace_state(previous, reason)
        self.engine.modify(attributes, previous)
        self._after_error(previous)
        self._submission.kick(self)

    def _after_error(self, previous: QpState) -> None:
        """In error a queue pair takes nothing more from its shared receive queue, and says so.

        What software posts to its own is flushed, whether or not there is a doorbell for it.
        """
        if self.state is not QpState.ERR or previous is QpState.ERR:
            return
        if self._watch_receives:
            self._look_for_receives()
        if self.srq is not None:
            self.raise_event(AsyncEvent.QP_LAST_WQE_REACHED, "no more elements of the shared receive queue")

    def _blank(self) -> QpAttributes:
        """Attributes of a queue pair in RESET. Datagrams have the port's MTU; no modify sets another."""
        if self.transport in _DATAGRAMS:
            return QpAttributes(path_mtu=self._platform.limits.port_mtu)
        return QpAttributes()

    def _rewind(self) -> None:
        self._stop_timers()
        self.doorbell = self.fetched = self.completed = self.start_index
        self.fault = None
        self.pushed = None
        if self.record is not None:
            self.record.rung = None
        self.local = None
        self.first_error = None
        self.fatal = False
        self.condemned = False
        self._failing = False
        self._drain_wanted = False
        if self.receive is not None:
            self.receive.restart(self.start_index)

    def _look_for_receives(self) -> None:
        """Have the receive ring looked at again and again while in error."""
        self._watch = None
        if self.closed or self.state is not QpState.ERR or self.receive is None:
            return
        self.receive.news = True
        self._submission.kick(self)
        scheduler = self._platform.scheduler
        self._watch = scheduler.call_at(scheduler.now() + ERROR_WATCH, self._look_for_receives)

    def _stop_timers(self) -> None:
        for timer in (self.timer, self.recovery, self._watch):
            if timer is not None:
                timer.cancel()
        self.timer = self.recovery = self._watch = None

    def _trace_state(self, previous: QpState, reason: str) -> None:
        platform = self._platform
        if platform.events.mask & _STATE:
            platform.trace.emit(
                Kind.STATE,
                f"QP {self.number:#x}: {previous.name} to {self.state.name} ({reason})",
                qpn=self.number,
                value=int(self.state),
            )

    def _check_values(self, mask: ModifyMask, given: QpAttributes) -> None:
        limits = self._platform.limits
        rules = (
            (ModifyMask.ACCESS_FLAGS, "access", int(given.access) & ~_ALL_ACCESS == 0),
            (ModifyMask.PATH_MTU, "path_mtu", given.path_mtu in _MTUS and given.path_mtu <= limits.port_mtu),
            (ModifyMask.TIMEOUT, "timeout", 0 <= given.timeout <= 31),
            (ModifyMask.RETRY_CNT, "retry_cnt", 0 <= given.retry_cnt <= 7),
            (ModifyMask.RNR_RETRY, "rnr_retry", 0 <= given.rnr_retry <= 7),
            (ModifyMask.MIN_RNR_TIMER, "min_rnr_timer", 0 <= given.min_rnr_timer <= 31),
            (ModifyMask.RQ_PSN, "rq_psn", 0 <= given.rq_psn <= 0xFFFFFF),
            (ModifyMask.SQ_PSN, "sq_psn", 0 <= given.sq_psn <= 0xFFFFFF),
            (ModifyMask.DEST_QPN, "dest_qpn", 0 <= given.dest_qpn <= 0xFFFFFF),
            (ModifyMask.MAX_RD_ATOMIC, "max_rd_atomic", given.max_rd_atomic <= limits.max_rd_atomic),
            (
                ModifyMask.MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                given.max_dest_rd_atomic <= limits.max_rd_atomic,
            ),
            (ModifyMask.AV, "dest_gid", any(given.dest_gid)),
            (ModifyMask.AV, "dest_mac", any(given.dest_mac) and not given.dest_mac[0] & 1),
        )
        for bit, name, good in rules:
            if mask & bit and not good:
                value = getattr(given, name)
                shown = value.hex() if isinstance(value, bytes) else value
                raise NicError(ErrorKind.BAD_FIELD, f"{name} {shown} is out of range", name)


_UNRELIABLE = (Transport.ROCE_UC, Transport.ROCE_UD, Transport.UET_UUD)
_DATAGRAMS = (Transport.ROCE_UD, Transport.UET_UUD)
_ALL_ACCESS = sum(Access)
_MTUS = (256, 512, 1024, 2048, 4096)
