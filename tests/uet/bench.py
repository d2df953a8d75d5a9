# SPDX-License-Identifier: Apache-2.0
"""A test bench for fabric endpoints: queue pairs of two or more NICs, and links in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from emu.clock import US, Timer, VirtualScheduler
from emu.nic.engine import Drop, Engine
from emu.nic.work import Opcode, QpAttributes, QpState, ReceiveRequest, SendRequest, Sge, Transport
from emu.uet import Fep, Parameters
from emu.uet.packet import Parser, UetPacket
from emu.wire.uet_profile import DEFAULT, Profile
from tests.roce.bench import ALL_ACCESS, BASE, LKEY, RKEY, Host

LATENCY = 2 * US
FIRST_QPN = 0x123456

Impairment = Callable[["Nic", int, bytes], list[tuple[int, bytes]]]
"""(sender, number of the frame it sends, frame) -> frames that arrive, each with its delay in nanoseconds."""


def perfect(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
    """Every frame arrives, in order."""
    return [(LATENCY, frame)]


def losing(*lost: tuple[str, int]) -> Impairment:
    """Loses the frames with these (sender, number), lets all others pass."""

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [] if (sender.name, number) in lost else perfect(sender, number, frame)

    return impair


def decode(frame: bytes, profile: Profile = DEFAULT) -> UetPacket:
    """A frame of these endpoints, taken apart."""
    packet = Parser(profile).parse(frame)
    assert isinstance(packet, UetPacket), packet
    return packet


@dataclass
class Nic:
    """One endpoint and its queue pairs, as the core runs them. ``address`` ends its MAC and IP."""

    name: str
    address: int
    net: Net
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        self.scheduler = self.net.scheduler
        self.sent: list[bytes] = []
        self.number = 0
        self.backlog = 0
        self.qps: dict[int, Qp] = {}
        self.drops: list[Drop] = []
        self.noted: list[tuple[str, str]] = []
        self.timers: list[str] = []
        self.counts: dict[str, int] = {}
        self.retransmitted: list[tuple[int, int, str]] = []
        self.fep = Fep(self, self.parameters, seed=self.address)

    @property
    def mac(self) -> bytes:
        """Its MAC address."""
        return bytes((2, 0x76, 0x72, 0, 0, self.address))

    @property
    def ip(self) -> bytes:
        """Its IPv4 address."""
        return bytes((10, 77, 0, self.address))

    @property
    def gid(self) -> bytes:
        """Its GID."""
        return bytes(10) + b"\xff\xff" + self.ip

    def send(self, frame: bytes, qpn: int | None) -> None:
        self.sent.append(frame)
        self.net.carry(self, self.number, frame)
        self.number += 1

    def wake(self, qpn: int) -> None:
        qp = self.qps.get(qpn)
        if qp is not None:
            self.scheduler.call_soon(qp.service)

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        self.retransmitted.append((psn, octets, reason))

    def note_drop(self, counter: str, reason: str) -> None:
        self.noted.append((counter, reason))

    def note_timer(self, name: str) -> None:
        self.timers.append(name)

    def count(self, counter: str) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + 1

    def deliver(self, frame: bytes) -> None:
        """A frame arrived at the port."""
        drop = self.fep.receive(frame, self.scheduler.now())
        if drop is not None:
            self.drops.append(drop)

    def packets(self) -> list[UetPacket]:
        """Everything sent so far, taken apart."""
        return [decode(frame, self.parameters.wire) for frame in self.sent]


class Net:
    """NICs by IP address, and one impairment between all of them."""

    def __init__(self, impairment: Impairment = perfect) -> None:
        self.scheduler = VirtualScheduler()
        self.impairment = impairment
        self.nics: dict[bytes, Nic] = {}

    def nic(self, name: str, parameters: Parameters | None = None) -> Nic:
        """A further NIC."""
        nic = Nic(name, len(self.nics) + 1, self, parameters or Parameters())
        self.nics[nic.ip] = nic
        return nic

    def carry(self, sender: Nic, number: int, frame: bytes) -> None:
        """Put a frame on the link."""
        for delay, arriving in self.impairment(sender, number, frame):
            self.scheduler.call_at(self.scheduler.now() + delay, partial(self._arrive, arriving))

    def _arrive(self, frame: bytes) -> None:
        nic = next((nic for nic in self.nics.values() if nic.mac == frame[:6]), None)
        if nic is not None:
            nic.deliver(frame)


class Qp:
    """One queue pair as the core runs it."""

    def __init__(self, nic: Nic, qpn: int, transport: Transport, attributes: QpAttributes) -> None:
        self.nic = nic
        self.host = Host(nic.name, qpn)
        self.attributes = attributes
        self.engine: Engine = nic.fep.create_engine(transport, self.host)
        nic.qps[qpn] = self
        self.next_index = 0
        self._timer: Timer | None = None

    def modify(self, state: QpState, **changes: Any) -> None:
        """Enter ``state`` with some attributes changed."""
        previous = self.attributes.state
        self.attributes = replace(self.attributes, state=state, **changes)
        self.engine.modify(self.attributes, previous)
        self.service()

    def post(self, opcode: Opcode, length: int = 0, **fields: Any) -> SendRequest:
        """Post a signaled element whose local memory starts at BASE; ``fields`` override."""
        request = SendRequest(
            self.next_index,
            opcode,
            length=length,
            sges=[Sge(BASE, length, LKEY)] if length else [],
            remote_address=BASE,
            rkey=RKEY,
            signaled=True,
        )
        request = replace(request, **fields)
        self.next_index += request.slots
        self.engine.post(request)
        self.service()
        return request

    def post_receive(self, index: int, length: int, address: int = BASE, lkey: int = LKEY) -> None:
        """Post a receive element."""
        self.host.receives.append(ReceiveRequest(index, [Sge(address, length, lkey)] if length else []))
        self.engine.receive_posted(self.nic.scheduler.now())
        self.service()

    def service(self) -> None:
        """Transmit and arm."""
        while self.engine.transmit(self.nic.scheduler.now(), 8):
            pass
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.engine.deadline()
        self._timer = None if deadline is None else self.nic.scheduler.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self.engine.expire(self.nic.scheduler.now())
        self.service()


def connect(a: Nic, b: Nic, transport: Transport = Transport.UET_RUD, **changes: Any) -> tuple[Qp, Qp]:
    """A pair of queue pairs in RTS; both have 64 KiB of memory under LKEY and under RKEY."""
    ends = []
    numbers = [FIRST_QPN + len(a.qps), FIRST_QPN + 0x1000 + len(b.qps)]
    for here, there, number, peer in ((a, b, numbers[0], numbers[1]), (b, a, numbers[1], numbers[0])):
        attributes = QpAttributes(
            access=ALL_ACCESS,
            dest_qpn=peer,
            source_mac=here.mac,
            dest_mac=there.mac,
            source_gid=here.gid,
            dest_gid=there.gid,
            max_rd_atomic=16,
            max_dest_rd_atomic=16,
            min_rnr_timer=1,
            rnr_retry=7,
            retry_cnt=7,
            timeout=14,
        )
        attributes = replace(attributes, **changes)
        qp = Qp(here, number, transport, attributes)
        qp.host.memory(LKEY)
        qp.host.memory(RKEY)
        ends.append(qp)
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        for qp in ends:
            qp.modify(state)
    return ends[0], ends[1]


def pair(
    transport: Transport = Transport.UET_RUD,
    impairment: Impairment = perfect,
    parameters: Parameters | None = None,
    **changes: Any,
) -> tuple[Net, Qp, Qp]:
    """Two NICs with one connected pair of queue pairs."""
    net = Net(impairment)
    a, b = net.nic("a", parameters), net.nic("b", parameters)
    return (net, *connect(a, b, transport, **changes))
