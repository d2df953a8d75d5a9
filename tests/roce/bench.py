# SPDX-License-Identifier: Apache-2.0
"""A test bench for engines: two queue pairs, hosts made of dictionaries, and a link in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from emu.clock import US, Timer, VirtualScheduler
from emu.nic.atomics import AtomicOperation
from emu.nic.engine import AsyncEvent, Drop, Engine, ProtectionError
from emu.nic.work import (
    Access,
    Completion,
    Opcode,
    QpAttributes,
    QpState,
    ReceiveRequest,
    SendRequest,
    Sge,
    Status,
    Transport,
)
from emu.roce import RocePacket, create_engine, parse
from emu.roce.path import Templates, frame_path

LATENCY = 2 * US
ALL_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
BASE = 0x10000
LKEY, RKEY = 0x11, 0x22

Impairment = Callable[["Host", int, bytes], list[tuple[int, bytes]]]
"""(sender, number of the frame it sends, frame) -> frames that arrive, each with its delay in nanoseconds."""


def perfect(sender: Host, number: int, frame: bytes) -> list[tuple[int, bytes]]:
    """Every frame arrives, in order."""
    return [(LATENCY, frame)]


def silence(sender: Host, number: int, frame: bytes) -> list[tuple[int, bytes]]:
    """Nothing arrives: the test plays the peer."""
    return []


def losing(*lost: tuple[str, int]) -> Impairment:
    """Loses the frames with these (sender, number), lets all others pass."""

    def impair(sender: Host, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [] if (sender.name, number) in lost else perfect(sender, number, frame)

    return impair


@dataclass
class Region:
    """Memory behind one key."""

    address: int
    data: bytearray
    access: Access = ALL_ACCESS
    pinned: bool = False


@dataclass
class Host:
    """What the core would be to one engine."""

    name: str
    qpn: int
    regions: dict[int, Region] = field(default_factory=dict)
    receives: deque[ReceiveRequest] = field(default_factory=deque)
    completions: list[Completion] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    moves: list[tuple[QpState, str]] = field(default_factory=list)
    events: list[AsyncEvent] = field(default_factory=list)
    drops: list[tuple[str, str]] = field(default_factory=list)
    timers: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    retransmitted: list[tuple[int, int]] = field(default_factory=list)
    retired: int = 0
    atomics: int = 0
    broken_ring: bool = False
    addresses: set[bytes] | None = None
    """IP addresses of the port; None for any."""
    wire: Callable[[bytes], None] = lambda frame: None

    def memory(self, key: int, size: int = 1 << 16, access: Access = ALL_ACCESS) -> bytearray:
        """Register ``size`` bytes at BASE under ``key``."""
        region = Region(BASE, bytearray(size), access)
        self.regions[key] = region
        return region.data

    def _at(self, key: int, address: int, length: int, access: Access) -> tuple[bytearray, int]:
        region = self.regions.get(key)
        if region is None:
            raise ProtectionError(f"key {key:#x} is unknown", cause=20)
        if access & ~region.access:
            raise ProtectionError(f"key {key:#x} does not allow {access.name}", cause=22)
        start = address - region.address
        if start < 0 or start + length > len(region.data):
            raise ProtectionError(f"{address:#x}+{length:#x} is outside of key {key:#x}", cause=21)
        return region.data, start

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)
        self.wire(frame)

    def owns_address(self, address: bytes) -> bool:
        return self.addresses is None or address in self.addresses

    def gather(self, sges: list[Sge], offset: int, length: int) -> bytes:
        octets = b""
        for sge in sges:
            data, start = self._at(sge.lkey, sge.address, sge.length, Access.NONE)
            octets += data[start : start + sge.length]
        return octets[offset : offset + length]

    def scatter(self, sges: list[Sge], offset: int, data: bytes | memoryview) -> None:
        for sge in sges:
            memory, start = self._at(sge.lkey, sge.address, sge.length, Access.LOCAL_WRITE)
            here = data[: max(0, sge.length - offset)]
            memory[start + offset : start + offset + len(here)] = here
            data = data[len(here) :]
            offset = max(0, offset - sge.length)

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        self._at(rkey, address, length, access)

    def write_remote(self, rkey: int, address: int, data: bytes | memoryview) -> None:
        memory, start = self._at(rkey, address, len(data), Access.REMOTE_WRITE)
        memory[start : start + len(data)] = data

    def read_remote(self, rkey: int, address: int, length: int) -> bytes:
        memory, start = self._at(rkey, address, length, Access.REMOTE_READ)
        return bytes(memory[start : start + length])

    def invalidate(self, rkey: int) -> None:
        region = self.regions.get(rkey)
        if region is None or region.pinned:
            raise ProtectionError(f"key {rkey:#x} cannot be invalidated", cause=20)
        del self.regions[rkey]

    def atomic(self, rkey: int, address: int, operation: AtomicOperation) -> int:
        size = operation.size
        memory, start = self._at(rkey, address, size, Access.REMOTE_ATOMIC)
        self.atomics += 1
        old = int.from_bytes(memory[start : start + size], "little")
        new = operation.apply(old)
        if new is not None:
            memory[start : start + size] = new.to_bytes(size, "little")
        return old

    def take_receive(self) -> ReceiveRequest | None:
        if self.broken_ring:
            raise ProtectionError("receive ring is gone", cause=24)
        return self.receives.popleft() if self.receives else None

    def complete(self, completion: Completion) -> None:
        self.completions.append(completion)

    def retire(self, index: int) -> None:
        assert index >= self.retired, "send slots are freed in order"
        self.retired = index

    def moved(self, state: QpState, reason: str) -> None:
        self.moves.append((state, reason))

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        self.events.append(event)

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        self.retransmitted.append((psn, packets))

    def note_drop(self, counter: str, reason: str) -> None:
        self.drops.append((counter, reason))

    def note_timer(self, name: str) -> None:
        self.timers.append(name)

    def count(self, counter: str) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + 1

    @property
    def statuses(self) -> list[tuple[int, Status]]:
        """(index, status) of every completion."""
        return [(completion.index, completion.status) for completion in self.completions]


class Side:
    """One queue pair as the core runs it: after every call it transmits what it may and arms one timer."""

    def __init__(
        self,
        host: Host,
        scheduler: VirtualScheduler,
        attributes: QpAttributes,
        transport: Transport = Transport.ROCE_RC,
    ) -> None:
        self.host = host
        self.attributes = attributes
        self.engine: Engine = create_engine(transport, host)
        self.dropped: list[Drop] = []
        self.next_index = 0
        self._scheduler = scheduler
        self._timer: Timer | None = None

    def modify(self, state: QpState, **changes: Any) -> None:
        """Enter ``state`` with some attributes changed."""
        previous = self.attributes.state
        self.attributes = replace(self.attributes, state=state, **changes)
        self.engine.modify(self.attributes, previous)
        self.service()

    def connect(self) -> None:
        """RESET to RTS."""
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            self.modify(state)

    def post(self, opcode: Opcode, length: int = 0, **fields: Any) -> SendRequest:
        """Post a signaled element at the next index whose local memory starts at BASE; ``fields``
        override.
        """
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

    def post_receive(
        self, index: int, length: int, address: int = BASE, lkey: int = LKEY, *, shared: bool = False
    ) -> None:
        """Post a receive element."""
        sges = [Sge(address, length, lkey)] if length else []
        self.host.receives.append(ReceiveRequest(index, sges, shared=shared))
        self.engine.receive_posted(self._scheduler.now())
        self.service()

    def deliver(self, frame: bytes) -> None:
        """A frame arrived at this side's port."""
        packet = parse(frame)
        if isinstance(packet, Drop):
            self.dropped.append(packet)
        elif packet.dest_qpn == self.host.qpn:
            self.engine.receive(packet, self._scheduler.now())
            self.service()

    def service(self) -> None:
        """Transmit and arm."""
        while self.engine.transmit(self._scheduler.now(), 8):
            pass
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.engine.deadline()
        self._timer = None if deadline is None else self._scheduler.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self.engine.expire(self._scheduler.now())
        self.service()

    def frame(
        self,
        opcode: int,
        psn: int,
        extension: bytes = b"",
        payload: bytes = b"",
        *,
        ack_request: bool = False,
        solicited: bool = False,
        **changes: Any,
    ) -> bytes:
        """A frame as this side's queue pair would send it; ``changes`` are attributes to lie about."""
        attributes = replace(self.attributes, **changes)
        templates = Templates(
            frame_path(attributes, self.host.qpn), dest_qpn=attributes.dest_qpn, pkey=attributes.pkey
        )
        return templates[opcode].build(psn, extension, payload, ack_request, solicited)

    def packets(self) -> list[RocePacket]:
        """Everything this side sent, parsed."""
        parsed = [parse(frame) for frame in self.host.sent]
        assert all(isinstance(packet, RocePacket) for packet in parsed)
        return [packet for packet in parsed if isinstance(packet, RocePacket)]

    def trace(self) -> list[tuple[str, int]]:
        """(name without its transport, PSN) of everything this side sent."""
        return [
            (packet.info.name.partition(" ")[2] if packet.info else "?", packet.psn)
            for packet in self.packets()
        ]


class Pair:
    """Two connected queue pairs, ``a`` and ``b``. ``a`` starts at PSN ``psn``; both own memory under LKEY
    and RKEY.
    """

    def __init__(
        self,
        impair: Impairment = perfect,
        *,
        psn: int = 100,
        ipv6: bool = False,
        transport: Transport = Transport.ROCE_RC,
        host: type[Host] = Host,
        **changes: Any,
    ) -> None:
        self.scheduler = VirtualScheduler()
        self.impair = impair
        macs = [b"\x02\x76\x72\0\0\x01", b"\x02\x76\x72\0\0\x02"]
        prefix = bytes.fromhex("fe80000000000000") if ipv6 else bytes(10) + b"\xff\xff"
        gids = [prefix + bytes([10, 77, 0, k]) + bytes(12 - len(prefix)) for k in (1, 2)]
        attributes = QpAttributes(
            access=ALL_ACCESS,
            path_mtu=1024,
            rq_psn=psn,
            sq_psn=psn,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
            min_rnr_timer=12,
            timeout=14,
            retry_cnt=3,
            rnr_retry=3,
        )
        attributes = replace(attributes, **changes)
        sides = []
        for own, (name, qpn) in enumerate((("a", 0x11), ("b", 0x12))):
            peer = 1 - own
            end = host(name, qpn)
            end.memory(LKEY)
            end.memory(RKEY)
            mine = replace(
                attributes,
                dest_qpn=0x12 if own == 0 else 0x11,
                source_mac=macs[own],
                dest_mac=macs[peer],
                source_gid=gids[own],
                dest_gid=gids[peer],
            )
            sides.append(Side(end, self.scheduler, mine, transport))
        self.a, self.b = sides
        self._join(self.a, self.b)
        self._join(self.b, self.a)
        self.a.connect()
        self.b.connect()

    def _join(self, sender: Side, receiver: Side) -> None:
        def carry(frame: bytes) -> None:
            for delay, arriving in self.impair(sender.host, len(sender.host.sent) - 1, frame):
                self.scheduler.call_at(self.scheduler.now() + delay, partial(receiver.deliver, arriving))

        sender.host.wire = carry

    def run(self) -> None:
        """Until nothing moves any more."""
        self.scheduler.run()

    def local(self, side: Side) -> bytearray:
        """Memory behind LKEY."""
        return side.host.regions[LKEY].data

    def remote(self, side: Side) -> bytearray:
        """Memory behind RKEY."""
        return side.host.regions[RKEY].data


@cache
def pattern(length: int, seed: int = 1) -> bytes:
    """Bytes that differ from place to place."""
    return bytes((index * 7 + index // 251 + seed) & 0xFF for index in range(length))
