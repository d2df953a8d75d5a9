# SPDX-License-Identifier: Apache-2.0
"""One queue pair over UET, behind :class:`emu.nic.engine.Engine`: order, completions, states.

Packets are the business of the fabric endpoint (:mod:`emu.uet.fep`), which all queue pairs of a NIC share.

Order on unordered delivery (RUD): a message that makes a receive completion starts only when every earlier
plain WRITE of the queue pair is acknowledged, so it never overtakes the data it announces. Atomics wait for
everything before them, and everything after an atomic may overtake it. A plain WRITE used as a flag needs the
descriptor's fence, which waits for everything before it too. Ordered delivery (ROD) needs none of this.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.nic.engine import AsyncEvent, EngineHost, Packet
from emu.nic.work import (
    Access,
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    SendMode,
    SendRequest,
    Status,
    Transport,
)
from emu.roce.timers import RNR_DELAYS
from emu.uet.message import COMPLETIONS, NUMBERED, Message
from emu.uet.notice import Notice
from emu.uet.outgoing import Failure, Work
from emu.uet.path import PeerKey, addresses
from emu.uet.target import Target
from emu.uet.verdicts import Refused
from emu.wire.uet_names import RequestOpcode, ReturnCode

if TYPE_CHECKING:
    from emu.uet.fep import Fep

__all__ = ["UetEngine"]

_RNR_FOREVER = 7
_MAX_MESSAGE = 1 << 31
_EAGER = SendMode.EAGER
_SENDS = NUMBERED - {Opcode.WRITE_IMM}
_SENDING = frozenset({QpState.RTS})
_READS = frozenset({Opcode.READ, Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS})
_IDEMPOTENT = (Opcode.NOP, Opcode.WRITE, Opcode.READ)
_ATOMICS = (Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS)
_ATOMIC_BYTES = 8


class UetEngine:
    """Protocol state of one queue pair. Nothing a guest posts or a peer sends makes a call raise."""

    def __init__(self, fep: Fep, transport: Transport, host: EngineHost) -> None:
        self._fep = fep
        self.host = host
        self.qpn = host.qpn
        self.parameters = fep.parameters
        self.rod = transport is Transport.UET_ROD
        self.rudi = transport is Transport.UET_RUDI
        self.state = QpState.RESET
        self._set(QpAttributes())
        self.target = Target(self)
        self._clear()

    def _set(self, attributes: QpAttributes) -> None:
        self.attributes = replace(attributes)
        self.source_ip, self.dest_ip = addresses(attributes)
        self.mtu = attributes.path_mtu
        self.access: Access = attributes.access
        self.dest_qpn = attributes.dest_qpn
        self.peer_key: PeerKey = (
            self.source_ip,
            self.dest_ip,
            attributes.dest_mac,
            self.rod,
            attributes.traffic_class,
        )

    def _clear(self) -> None:
        """Forget all work without completions."""
        self._queue: deque[SendRequest] = deque()
        self._flight: deque[Message] = deque()
        self._waiting: list[tuple[int, int, Message]] = []
        self._parked: dict[int, Message] = {}
        self.offers: dict[int, Message] = {}
        self._tokens = self._attempts = 0
        self._number = 1
        self._writes = self._reads = 0
        self._drained = False
        self._rnr_left = self.attributes.rnr_retry

    # The seam to the core

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Take over attributes and enter ``attributes.state``."""
        state = attributes.state
        if state is QpState.ERR:
            if self.state is not QpState.ERR:
                self.state = QpState.ERR
                self._flush()
            return
        self._set(attributes)
        self.state = state
        if state is QpState.RESET:
            self.abandon()
            self._clear()
            self.target.clear()
        elif state is QpState.RTS and previous is QpState.RTR:
            self._rnr_left = attributes.rnr_retry
        self._check_drained()

    def post(self, request: SendRequest) -> None:
        """Queue one send element; in ERR it is flushed at once."""
        self._queue.append(request)
        if self.state is QpState.ERR:
            self._flush_sends()

    def receive(self, packet: Packet, now: int) -> None:
        """Packets of other protocols that name this queue pair."""
        self.host.note_drop("rx_dropped", f"{packet!r} for a UET queue pair")

    def receive_posted(self, now: int) -> None:
        """In ERR flush what was posted; otherwise the next message, or a repeated one, finds it."""
        if self.state is QpState.ERR:
            self.target.flush()
        else:
            self.target.posted()

    def transmit(self, now: int, budget: int) -> bool:
        """Hand messages to the endpoint, which sends them in its own turn."""
        while self._waiting and self._waiting[0][0] <= now:
            due, _, message = heapq.heappop(self._waiting)
            if message.due == due and not message.abandoned:
                message.due = 0
                if message.pdc is not None:
                    # It was sent, and is to be fetched.
                    self._ask_after(message)
                else:
                    self._parked.pop(message.token, None)
                    self._submit(message)
        while self._queue and self.state in _SENDING:
            if not self._begin(self._queue[0]):
                break
        self._check_drained()
        return False

    def deadline(self) -> int | None:
        """When a message that found no receive element, or was called off, is tried again."""
        return self._waiting[0][0] if self._waiting else None

    def expire(self, now: int) -> None:
        """The core calls :meth:`transmit` next, which does what is due."""
        self.host.note_timer("waited long enough for the peer's receive element")

    def idle(self) -> bool:
        """True when nothing is queued or in flight."""
        return not self._queue and not self._flight

    @property
    def next_psn(self) -> int:
        """Sequence number of the next new packet, which is the PDC's (its lower 24 bits; 0 without one)."""
        pdc = self._fep.current(self)
        return pdc.source.next_psn & 0xFFFFFF if pdc is not None else 0

    @property
    def expected_psn(self) -> int:
        """Number of the next message that takes a receive element (24 bits): PDCs are shared."""
        return self.target.receives.next_number & 0xFFFFFF

    # Messages

    def _begin(self, request: SendRequest) -> bool:
        """Start the oldest posted element. False when it has to wait, or ended the queue pair."""
        opcode = request.opcode
        if self.rod:
            if request.fence and self._reads:
                return False
        elif (self._flight and (request.fence or opcode in _ATOMICS)) or (
            self._writes and opcode in NUMBERED
        ):
            return False
        failure = self._refusal(request)
        number = self._number if opcode in NUMBERED and request.tag is None else 0
        message = Message(self, request, number, self.mtu)
        if failure is not None or opcode is Opcode.NOP:
            message.done = True
            message.failure = failure
        else:
            if opcode in _READS:
                if self._reads >= self.attributes.max_rd_atomic:
                    return False
                self._reads += 1
            elif opcode is Opcode.WRITE:
                self._writes += 1
            if number:
                self._number = number % 0xFFFFFFFF + 1
            if request.mode is not _EAGER:
                self._tokens = message.token = self._tokens % 0xFFFFFFFF + 1
                if message.rendezvous:
                    self.offers[message.token] = message
        self._queue.popleft()
        self._flight.append(message)
        if message.done:
            self._sweep()
        else:
            self._submit(message)
        return self.state in _SENDING

    def _refusal(self, request: SendRequest) -> Failure | None:
        opcode = request.opcode
        if opcode not in COMPLETIONS:
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, f"UET has no operation {opcode!r}")
        if self.rudi and opcode not in _IDEMPOTENT:
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE, f"RUDI has no operation {opcode.name}")
        if (request.tag is not None or request.mode is not _EAGER) and opcode not in _SENDS:
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_FLAGS, f"{opcode.name} has no tag and no mode")
        if not 0 <= request.length <= _MAX_MESSAGE:
            return Failure(Status.LOC_LEN_ERR, Cause.BAD_LENGTH, f"message of {request.length} bytes")
        if opcode in _ATOMICS and (request.length != _ATOMIC_BYTES or request.masks is not None):
            masked = "" if request.masks is None else ", with masks"
            reason = f"atomic of {request.length} bytes{masked}: this transport has 8-byte atomics without"
            return Failure(Status.LOC_QP_OP_ERR, Cause.BAD_LENGTH, reason)
        if opcode in _READS and not self.attributes.max_rd_atomic:
            reason = "READ or atomic on a QP with max_rd_atomic 0 can never run"
            return Failure(Status.LOC_QP_OP_ERR, Cause.NONE, reason)
        return None

    def _submit(self, message: Message) -> None:
        self._fep.submit(self, message)

    def restart(self, message: Message) -> None:
        """Send a message again that the target has not touched, on another PDC."""
        self.release(message)
        message.reset()
        message.peer_token = 0
        self._submit(message)

    def submit(self, work: Work) -> None:
        """Send what serves the queue pair's own messages."""
        self._fep.submit(self, work)

    def notify(self, notice: Notice) -> None:
        """Tell the peer something."""
        self._fep.submit(self, notice)

    def release(self, message: Work) -> None:
        """A message needs its id no more."""
        self._fep.release(message)

    def ended(self, message: Message) -> None:
        """A message is done: its answers are in, or it failed."""
        self.release(message)
        failure = message.failure
        if failure is not None and message.code == ReturnCode.NO_MATCH and self._not_ready(message):
            return
        self._sweep()
        self._fep.host.wake(self.qpn)

    def _not_ready(self, message: Message) -> bool:
        """The target had no receive element: try again later. False when retries are used up."""
        self.host.count("rnr_nak_retry_err")
        if self._rnr_left == 0:
            message.failure = Failure(
                Status.RNR_RETRY_EXC_ERR, Cause.RNR_RETRIES, "no receive element at the peer"
            )
            return False
        if self._rnr_left != _RNR_FOREVER:
            self._rnr_left -= 1
        # The message must not be found done by a sweep before its time.
        self._postpone(message, RNR_DELAYS[self.attributes.min_rnr_timer & 0x1F])
        return True

    def _postpone(self, message: Message, delay: int) -> None:
        """Try a message again later, as a new one."""
        message.reset()
        self._schedule(message, delay)

    def _schedule(self, message: Message, delay: int) -> None:
        message.due = self._fep.host.scheduler.now() + delay
        self._attempts += 1
        heapq.heappush(self._waiting, (message.due, self._attempts, message))
        self._fep.host.wake(self.qpn)

    def called_off(self, message: Message) -> None:
        """The peer has no place for a message yet, and will ask for it; if not, it is tried again."""
        self.release(message)
        if message.peer_token:
            # It was quick to ask.
            message.reset()
            self._submit(message)
            return
        self._parked[message.token] = message
        self._postpone(message, self.parameters.deferral_ns)

    def unfetched(self, message: Message) -> None:
        """The peer has the beginning of a message, and is to fetch the rest: see that it does."""
        if not message.due and not message.done:
            self._schedule(message, self.parameters.deferral_ns)

    def _ask_after(self, message: Message) -> None:
        """Ask whether the peer still knows a message that it is to fetch."""
        if message.done:
            return
        self.notify(Notice(self, RequestOpcode.NO_OP, message.token << 32, message.unknown))
        self._schedule(message, self.parameters.deferral_ns)

    def resume(self, token: int, peer_token: int) -> None:
        """The peer has a place for a message that it called off. :raises Refused: there is none."""
        message = self._parked.pop(token, None)
        if message is not None:
            message.due = 0
            message.peer_token = peer_token
            self._submit(message)
            return
        for message in self._flight:
            if message.token == token and not message.done and not message.peer_token:
                message.peer_token = peer_token
                return
        raise Refused(ReturnCode.CANCELLED)

    def _sweep(self) -> None:
        """Complete what is done, oldest first."""
        flight = self._flight
        while flight and flight[0].done:
            message = flight.popleft()
            request = message.request
            if message.token:
                self.offers.pop(message.token, None)
            if request.opcode in _READS:
                self._reads -= 1
            elif request.opcode is Opcode.WRITE:
                self._writes -= 1
            self.host.retire(request.index + request.slots)
            failure = message.failure
            if failure is not None:
                self._report(request, failure.status, 0, failure.cause)
                self.fail(failure.reason)
                return
            self._rnr_left = self.attributes.rnr_retry
            if request.signaled:
                self._report(request, Status.SUCCESS, request.length, Cause.NONE)
        self._check_drained()

    # Ends

    def abandon(self) -> None:
        """Give up what is in flight."""
        for message in self._flight:
            message.abandon()

    def fail(self, reason: str) -> None:
        """The queue pair goes to ERR and both queues flush."""
        if self.state is QpState.ERR:
            return
        self.state = QpState.ERR
        self.host.moved(QpState.ERR, reason)
        self._flush()

    def _flush(self) -> None:
        self._flush_sends()
        self.target.flush()

    def _flush_sends(self) -> None:
        flight, queue = self._flight, self._queue
        self.abandon()
        self._clear()
        for message in flight:
            self._flushed(message.request)
        for request in queue:
            self._flushed(request)

    def _flushed(self, request: SendRequest) -> None:
        self.host.retire(request.index + request.slots)
        self._report(request, Status.WR_FLUSH_ERR, 0, Cause.FLUSHED)

    def _report(self, request: SendRequest, status: Status, length: int, cause: int) -> None:
        self.host.complete(
            Completion(
                self.qpn,
                request.index,
                COMPLETIONS.get(request.opcode, CompletionOpcode.NOP),
                status,
                length=length,
                cause=cause,
                cookie=request.cookie,
            )
        )

    def _check_drained(self) -> None:
        if self.state is not QpState.SQD:
            self._drained = False
        elif not self._flight and not self._drained:
            self._drained = True
            self.host.moved(QpState.SQD, "send queue drained")
            self.host.raise_event(AsyncEvent.SQ_DRAINED, "send queue drained")
