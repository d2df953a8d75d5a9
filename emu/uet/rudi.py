# SPDX-License-Identifier: Apache-2.0
"""Reliable unordered delivery of idempotent operations (RUDI): no contexts, the response is the ACK.

Every packet has an id of its own and is sent again until its response comes; the target keeps nothing and may
carry a packet out more than once, which is why only plain WRITEs and READs go this way. There is no
congestion control; a fixed number of packets may be on the way.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from emu.clock import Timer
from emu.nic.engine import Drop
from emu.nic.work import Cause, Status
from emu.uet.entropy import EntropySelector
from emu.uet.headers import nack, parse_request, parse_response, response, rudi
from emu.uet.outgoing import Answer, Failure, Outgoing, Pending, Work
from emu.uet.packet import UetPacket
from emu.uet.path import PeerPath
from emu.uet.verdicts import refusal
from emu.wire.uet_names import (
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestOpcode,
    ResponseOpcode,
    ReturnCode,
    RudiFlag,
)

if TYPE_CHECKING:
    from emu.uet.fep import Fep

__all__ = ["Rudi"]

_WINDOW = 256
"""Packets on the way from one endpoint."""
_ECT0, _CE = 2, 3
_OPERATIONS = frozenset(
    {RequestOpcode.WRITE, RequestOpcode.READ, RequestOpcode.NO_OP, RequestOpcode.MSG_ERROR}
)
_RETX = int(RudiFlag.RETX)


class Rudi:
    """RUDI packets of one endpoint. ``outstanding`` are those without a response, by packet id."""

    def __init__(self, fep: Fep) -> None:
        self._fep = fep
        self._parameters = fep.parameters
        self._selector = EntropySelector(fep.parameters.paths, fep.seed ^ 1)
        self.outstanding: dict[int, tuple[Outgoing, PeerPath]] = {}
        self._queue: deque[tuple[PeerPath, Work]] = deque()
        self._timers: list[tuple[int, int]] = []
        self._timer: Timer | None = None
        self._next_id = 0
        self._scheduled = False
        wire = fep.parameters.wire
        self._data_class = wire.dscp_data << 2 | _ECT0
        self._control_class = wire.dscp_control << 2

    def submit(self, path: PeerPath, message: Work) -> None:
        """Queue a message."""
        self._queue.append((path, message))
        self._kick()

    def stop(self) -> None:
        """The endpoint is reset."""
        if self._timer is not None:
            self._timer.cancel()
        self._queue.clear()
        self.outstanding.clear()
        self._timers.clear()

    def _kick(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._fep.host.scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        now = self._fep.host.scheduler.now()
        queue = self._queue
        while queue and len(self.outstanding) < _WINDOW:
            path, message = queue[0]
            outgoing = message.next()
            if outgoing is None:
                queue.popleft()
                continue
            self._next_id = (self._next_id + 1) & 0xFFFFFFFF
            outgoing.psn = self._next_id
            self.outstanding[outgoing.psn] = (outgoing, path)
            self._send(outgoing, path, now)
        self._arm()

    def _send(self, outgoing: Outgoing, path: PeerPath, now: int) -> None:
        again = outgoing.sends > 0
        outgoing.sends += 1
        header = rudi(PdsType.RUDI_REQ, outgoing.following, _RETX if again else 0, outgoing.psn)
        qpn = outgoing.stream.qpn if outgoing.stream is not None else None
        if again:
            self._fep.host.note_retransmit(qpn, outgoing.psn, 1, outgoing.octets, "no response in time")
        frame = path.frame(self._data_class, self._selector.pick(now), header, outgoing.body)
        self._fep.host.send(frame, qpn)
        outgoing.due = now + min(self._parameters.rto_ns << outgoing.timeouts, 1 << 33)
        heapq.heappush(self._timers, (outgoing.due, outgoing.psn))

    def _arm(self) -> None:
        timers = self._timers
        while timers:
            due, number = timers[0]
            entry = self.outstanding.get(number)
            if entry is not None and entry[0].due == due:
                break
            heapq.heappop(timers)
        if timers and (self._timer is None or not self._timer.pending):
            self._timer = self._fep.host.scheduler.call_at(timers[0][0], self._expire)

    def _expire(self) -> None:
        now = self._fep.host.scheduler.now()
        while self._timers and self._timers[0][0] <= now:
            due, number = heapq.heappop(self._timers)
            entry = self.outstanding.get(number)
            if entry is not None and entry[0].due == due:
                self._late(*entry, now)
        self._kick()

    def _late(self, outgoing: Outgoing, path: PeerPath, now: int) -> None:
        outgoing.timeouts += 1
        self._fep.count("local_ack_timeout_err")
        self._fep.host.note_timer(f"no response to RUDI packet {outgoing.psn} in time")
        if outgoing.timeouts <= self._parameters.max_rto:
            self._send(outgoing, path, now)
            return
        reason = f"no response to packet {outgoing.psn} after {outgoing.timeouts} timeouts"
        self._give_up(outgoing, Failure(Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT, reason))

    def _give_up(self, outgoing: Outgoing, failure: Failure) -> None:
        del self.outstanding[outgoing.psn]
        if outgoing.stream is not None:
            outgoing.stream.failed(failure)

    def answered(self, packet: UetPacket, now: int) -> Drop | None:
        """Take a response, or a NACK about a request."""
        entry = self.outstanding.get(packet.psn)
        if entry is None or entry[1].dest_ip != packet.head.source_ip:
            return Drop(f"no RUDI packet {packet.psn} waits for this")
        outgoing, path = entry
        if packet.is_nack:
            self._fep.count("nacks_received")
            code = packet.word >> 8
            if code in (NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP):
                self._send(outgoing, path, now)
            elif code >= NackCode.INV_DPDCID:
                failure = Failure(
                    Status.REM_OP_ERR, Cause.REMOTE_NAK, f"NACK {code:#04x} for packet {packet.psn}"
                )
                self._give_up(outgoing, failure)
            # What is refused for lack of resources is sent again when its time is over.
            self._kick()
            return None
        header = parse_response(packet.frame, packet.ses, packet.end, packet.following)
        if header is None:
            return Drop("RUDI response that is malformed")
        if packet.flags & RudiFlag.M:
            self._selector.bar(packet.ev, now + self._parameters.nscc.base_rtt_ns)
        del self.outstanding[packet.psn]
        if outgoing.stream is not None:
            outgoing.stream.acknowledged(outgoing, header, packet.frame)
        self._kick()
        return None

    def request(self, packet: UetPacket, path: PeerPath) -> Drop | None:
        """Carry out a request, as often as it comes, and answer it."""
        wire = self._parameters.wire
        if packet.head.dscp in (wire.dscp_trimmed, wire.dscp_trimmed_last_hop):
            last_hop = packet.head.dscp == wire.dscp_trimmed_last_hop
            self._refuse(NackCode.TRIMMED_LASTHOP if last_hop else NackCode.TRIMMED, packet, path)
            return None
        header = parse_request(packet.frame, packet.ses, packet.end, packet.following)
        if header is None:
            self._refuse(NackCode.UNEXP_EVENT, packet, path)
            return Drop("RUDI request that is malformed")
        if header.opcode not in _OPERATIONS or (header.opcode == RequestOpcode.WRITE and header.key >> 32):
            answer = refusal(ReturnCode.UNSUPPORTED_OP, header)
        else:
            verdict = self._fep.request(packet, header, None)
            if isinstance(verdict, NackCode):
                self._refuse(verdict, packet, path)
                return None
            assert verdict is not Pending.RESPONSE  # no idempotent operation is answered later
            answer = verdict or Answer(
                NextHeader.RESPONSE,
                response(ResponseOpcode.RESPONSE, ReturnCode.OK, header.message_id, header.job_id),
            )
        flags = (RudiFlag.M if packet.head.ecn == _CE else 0) | packet.flags & _RETX
        octets = rudi(PdsType.RUDI_RESP, answer.following, flags, packet.psn)
        self._fep.host.send(path.frame(self._control_class, packet.ev, octets, answer.body), None)
        return None

    def _refuse(self, code: NackCode, packet: UetPacket, path: PeerPath) -> None:
        self._fep.count("nacks_sent")
        flags = NackFlag.NT | (NackFlag.M if packet.head.ecn == _CE else 0) | packet.flags & _RETX
        octets = nack(code, flags, packet.psn, 0, 0)
        self._fep.host.send(path.frame(self._control_class, packet.ev, octets), None)
