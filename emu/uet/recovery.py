# SPDX-License-Identifier: Apache-2.0
"""What a source does about packets that did not arrive, or that it hears nothing of.

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
from emu.uet.outgoing import Failure, Outgoing, State
from emu.uet.packet import UetPacket
from emu.uet.psn import advance, before
from emu.uet.refusals import REACTIONS, TRIMS, Reaction, name_of
from emu.wire.uet_names import CtlType, NackCode, RequestFlag

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc
    from emu.uet.source import Source

__all__ = ["Recovery"]

_AR = int(RequestFlag.AR)
_LONGEST = 8
"""Patiences after which a packet is asked for although others are answered."""
_ASKS_AT_ONCE = 16
"""Packets asked for, or sent again for want of an answer, until something is heard."""
_TAIL = 8
"""What this part of the patience does not bring is asked for when nothing more is to be sent."""
_RTO_LIMIT = 8_000_000_000


class Recovery:
    """Losses of one source. ``paused`` says that nothing may be sent, as a refused packet must go first."""

    def __init__(self, pdc: Pdc, source: Source) -> None:
        self._pdc = pdc
        self._source = source
        self._parameters = pdc.parameters
        self.lost: deque[Outgoing] = deque()
        self.paused = False
        # Lists, not deques: eight for each PDC, they hold few packets, and thousands must stay in the cache.
        self._paths: dict[int, list[tuple[int, Outgoing]]] = {}
        self._timers: list[tuple[int, int, Outgoing]] = []
        self._ticket = 0
        self._order = 0
        self._round_trip = 0
        self._heard = 0
        self._asked = 0
        self._newest = 0
        self._tail_order = 0
        self._tail_at = 0

    # What happens

    def sent(self, outgoing: Outgoing, now: int, *, again: bool) -> None:
        """A packet left."""
        self._order += 1
        outgoing.order = self._order
        outgoing.passed = 0
        if not self._pdc.rod:
            path = self._paths.get(outgoing.ev)
            if path is None:
                path = self._paths[outgoing.ev] = []
            path.append((outgoing.order, outgoing))
        if again:
            self._pdc.note_retransmit(outgoing)
            wait = min(self._parameters.rto_ns << outgoing.timeouts, _RTO_LIMIT)
        else:
            wait = self._patience
        self._watch(outgoing, now + wait)

    def drained(self, now: int) -> None:
        """Nothing more is to be sent: what is missing of the last packets is soon asked for."""
        if self._order != self._tail_order and not self.lost:
            self._tail_order = self._order
            self._tail_at = now + self._tail_patience

    def hear(self, now: int) -> None:
        """The destination is alive."""
        self._heard = now
        self._asked = 0

    def timed(self, outgoing: Outgoing, now: int) -> None:
        """A packet sent once was answered."""
        self._round_trip += (now - outgoing.sent_at - self._round_trip) // 8

    def arrived(self, outgoing: Outgoing) -> None:
        """A packet is known to be at the destination."""
        if outgoing.order > self._newest:
            self._newest = outgoing.order

    def selected(self, outgoing: Outgoing, now: int) -> None:
        """It is there, but its answer is still to come."""
        self._watch(outgoing, now + self._patience)

    def overtaken(self, outgoing: Outgoing, now: int) -> None:
        """``outgoing`` arrived: what went before it on the same path and did not is suspect."""
        path = self._paths.get(outgoing.ev)
        if not path:
            return
        suspects = []
        passed = 0
        last = outgoing.order
        for order, other in path:
            if order > last:
                break
            passed += 1
            if other.order != order or other.state is not State.FLIGHT:
                continue
            other.passed += 1
            if other.passed >= self._parameters.reorder_bound:
                # A full queue of a switch that trims would have trimmed it, and the path carries on.
                congested = not self._parameters.nscc.trimming
                self._lose(other, now, "overtaken on its path", congested=congested)
            else:
                suspects.append((order, other))
        path[:passed] = suspects

    def clear(self) -> None:
        """Forget everything."""
        self.lost.clear()
        self._timers.clear()
        self._paths.clear()
        self._tail_at = 0

    # Refusals

    def refuse(self, code: int, packet: UetPacket, now: int) -> None:
        """Take a NACK about a packet of this direction; one that is not outstanding changes nothing."""
        source = self._source
        outgoing = source.unacked.get(packet.psn)
        if outgoing is None or outgoing.answered:
            return
        self.hear(now)
        if source.ccc.credit is not None:
            source.ccc.credit.heard()
        if code in TRIMS:
            # With credit the last hop is the receiver's business.
            last_hop = code == NackCode.TRIMMED_LASTHOP and source.ccc.credit is not None
            source.nscc.refused(now, source.ccc.inflight, outgoing.nominal, trimmed=not last_hop)
        reaction = REACTIONS.get(code, Reaction.FATAL)
        if reaction is Reaction.RESEND:
            self._resend(outgoing, code, now)
        elif reaction is Reaction.RESEND_LATER:
            self._hold(outgoing, code, now)
        elif reaction is Reaction.GO_BACK:
            self._go_back(packet.payload, now)
        elif reaction is Reaction.WAIT:
            # It is there, and the destination alive.
            source.arrived(outgoing)
            outgoing.asks = outgoing.timeouts = 0
            self._watch(outgoing, now + self._parameters.rto_ns)
        elif reaction is Reaction.NEW_START and self._pdc.begin_anew(packet.payload):
            pass
        elif reaction is Reaction.FRESH:
            self._pdc.gone(f"the target does not know the PDC (NACK {name_of(code)})")
        else:
            reason = f"NACK {name_of(code)} for PSN {packet.psn}"
            self._pdc.fail(Failure(Status.REM_OP_ERR, Cause.REMOTE_NAK, reason))

    def _resend(self, outgoing: Outgoing, code: int, now: int) -> None:
        if outgoing.state is State.ARRIVED and code != NackCode.ACK_WITH_DATA:
            return
        if outgoing.state is State.LOST:
            return
        if self._pdc.rod and outgoing.state is State.FLIGHT:
            # The destination takes nothing behind it.
            self._go_back(outgoing.psn, now)
            return
        if outgoing.state is State.FLIGHT:
            self._source.landed(outgoing)
        outgoing.state = State.LOST
        if code == NackCode.TRIMMED:
            self._source.avoid(outgoing.ev, now)
        self._pdc.reason = f"NACK {name_of(code)}"
        self.lost.append(outgoing)
        self._pdc.kick()

    def _hold(self, outgoing: Outgoing, code: int, now: int) -> None:
        if outgoing.state is not State.FLIGHT:
            return
        self._source.landed(outgoing)
        outgoing.refusals += 1
        if outgoing.refusals > self._parameters.max_nack_retx:
            reason = f"PSN {outgoing.psn} was refused {outgoing.refusals} times ({name_of(code)})"
            self._pdc.fail(Failure(Status.RETRY_EXC_ERR, Cause.SEQUENCE_RETRIES, reason))
            return
        outgoing.state = State.HELD
        self._watch(outgoing, now + self._parameters.nack_retx_ns)
        if self._pdc.rod:
            # What follows would only arrive out of order.
            self.paused = True
            self._go_back(advance(outgoing.psn), now)

    def _go_back(self, expected: int, now: int) -> None:
        """Send everything from ``expected`` on again, in order."""
        unacked = self._source.unacked
        for psn, outgoing in unacked.items():
            if not before(psn, expected) and outgoing.state is State.FLIGHT:
                self._lose(outgoing, now, f"the destination expects PSN {expected}")
        self.lost = deque(outgoing for outgoing in unacked.values() if outgoing.state is State.LOST)

    def _lose(self, outgoing: Outgoing, now: int, reason: str, *, congested: bool = True) -> None:
        source = self._source
        if outgoing.state is State.FLIGHT:
            source.landed(outgoing)
            source.nscc.lost(outgoing.nominal)
            if congested:
                source.avoid(outgoing.ev, now)
        outgoing.state = State.LOST
        self._pdc.reason = reason
        self.lost.append(outgoing)
        self._pdc.kick()

    def begin_anew(self, outstanding: list[Outgoing]) -> None:
        """Send all of these again, under the PSNs that they have now."""
        self._paths.clear()
        for outgoing in outstanding:
            outgoing.state = State.LOST
        self.lost = deque(outstanding)
        self._pdc.reason = "the target chose another start"
        self._pdc.kick()

    # Time

    @property
    def _patience(self) -> int:
        """How long silence may last before a packet's fate is asked for (ns)."""
        return max(self._parameters.tail_loss_ns, 2 * self._round_trip)

    @property
    def _tail_patience(self) -> int:
        return max(self._parameters.tail_loss_ns // _TAIL, 2 * self._round_trip)

    def _watch(self, outgoing: Outgoing, due: int) -> None:
        outgoing.due = due
        self._ticket += 1
        heapq.heappush(self._timers, (due, self._ticket, outgoing))

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to run."""
        due = self._due()
        if self._tail_at and self._source.inflight and (due is None or self._tail_at < due):
            return self._tail_at
        return due

    def _due(self) -> int | None:
        timers, unacked = self._timers, self._source.unacked
        while timers:
            due, _, outgoing = timers[0]
            if outgoing.due == due and unacked.get(outgoing.psn) is outgoing:
                return due
            heapq.heappop(timers)
        return None

    def expire(self, now: int) -> None:
        """Look at every packet whose time has come."""
        if self._tail_at and self._tail_at <= now:
            self._tail_at = 0
            if not self._source.queue and self._pdc.established:
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
        for outgoing in self._source.unacked.values():
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
                if self._pdc.rod:
                    # What is behind the oldest was dropped if that one is missing.
                    return

    def _request(self, outgoing: Outgoing) -> None:
        """Ask for the fate of a packet, behind it on its path: the answer is true when that keeps order."""
        self._asked += 1
        outgoing.asks += 1
        self._pdc.control(CtlType.ACK_REQUEST, psn=outgoing.psn, flags=_AR, ev=outgoing.ev)

    def _expired(self, outgoing: Outgoing, now: int) -> bool:
        """Act on one packet. False when that ended the PDC."""
        if outgoing.state is State.HELD:
            outgoing.state = State.LOST
            self.paused = False
            self._pdc.reason = "refused before"
            self.lost.appendleft(outgoing)
            self._pdc.kick()
            return True
        if outgoing.state is State.LOST:
            # It waits for the window; its timer starts when it leaves.
            return True
        if outgoing.state is State.ARRIVED:
            if outgoing.answered:
                return True
            if outgoing.psn != advance(self._source.clear):
                self._watch(outgoing, now + self._patience)
                return True
        patience = self._patience
        if self._pdc.rod and outgoing.state is State.FLIGHT and self._oldest() is not outgoing:
            self._watch(outgoing, now + patience)
            return True
        quiet = max(self._heard, outgoing.sent_at) + patience
        busy = quiet > now and outgoing.sent_at + _LONGEST * patience > now
        if busy or (self._asked >= _ASKS_AT_ONCE and self._oldest() is not outgoing):
            # Others are being answered, or asked for: this one's turn comes. The oldest always has its own.
            self._watch(outgoing, max(quiet, now + patience // 4))
            return True
        if self._pdc.established and outgoing.asks < self._parameters.max_asks and outgoing.control is None:
            self._request(outgoing)
            self._watch(outgoing, now + patience)
            return True
        return self._timed_out(outgoing, now, patience)

    def _oldest(self) -> Outgoing | None:
        """The oldest packet that is not known to be at the destination."""
        for outgoing in self._source.unacked.values():
            if outgoing.state is State.FLIGHT:
                return outgoing
        return None

    def _timed_out(self, outgoing: Outgoing, now: int, patience: int) -> bool:
        """No answer to a packet, nor to questions about it. False when that ended the PDC."""
        self._asked += 1
        outgoing.timeouts += 1
        self._pdc.note_timeout(outgoing)
        if outgoing.timeouts > self._parameters.max_rto:
            reason = f"no answer to PSN {outgoing.psn} after {outgoing.timeouts} timeouts"
            self._pdc.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, reason))
            return False
        outgoing.asks = 0
        self._lose(outgoing, now, "no answer in time")
        for other in self._source.unacked.values():
            # They would fill the window that this one needs; an answer still tells which of them arrived.
            if other.state is State.FLIGHT and other.sent_at + patience <= now:
                self._lose(other, now, "no answer in time")
        if self._pdc.rod:
            self._go_back(outgoing.psn, now)
        return True
