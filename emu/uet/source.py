# SPDX-License-Identifier: Apache-2.0
"""The sending half of one direction of a PDC: window, acknowledgements, losses, and what is sent again.

Unordered delivery (RUD) sends again only what is missing. A packet counts as lost when enough packets that
took the same path later are known to have arrived, since a path keeps order; when the destination says so;
or when nothing was heard of it, asked for, in time. Behind the last packets of the work nothing overtakes, so
what is missing of them is soon asked for, each on the path it took. Ordered delivery (ROD) goes back to the
PSN that the destination expects.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from emu.nic.work import Cause, Status
from emu.uet.entropy import EntropySelector
from emu.uet.headers import ResponseHeader
from emu.uet.nscc import Nscc
from emu.uet.outgoing import Failure, Outgoing, State, Stream
from emu.uet.packet import UetPacket
from emu.uet.psn import advance, before, distance
from emu.wire.uet_names import AckFlag, CtlType, NackCode, RequestFlag, ResponseOpcode

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc

__all__ = ["Source"]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_ACK_M = int(AckFlag.M)
_ACK_P = int(AckFlag.P)
_ACK_REQ_CLEAR = int(AckFlag.REQ_CLEAR)
_ACK_RETX = int(AckFlag.RETX)
_AR = int(RequestFlag.AR)
_RETX = int(RequestFlag.RETX)
_OVERHEAD = 60
"""Nominal bytes of a packet beyond its SES header and payload: PDS and UDP headers, and 40."""
_SYN_RANGE = 4096
"""psn_offset has 12 bits: packets that may leave before the first answer."""
_PSN_SPACE = (1 << 31) - (1 << 17)
"""A PDC ends before its PSNs are half the circle apart."""
_LONGEST = 8
"""Patiences after which a packet is asked for although others are answered."""
_ASKS_AT_ONCE = 16
"""Packets asked for, or sent again for want of an answer, until something is heard."""
_TAIL = 8
"""What this part of the patience does not bring is asked for when nothing more is to be sent."""
_RTO_LIMIT = 8_000_000_000
_NS_PER_SERVICE_UNIT = 128

_RESEND = frozenset(
    {
        NackCode.TRIMMED,
        NackCode.TRIMMED_LASTHOP,
        NackCode.TRIMMED_ACK,
        NackCode.PKT_NOT_RCVD,
        NackCode.ACK_WITH_DATA,
        NackCode.RCVR_INFER_LOSS,
    }
)
_RESEND_LATER = frozenset(
    {
        NackCode.NO_PDC_AVAIL,
        NackCode.NO_CCC_AVAIL,
        NackCode.NO_BITMAP,
        NackCode.NO_PKT_BUFFER,
        NackCode.NO_GTD_DEL_AVAIL,
        NackCode.NO_SES_MSG_AVAIL,
        NackCode.NO_RESOURCE,
        NackCode.PSN_OOR_WINDOW,
        NackCode.EXP_NORMAL,
    }
)
_TRIMMED = frozenset({NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP})
_GONE = frozenset({NackCode.INV_DPDCID, NackCode.CLOSING, NackCode.INVALID_SYN})
"""The target has no such PDC (any more): what it did not answer it did not carry out."""


class Source:
    """Sends streams in order. ``unacked`` holds, by PSN, what the cumulative ACK has not passed."""

    def __init__(self, pdc: Pdc, start_psn: int, selector: EntropySelector, nscc: Nscc) -> None:
        self._pdc = pdc
        self._parameters = pdc.parameters
        self._selector = selector
        self.nscc = nscc
        self._start = start_psn
        self.next_psn = start_psn
        self.cack = self.clear = advance(start_psn, -1)
        self._range = pdc.parameters.mpr_before_ack * 128
        self.unacked: dict[int, Outgoing] = {}
        self.queue: deque[Stream] = deque()
        self._lost: deque[Outgoing] = deque()
        self._paths: dict[int, deque[tuple[int, Outgoing]]] = {}
        self._timers: list[tuple[int, int, Outgoing]] = []
        self._ticket = 0
        self._order = 0
        self.ev = selector.values[0]
        self._since_ask = 0
        self.inflight = 0
        self.clear_wanted = False
        self._paused = False
        self._round_trip = 0
        self._heard = 0
        self._asked = 0
        self._newest = 0
        self._tail_order = 0
        self._tail_at = 0

    @property
    def idle(self) -> bool:
        """True when nothing is queued, and every response was seen (CACK_PSN may still be behind)."""
        return not self.queue and self.clear == advance(self.next_psn, -1)

    @property
    def exhausted(self) -> bool:
        """True when the PSN space of this PDC is used up."""
        return (self.next_psn - self._start) & 0xFFFFFFFF >= _PSN_SPACE

    # Sending

    def transmit(self, now: int, budget: int) -> bool:
        """Send what may go now, at most ``budget`` packets. True when more could go at once."""
        sent = 0
        while sent < budget:
            outgoing = self._choose(now)
            if outgoing is None:
                break
            self._send(outgoing, now)
            sent += 1
        if self._order != self._tail_order and not self.queue and not self._lost:
            self._tail_order = self._order
            self._tail_at = now + self._tail_patience
        if self.clear_wanted:
            self.clear_wanted = False
            self._pdc.control(CtlType.CLEAR_CMD, payload=self.clear)
            behind = self.unacked.get(advance(self.clear))
            if behind is not None and behind.state is State.ARRIVED:
                # Only CACK_PSN can tell that these went well, and what was cleared held it back.
                self._pdc.control(CtlType.ACK_REQUEST, psn=self.clear, flags=_AR)
        return sent >= budget

    def _choose(self, now: int) -> Outgoing | None:
        if self._paused:
            return None
        lost = self._lost
        while lost:
            if lost[0].state is not State.LOST:
                lost.popleft()
            elif self.nscc.allows(self.inflight) or not self.inflight:
                return lost.popleft()
            else:
                return None
        while self.queue:
            ahead = distance(self.next_psn, self.cack)
            if ahead > self._range or not (self.nscc.allows(self.inflight) or not self.inflight):
                return None
            if not self._pdc.established and ahead > _SYN_RANGE:
                return None
            outgoing = self.queue[0].next()
            if outgoing is not None:
                outgoing.psn = self.next_psn
                self.next_psn = advance(self.next_psn)
                self.unacked[outgoing.psn] = outgoing
                return outgoing
            self.queue.popleft()
        return None

    def _send(self, outgoing: Outgoing, now: int) -> None:
        again = outgoing.sends > 0
        outgoing.sends += 1
        outgoing.state = State.FLIGHT
        outgoing.passed = 0
        outgoing.sent_at = now
        self._order += 1
        outgoing.order = self._order
        outgoing.ev = self.ev = self._selector.pick(now)
        flags = _RETX | _AR if again else 0
        nominal = self._pdc.emit(outgoing, flags or self._ask(outgoing), distance(self.clear, outgoing.psn))
        self.clear_wanted = False
        outgoing.nominal = nominal
        self.inflight += nominal
        if not self._pdc.rod:
            path = self._paths.get(outgoing.ev)
            if path is None:
                path = self._paths[outgoing.ev] = deque()
            path.append((outgoing.order, outgoing))
        if again:
            self._pdc.note_retransmit(outgoing)
            wait = min(self._parameters.rto_ns << outgoing.timeouts, _RTO_LIMIT)
        else:
            wait = self._patience
        self._watch(outgoing, now + wait)

    def _ask(self, outgoing: Outgoing) -> int:
        """AR flag: at the end of the work, every so often, and when the window is nearly full."""
        self._since_ask += 1
        queue = self.queue
        if (
            self._since_ask >= self._parameters.ack_interval
            or outgoing.control is not None
            or (outgoing.last and len(queue) == 1)
            or self.nscc.wants_ack(self.inflight + len(outgoing.body) + _OVERHEAD)
            or self.nscc.cwnd < self._parameters.ack_trigger
            or distance(self.next_psn, self.cack) > self._range
        ):
            self._since_ask = 0
            return _AR
        return 0

    @property
    def _patience(self) -> int:
        """How long silence may last before a packet's fate is asked for (ns)."""
        return max(self._parameters.tail_loss_ns, 2 * self._round_trip)

    @property
    def _tail_patience(self) -> int:
        return max(self._parameters.tail_loss_ns // _TAIL, 2 * self._round_trip)

    # Answers

    def acknowledge(self, packet: UetPacket, header: ResponseHeader | None, now: int) -> None:
        """Take an ACK. ``header`` is the SES response inside, which belongs to ACK_PSN."""
        last = advance(self.next_psn, -1)
        cack = packet.psn
        if before(last, cack):
            self._pdc.drop(f"ACK of PSN {cack}, which was never sent (last is {last})")
            return
        self._hear(now)
        arrived: list[Outgoing] = []
        first: Outgoing | None = None
        if not packet.flags & _ACK_P:
            ack_psn = advance(cack, packet.offset)
            outgoing = first = self.unacked.get(ack_psn)
            sample = None
            if outgoing is not None:
                if outgoing.state is State.FLIGHT and outgoing.sends == 1 and not outgoing.asks:
                    self._round_trip += (now - outgoing.sent_at - self._round_trip) // 8
                sample = self._sample(outgoing, packet, now)
                self._arrive(outgoing, arrived)
                if header is None or header.opcode != ResponseOpcode.NO_RESPONSE:
                    self._answer(outgoing, header, packet.frame)
            self._advance(cack, packet, arrived)
            if packet.received is not None:
                self.nscc.acknowledged(
                    now,
                    self.inflight,
                    received=packet.received,
                    marked=bool(packet.flags & _ACK_M),
                    sample=sample,
                )
        self._selected(packet, arrived, now)
        if packet.flags & _ACK_M:
            self._selector.bar(packet.ev, now + self.nscc.base_rtt)
        for outgoing in arrived:
            # Of a packet sent twice only its own ACK tells which of the two arrived.
            if outgoing.sends == 1 or (outgoing is first and packet.flags & _ACK_RETX):
                self._overtaken(outgoing, now)
        self._follow_clear()
        if packet.flags & _ACK_REQ_CLEAR and not packet.flags & _ACK_P:
            self.clear_wanted = True

    def _hear(self, now: int) -> None:
        self._heard = now
        self._asked = 0

    def _sample(self, outgoing: Outgoing, packet: UetPacket, now: int) -> int | None:
        """Round-trip time of one packet, when the ACK tells which transmission it answers."""
        again = bool(packet.flags & _ACK_RETX)
        if not packet.service_time or outgoing.sends != (2 if again else 1):
            return None
        return now - outgoing.sent_at - packet.service_time * _NS_PER_SERVICE_UNIT

    def _advance(self, cack: int, packet: UetPacket, arrived: list[Outgoing]) -> None:
        if not before(self.cack, cack):
            return
        while self.cack != cack:
            self.cack = psn = advance(self.cack)
            outgoing = self.unacked.pop(psn)
            self._arrive(outgoing, arrived)
            self._answer(outgoing, None, packet.frame)
        if before(self.clear, cack):
            self.clear = cack
        if packet.mpr or packet.received is not None:
            self._range = (packet.mpr or self._parameters.wire.mpr_zero_means) * 128

    def _selected(self, packet: UetPacket, arrived: list[Outgoing], now: int) -> None:
        bitmap = packet.sack_bitmap
        psn = advance(packet.psn, packet.sack_offset)
        while bitmap:
            skip = (bitmap & -bitmap).bit_length() - 1
            psn = advance(psn, skip)
            outgoing = self.unacked.get(psn)
            if outgoing is not None and outgoing.state is not State.ARRIVED:
                self._arrive(outgoing, arrived)
                self._watch(outgoing, now + self._patience)
            bitmap >>= skip + 1
            psn = advance(psn)

    def _arrive(self, outgoing: Outgoing, arrived: list[Outgoing]) -> None:
        if outgoing.state is State.ARRIVED:
            return
        if outgoing.state is State.FLIGHT:
            self.inflight -= outgoing.nominal
        outgoing.state = State.ARRIVED
        if outgoing.order > self._newest:
            self._newest = outgoing.order
        arrived.append(outgoing)

    def _answer(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        if outgoing.answered:
            return
        outgoing.answered = True
        if outgoing.stream is not None:
            outgoing.stream.acknowledged(outgoing, header, frame)

    def _follow_clear(self) -> None:
        """Move CLEAR_PSN over every PSN whose response was seen."""
        while True:
            psn = advance(self.clear)
            outgoing = self.unacked.get(psn)
            if outgoing is None or not outgoing.answered:
                return
            self.clear = psn

    # Losses

    def _overtaken(self, outgoing: Outgoing, now: int) -> None:
        """``outgoing`` arrived: what went before it on the same path and did not is suspect."""
        path = self._paths.get(outgoing.ev)
        if path is None:
            return
        suspects = []
        while path and path[0][0] <= outgoing.order:
            order, other = path.popleft()
            if other.order != order or other.state is not State.FLIGHT:
                continue
            other.passed += 1
            if other.passed >= self._parameters.reorder_bound:
                # A full queue of a switch that trims would have trimmed it, and the path carries on.
                congested = not self._parameters.nscc.trimming
                self._lose(other, now, "overtaken on its path", congested=congested)
            else:
                suspects.append((order, other))
        path.extendleft(reversed(suspects))

    def _lose(self, outgoing: Outgoing, now: int, reason: str, *, congested: bool = True) -> None:
        if outgoing.state is State.FLIGHT:
            self.inflight -= outgoing.nominal
            self.nscc.lost(outgoing.nominal)
            if congested:
                self._selector.bar(outgoing.ev, now + self.nscc.base_rtt)
        outgoing.state = State.LOST
        self._pdc.reason = reason
        self._lost.append(outgoing)
        self._pdc.kick()

    def refuse(self, code: int, packet: UetPacket, now: int) -> None:
        """Take a NACK about a packet of this direction; one that is not outstanding changes nothing."""
        outgoing = self.unacked.get(packet.psn)
        if outgoing is None or outgoing.answered:
            return
        self._hear(now)
        if code in _TRIMMED:
            self.nscc.refused(now, self.inflight, outgoing.nominal, trimmed=True)
        if code in _RESEND:
            if outgoing.state is State.ARRIVED and code != NackCode.ACK_WITH_DATA:
                return
            if outgoing.state is not State.LOST:
                if outgoing.state is State.FLIGHT:
                    self.inflight -= outgoing.nominal
                outgoing.state = State.LOST
                if code == NackCode.TRIMMED:
                    self._selector.bar(outgoing.ev, now + self.nscc.base_rtt)
                self._pdc.reason = f"NACK {NackCode(code).name}"
                self._lost.append(outgoing)
                self._pdc.kick()
        elif code == NackCode.ROD_OOO:
            self._go_back(packet.payload, now)
        elif code == NackCode.RCVD_SES_PROCG:
            outgoing.asks = 0
            self._watch(outgoing, now + self._parameters.rto_ns)
        elif code in _RESEND_LATER:
            self._hold(outgoing, code, now)
        elif code in _GONE:
            self._pdc.gone(f"the target does not know the PDC (NACK {NackCode(code).name})")
        else:
            name = NackCode(code).name if code in NackCode.__members__.values() else f"{code:#04x}"
            self._pdc.fail(Failure(Status.REM_OP_ERR, Cause.REMOTE_NAK, f"NACK {name} for PSN {packet.psn}"))

    def _hold(self, outgoing: Outgoing, code: int, now: int) -> None:
        if outgoing.state is not State.FLIGHT:
            return
        self.inflight -= outgoing.nominal
        outgoing.refusals += 1
        if outgoing.refusals > self._parameters.max_nack_retx:
            name = NackCode(code).name
            reason = f"PSN {outgoing.psn} was refused {outgoing.refusals} times ({name})"
            self._pdc.fail(Failure(Status.RETRY_EXC_ERR, Cause.SEQUENCE_RETRIES, reason))
            return
        outgoing.state = State.HELD
        self._watch(outgoing, now + self._parameters.nack_retx_ns)
        if self._pdc.rod:
            # What follows would only arrive out of order.
            self._paused = True
            self._go_back(advance(outgoing.psn), now)

    def _go_back(self, expected: int, now: int) -> None:
        """Send everything from ``expected`` on again, in order."""
        for psn, outgoing in self.unacked.items():
            if not before(psn, expected) and outgoing.state is State.FLIGHT:
                self._lose(outgoing, now, f"the destination expects PSN {expected}")
        self._lost = deque(outgoing for outgoing in self.unacked.values() if outgoing.state is State.LOST)

    # Timers

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to run."""
        due = self._due()
        if self._tail_at and self.inflight and (due is None or self._tail_at < due):
            return self._tail_at
        return due

    def _due(self) -> int | None:
        timers = self._timers
        while timers:
            due, _, outgoing = timers[0]
            if outgoing.due == due and self.unacked.get(outgoing.psn) is outgoing:
                return due
            heapq.heappop(timers)
        return None

    def expire(self, now: int) -> None:
        """Look at every packet whose time has come."""
        if self._tail_at and self._tail_at <= now:
            self._tail_at = 0
            if not self.queue and self._pdc.established:
                self._ask_tail(now)
        while True:
            due = self._due()
            if due is None or due > now:
                return
            _, _, outgoing = heapq.heappop(self._timers)
            outgoing.due = 0
            if not self._expired(outgoing, now):
                return

    def _ask_tail(self, now: int) -> None:
        """Ask for what a later packet passed by, on whatever path, and for the last one."""
        patience = self._tail_patience
        for outgoing in self.unacked.values():
            if outgoing.state is not State.FLIGHT or outgoing.control is not None:
                continue
            if self._newest < outgoing.order < self._order or outgoing.asks >= self._parameters.max_asks:
                continue
            if not self._tail_at:
                self._tail_at = now + patience
            if outgoing.sent_at + patience > now:
                self._tail_at = min(self._tail_at, outgoing.sent_at + patience)
            elif self._asked < _ASKS_AT_ONCE:
                self._request(outgoing)
                self._watch(outgoing, now + self._patience)

    def _request(self, outgoing: Outgoing) -> None:
        """Ask for the fate of a packet, behind it on its path: the answer is true when that keeps order."""
        self._asked += 1
        outgoing.asks += 1
        self._pdc.control(CtlType.ACK_REQUEST, psn=outgoing.psn, flags=_AR, ev=outgoing.ev)

    def _expired(self, outgoing: Outgoing, now: int) -> bool:
        """Act on one packet. False when that ended the PDC."""
        parameters = self._parameters
        if outgoing.state is State.HELD:
            outgoing.state = State.LOST
            self._paused = False
            self._pdc.reason = "refused before"
            self._lost.appendleft(outgoing)
            self._pdc.kick()
            return True
        if outgoing.state is State.LOST:
            # It waits for the window; its timer starts when it leaves.
            return True
        if outgoing.state is State.ARRIVED:
            if outgoing.answered:
                return True
            if outgoing.psn != advance(self.clear):
                self._watch(outgoing, now + self._patience)
                return True
        patience = self._patience
        quiet = max(self._heard, outgoing.sent_at) + patience
        busy = quiet > now and outgoing.sent_at + _LONGEST * patience > now
        if busy or self._asked >= _ASKS_AT_ONCE:
            # Others are being answered, or asked for: this one's turn comes.
            self._watch(outgoing, max(quiet, now + patience // 4))
            return True
        if self._pdc.established and outgoing.asks < parameters.max_asks and outgoing.control is None:
            self._request(outgoing)
            self._watch(outgoing, now + patience)
            return True
        self._asked += 1
        outgoing.timeouts += 1
        self._pdc.note_timeout(outgoing)
        if outgoing.timeouts > parameters.max_rto:
            reason = f"no answer to PSN {outgoing.psn} after {outgoing.timeouts} timeouts"
            self._pdc.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, reason))
            return False
        outgoing.asks = 0
        self._lose(outgoing, now, "no answer in time")
        for other in self.unacked.values():
            # They would fill the window that this one needs; an answer still tells which of them arrived.
            if other.state is State.FLIGHT and other.sent_at + patience <= now:
                self._lose(other, now, "no answer in time")
        if self._pdc.rod:
            self._go_back(outgoing.psn, now)
        return True

    def _watch(self, outgoing: Outgoing, due: int) -> None:
        outgoing.due = due
        self._ticket += 1
        heapq.heappush(self._timers, (due, self._ticket, outgoing))

    def drain(self) -> list[Stream]:
        """Give up: the streams that are not done, each once, in the order of their first packets."""
        streams: dict[int, Stream] = {}
        for outgoing in self.unacked.values():
            if outgoing.stream is not None and not outgoing.answered:
                streams.setdefault(id(outgoing.stream), outgoing.stream)
        for stream in self.queue:
            streams.setdefault(id(stream), stream)
        self.unacked.clear()
        self.queue.clear()
        self._lost.clear()
        self._timers.clear()
        self._tail_at = 0
        return list(streams.values())
