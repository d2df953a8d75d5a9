# SPDX-License-Identifier: Apache-2.0
"""A packet delivery context: a source and a destination half between two fabric endpoints.

The initiator opens it with its first packet, which carries SYN until an answer names the target's id, and
closes it when it has been idle. Requests go in the forward direction; read data comes back in the return
direction, as requests of the target.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from emu.clock import Timer
from emu.nic.work import Cause, Status
from emu.uet.destination import CONSUMING, Destination
from emu.uet.entropy import EntropySelector
from emu.uet.headers import (
    CC_STATE,
    PDS_REQUEST,
    ResponseHeader,
    ack_cc,
    control,
    nack,
    parse_request,
    parse_response,
    prologue,
)
from emu.uet.outgoing import Answer, Failure, Outgoing, Stream, Verdict, Work
from emu.uet.packet import NOMINAL_EXTRA, UetPacket
from emu.uet.path import PeerKey, PeerPath
from emu.uet.psn import before
from emu.uet.rccc import CREDIT_MASK
from emu.uet.source import Source
from emu.wire.uet_names import (
    AckFlag,
    ControlFlag,
    CtlType,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
)

if TYPE_CHECKING:
    from emu.uet.fep import Fep
    from emu.uet.inbound import Inbound
    from emu.uet.rccc import Account

__all__ = ["Pdc", "Role"]

# Plain integers: arithmetic on flag enumerations costs as much as the rest of a packet's way.
_ACK_P = int(AckFlag.P)
_ACK_REQ_CLEAR = int(AckFlag.REQ_CLEAR)
_ACK_REQ_CLOSE = int(AckFlag.REQ_CLOSE)
_CP_AR = int(ControlFlag.AR)
_NACK_M = int(NackFlag.M)
_NACK_RETX = int(NackFlag.RETX)
_RETX = int(RequestFlag.RETX)
_SYN = int(RequestFlag.SYN)
_ECT0 = 2
_CE = 3
_STARTS = 3
"""Start PSNs that a target may choose for one PDC."""
_CUT = 4096
"""Bytes that a trimmed packet will come with again, at most: how many it had is not to be seen."""
_BUDGET = 64
"""Packets of one PDC before the next one's turn."""
_ID_NEEDLESS = frozenset(
    {
        NackCode.NO_PDC_AVAIL,
        NackCode.NO_CCC_AVAIL,
        NackCode.NO_BITMAP,
        NackCode.INV_DPDCID,
        NackCode.PDC_HDR_MISMATCH,
    }
)


class Role(enum.Enum):
    """Which end this is."""

    INITIATOR = "initiator"
    TARGET = "target"


class Pdc:
    """One end of a PDC. ``number`` is its own id, ``peer`` the other end's (0 until known).

    ``reason`` says why packets are sent again, for the report of the next one.
    """

    def __init__(
        self,
        fep: Fep,
        number: int,
        role: Role,
        path: PeerPath,
        *,
        rod: bool,
        start_psn: int,
        mtu: int,
        peer: int = 0,
    ) -> None:
        self.fep = fep
        self.parameters = fep.parameters
        self.number = number
        self.role = role
        self.path = path
        self.rod = rod
        self.start_psn = start_psn
        self.peer = peer
        self.closing = False
        self.close_wanted = False
        self._close_sent = False
        self._close_by: int | None = None
        self._close_psn: int | None = None
        self._starts = 0
        self.peer_key: PeerKey | None = None
        self.closed = False
        self.queued = False
        self.reason = ""
        self.used = fep.host.scheduler.now()
        self.confirmed = role is Role.INITIATOR
        self.timer: Timer | None = None
        self.reads: dict[int, Work] = {}
        self.inbound: dict[tuple[int, int], Inbound] = {}
        paths = 1 if rod else fep.parameters.paths
        self.source = Source(
            self, start_psn, EntropySelector(paths, start_psn ^ number), fep.contexts.ccc(self, mtu)
        )
        self.destination = Destination(self, start_psn)
        wire = fep.parameters.wire
        self._data_class = wire.dscp_data << 2 | _ECT0
        self._control_class = wire.dscp_control << 2
        self._kind = PdsType.ROD_REQ if rod else PdsType.RUD_REQ
        self._credit_kind = PdsType.ROD_CC_REQ if rod else PdsType.RUD_CC_REQ
        self.account: Account | None = None

    @property
    def established(self) -> bool:
        """True when the other end's id is known."""
        return self.peer != 0

    @property
    def idle(self) -> bool:
        """True when nothing is outstanding in either direction."""
        return self.source.idle and not self.reads and not self.destination.stored

    def kick(self) -> None:
        """Have :meth:`transmit` called soon."""
        self.fep.kick(self)

    def submit(self, stream: Stream) -> None:
        """Queue a message."""
        self.source.queue.append(stream)
        self.kick()

    def begin_anew(self, start_psn: int) -> bool:
        """The target wants another start PSN. False when it is not its turn to choose, or it chose enough."""
        if self.established or self.role is Role.TARGET or self._starts >= _STARTS:
            return False
        if start_psn != self.start_psn:
            self._starts += 1
            self.start_psn = start_psn
            self.destination.begin(start_psn)
            self.source.begin_anew(start_psn)
        return True

    # Out

    def transmit(self, now: int) -> bool:
        """Send owed ACKs and what the window allows. True when more could go at once."""
        self.destination.settle(now)
        self._close_when_idle()
        more = self.source.transmit(now, _BUDGET)
        if not self.source.idle:
            self.used = now
        return more

    def emit(self, outgoing: Outgoing, flags: int, clear_offset: int) -> int:
        """Send a request, or a control packet with a PSN; return its nominal size."""
        dest = self.peer
        if not dest:
            flags |= _SYN
            dest = (outgoing.psn - self.start_psn) & 0xFFF
        if outgoing.control is not None:
            flags |= _CP_AR
            header = control(outgoing.control, flags, outgoing.psn, self.number, dest)
            traffic_class = self._control_class
        else:
            ccc = self.source.ccc
            kind = self._kind if ccc.credit is None else self._credit_kind
            header = PDS_REQUEST.pack(
                prologue(kind, outgoing.following, flags), clear_offset, outgoing.psn, self.number, dest
            )
            if ccc.credit is not None:
                header += CC_STATE.pack(ccc.number << 24 | ccc.credit_target())
            traffic_class = self._data_class
        qpn = outgoing.stream.qpn if outgoing.stream is not None else None
        self.fep.host.send(self.path.frame(traffic_class, outgoing.ev, header, outgoing.body), qpn)
        return self.path.overhead + len(header) + len(outgoing.body) + NOMINAL_EXTRA

    def send_ack(
        self,
        ev: int,
        *,
        following: NextHeader,
        flags: int,
        word: int,
        sack_psn: int,
        sack: int,
        service: int,
        body: bytes,
    ) -> None:
        """Send an ACK_CC with NSCC state."""
        destination = self.destination
        header = ack_cc(
            next_header=following,
            flags=flags,
            word=word,
            cack=destination.cack,
            source=self.number,
            dest=self.peer,
            mpr=self.parameters.wire.mpr,
            sack_offset=_signed(sack_psn - destination.cack),
            sack_bitmap=sack,
            service_time=service,
            received=destination.octets,
            out_of_order=destination.out_of_order,
            credit=self._credit_due(),
        )
        self.fep.host.send(self.path.frame(self._control_class, ev, header, body), None)

    def _credit_due(self) -> int | None:
        """Credit that an ACK carries, where it has no NSCC state to carry."""
        if self.parameters.congestion != "rccc":
            return None
        return self.account.issued if self.account is not None else 0

    def control(
        self,
        kind: CtlType,
        *,
        psn: int = 0,
        payload: int = 0,
        flags: int = 0,
        ev: int | None = None,
        opaque: int = 0,
    ) -> None:
        """Send a control packet that takes no PSN, on the path of ``ev`` or else of the last request."""
        dest = self.peer
        if not dest:
            return
        header = control(kind, flags, psn, self.number, dest, payload, opaque)
        ev = self.source.ev if ev is None else ev
        self.fep.host.send(self.path.frame(self._control_class, ev, header), None)

    def refuse(self, code: NackCode, packet: UetPacket, payload: int = 0) -> None:
        """Send a NACK about ``packet``."""
        flags = (_NACK_M if packet.head.ecn == _CE else 0) | (_NACK_RETX if packet.flags & _RETX else 0)
        number = 0 if code in _ID_NEEDLESS else self.number
        self.fep.count("nacks_sent")
        header = nack(code, flags, packet.psn, number, packet.spdcid, payload)
        self.fep.host.send(self.path.frame(self._control_class, packet.ev, header), None)

    # In

    def receive(self, packet: UetPacket, now: int) -> None:
        """Take a packet that names this PDC and comes from its peer."""
        if not self.peer and packet.spdcid:
            # Read data may overtake the first ACK.
            self.peer = packet.spdcid
        self.used = now
        if not packet.syn:
            self.confirmed = True
        if packet.is_request:
            self._request(packet, now)
        elif packet.is_ack:
            header = None
            if packet.following not in (NextHeader.NONE, NextHeader.CP_ACK):
                header = parse_response(packet.frame, packet.ses, packet.end, packet.following)
                if header is None:
                    self.drop("ACK with a malformed response")
                    return
            self.source.acknowledge(packet, header, now)
            if packet.flags & _ACK_REQ_CLOSE and not packet.flags & (_ACK_P | _ACK_REQ_CLEAR):
                self.wish_close()
            self._acknowledged()
        elif packet.is_nack:
            self.fep.count("nacks_received")
            self.source.refuse(packet.word >> 8, packet, now)
            self._acknowledged()
        else:
            self._control(packet, now)

    def _acknowledged(self) -> None:
        """There may be room for more, of this PDC and of those that share its congestion control."""
        if not self.closed:
            self.kick()
        if self.source.ccc.blocked:
            self.source.ccc.wake()

    def _request(self, packet: UetPacket, now: int) -> None:
        if packet.rod != self.rod:
            self.refuse(NackCode.PDC_MODE_MISMATCH, packet)
            return
        if self._close_psn is not None and before(self._close_psn, packet.psn):
            self.refuse(NackCode.CLOSING, packet)
            return
        wire = self.parameters.wire
        if packet.cc_state is not None:
            cut = packet.head.dscp in (wire.dscp_trimmed, wire.dscp_trimmed_last_hop)
            missing = cut and not self.destination.has(packet.psn)
            self._demand(packet.cc_state >> 24, packet.cc_state & CREDIT_MASK, _CUT if missing else 0)
        if packet.head.dscp == wire.dscp_trimmed:
            self.destination.trimmed(packet, NackCode.TRIMMED, now)
        elif packet.head.dscp == wire.dscp_trimmed_last_hop:
            self.destination.trimmed(packet, NackCode.TRIMMED_LASTHOP, now)
        else:
            self.destination.request(packet, now)

    def _control(self, packet: UetPacket, now: int) -> None:
        kind = packet.following
        if kind in CONSUMING:
            if kind == CtlType.CLOSE_CMD:
                self._close_command(packet, now)
                return
            self.destination.request(packet, now)
            if kind == CtlType.CLOSE_REQ:
                self.wish_close()
        elif kind == CtlType.ACK_REQUEST:
            self.destination.asked(packet, now)
        elif kind == CtlType.CLEAR_CMD:
            self.destination.clear(packet.payload)
        elif kind == CtlType.CLEAR_REQ:
            self.source.clear_wanted = True
            self.kick()
        elif kind == CtlType.PROBE:
            self.destination.probed(packet)
        elif kind == CtlType.CREDIT and self.source.ccc.credit is not None:
            if self.source.ccc.credit.update(packet.payload & CREDIT_MASK):
                self.source.ccc.wake()
        elif kind == CtlType.CREDIT_REQ and self.account is not None:
            self.account.pdc = self
            self.fep.pacer.ask(self.account, packet.payload & CREDIT_MASK)
        else:
            self.drop(f"control packet {kind}: credit is not used on this PDC")

    def _demand(self, number: int, target: int, trimmed: int) -> None:
        key = (self.path.dest_ip, self.path.source_ip, number)
        self.fep.pacer.demand(self, key, target, trimmed)

    def deliver(self, packet: UetPacket) -> Verdict:
        """Hand a new request packet to semantics. Malformed ones are refused for good."""
        if packet.following in (NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL):
            data = parse_response(packet.frame, packet.ses, packet.end, packet.following)
            if data is None or self.role is Role.TARGET:
                return NackCode.UNEXP_EVENT
            return self.fep.response(packet, data, self)
        header = parse_request(packet.frame, packet.ses, packet.end, packet.following)
        if header is None or self.role is Role.INITIATOR:
            return NackCode.UNEXP_EVENT
        return self.fep.request(packet, header, self)

    def respond(self, psn: int, answer: Answer | None) -> None:
        """Give the response to a packet of which semantics said that it would follow."""
        if not self.closed:
            self.destination.respond(psn, answer, self.fep.host.scheduler.now())
            self.kick()

    # Closing

    def wish_close(self) -> None:
        """Take no new messages, and close once nothing is outstanding (initiator only)."""
        if self.role is Role.INITIATOR and not self.closing:
            self.closing = True
            self.fep.retire(self)
            self.kick()

    def ask_close(self, now: int) -> None:
        """Ask the initiator for a close (target only); without one in time this end closes in error."""
        if self.role is Role.TARGET and not self.close_wanted:
            self.close_wanted = True
            self._close_by = now + self.parameters.close_ns
            self.submit(_Command(self, CtlType.CLOSE_REQ))

    def _close_when_idle(self) -> None:
        if self.closing and self.role is Role.INITIATOR and not self._close_sent and self.idle:
            self._close_sent = True
            self.source.queue.append(_Command(self, CtlType.CLOSE_CMD))

    def _close_command(self, packet: UetPacket, now: int) -> None:
        if self.role is Role.INITIATOR:
            self.drop("close command from a target")
            return
        destination = self.destination
        if destination.has(packet.psn) or not destination.within(packet.psn):
            self.drop(f"close command with PSN {packet.psn}, which is none that could come next")
            return
        if not self.source.idle:
            self.refuse(NackCode.CLOSING_IN_ERR, packet, len(self.source.unacked))
            self.fail(Failure(Status.REM_OP_ERR, Cause.REMOTE_NAK, "closed while read data was outstanding"))
            return
        destination.clear(packet.psn)
        if not destination.has((packet.psn - 1) & 0xFFFFFFFF):
            # It comes again when they have come; nothing new is taken until then.
            self._close_psn = packet.psn
            self.drop(f"close command PSN {packet.psn} while earlier packets are missing")
            return
        destination.request(packet, now)
        destination.settle(now)
        self.fep.remove(self, remember=True)

    # Ends

    def gone(self, reason: str) -> None:
        """The target lost this PDC, or closed it."""
        if self._close_sent:
            self.fep.remove(self)
            return
        self.fail(Failure(Status.RETRY_EXC_ERR, Cause.SEQUENCE_RETRIES, reason, fresh=True))

    def fail(self, failure: Failure) -> None:
        """End in error: everything outstanding fails."""
        if self.closed:
            return
        streams = self.source.drain()
        known = {id(stream) for stream in streams}
        streams += [message for message in tuple(self.reads.values()) if id(message) not in known]
        self.reads.clear()
        self.fep.remove(self)
        for stream in streams:
            stream.failed(failure)

    # Timers

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to run."""
        deadline = self.source.deadline()
        other = self._close_by
        if self.role is Role.INITIATOR and not self._close_sent and deadline is None:
            other = self.used + self.parameters.idle_close_ns
        if deadline is None or (other is not None and other < deadline):
            return other
        return deadline

    def expire(self, now: int) -> None:
        """A packet's time came, or that to close."""
        self.source.expire(now)
        if self.source.ccc.blocked:
            self.source.ccc.wake()
        if self.closed:
            return
        if self._close_by is not None and now >= self._close_by:
            self.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, "the initiator did not close in time"))
        elif self.role is Role.INITIATOR and now >= self.used + self.parameters.idle_close_ns:
            if self.idle:
                self.wish_close()
            elif self.source.idle:
                self.fail(Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, "read data did not come in time"))

    # Reports

    def drop(self, reason: str) -> None:
        """Count an inbound packet that changed nothing."""
        self.fep.host.note_drop("rx_dropped", f"PDC {self.number:#x}: {reason}")

    def count(self, counter: str) -> None:
        """Bump a counter."""
        self.fep.count(counter)

    def note_retransmit(self, outgoing: Outgoing) -> None:
        """Report that a packet goes out again."""
        qpn = outgoing.stream.qpn if outgoing.stream is not None else None
        self.fep.host.note_retransmit(qpn, outgoing.psn, 1, outgoing.octets, self.reason)

    def note_timeout(self, outgoing: Outgoing) -> None:
        """Report that a packet got no answer in time."""
        self.fep.count("local_ack_timeout_err")
        self.fep.host.note_timer(f"PDC {self.number:#x}: no answer to PSN {outgoing.psn} in time")


class _Command:
    """A control packet with a PSN, as a stream of its own."""

    def __init__(self, pdc: Pdc, kind: CtlType) -> None:
        self.qpn: int | None = None
        self._pdc = pdc
        self._kind = kind
        self._left = True

    @property
    def remaining(self) -> int:
        """Nominal bytes of the packet, or a little more, until it is made."""
        return 100 if self._left else 0

    def next(self) -> Outgoing | None:
        """The packet, once."""
        if not self._left:
            return None
        self._left = False
        return Outgoing(self, NextHeader.NONE, b"", 0, last=True, control=self._kind)

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """The close command's acknowledgement ends the PDC."""
        if self._kind is CtlType.CLOSE_CMD:
            self._pdc.fep.remove(self._pdc)

    def failed(self, failure: Failure) -> None:
        """Nobody waits for it."""


def _signed(value: int) -> int:
    value &= 0xFFFF
    return value - 0x10000 if value & 0x8000 else value
