# SPDX-License-Identifier: Apache-2.0
"""A network in virtual time for comparing transports: hosts, two switches, and paths between these.

Switches and links are the lab's own (:mod:`emu.fabric`). Senders hang on one switch, receivers on the other.
Links take time for every byte, and each of the ``paths`` between the switches is a little longer than the one
before, so packets overtake each other. A single path is as fast as a host's link, one of several half as
fast. Paths lose frames at random.

As a queue grows, its switch marks UET's packets (ECN), then trims, then drops them. RoCE gets the lossless
network it is made for: senders pause (priority flow control) before anything is dropped. Its own congestion
control (DCQCN) is off; constants tuned for other round trips would only slow it down here.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from emu.bench.host import KEY, BenchHost
from emu.clock import MS, NS_PER_S, US, Timer, VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.egress import Egress, Queueing
from emu.fabric.link import LinkEnd
from emu.fabric.switch import Switch
from emu.nic.engine import Drop, Engine, ProtectionError
from emu.nic.work import Access, Completion, Opcode, QpAttributes, QpState, SendRequest, Sge, Transport
from emu.roce import RcEngine, parse
from emu.uet import Fep, NsccConfig, Parameters

__all__ = ["MTU", "RATE", "Host", "Network", "QueuePair"]

MTU = 4096
RATE = 12_500_000_000
"""Bytes a second of a host's link: 100 Gb/s."""
PATH_NS = 4 * US
PATH_STEP_NS = 200
"""Each further path is this much longer."""
HOST_NS, HOST_JITTER_NS = 500, 400
"""What a host's link adds, and up to how much more. Without any difference between hosts the one whose packet
comes first would be first for ever.
"""
MARK_FROM, MARK_TO, TRIM_AT, DROP_AT = 0.2, 0.8, 1.0, 5.0
"""Bytes in a queue when its switch begins to mark, marks all, trims and drops data, as multiples of what its
link carries in a round trip: the settings that UET's congestion control assumes.
"""
AHEAD = 64
"""Frames that may wait for a host's own link before its transports stop sending."""
PACE_NS = 2 * US
BUDGET = 16
ACK_TIMEOUT = 8
"""RoCE's timer as an exponent: 4.096 us times 2^8 is about a millisecond, UET's likewise."""

_HEADERS = {Transport.ROCE_RC: 58, Transport.UET_RUD: 98}
"""Bytes of a data frame that are not payload."""
_DATA = 512
"""Frames from this length on are data."""
_UNIQUE = slice(34, 114)
"""Bytes of a data frame that no switch changes and that tell it from others: UDP to the beginning of payload.
"""
_LOCAL = bytes.fromhex("88b5")
"""Ethertype of the announcement by which switches learn where a host is (IEEE: local experiments)."""


def _parameters(paths: int, round_trip: int) -> Parameters:
    """UET's configuration for this network, with the specification's times."""
    return Parameters(
        paths=paths,
        rto_ns=MS,
        nack_retx_ns=MS,
        tail_loss_ns=MS // 2,
        nscc=NsccConfig(base_rtt_ns=round_trip, bytes_per_second=RATE, trimming=True),
    )


def _queueing(rate: int, round_trip: int, *, lossless: bool) -> Queueing:
    carried = rate * round_trip // NS_PER_S
    if lossless:
        return Queueing(rate, limit=round(DROP_AT * carried), pause=True)
    return Queueing(
        rate,
        limit=round(DROP_AT * carried),
        mark_min=round(MARK_FROM * carried),
        mark_max=round(MARK_TO * carried),
        trim_at=round(TRIM_AT * carried),
    )


class Network:
    """The clock, the switches and what happened to the hosts' data.

    ``resent`` are payload bytes sent again, ``reordered`` counts data packets that arrived after a later one
    of the same sender.
    """

    def __init__(self, transport: Transport, paths: int, loss: float, seed: int = 1) -> None:
        self.transport = transport
        self.scheduler = VirtualScheduler()
        longest = PATH_NS + PATH_STEP_NS * (paths - 1) + 2 * HOST_NS
        speed = RATE if paths == 1 else RATE // 2
        # Every switch has the whole packet before it sends it on.
        size = MTU + _HEADERS[transport]
        stored = 2 * size * NS_PER_S // RATE + size * NS_PER_S // speed
        self.round_trip = 2 * longest + stored
        self.parameters = _parameters(paths, self.round_trip)
        self.resent = 0
        self.reordered = 0
        self.sequence: dict[bytes, int] = {}
        """Place of each packet among its sender's."""
        self._dropped = 0
        self._seed = seed
        self._hosts = 0
        events = EventBus()
        events.subscribe(self._note_drop, [Kind.FRAME_DROP])
        self._sides = [Switch(self.scheduler, events, name=name) for name in ("senders", "receivers")]
        self._paths = self._sides[0].join(
            self._sides[1],
            paths,
            loss=loss,
            seed=seed,
            delay_ns=PATH_NS,
            step_ns=PATH_STEP_NS,
            queueing=self._queueing(speed),
        )
        self._egresses: list[Egress] = []

    def host(self, memory: int, *, receives: bool = False) -> Host:
        """A further host with ``memory`` bytes that its peers may write, on the side of the receivers or on
        that of the senders.
        """
        self._hosts += 1
        switch, name = self._sides[receives], f"host{self._hosts}"
        port = switch.port(
            name,
            delay_ns=HOST_NS,
            jitter_ns=HOST_JITTER_NS,
            seed=self._seed * 1000 + self._hosts,
            queueing=self._queueing(RATE),
        )
        if receives:
            self._egresses += switch.egresses(name)
        return Host(self, self._hosts, memory, port)

    @property
    def lost(self) -> int:
        """Payload bytes that did not arrive: dropped, lost or cut off."""
        snapshots = [name for switch in self._sides for name in switch.snapshot().values()]
        trimmed = sum(counters.get("queue.trimmed", 0) for counters in snapshots)
        octets = sum(counters.get("queue.trimmed_octets", 0) for counters in snapshots)
        return self._dropped + octets - trimmed * _HEADERS[self.transport]

    @property
    def queue(self) -> float:
        """How long a data packet waited in both switches, in nanoseconds on average so far."""
        return sum(
            sum(egress.counters.waited_ns for egress in egresses)
            / max(1, sum(egress.counters.data for egress in egresses))
            for egresses in (self.bottlenecks, self._egresses)
        )

    @property
    def bottlenecks(self) -> list[Egress]:
        """The queues before the paths, on the side of the senders."""
        return self._sides[0].egresses("receivers")

    @property
    def shares(self) -> tuple[float, ...]:
        """What each path carried of all bytes towards the receivers."""
        octets = [link.forward.counters.octets for link in self._paths]
        return tuple(carried / max(1, sum(octets)) for carried in octets)

    def _queueing(self, rate: int) -> Queueing:
        return _queueing(rate, self.round_trip, lossless=self.transport is Transport.ROCE_RC)

    def _note_drop(self, event: Event) -> None:
        if event.length is not None and event.length >= _DATA:
            self._dropped += event.length - _HEADERS[self.transport]


class QueuePair(BenchHost):
    """A queue pair and its surroundings; ``done`` has the time at which each message was complete."""

    __slots__ = ("attributes", "done", "engine", "host")

    def __init__(self, host: Host, qpn: int) -> None:
        super().__init__(qpn, host.memory, host.queue)
        self.host = host
        self.done: list[int] = []
        network = host.network
        fep = host.fep
        self.engine: Engine = fep.create_engine(network.transport, self) if fep else RcEngine(self)

    def connect(self, peer: Host, qpn: int) -> None:
        """Enter RTS towards queue pair ``qpn`` of ``peer``."""
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            attributes = QpAttributes(
                state=state,
                access=Access.LOCAL_WRITE | Access.REMOTE_WRITE,
                path_mtu=MTU,
                dest_qpn=qpn,
                timeout=ACK_TIMEOUT,
                retry_cnt=7,
                source_mac=self.host.mac,
                dest_mac=peer.mac,
                source_gid=self.host.gid,
                dest_gid=peer.gid,
            )
            self.engine.modify(attributes, QpState(state - 1))

    def write(self, index: int, address: int, length: int) -> None:
        """Post a WRITE to the same ``address`` at the peer."""
        sges = [Sge(address, length, KEY)]
        self.engine.post(
            SendRequest(
                index,
                Opcode.WRITE,
                length=length,
                sges=sges,
                remote_address=address,
                rkey=KEY,
                signaled=True,
            )
        )

    def send(self, frame: bytes) -> None:
        self.host.send(frame, self.qpn)

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        if rkey != KEY or address + length > len(self.memory):
            raise ProtectionError(f"key {rkey:#x}")

    def complete(self, completion: Completion) -> None:
        super().complete(completion)
        self.done.append(self.host.network.scheduler.now())

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        self.host.network.resent += octets

    def note_drop(self, counter: str, reason: str) -> None:
        pass

    def note_timer(self, name: str) -> None:
        pass


class Host:
    """A host: its link, its queue pairs, and its endpoint when it speaks UET."""

    def __init__(self, network: Network, number: int, memory: int, port: LinkEnd) -> None:
        self.network = network
        self.scheduler = network.scheduler
        self.mac = bytes((2, 0, 0, 0, 0, number))
        self.gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number))
        self.memory = bytearray(memory)
        self.queue: deque[bytes] = deque()
        self.fep = Fep(self, network.parameters, number) if network.transport is Transport.UET_RUD else None
        self._port = port
        self._qps: dict[int, QueuePair] = {}
        self._timers: dict[int, Timer] = {}
        self._sent = 0
        self._newest: dict[bytes, int] = {}
        port.attach(self._arrive)
        port.send(b"\xff" * 6 + self.mac + _LOCAL)

    def queue_pair(self) -> QueuePair:
        """A further queue pair, in RESET."""
        qp = QueuePair(self, 0x100 + len(self._qps))
        self._qps[qp.qpn] = qp
        return qp

    @property
    def backlog(self) -> int:
        """Frames that wait for the link."""
        return self._port.backlog

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Put a frame on the link."""
        if len(frame) >= _DATA:
            self._sent += 1
            key = frame[_UNIQUE]
            # Of one sent twice nobody can tell which copy arrives.
            self.network.sequence[key] = 0 if key in self.network.sequence else self._sent
        self._port.send(frame)

    def wake(self, qpn: int) -> None:
        """Serve a queue pair soon."""
        qp = self._qps.get(qpn)
        if qp is not None:
            self.scheduler.call_soon(partial(self.serve, qp))

    def serve(self, qp: QueuePair) -> None:
        """Let a queue pair send, unless the link is behind, and arm its timer."""
        now = self.scheduler.now()
        engine = qp.engine
        if self.backlog >= AHEAD:
            again = now + PACE_NS
        elif engine.transmit(now, BUDGET):
            again = now + 1
        else:
            again = 0
        timer = self._timers.pop(qp.qpn, None)
        if timer is not None:
            timer.cancel()
        if again:
            self._timers[qp.qpn] = self.scheduler.call_at(again, partial(self.serve, qp))
            return
        deadline = engine.deadline()
        if deadline is not None:
            self._timers[qp.qpn] = self.scheduler.call_at(max(deadline, now + 1), partial(self._expire, qp))

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        """The endpoint repeats something."""
        self.network.resent += octets

    def note_drop(self, counter: str, reason: str) -> None:
        """The endpoint dropped a packet."""

    def note_timer(self, name: str) -> None:
        """A timer of the endpoint ran out."""

    def count(self, counter: str) -> None:
        """The endpoint counts something."""

    def _arrive(self, frame: bytes) -> None:
        if frame[0:6] != self.mac:
            return
        if len(frame) >= _DATA:
            source = frame[6:12]
            sequence = self.network.sequence.get(frame[_UNIQUE], 0)
            newest = self._newest.get(source, 0)
            self.network.reordered += 0 < sequence < newest
            self._newest[source] = max(sequence, newest)
        now = self.scheduler.now()
        if self.fep is not None:
            self.fep.receive(frame, now)
            return
        packet = parse(frame)
        if isinstance(packet, Drop):
            return
        qp = self._qps.get(packet.dest_qpn)
        if qp is not None:
            qp.engine.receive(packet, now)
            self.serve(qp)

    def _expire(self, qp: QueuePair) -> None:
        self._timers.pop(qp.qpn, None)
        qp.engine.expire(self.scheduler.now())
        self.serve(qp)
