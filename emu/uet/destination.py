# SPDX-License-Identifier: Apache-2.0
"""The receiving half of one direction of a PDC: what arrived, what was answered, and the ACKs that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.uet.headers import response
from emu.uet.outgoing import Answer, Pending, Verdict
from emu.uet.packet import UetPacket
from emu.uet.psn import advance, before, distance
from emu.wire.uet_names import (
    AckFlag,
    AckRequest,
    CtlType,
    NackCode,
    NextHeader,
    PdsType,
    RequestFlag,
    ResponseOpcode,
    ReturnCode,
)

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc

__all__ = ["CONSUMING", "Acknowledgement", "Destination"]

CONSUMING = frozenset({CtlType.NOOP, CtlType.CLOSE_CMD, CtlType.CLOSE_REQ, CtlType.NEGOTIATION})
"""Control packets that take a PSN."""

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_ACK_M = int(AckFlag.M)
_ACK_P = int(AckFlag.P)
_ACK_RETX = int(AckFlag.RETX)
_AR = int(RequestFlag.AR)
_RETX = int(RequestFlag.RETX)
_SYN = int(RequestFlag.SYN)
_CE = 3
_SACK_BITS = 64
_SACK_MASK = (1 << _SACK_BITS) - 1
_RECEIVED_MASK = 0xFFFFFF
_NS_PER_SERVICE_UNIT = 128
_SERVICE_MAX = 0xFFFF
_OUT_OF_ORDER_MAX = 0xFFFE
_AGAIN = 8
"""A gap is told again after this part of the patience of a source."""
_CLEARED_KEPT = 64
"""Cleared answers that are remembered, to tell who asks for one again."""
_PENDING = Pending.RESPONSE
_NO_RESPONSE = Answer(NextHeader.RESPONSE, response(ResponseOpcode.NO_RESPONSE, ReturnCode.NULL))


@dataclass(slots=True)
class Acknowledgement:
    """An ACK that is owed: for which PSN, and what it echoes of the packet that caused it."""

    psn: int
    ev: int
    arrived: int
    marked: bool
    again: bool
    control: bool


class Destination:
    """``cack`` is CACK_PSN; bit i of ``received`` is PSN ``cack + 1 + i``; ``stored`` are answers by PSN that
    wait to be cleared and hold CACK back, as do those that semantics have not given yet.
    """

    def __init__(self, pdc: Pdc, start_psn: int) -> None:
        self._pdc = pdc
        self._parameters = pdc.parameters
        self._range = pdc.parameters.wire.mpr * 128
        self._response = response(
            ResponseOpcode.DEFAULT_RESPONSE, pdc.parameters.wire.default_return_code, 0, 0, 0
        )
        self._max_stored = pdc.parameters.max_stored
        self.begin(start_psn)
        self.stored: dict[int, Answer] = {}
        self._pending: dict[int, Acknowledgement] = {}
        self._cleared: dict[int, None] = {}
        self.owed: Acknowledgement | None = None
        self._octets = 0
        self._since_ack = 0
        self._silent = False
        self._refused_at = 0

    def begin(self, start_psn: int) -> None:
        """Expect ``start_psn`` first."""
        self.cack = advance(start_psn, -1)
        self.received = 0

    def clear(self, psn: int) -> None:
        """The source has seen every response up to ``psn``."""
        if self.stored and not before(psn, self.cack):
            for stored in [stored for stored in self.stored if not before(psn, stored)]:
                if stored not in self._pending:
                    del self.stored[stored]
                    self._cleared[stored] = None
            while len(self._cleared) > _CLEARED_KEPT:
                del self._cleared[next(iter(self._cleared))]
            self._advance()

    def has(self, psn: int) -> bool:
        """True when ``psn`` was received."""
        ahead = distance(psn, self.cack)
        return ahead <= 0 or bool(self.received >> (ahead - 1) & 1)

    def within(self, psn: int) -> bool:
        """True when ``psn`` may be received now."""
        return 0 < distance(psn, self.cack) <= self._range

    def request(self, packet: UetPacket, now: int) -> None:
        """Take a request, or a control packet with a PSN of its own, that is whole."""
        psn = packet.psn
        pdc = self._pdc
        is_control = packet.kind == PdsType.CP
        if not is_control:
            self.clear(advance(psn, packet.offset))
        ahead = distance(psn, self.cack)
        if ahead <= 0 or self.received >> (ahead - 1) & 1:
            self._duplicate(packet, ahead, now)
            return
        if ahead > self._range:
            pdc.refuse(NackCode.INVALID_SYN if packet.syn else NackCode.PSN_OOR_WINDOW, packet)
            return
        if pdc.rod and ahead != self.received.bit_length() + 1:
            self._out_of_order(packet, now)
            return
        if len(self.stored) >= self._max_stored:
            # It may need an answer that has to be kept, and its operation may not be one to do twice.
            pdc.refuse(NackCode.NO_GTD_DEL_AVAIL, packet)
            pdc.control(
                CtlType.CLEAR_REQ, payload=max(self.stored, key=lambda kept: distance(kept, self.cack))
            )
            return
        verdict: Verdict = None if is_control else pdc.deliver(packet)
        if isinstance(verdict, NackCode):
            pdc.refuse(verdict, packet)
            return
        self._silent = False
        self.received |= 1 << (ahead - 1)
        if not is_control:
            # rcvd_bytes counts data packets, nominal size.
            self._octets += packet.nominal
            self._since_ack += max(packet.end - packet.ses, self._parameters.ack_min_add)
        if verdict is _PENDING:
            self.stored[psn] = _NO_RESPONSE
            self._pending[psn] = self._owe(packet, now)
            verdict = None
        elif verdict is not None:
            self.stored[psn] = verdict
        self._advance()
        marked = packet.head.ecn == _CE
        if verdict is not None or packet.flags & (_SYN | _RETX) or marked:
            self.acknowledge(self._owe(packet, now), now)
        elif packet.flags & _AR or self._since_ack >= self._parameters.ack_trigger:
            if self.owed is not None and self.owed.ev != packet.ev and packet.flags & _AR:
                # Each path's feedback is worth a packet.
                self.acknowledge(self.owed, now)
            self.owed = self._owe(packet, now)
            pdc.kick()

    def _out_of_order(self, packet: UetPacket, now: int) -> None:
        """ROD: what is not the next packet is dropped. One NACK for each gap, and again after a while."""
        self._pdc.count("out_of_sequence")
        if self._silent and now < self._refused_at + self._parameters.tail_loss_ns // _AGAIN:
            return
        self._silent = True
        self._refused_at = now
        self._pdc.refuse(NackCode.ROD_OOO, packet, advance(self.cack, self.received.bit_length() + 1))

    @staticmethod
    def _owe(packet: UetPacket, now: int) -> Acknowledgement:
        return Acknowledgement(
            packet.psn,
            packet.ev,
            now,
            packet.head.ecn == _CE,
            bool(packet.flags & _RETX),
            packet.kind == PdsType.CP and packet.following in CONSUMING,
        )

    def _advance(self) -> None:
        received = self.received
        if not received & 1:
            return
        if not self.stored:
            count = (~received & (received + 1)).bit_length() - 1
        else:
            count = 0
            while received >> count & 1 and advance(self.cack, count + 1) not in self.stored:
                count += 1
        self.received = received >> count
        self.cack = advance(self.cack, count)

    def _duplicate(self, packet: UetPacket, ahead: int, now: int) -> None:
        self._pdc.count("duplicate_request")
        if ahead < -self._range or not packet.flags & _RETX:
            return
        if packet.psn in self._cleared:
            # The source says that it has seen the answer, and asks for it.
            self._pdc.refuse(NackCode.GTD_RESP_UNAVAIL, packet)
            return
        self.acknowledge(self._owe(packet, now), now)

    def trimmed(self, packet: UetPacket, code: NackCode, now: int) -> None:
        """Take a packet that a switch cut."""
        if self.has(packet.psn):
            self.acknowledge(self._owe(packet, now), now)
        elif self._pdc.rod and distance(packet.psn, self.cack) != self.received.bit_length() + 1:
            self._out_of_order(packet, now)
        else:
            self._pdc.refuse(code, packet)

    def asked(self, packet: UetPacket, now: int) -> None:
        """Answer an ACK_REQUEST about ``packet.psn``."""
        psn = packet.psn
        if not self.has(psn):
            self._pdc.refuse(NackCode.PKT_NOT_RCVD, packet)
            return
        answer = self.stored.get(psn)
        if psn in self._pending:
            self._pdc.refuse(NackCode.RCVD_SES_PROCG, packet)
        elif answer is not None and answer.following != NextHeader.RESPONSE:
            self._pdc.refuse(NackCode.ACK_WITH_DATA, packet)
        else:
            self.acknowledge(self._owe(packet, now), now)

    def respond(self, psn: int, answer: Answer | None, now: int) -> None:
        """Semantics give the response that they owed for ``psn``; None is plain success."""
        owed = self._pending.pop(psn, None)
        if owed is None:
            return
        if answer is None:
            del self.stored[psn]
        else:
            self.stored[psn] = answer
        self._advance()
        self.acknowledge(owed, now)

    def probed(self, packet: UetPacket) -> None:
        """Answer a PROBE: congestion state, and a SACK from the PSN it names on. It acknowledges nothing."""
        self._pdc.send_ack(
            packet.ev,
            following=NextHeader.NONE,
            flags=_ACK_P,
            word=packet.word,
            sack_psn=packet.payload,
            sack=self._sack(packet.payload),
            service=1,
            body=b"",
        )

    def settle(self, now: int) -> None:
        """Send the ACK that is owed, if any."""
        if self.owed is not None:
            self.acknowledge(self.owed, now)

    def acknowledge(self, owed: Acknowledgement, now: int) -> None:
        """Send an ACK for ``owed.psn`` with its stored answer or the default response."""
        psn = owed.psn
        answer = self.stored.get(psn)
        flags = (_ACK_M if owed.marked else 0) | (_ACK_RETX if owed.again else 0)
        if answer is not None:
            if psn not in self._pending:
                flags |= AckRequest.CLEAR << 1
            following, body = answer.following, answer.body
        else:
            if self._pdc.close_wanted:
                flags |= AckRequest.CLOSE << 1
            if owed.control:
                following, body = NextHeader.NONE, b""
            else:
                following, body = NextHeader.RESPONSE, self._response
        ahead = distance(psn, self.cack)
        sack_psn = advance(self.cack) if ahead <= _SACK_BITS else advance(psn, 1 - _SACK_BITS)
        service = min(max((now - owed.arrived) // _NS_PER_SERVICE_UNIT, 1), _SERVICE_MAX)
        if self.owed is not None and not before(psn, self.owed.psn):
            self.owed = None
        self._since_ack = 0
        self._pdc.send_ack(
            owed.ev,
            following=following,
            flags=flags,
            word=ahead,
            sack_psn=sack_psn,
            sack=self._sack(sack_psn) if self.received else 0,
            service=service,
            body=body,
        )

    def _sack(self, first: int) -> int:
        """Received bits of the 64 PSNs from ``first`` on."""
        skip = distance(first, advance(self.cack))
        if skip >= 0:
            return self.received >> skip & _SACK_MASK
        return (self.received << -skip | (1 << -skip) - 1) & _SACK_MASK if skip > -_SACK_BITS else _SACK_MASK

    @property
    def octets(self) -> int:
        """rcvd_bytes: nominal bytes of accepted packets, in units of 256, modulo 2^24."""
        return (self._octets + 255) >> 8 & _RECEIVED_MASK

    @property
    def out_of_order(self) -> int:
        """Packets held above CACK."""
        return min(self.received.bit_count(), _OUT_OF_ORDER_MAX)
