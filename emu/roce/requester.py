# SPDX-License-Identifier: Apache-2.0
"""The sending half of RC: send elements to request packets, responses to completions, losses to resends.

Elements are posted to ``queue``; the first packet moves one to ``flight``, its completion takes it out.
``una`` is the oldest PSN not acknowledged, ``nxt`` the next never sent. A loss rewinds: ``at`` and the
elements' cursors go back, and everything from there is sent again in order with the same PSNs and contents
(go-back-N).
"""

from __future__ import annotations

from collections.abc import Callable

from emu.fabric.run import FrameRun
from emu.nic.drops import DropReason
from emu.nic.engine import ProtectionError
from emu.nic.work import Cause, Completion, QpState, SendRequest, Status
from emu.roce import syndrome as aeth
from emu.roce.connection import Connection
from emu.roce.element import NO_OPERATION, OPERATIONS, WINDOW, Answer, Element, Fault, refusal
from emu.roce.message import atomic_head, packet_head, packet_payload
from emu.roce.packet import RocePacket
from emu.roce.psn import PSN_MASK, cmp24, distance24, packets_of
from emu.roce.read_response import read_fault
from emu.roce.resend import ResendNote
from emu.roce.run import ACK_INTERVAL, RUN_MAX, RUN_MIN, WHOLE_MIN, PacketRun, WholeWrite
from emu.roce.syndrome import Nak
from emu.roce.timers import RNR_DELAYS, ack_timeout
from emu.wire.headers import AETH, ATOMIC_ACK, pack_reth
from emu.wire.opcodes import RcOpcode

__all__ = ["ACK_INTERVAL", "Requester"]

RNR_FOREVER = 7
"""rnr_retry value that never gives up."""

_ACKNOWLEDGE = int(RcOpcode.ACKNOWLEDGE)
_ATOMIC_ACKNOWLEDGE = int(RcOpcode.ATOMIC_ACKNOWLEDGE)
_READ_MIDDLE = int(RcOpcode.READ_RESPONSE_MIDDLE)
_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_FATAL_NAKS = {
    Nak.INVALID_REQUEST: (Status.REM_INV_REQ_ERR, "the responder refused the request as invalid"),
    Nak.REMOTE_ACCESS: (Status.REM_ACCESS_ERR, "the responder refused access to its memory"),
    Nak.REMOTE_OPERATION: (Status.REM_OP_ERR, "the responder could not carry out the request"),
}


class Requester:
    """Requester state of one queue pair. ``failed`` is told why when an element ended in error."""

    def __init__(self, connection: Connection, failed: Callable[[str], None]) -> None:
        self._connection = connection
        self._host = connection.host
        self._failed = failed
        self._resent = ResendNote(connection.host)
        self.clear()

    def clear(self) -> None:
        """Forget all work and timers, without completions."""
        # Lists, as they are short and indexed, and an empty deque would cost each queue pair 760 bytes.
        self.queue: list[SendRequest] = []
        self.flight: list[Element] = []
        self.at = 0
        self.nxt = self.una = 0
        self.retry_left = self.rnr_left = 0
        self.reads_in_flight = 0
        self.started_retry = False
        self.ack_deadline: int | None = None
        self.rnr_deadline: int | None = None
        self._drained = False

    def start(self) -> None:
        """RTR to RTS: take the initial PSN and the retry counters from the attributes."""
        self.nxt = self.una = self._connection.attributes.sq_psn & PSN_MASK
        self._reload()

    def _reload(self) -> None:
        self.retry_left = self._connection.attributes.retry_cnt
        self.rnr_left = self._connection.attributes.rnr_retry

    # Sending

    def post(self, request: SendRequest) -> None:
        """Queue one element."""
        self.queue.append(request)

    def transmit(self, now: int, budget: int) -> int:
        """Send up to ``budget`` request packets, resends first; return how many left."""
        if self.rnr_deadline is not None:
            return 0
        sent = 0
        connection = self._connection
        flight = self.flight
        while sent < budget:
            if self.at >= len(flight):
                if not self._begin():
                    break
                continue
            element = flight[self.at]
            if element.fault is not None:
                break
            if element.cursor >= element.packets:
                self.at += 1
                continue
            psn = (element.first + element.cursor) & PSN_MASK
            if psn == self.nxt and distance24(psn, self.una) >= WINDOW:
                break
            if connection.rate is not None and connection.holds(now):
                break
            if connection.send_run is not None and psn == self.nxt:
                room = min(budget - sent, WINDOW - distance24(psn, self.una))
                count = self._send_run(connection.send_run, element, psn, room)
                if count:
                    sent += count
                    continue
                if element.fault is not None:
                    break
            if not self._send(element, psn):
                break
            sent += 1
        self._resent.flush()
        if self.ack_deadline is None:
            self._restart_timer(now)
        return sent

    def _begin(self) -> bool:
        """Move the next posted element to flight. False when there is none, or it has to wait."""
        connection = self._connection
        if not self.queue or connection.state is not QpState.RTS:
            return False
        if distance24(self.nxt, self.una) >= WINDOW:
            return False
        request = self.queue[0]
        if request.fence and self.reads_in_flight:
            return False
        operation = OPERATIONS.get(request.opcode, NO_OPERATION)
        fault = refusal(request, operation, connection.mtu, connection.attributes.max_rd_atomic)
        element = Element(request, operation, self.nxt, 0, fault=fault)
        if fault is None:
            if operation.answer in (Answer.DATA, Answer.ATOMIC):
                if self.reads_in_flight >= connection.attributes.max_rd_atomic:
                    return False
                self.reads_in_flight += 1
            if operation.answer in (Answer.DATA, Answer.ACK):
                element.packets = packets_of(request.length, connection.mtu)
            elif operation.answer is Answer.ATOMIC:
                element.packets = 1
        del self.queue[0]
        self.flight.append(element)
        self._sweep()
        return connection.state is QpState.RTS

    def _send_run(self, send: Callable[[FrameRun], None], element: Element, psn: int, room: int) -> int:
        """Send new packets together, a whole WRITE or the middle of a message; returns how many.

        0 when there are not enough of them, or when local memory does not allow it.
        """
        request, operation, cursor = element.request, element.operation, element.cursor
        connection = self._connection
        if operation.answer is not Answer.ACK or connection.rate is not None:
            return 0
        mtu, packets = connection.mtu, element.packets
        whole: WholeWrite | None = None
        if not cursor:
            if not WHOLE_MIN <= packets <= min(room, RUN_MAX) or not operation.write or operation.immediate:
                return 0
            count, length = packets, request.length
            address, rkey = request.remote_address & _U64, request.rkey & _U32
            whole = WholeWrite(operation.first, operation.last, rkey, address, length)
        else:
            # The last packet has another opcode and its own length.
            count = min(packets - 1 - cursor, room, RUN_MAX)
            if count < RUN_MIN:
                return 0
            length = count * mtu
        try:
            payload = packet_payload(self._host, request, cursor * mtu, length)
        except ProtectionError as error:
            self._unreadable(element, error)
            return 0
        send(
            PacketRun(connection, operation.middle, psn, payload, mtu, cursor=cursor, asks=True, whole=whole)
        )
        self.nxt = (psn + count) & PSN_MASK
        element.cursor = cursor + count
        return count

    def _unreadable(self, element: Element, error: ProtectionError) -> None:
        element.fault = Fault(Status.LOC_PROT_ERR, error.cause, f"payload: {error.rule}")
        self._sweep()

    def _send(self, element: Element, psn: int) -> bool:
        """Send the packet at the element's cursor. False when local memory does not allow it."""
        request, operation = element.request, element.operation
        self._connection.target = request.srq
        cursor, mtu = element.cursor, self._connection.mtu
        offset = cursor * mtu
        extension = b""
        payload: bytes = b""
        step = 1
        if operation.answer is Answer.ACK:
            end = cursor == element.packets - 1
            size = request.length - offset if end else mtu
            try:
                payload = packet_payload(self._host, request, offset, size)
            except ProtectionError as error:
                self._unreadable(element, error)
                return False
            opcode, extension = packet_head(request, operation, cursor, end)
            ask = end or cursor % ACK_INTERVAL == ACK_INTERVAL - 1
            # Only a message that makes the peer's receive completion can ask for its interrupt.
            solicited = request.solicited and end and (operation.immediate or not operation.write)
            self._connection.send(opcode, psn, extension, payload, ask, solicited)
        elif operation.answer is Answer.DATA:
            step = element.packets - cursor
            extension = pack_reth(
                request.remote_address + offset & _U64, request.rkey & _U32, request.length - offset
            )
            element.restarted |= psn != self.nxt
            self._connection.send(operation.only, psn, extension, b"", True)
        else:
            opcode, extension = atomic_head(request, operation)
            self._connection.send(opcode, psn, extension, b"", True)
        if psn == self.nxt:
            self.nxt = (psn + step) & PSN_MASK
        else:
            self._resent.add(psn, len(payload))
        element.cursor = cursor + step
        return True

    # Responses

    def receive(self, packet: RocePacket, now: int) -> None:
        """Handle one response packet."""
        psn = packet.psn
        if cmp24(psn, self.nxt) >= 0:
            self._drop(f"response to PSN {psn}, which was never sent (next is {self.nxt})")
            return
        if cmp24(psn, self.una) < 0:
            self._drop(f"response to PSN {psn} again (oldest unacknowledged is {self.una})")
            return
        code = aeth.ACK
        if packet.opcode != _READ_MIDDLE:
            code = AETH.unpack_from(packet.frame, packet.extension)[0] >> 24
        acknowledge = packet.opcode == _ACKNOWLEDGE
        if acknowledge:
            if packet.payload_length:
                self._drop(f"acknowledgement with {packet.payload_length} bytes of payload")
                return
            if not (aeth.is_ack(code) or aeth.is_rnr(code) or Nak.SEQUENCE <= code <= Nak.REMOTE_OPERATION):
                self._drop(f"reserved syndrome {code:#04x}")
                return
        covered = psn if acknowledge and aeth.is_ack(code) else (psn - 1) & PSN_MASK
        if not self._acknowledge(covered, now):
            return
        if acknowledge:
            if not aeth.is_ack(code):
                self._negative(code, psn, now)
        else:
            self._data(packet, code, now)

    def receive_run(self, run: PacketRun, now: int) -> bool:
        """Place the middle of the answer to the oldest READ. False, and nothing done, when it is not that."""
        head = self.flight[0] if self.flight else None
        if head is None or run.opcode != _READ_MIDDLE or head.operation.answer is not Answer.DATA:
            return False
        expected = (head.first + head.received) & PSN_MASK
        mtu = self._connection.mtu
        in_order = run.psn == expected == self.una and head.received > 0
        if not in_order or run.size != mtu or head.received + run.count >= head.packets:
            return False
        try:
            self._host.scatter(head.request.sges, head.received * mtu, run.payload)
        except ProtectionError as error:
            self._fail(Fault(Status.LOC_PROT_ERR, error.cause, f"result: {error.rule}"))
            return True
        head.received += run.count
        self._advance((run.last + 1) & PSN_MASK, now)
        return True

    def _acknowledge(self, covered: int, now: int) -> bool:
        """Finish all up to PSN ``covered``. False when a response was lost or the QP failed."""
        flight = self.flight
        while flight:
            head = flight[0]
            if cmp24(covered, head.first) < 0:
                break
            if head.operation.answer is not Answer.ACK:
                # Responses come in order, so one that covers this PSN without its data means that data was
                # lost.
                missing = (head.first + head.received) & PSN_MASK
                if cmp24(covered, missing) >= 0:
                    self._host.count("implied_nak_seq_err")
                    self._advance(missing, now)
                    self._retry(missing, now, f"response {missing} was lost", Cause.SEQUENCE_RETRIES)
                    return False
                break
            if cmp24(head.last, covered) > 0:
                break
            self._finish(head)
            if not self._sweep():
                return False
        self._advance((covered + 1) & PSN_MASK, now)
        return True

    def _advance(self, una: int, now: int) -> None:
        """Move ``una`` forward, which is progress: counters reload, the timer starts anew."""
        if cmp24(una, self.una) <= 0:
            return
        self.una = una
        self._reload()
        self.started_retry = False
        if self.flight and self.at == 0:
            head = self.flight[0]
            head.cursor = max(head.cursor, min(distance24(una, head.first), head.packets))
        self._restart_timer(now)

    def _negative(self, code: int, psn: int, now: int) -> None:
        """Act on a NAK or RNR NAK for ``psn``, which is in the oldest element."""
        if aeth.is_rnr(code):
            self._receiver_not_ready(code, psn, now)
        elif code == Nak.SEQUENCE:
            self._host.count("packet_seq_err")
            self._retry(psn, now, f"the responder misses PSN {psn}", Cause.SEQUENCE_RETRIES)
        else:
            status, sentence = _FATAL_NAKS[Nak(code)]
            self._fail(Fault(status, Cause.REMOTE_NAK, f"{sentence} (NAK {code:#04x}, PSN {psn})"))

    def _receiver_not_ready(self, code: int, psn: int, now: int) -> None:
        self._host.count("rnr_nak_retry_err")
        if self.rnr_deadline is not None:
            return
        if self.rnr_left == 0:
            self._fail(
                Fault(
                    Status.RNR_RETRY_EXC_ERR,
                    Cause.RNR_RETRIES,
                    f"no receive element for PSN {psn} at the peer",
                )
            )
            return
        if self.rnr_left != RNR_FOREVER:
            self.rnr_left -= 1
        self.ack_deadline = None
        self.rnr_deadline = now + RNR_DELAYS[code & 0x1F]
        self._rewind(psn, "receiver not ready")

    def _data(self, packet: RocePacket, code: int, now: int) -> None:
        """Place a READ response or an atomic's old value; its PSN is the oldest one without answer."""
        head = self.flight[0] if self.flight else None
        atomic = packet.opcode == _ATOMIC_ACKNOWLEDGE
        expected = Answer.ATOMIC if atomic else Answer.DATA
        if head is None or head.operation.answer is not expected or not aeth.is_ack(code):
            name = packet.info.name if packet.info is not None else "response"
            self._fail(
                Fault(
                    Status.BAD_RESP_ERR, Cause.NONE, f"{name} for PSN {packet.psn}, which is no answer to it"
                )
            )
            return
        offset = head.received * self._connection.mtu
        data: bytes | memoryview = packet.payload
        if atomic:
            # The wire is big-endian, both memories little-endian.
            (original,) = ATOMIC_ACK.unpack_from(packet.frame, packet.extension + AETH.size)
            size = head.request.length
            data = original.to_bytes(8, "little")[:size]
        else:
            fault = read_fault(packet, head, self._connection.mtu)
            if fault is not None:
                self._fail(fault)
                return
        if len(data):
            try:
                self._host.scatter(head.request.sges, offset, data)
            except ProtectionError as error:
                self._fail(Fault(Status.LOC_PROT_ERR, error.cause, f"result: {error.rule}"))
                return
        head.received += 1
        if head.received == head.packets:
            self.reads_in_flight -= 1
            self._finish(head)
        self._advance((packet.psn + 1) & PSN_MASK, now)
        self._sweep()

    # Losses and timers

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to run."""
        return self.rnr_deadline if self.rnr_deadline is not None else self.ack_deadline

    def expire(self, now: int) -> None:
        """Handle whichever timer ran out."""
        if self.rnr_deadline is not None:
            if now >= self.rnr_deadline:
                self.rnr_deadline = None
                self._host.note_timer("waited long enough for the peer's receive element")
            return
        if self.ack_deadline is None or now < self.ack_deadline:
            return
        self.ack_deadline = None
        self._host.count("local_ack_timeout_err")
        self._host.note_timer(f"no answer to PSN {self.una} within the local ACK timeout")
        # A timeout is a new loss even if the last one brought no progress.
        self.started_retry = False
        self._retry(self.una, now, f"no answer to PSN {self.una} in time", Cause.ACK_TIMEOUT)

    def _restart_timer(self, now: int) -> None:
        interval = ack_timeout(self._connection.attributes.timeout)
        waiting = self.una != self.nxt and self.rnr_deadline is None
        self.ack_deadline = now + interval if waiting and interval is not None else None

    def _retry(self, psn: int, now: int, reason: str, cause: Cause) -> None:
        """Charge one retry for one loss and go back to ``psn``."""
        if self.rnr_deadline is not None or self.started_retry:
            return
        if self.retry_left == 0:
            self._fail(Fault(Status.RETRY_EXC_ERR, cause, f"{reason}, and every retry is used up"))
            return
        self.retry_left -= 1
        self.started_retry = True
        self._rewind(psn, reason)
        self._restart_timer(now)

    def _rewind(self, psn: int, reason: str) -> None:
        self._resent.reason = reason
        found = False
        for position, element in enumerate(self.flight):
            if found:
                element.cursor = 0
            elif distance24(psn, element.first) < element.packets:
                found = True
                self.at = position
                element.cursor = distance24(psn, element.first)

    # Ends

    def _finish(self, head: Element) -> None:
        """Complete the oldest element with success."""
        del self.flight[0]
        self.at = max(0, self.at - 1)
        request = head.request
        self._host.retire(request.index + request.slots)
        if request.signaled:
            self._report(request, Status.SUCCESS, request.length, Cause.NONE)

    def _sweep(self) -> bool:
        """Finish local operations that became oldest; False when one that cannot go on ended the QP."""
        flight = self.flight
        while flight:
            head = flight[0]
            if head.fault is not None:
                self._fail(head.fault)
                return False
            if head.operation.answer is not Answer.NOTHING:
                break
            self._finish(head)
        return True

    def _fail(self, fault: Fault) -> None:
        """End the oldest element in error, and with it the queue pair."""
        if self.flight:
            request = self.flight.pop(0).request
            self._host.retire(request.index + request.slots)
            self._report(request, fault.status, 0, fault.cause)
        self._failed(fault.reason)

    def flush(self) -> None:
        """Complete everything left with WR_FLUSH_ERR, in order, and stop the timers."""
        waiting = [element.request for element in self.flight] + self.queue
        self.clear()
        for request in waiting:
            self._host.retire(request.index + request.slots)
            self._report(request, Status.WR_FLUSH_ERR, 0, Cause.FLUSHED)

    def _report(self, request: SendRequest, status: Status, length: int, cause: int) -> None:
        operation = OPERATIONS.get(request.opcode, NO_OPERATION)
        self._host.complete(
            Completion(
                self._host.qpn,
                request.index,
                operation.completion,
                status,
                length=length,
                cause=cause,
                cookie=request.cookie,
            )
        )

    def drained(self) -> bool:
        """True once in SQD when the messages that had begun are finished."""
        if self._connection.state is not QpState.SQD:
            self._drained = False
            return False
        if self.flight or self._drained:
            return False
        self._drained = True
        return True

    def idle(self) -> bool:
        """True when nothing is queued or in flight."""
        return not self.queue and not self.flight

    def _drop(self, reason: str) -> None:
        self._host.note_drop(DropReason.RESPONSE, reason)
