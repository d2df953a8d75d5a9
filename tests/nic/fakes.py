# SPDX-License-Identifier: Apache-2.0
"""Surroundings of a NIC for tests: a bus of bytearrays, vectors that count, a port that keeps frames, an
engine
that does as it is told.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from mmap import mmap

from emu.events import Event, EventBus, Kind
from emu.fabric.port import LinkWatcher, Receiver
from emu.nic.engine import Drop, Engine, EngineHost, Packet
from emu.nic.work import (
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    SendRequest,
    Status,
    Transport,
)
from emu.pcie.bus import BusError


class MemoryBus:
    """Bus memory in pieces; ``log`` keeps every access as (operation, address, length)."""

    def __init__(self) -> None:
        self.pieces: dict[int, bytearray | mmap] = {}
        self.log: list[tuple[str, int, int]] = []
        self.mastering = True

    def map(self, address: int, size: int) -> bytearray:
        """Put zeroed memory at ``address``."""
        memory = self.pieces[address] = bytearray(size)
        return memory

    def unmap(self, address: int) -> None:
        """Take a piece away."""
        del self.pieces[address]

    def read(self, address: int, length: int) -> bytes:
        """Read within one piece."""
        self.log.append(("read", address, length))
        return bytes(self.view(address, length))

    def peek(self, address: int, length: int) -> bytes:
        """Look without being seen."""
        return bytes(self.view(address, length))

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write within one piece."""
        self.log.append(("write", address, len(data)))
        self.view(address, len(data), writable=True)[:] = data

    def write_relaxed(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write within one piece."""
        self.write(address, data)

    def view(self, address: int, length: int, *, writable: bool = False) -> memoryview:
        """A view within one piece."""
        for start, memory in self.pieces.items():
            if start <= address and address + length <= start + len(memory):
                return memoryview(memory)[address - start : address - start + length]
        raise BusError(address, length, "nothing is mapped there")

    def operations(self, kind: str) -> list[tuple[int, int]]:
        """Address and length of every access of one kind, and forget them."""
        found = [(address, length) for what, address, length in self.log if what == kind]
        self.log.clear()
        return found


@dataclass
class CountingInterrupts:
    """Keeps the vectors that fired, in order."""

    fired: list[int] = field(default_factory=list)

    def trigger(self, vector: int) -> None:
        """Signal ``vector``."""
        self.fired.append(vector)


class RecordingPort:
    """Keeps what is sent; :meth:`deliver` plays the network."""

    name = "port"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.link = True
        self.backlog = 0
        self.arriving = 0
        self._receiver: Receiver | None = None
        self._watchers: list[LinkWatcher] = []

    def send(self, frame: bytes) -> None:
        """Keep a frame."""
        self.sent.append(frame)

    def attach(self, receiver: Receiver) -> None:
        """Remember who receives."""
        self._receiver = receiver

    def watch(self, watcher: LinkWatcher) -> None:
        """Remember who wants to know of the link."""
        self._watchers.append(watcher)

    @property
    def up(self) -> bool:
        """Link state."""
        return self.link

    def deliver(self, frame: bytes) -> None:
        """A frame arrives."""
        assert self._receiver is not None
        self._receiver(frame)

    def set_link(self, up: bool) -> None:
        """The link changes."""
        self.link = up
        for watcher in self._watchers:
            watcher(up)


@dataclass(frozen=True)
class FakePacket:
    """A parsed packet."""

    dest_qpn: int
    frame: bytes
    dest_ip: bytes = b""
    source_ip: bytes = b""
    source_qpn: int | None = None


def fake_parse(frame: bytes) -> Packet | Drop:
    """Frames of tests: 14 bytes of Ethernet, then 3 bytes of destination QPN, or "bad" for a refusal."""
    body = frame[14:]
    if body.startswith(b"bad"):
        return Drop("marked as bad", "rx_icrc_encapsulated")
    return FakePacket(int.from_bytes(body[:3], "big"), frame)


_OPCODES = {
    Opcode.NOP: CompletionOpcode.NOP,
    Opcode.WRITE: CompletionOpcode.WRITE,
    Opcode.WRITE_IMM: CompletionOpcode.WRITE,
    Opcode.READ: CompletionOpcode.READ,
    Opcode.SEND: CompletionOpcode.SEND,
    Opcode.SEND_IMM: CompletionOpcode.SEND,
    Opcode.ATOMIC_ADD: CompletionOpcode.ATOMIC_ADD,
    Opcode.ATOMIC_CAS: CompletionOpcode.ATOMIC_CAS,
    Opcode.SEND_INV: CompletionOpcode.SEND,
}


class FakeEngine:
    """Completes each request when it may transmit, unless told to hold; one frame's budget a request."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        self.hold = False
        self.queue: deque[SendRequest] = deque()
        self.posted: list[SendRequest] = []
        self.packets: list[Packet] = []
        self.modifications: list[tuple[QpState, QpState]] = []
        self.attributes = QpAttributes()
        self.receives_posted = 0
        self.due: int | None = None
        self.expired: list[int] = []

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Flush on ERR, forget on RESET."""
        self.modifications.append((previous, attributes.state))
        self.attributes = attributes
        if attributes.state is QpState.ERR:
            self.flush()
        elif attributes.state is QpState.RESET:
            self.queue.clear()

    def post(self, request: SendRequest) -> None:
        """Queue a request."""
        self.posted.append(request)
        self.queue.append(request)
        if self.attributes.state is QpState.ERR:
            self.flush()

    def receive(self, packet: Packet, now: int) -> None:
        """Keep a packet."""
        self.packets.append(packet)

    def receive_posted(self, now: int) -> None:
        """Count."""
        self.receives_posted += 1

    def transmit(self, now: int, budget: int) -> bool:
        """Complete up to ``budget`` requests."""
        while self.queue and budget and not self.hold:
            budget -= 1
            self.finish(Status.SUCCESS)
        return bool(self.queue) and not self.hold

    def deadline(self) -> int | None:
        """What the test set."""
        return self.due

    def expire(self, now: int) -> None:
        """Keep the time."""
        self.expired.append(now)
        self.due = None

    def idle(self) -> bool:
        """Nothing queued."""
        return not self.queue

    @property
    def next_psn(self) -> int:
        """A number to recognise."""
        return 0x111

    @property
    def expected_psn(self) -> int:
        """Another one."""
        return 0x222

    def finish(self, status: Status, cause: Cause = Cause.NONE) -> None:
        """Complete the oldest request."""
        request = self.queue.popleft()
        self.host.retire((request.index + request.slots) & 0xFFFFFFFF)
        if request.signaled or status is not Status.SUCCESS:
            self.host.complete(
                Completion(
                    self.host.qpn,
                    request.index,
                    _OPCODES[request.opcode],
                    status,
                    request.length,
                    cause=cause,
                )
            )

    def flush(self) -> None:
        """Complete everything as flushed, receives too."""
        while self.queue:
            self.finish(Status.WR_FLUSH_ERR, Cause.FLUSHED)
        while (element := self.host.take_receive()) is not None:
            self.host.complete(
                Completion(
                    self.host.qpn,
                    element.index,
                    CompletionOpcode.RECV,
                    Status.WR_FLUSH_ERR,
                    cause=Cause.FLUSHED,
                )
            )

    def fail(self, status: Status, cause: Cause) -> None:
        """Fail the oldest request as an engine does: completion, ERR, flush."""
        self.finish(status, cause)
        self.attributes.state = QpState.ERR
        self.host.moved(QpState.ERR, "the test says so")
        self.flush()


@dataclass
class Engines:
    """Engine factory that keeps what it made, by QPN."""

    made: dict[int, FakeEngine] = field(default_factory=dict)

    def create(self, transport: Transport, host: EngineHost) -> Engine:
        """Make one. :raises ValueError: not RC."""
        if transport is not Transport.ROCE_RC:
            raise ValueError(f"{transport.name} is not offered here")
        engine = FakeEngine(host)
        self.made[host.qpn] = engine
        return engine


class Recorder:
    """Everything on an event bus."""

    def __init__(self, bus: EventBus) -> None:
        self.events: list[Event] = []
        bus.subscribe(self.events.append)

    def texts(self, kind: Kind) -> list[str]:
        """Texts of one kind so far."""
        return [event.text for event in self.events if event.kind is kind]
