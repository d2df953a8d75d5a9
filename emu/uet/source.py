# SPDX-License-Identifier: Apache-2.0
"""The sending half of one direction of a PDC: the window, what is on the way, and what was acknowledged.

What does not arrive is the business of :mod:`emu.uet.recovery`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from emu.uet.ccc import Ccc
from emu.uet.entropy import EntropySelector
from emu.uet.headers import ResponseHeader
from emu.uet.outgoing import Outgoing, State, Stream
from emu.uet.packet import UetPacket
from emu.uet.psn import advance, before, distance
from emu.uet.recovery import Recovery
from emu.wire.uet_names import AckFlag, CtlType, RequestFlag, ResponseOpcode

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
_NS_PER_SERVICE_UNIT = 128
_PROBE = 0x5052
"""What probes carry, to know their answers by."""
_NO_TIME = (None, 0, 0xFFFF)
"""Service times that say nothing: not there, not valid, saturated."""


class Source:
    """Sends streams in order. ``unacked`` holds, by PSN, what the cumulative ACK has not passed."""

    def __init__(self, pdc: Pdc, start_psn: int, selector: EntropySelector, ccc: Ccc) -> None:
        self._pdc = pdc
        self._parameters = pdc.parameters
        self._selector = selector
        self.ccc = ccc
        self.nscc = ccc.nscc
        self._received = 0
        self._credit_at = 0
        self._start = start_psn
        self.next_psn = start_psn
        self.cack = self.clear = advance(start_psn, -1)
        self._range = pdc.parameters.mpr_before_ack * 128
        self.unacked: dict[int, Outgoing] = {}
        self.queue: deque[Stream] = deque()
        self.ev = selector.values[0]
        self._since_ask = 0
        self.inflight = 0
        self.clear_wanted = False
        self.recovery = Recovery(pdc, self)

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
        if not self.queue:
            self.recovery.drained(now)
        if self.clear_wanted:
            self.clear_wanted = False
            self._pdc.control(CtlType.CLEAR_CMD, payload=self.clear)
            behind = self.unacked.get(advance(self.clear))
            if behind is not None and behind.state is State.ARRIVED:
                # Only CACK_PSN can tell that these went well, and what was cleared held it back.
                self._pdc.control(CtlType.ACK_REQUEST, psn=self.clear, flags=_AR)
        return sent >= budget

    def _choose(self, now: int) -> Outgoing | None:
        if self.recovery.paused:
            return None
        lost = self.recovery.lost
        while lost:
            if lost[0].state is not State.LOST:
                lost.popleft()
            elif self.ccc.allows():
                return lost.popleft()
            else:
                self._stop(now)
                return None
        while self.queue:
            ahead = distance(self.next_psn, self.cack)
            if ahead > self._range or (not self._pdc.established and ahead > _SYN_RANGE):
                return None
            if not self.ccc.allows():
                self._stop(now)
                return None
            outgoing = self.queue[0].next()
            if outgoing is not None:
                if outgoing.last:
                    self.queue.popleft()
                outgoing.psn = self.next_psn
                self.next_psn = advance(self.next_psn)
                self.unacked[outgoing.psn] = outgoing
                return outgoing
            self.queue.popleft()
        return None

    def _stop(self, now: int) -> None:
        """Congestion control allows nothing; others of the CCC may open it again. Credit is asked for."""
        ccc = self.ccc
        ccc.blocked[self._pdc] = None
        if ccc.credit is None or ccc.credit.allows() or not self._pdc.established:
            return
        told = ccc.credit.told
        target = ccc.credit_target()
        if target != told or now >= self._credit_at:
            self._credit_at = now + self._parameters.tail_loss_ns
            self._pdc.control(CtlType.CREDIT_REQ, payload=target)

    def backlog(self, limit: int) -> int:
        """Nominal bytes that wait to be sent, as far as they are no more than ``limit``, or a little."""
        waiting = sum(outgoing.nominal for outgoing in self.recovery.lost if outgoing.state is State.LOST)
        for stream in self.queue:
            if waiting >= limit:
                break
            waiting += stream.remaining
        return waiting

    def _send(self, outgoing: Outgoing, now: int) -> None:
        again = outgoing.sends > 0
        outgoing.sends += 1
        outgoing.state = State.FLIGHT
        outgoing.sent_at = now
        outgoing.ev = self.ev = self._selector.pick(now)
        flags = _RETX | _AR if again else 0
        nominal = self._pdc.emit(outgoing, flags or self._ask(outgoing), distance(self.clear, outgoing.psn))
        self.clear_wanted = False
        outgoing.nominal = nominal
        self.inflight += nominal
        self.ccc.inflight += nominal
        if self.ccc.credit is not None:
            self.ccc.credit.spend(nominal)
        self.recovery.sent(outgoing, now, again=again)

    def _ask(self, outgoing: Outgoing) -> int:
        """AR flag: at the end of the work, every so often, and when the window is nearly full."""
        self._since_ask += 1
        if (
            self._since_ask >= self._parameters.ack_interval
            or outgoing.control is not None
            or (outgoing.last and not self.queue)
            or self.nscc.wants_ack(self.ccc.inflight + len(outgoing.body) + _OVERHEAD)
            or self.nscc.cwnd < self._parameters.ack_trigger
            or distance(self.next_psn, self.cack) > self._range
        ):
            self._since_ask = 0
            return _AR
        return 0

    # Answers

    def acknowledge(self, packet: UetPacket, header: ResponseHeader | None, now: int) -> None:
        """Take an ACK. ``header`` is the SES response inside, which belongs to ACK_PSN."""
        last = advance(self.next_psn, -1)
        cack = packet.psn
        if before(last, cack):
            self._pdc.drop(f"ACK of PSN {cack}, which was never sent (last is {last})")
            return
        recovery = self.recovery
        recovery.hear(now)
        if self.ccc.credit is not None:
            self.ccc.credit.heard()
            if packet.credit is not None:
                self.ccc.credit.update(packet.credit)
        arrived: list[Outgoing] = []
        first: Outgoing | None = None
        if not packet.flags & _ACK_P:
            ack_psn = advance(cack, packet.offset)
            outgoing = first = self.unacked.get(ack_psn)
            sample = None
            if outgoing is not None:
                if outgoing.state is State.FLIGHT and outgoing.sends == 1 and not outgoing.asks:
                    recovery.timed(outgoing, now)
                sample = self._sample(outgoing, packet, now)
                self._arrive(outgoing, arrived)
                if header is None or header.opcode != ResponseOpcode.NO_RESPONSE:
                    self._answer(outgoing, header, packet.frame)
            self._advance(cack, packet, arrived)
            if self._parameters.probe and not self.ccc.probed_at and self.queue:
                self._probe(now)
            if packet.received is not None:
                newly = (packet.received - self._received) & 0xFFFFFF
                if newly < 0x800000:
                    self._received = packet.received
                else:
                    newly = 0
                self.nscc.acknowledged(
                    now,
                    self.ccc.inflight,
                    newly=newly * 256,
                    marked=bool(packet.flags & _ACK_M),
                    sample=sample,
                )
        elif packet.word == _PROBE and packet.service_time not in _NO_TIME:
            self.nscc.observe(now - self.ccc.probed_at - packet.service_time * _NS_PER_SERVICE_UNIT)
        self._selected(packet, arrived, now)
        if packet.flags & _ACK_M:
            self.avoid(packet.ev, now)
        for outgoing in arrived:
            # Of a packet sent twice only its own ACK tells which of the two arrived.
            if outgoing.sends == 1 or (outgoing is first and packet.flags & _ACK_RETX):
                recovery.overtaken(outgoing, now)
        self._follow_clear()
        if packet.flags & _ACK_REQ_CLEAR and not packet.flags & _ACK_P:
            self.clear_wanted = True

    def _probe(self, now: int) -> None:
        """Ask for the base round trip past all queues, once, when more is to follow."""
        self.ccc.probed_at = now
        self._pdc.control(CtlType.PROBE, payload=advance(self.cack), flags=_AR, opaque=_PROBE)

    def _sample(self, outgoing: Outgoing, packet: UetPacket, now: int) -> int | None:
        """Round-trip time of one packet, when the ACK tells which transmission it answers."""
        again = bool(packet.flags & _ACK_RETX)
        if packet.service_time in _NO_TIME or outgoing.sends != (2 if again else 1):
            return None
        return now - outgoing.sent_at - (packet.service_time or 0) * _NS_PER_SERVICE_UNIT

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
                self.recovery.selected(outgoing, now)
            bitmap >>= skip + 1
            psn = advance(psn)

    def _arrive(self, outgoing: Outgoing, arrived: list[Outgoing]) -> None:
        if outgoing.state is State.ARRIVED:
            return
        if outgoing.state is State.FLIGHT:
            self.inflight -= outgoing.nominal
            self.ccc.inflight -= outgoing.nominal
        outgoing.state = State.ARRIVED
        self.recovery.arrived(outgoing)
        arrived.append(outgoing)

    def arrived(self, outgoing: Outgoing) -> None:
        """The destination says that it has a packet."""
        self._arrive(outgoing, [])

    def landed(self, outgoing: Outgoing) -> None:
        """A packet is not on the way any more."""
        self.inflight -= outgoing.nominal
        self.ccc.inflight -= outgoing.nominal

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

    def refuse(self, code: int, packet: UetPacket, now: int) -> None:
        """Take a NACK about a packet of this direction."""
        self.recovery.refuse(code, packet, now)

    def begin_anew(self, start_psn: int) -> None:
        """Number everything from ``start_psn`` on, and send it again; nothing was taken yet."""
        outstanding = list(self.unacked.values())
        for outgoing in outstanding:
            if outgoing.state is State.FLIGHT:
                self.landed(outgoing)
        self.unacked.clear()
        self._start = self.next_psn = start_psn
        self.cack = self.clear = advance(start_psn, -1)
        for outgoing in outstanding:
            outgoing.psn = self.next_psn
            self.unacked[outgoing.psn] = outgoing
            self.next_psn = advance(self.next_psn)
        self.recovery.begin_anew(outstanding)

    def avoid(self, ev: int, now: int) -> None:
        """Leave a path out for a round trip: it is congested, or lost a packet."""
        self._selector.bar(ev, now + self.nscc.base_rtt)

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to run."""
        deadline = self.recovery.deadline()
        if self._credit_at and self._pdc in self.ccc.blocked:
            return self._credit_at if deadline is None else min(deadline, self._credit_at)
        return deadline

    def expire(self, now: int) -> None:
        """Look at every packet whose time has come."""
        self.recovery.expire(now)

    def drain(self) -> list[Stream]:
        """Give up: the streams that are not done, each once, in the order of their first packets."""
        streams: dict[int, Stream] = {}
        for outgoing in self.unacked.values():
            if outgoing.state is State.FLIGHT:
                self.landed(outgoing)
            if outgoing.stream is not None and not outgoing.answered:
                streams.setdefault(id(outgoing.stream), outgoing.stream)
        for stream in self.queue:
            streams.setdefault(id(stream), stream)
        self.unacked.clear()
        self.queue.clear()
        self.recovery.clear()
        return list(streams.values())
