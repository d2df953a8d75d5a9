# SPDX-License-Identifier: Apache-2.0
"""What a capture holds, by flow: who sent what to which queue pair, what was lost, repeated or refused.

A flow is all RoCE packets from one address to one QP of another, or all UET packets of one end of a packet
delivery context (PDC). RC packets name only the destination QP, so the two directions of a connection are two
flows, as are those of a PDC. Each is seen twice, as it left the sender's NIC and as it
came to the receiver's; the difference is what the network lost.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

from emu.capture.capture import EVENTS_INTERFACE
from emu.capture.events_format import FormatError, decode
from emu.capture.pcapng import Direction, LinkType
from emu.capture.reader import PacketRecord, PcapngReader
from emu.capture.roce_frame import RoceFrame, syndrome_name
from emu.capture.uet_frame import UetFrame
from emu.events import Event, Kind
from emu.nic.work import QpState
from emu.wire.opcodes import RcOpcode

__all__ = ["Flow", "PsnRange", "Summary", "Traffic", "summarize"]

_FRESH = (QpState.RESET, QpState.INIT)


@dataclass(slots=True)
class PsnRange:
    """PSNs of ``bits`` bits as they were sent: the ``first``, the newest so far (``last``), and how often an
    older one came.

    A READ takes as many PSNs as its answer has packets, so one repeated from its middle does not show here.
    """

    first: int | None = None
    last: int | None = None
    repeated: int = 0
    bits: int = 24

    def add(self, psn: int) -> bool:
        """Take one packet; True when its PSN is not newer than :attr:`last`."""
        if self.first is None or self.last is None:
            self.first = self.last = psn
            return False
        if 0 < (psn - self.last) % (1 << self.bits) < 1 << self.bits - 1:
            self.last = psn
            return False
        self.repeated += 1
        return True

    def restart(self) -> None:
        """The queue pair starts anew: the next PSN follows no other."""
        self.first = self.last = None


@dataclass(slots=True)
class Traffic:
    """One side's view of a flow.

    ``octets`` counts whole frames, ``payload`` message bytes; times are nanoseconds since 1970.
    """

    packets: int = 0
    octets: int = 0
    payload: int = 0
    bad_icrc: int = 0
    opcodes: Counter[str] = field(default_factory=Counter)
    acknowledgements: Counter[str] = field(default_factory=Counter)
    requests: PsnRange = field(default_factory=PsnRange)
    responses: PsnRange = field(default_factory=PsnRange)
    first_time: int = 0
    last_time: int = 0

    def add(self, record: PacketRecord, packet: RoceFrame) -> None:
        """Count one packet. One with a bad ICRC counts as such and for nothing its headers say."""
        self.first_time = self.first_time or record.time
        self.last_time = record.time
        self.packets += 1
        self.octets += record.length
        if not packet.icrc_ok:
            self.bad_icrc += 1
            return
        self.opcodes[packet.name] += 1
        self.payload += packet.payload
        if packet.syndrome is not None:
            self.acknowledgements[syndrome_name(packet.syndrome)] += 1
        if packet.is_request:
            self.requests.add(packet.psn)
        elif packet.is_response and packet.opcode != RcOpcode.ACKNOWLEDGE:
            self.responses.add(packet.psn)

    def add_uet(self, record: PacketRecord, packet: UetFrame) -> None:
        """Count one packet of a PDC's end."""
        self.first_time = self.first_time or record.time
        self.last_time = record.time
        self.packets += 1
        self.octets += record.length
        self.opcodes[packet.name] += 1
        self.payload += packet.payload
        if packet.acknowledgement is not None:
            self.acknowledgements[packet.acknowledgement] += 1
        if packet.is_request:
            self.requests.add(packet.psn)

    @property
    def naks(self) -> int:
        """Negative acknowledgements, RNR included."""
        return sum(count for name, count in self.acknowledgements.items() if "NAK" in name or "NACK" in name)

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "packets": self.packets,
            "octets": self.octets,
            "payload": self.payload,
            "bad_icrc": self.bad_icrc,
            "opcodes": dict(self.opcodes),
            "acknowledgements": dict(self.acknowledgements),
            "naks": self.naks,
            "request_psn": [self.requests.first, self.requests.last],
            "retransmitted_requests": self.requests.repeated,
            "response_psn": [self.responses.first, self.responses.last],
            "repeated_responses": self.responses.repeated,
            "first_time": self.first_time,
            "last_time": self.last_time,
        }


@dataclass(slots=True)
class Flow:
    """RoCE packets from ``source`` to queue pair ``dest_qpn`` at ``destination`` (IP addresses), or UET
    packets from ``source``'s end ``pdc`` of a PDC (None for RoCE; ``dest_qpn`` is 0 then).

    ``sender`` and ``receiver`` are the NICs' names, empty when the capture does not show that side.
    ``source_qpns`` are the sender's QPs as the capture names them; more than one only for datagrams.
    """

    source: str
    destination: str
    dest_qpn: int
    sender: str = ""
    receiver: str = ""
    source_qpns: list[int] = field(default_factory=list)
    sent: Traffic = field(default_factory=Traffic)
    received: Traffic = field(default_factory=Traffic)
    pdc: int | None = None

    @property
    def lost(self) -> int:
        """Packets that left and never came; 0 when one side is not in the capture."""
        return max(0, self.sent.packets - self.received.packets) if self.sender and self.receiver else 0

    @property
    def retransmitted(self) -> int:
        """Request packets sent more than once."""
        return (self.sent if self.sent.packets else self.received).requests.repeated

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "source": self.source,
            "destination": self.destination,
            "dest_qpn": self.dest_qpn,
            "pdc": self.pdc,
            "sender": self.sender,
            "receiver": self.receiver,
            "source_qpns": self.source_qpns,
            "lost": self.lost,
            "retransmitted": self.retransmitted,
            "sent": self.sent.to_json(),
            "received": self.received.to_json(),
        }


@dataclass(slots=True)
class Summary:
    """A whole capture. ``events`` counts device events by function and kind; ``other_frames`` are
    neither RoCEv2 nor UET.

    ``damage`` says where reading ended early (empty when it did not); ``bad_records`` counts event records
    that cannot be decoded.
    """

    path: str
    application: str = ""
    flows: list[Flow] = field(default_factory=list)
    events: dict[str, Counter[str]] = field(default_factory=dict)
    interfaces: Counter[str] = field(default_factory=Counter)
    other_frames: int = 0
    bad_records: int = 0
    first_time: int = 0
    last_time: int = 0
    damage: str = ""

    @property
    def duration(self) -> int:
        """Nanoseconds from the first packet to the last."""
        return self.last_time - self.first_time

    @property
    def bad_icrc(self) -> int:
        """Packets with a wrong invariant CRC, as they left their NICs."""
        return sum((flow.sent if flow.sender else flow.received).bad_icrc for flow in self.flows)

    @property
    def retransmitted(self) -> int:
        """Request packets sent more than once, over all flows."""
        return sum(flow.retransmitted for flow in self.flows)

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "path": self.path,
            "application": self.application,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "duration": self.duration,
            "interfaces": dict(self.interfaces),
            "flows": [flow.to_json() for flow in self.flows],
            "retransmitted": self.retransmitted,
            "bad_icrc": self.bad_icrc,
            "events": {function: dict(counts) for function, counts in self.events.items()},
            "other_frames": self.other_frames,
            "bad_records": self.bad_records,
            "damage": self.damage,
        }


class _Tally:
    def __init__(self, path: str) -> None:
        self.summary = Summary(path)
        self._flows: dict[tuple[str, str, int], Flow] = {}
        self._contexts: dict[tuple[str, str, int], Flow] = {}

    def add(self, record: PacketRecord) -> None:
        summary = self.summary
        summary.first_time = summary.first_time or record.time
        summary.last_time = max(summary.last_time, record.time)
        summary.interfaces[record.interface.name] += 1
        if record.interface.link_type == LinkType.ETHERNET:
            self._frame(record)
        elif record.interface.link_type == LinkType.USER0 and record.interface.name == EVENTS_INTERFACE:
            try:
                self._event(decode(record.data, record.time))
            except FormatError:
                summary.bad_records += 1

    def _frame(self, record: PacketRecord) -> None:
        packet = RoceFrame.parse(record.data)
        if packet is None:
            self._uet(record)
            return
        key = (packet.source, packet.destination, packet.dest_qpn)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(*key)
            self.summary.flows.append(flow)
        name = record.interface.name
        if record.direction is Direction.INBOUND:
            flow.receiver = name
            flow.received.add(record, packet)
        else:
            flow.sender = name
            flow.sent.add(record, packet)
            if record.queue is not None and record.queue not in flow.source_qpns:
                flow.source_qpns.append(record.queue)

    def _uet(self, record: PacketRecord) -> None:
        packet = UetFrame.parse(record.data)
        if packet is None:
            self.summary.other_frames += 1
            return
        key = (packet.source, packet.destination, packet.number)
        flow = self._contexts.get(key)
        if flow is None:
            flow = self._contexts[key] = Flow(packet.source, packet.destination, 0, pdc=packet.number)
            flow.sent.requests.bits = flow.received.requests.bits = 32
            self.summary.flows.append(flow)
        if record.direction is Direction.INBOUND:
            flow.receiver = record.interface.name
            flow.received.add_uet(record, packet)
        else:
            flow.sender = record.interface.name
            flow.sent.add_uet(record, packet)
            if record.queue is not None and record.queue not in flow.source_qpns:
                flow.source_qpns.append(record.queue)

    def _event(self, event: Event) -> None:
        self.summary.events.setdefault(event.function, Counter())[event.kind.name] += 1
        if event.kind is Kind.STATE and event.value in _FRESH:
            # The number is in use by a new queue pair, whose PSNs have nothing to do with those before.
            for flow in self.summary.flows:
                if flow.dest_qpn == event.qpn and flow.receiver == event.function:
                    flow.sent.requests.restart()
                    flow.received.requests.restart()


def summarize(path: str | os.PathLike[str]) -> Summary:
    """Read a capture and add it up.

    A damaged file is summarized up to the damage (see :attr:`Summary.damage`).

    :raises PcapngError: it is not a pcapng file.
    :raises OSError: it cannot be read.
    """
    with PcapngReader(path) as reader:
        tally = _Tally(reader.path)
        for record in reader:
            tally.add(record)
        tally.summary.application = reader.application
        tally.summary.damage = reader.damage
    return tally.summary
