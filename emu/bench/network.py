# SPDX-License-Identifier: Apache-2.0
"""A model network in virtual time for comparing transports: hosts, paths between them, a port before each.

A host's link and each of the ``paths`` between two hosts take time for every byte. A single path is as fast
as the link, one of several half as fast, and each is a little longer than the one before, so packets overtake
each other. A new UDP source port takes the next path in turn. A full path holds its sender back, and it loses
frames at random. As the queue before a receiver grows, its port marks packets (ECN), then trims, then drops
them: there is no priority flow control.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from functools import partial

from emu.bench.roce import KEY, BenchHost
from emu.clock import MS, NS_PER_S, US, Timer, VirtualScheduler
from emu.nic.engine import Drop, Engine, ProtectionError
from emu.nic.work import Access, Completion, Opcode, QpAttributes, QpState, SendRequest, Sge, Transport
from emu.roce import RcEngine, parse
from emu.uet import Fep, NsccConfig, Parameters
from emu.wire.congestion import mark, trim
from emu.wire.frame import ETHERNET_SIZE

__all__ = ["MTU", "RATE", "Host", "Network", "QueuePair"]

MTU = 4096
RATE = 12_500_000_000
"""Bytes a second of a host's link: 100 Gb/s."""
PATH_NS = 5 * US
PATH_STEP_NS = 200
"""Each further path is this much longer."""
PATH_QUEUE_NS = 20 * US
"""Waiting time on a path from which on it holds the sender back."""
MARK_FROM, MARK_TO, TRIM_AT, DROP_AT = 0.2, 0.8, 1.0, 5.0
"""Bytes that wait for a receiver when its port begins to mark, marks all, trims and drops data, as multiples
of what the link carries in a round trip: the settings that UET's congestion control assumes of a switch.
"""
AHEAD = 64
"""Frames that may wait for a host's own link before its transports stop sending."""
PACE_NS = 2 * US
BUDGET = 16
ACK_TIMEOUT = 8
"""RoCE's timer as an exponent: 4.096 us times 2^8 is about a millisecond, UET's likewise."""

_PORT_AT = ETHERNET_SIZE + 20
_HEADERS = {Transport.ROCE_RC: 58, Transport.UET_RUD: 98}
"""Bytes of a data frame that are not payload."""
_DATA = 512


def _parameters(paths: int, round_trip: int) -> Parameters:
    """UET's configuration for this network, with the specification's times."""
    return Parameters(
        paths=paths,
        rto_ns=MS,
        nack_retx_ns=MS,
        tail_loss_ns=MS // 2,
        nscc=NsccConfig(base_rtt_ns=round_trip, bytes_per_second=RATE, trimming=True),
    )


@dataclass(slots=True)
class _Path:
    """Time at which it has carried all it took."""

    free_at: int = 0


class Network:
    """The clock, the hosts by MAC address, and what happened to their data."""

    def __init__(self, transport: Transport, paths: int, loss: float, seed: int = 1) -> None:
        self.transport = transport
        self.loss = loss
        self.scheduler = VirtualScheduler()
        self.round_trip = 2 * (PATH_NS + PATH_STEP_NS * (paths - 1)) + 2 * US
        self.parameters = _parameters(paths, self.round_trip)
        self.hosts: dict[bytes, Host] = {}
        self.lost = 0
        self.resent = 0
        self.reordered = 0
        self.arrived = 0
        self.waited = 0
        self.packets = [0] * paths
        self._paths: dict[bytes, list[_Path]] = {}
        self._turns: dict[bytes, int] = {}
        self._speed = RATE if paths == 1 else RATE // 2
        self._random = random.Random(seed)

    def host(self, memory: int) -> Host:
        """A further host with ``memory`` bytes that its peers may write."""
        host = Host(self, len(self.hosts) + 1, memory)
        self.hosts[host.mac] = host
        return host

    def launch(self, frame: bytes) -> int:
        """Put ``frame`` on its path; until when that holds the sender's link."""
        now = self.scheduler.now()
        ends = frame[0:12]
        paths = self._paths.get(ends)
        if paths is None:
            paths = self._paths[ends] = [_Path() for _ in self.packets]
        # Ports of one pair of hosts are told apart by the addresses before them.
        turn = self._turns.setdefault(ends + frame[_PORT_AT : _PORT_AT + 2], len(self._turns))
        number = turn % len(paths)
        path = paths[number]
        path.free_at = max(now, path.free_at) + len(frame) * NS_PER_S // self._speed
        data = len(frame) >= _DATA
        self.packets[number] += data
        if self.chance(self.loss):
            self.drop(frame)
        else:
            sequence = self.hosts[frame[6:12]].sent
            arrive = partial(self.hosts[frame[0:6]].arrive, frame, sequence)
            self.scheduler.call_at(path.free_at + PATH_NS + PATH_STEP_NS * number, arrive)
        return max(now + len(frame) * NS_PER_S // RATE, path.free_at - PATH_QUEUE_NS)

    def chance(self, probability: float) -> bool:
        """True with ``probability``, which may lie beyond 0 and 1."""
        return self._random.random() < probability

    def drop(self, frame: bytes) -> None:
        """A frame is gone."""
        if len(frame) >= _DATA:
            self.lost += len(frame) - _HEADERS[self.transport]


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
    """A host: its link, the port before it, its queue pairs, and its endpoint when it speaks UET."""

    def __init__(self, network: Network, number: int, memory: int) -> None:
        self.network = network
        self.scheduler = network.scheduler
        self.mac = bytes((2, 0, 0, 0, 0, number))
        self.gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number))
        self.memory = bytearray(memory)
        self.queue: deque[bytes] = deque()
        self.sent = 0
        self.fep = Fep(self, network.parameters, number) if network.transport is Transport.UET_RUD else None
        self._qps: dict[int, QueuePair] = {}
        self._timers: dict[int, Timer] = {}
        self._sending = False
        self._port_free_at = 0
        self._newest: dict[bytes, int] = {}

    def queue_pair(self) -> QueuePair:
        """A further queue pair, in RESET."""
        qp = QueuePair(self, 0x100 + len(self._qps))
        self._qps[qp.qpn] = qp
        return qp

    @property
    def backlog(self) -> int:
        """Frames that wait for the link."""
        return len(self.queue)

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Queue a frame for the link."""
        self.queue.append(frame)
        if not self._sending:
            self._sending = True
            self.scheduler.call_soon(self._send)

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

    def arrive(self, frame: bytes, sequence: int) -> None:
        """A frame came off its path: it waits at the port, or does not fit."""
        now = self.scheduler.now()
        data = len(frame) >= _DATA
        wait = max(0, self._port_free_at - now)
        waiting = wait / self.network.round_trip
        kept = frame
        if data and waiting > TRIM_AT:
            kept = trim(frame, last_hop=True) or (frame if waiting <= DROP_AT else b"")
            if kept is not frame:
                self.network.drop(frame)
            if not kept:
                return
        if waiting > MARK_FROM and self.network.chance((waiting - MARK_FROM) / (MARK_TO - MARK_FROM)):
            kept = mark(kept) or kept
        self._port_free_at = max(now, self._port_free_at) + len(kept) * NS_PER_S // RATE
        if data:
            self.network.arrived += 1
            self.network.waited += wait
            source = frame[6:12]
            self.network.reordered += sequence < self._newest.get(source, 0)
            self._newest[source] = max(sequence, self._newest.get(source, 0))
        self.scheduler.call_at(self._port_free_at, partial(self._deliver, kept))

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        """The endpoint repeats something."""
        self.network.resent += octets

    def note_drop(self, counter: str, reason: str) -> None:
        """The endpoint dropped a packet."""

    def note_timer(self, name: str) -> None:
        """A timer of the endpoint ran out."""

    def count(self, counter: str) -> None:
        """The endpoint counts something."""

    def _send(self) -> None:
        frame = self.queue.popleft()
        self.sent += 1
        free_at = self.network.launch(frame)
        self._sending = bool(self.queue)
        if self._sending:
            self.scheduler.call_at(free_at, self._send)
        else:
            # The link stays taken; a frame that comes now has to wait for it.
            self._sending = True
            self.scheduler.call_at(free_at, self._idle)

    def _idle(self) -> None:
        if self.queue:
            self._send()
        else:
            self._sending = False

    def _deliver(self, frame: bytes) -> None:
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
