# SPDX-License-Identifier: Apache-2.0
"""What RoCEv2 costs: WRITEs between two engines in one process, without QEMU, core and link.

Both sides' work runs on the one thread: gather, build, parse, check, place, acknowledge, complete. The ratio
compares with a loop that copies the same payloads and takes their CRC32, which is the least any software NIC
does. Times are processor time; of several rounds the best counts, since other load only ever adds.

What limits it now: small messages pay some twenty Python calls each for two frames (request and, for a burst,
one acknowledgement); of a 4 KiB packet the two CRCs and four copies of the payload are about a third.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emu.nic.atomics import AtomicOperation
from emu.nic.engine import AsyncEvent, ProtectionError
from emu.nic.work import (
    Access,
    Completion,
    Opcode,
    QpAttributes,
    QpState,
    ReceiveRequest,
    SendRequest,
    Sge,
)
from emu.roce import RcEngine, RocePacket, parse
from emu.wire.icrc import crc32

__all__ = [
    "BULK_TARGET",
    "KEY",
    "MESSAGE_TARGET",
    "SCALE_TARGET",
    "WINDOW",
    "BenchHost",
    "RoceCost",
    "RoceReport",
    "raw_cost",
    "run_roce_bench",
]

MESSAGE_TARGET = 60_000
"""64-byte WRITEs a second on one QP that the benchmark wants to see."""
BULK_TARGET = 0.5
"""GB/s of 1 MiB WRITEs on one QP."""
SCALE_TARGET = 0.15
"""Share that 4,096 QPs may be slower than one (64-byte WRITEs)."""

SIZES = (8, 64, 1024, 65536, 1 << 20)
QP_COUNTS = (1, 64, 4096)
MTU = 4096
WINDOW = 1 << 20
BURST = 16
"""Elements a doorbell covers, of messages of one packet."""
BUDGET = 64
FIRST_QPN = 0x100
KEY = 7


@dataclass(frozen=True, slots=True)
class RoceCost:
    """One measurement: seconds of processor time a message with the engines, and with the raw loop."""

    size: int
    qps: int
    engine: float
    raw: float

    @property
    def messages(self) -> float:
        """Messages a second."""
        return 1 / self.engine

    @property
    def gigabytes(self) -> float:
        """Payload in GB/s."""
        return self.size / self.engine / 1e9

    @property
    def ratio(self) -> float:
        """Cost as a multiple of the raw loop's."""
        return self.engine / self.raw


@dataclass(frozen=True, slots=True)
class RoceReport:
    """All measurements of one run."""

    costs: tuple[RoceCost, ...]
    rounds: int

    def of(self, size: int, qps: int) -> RoceCost:
        """One of them. :raises KeyError: it was not measured."""
        for cost in self.costs:
            if (cost.size, cost.qps) == (size, qps):
                return cost
        raise KeyError(f"{size} bytes on {qps} QPs were not measured")

    @property
    def slowdown(self) -> float:
        """Share by which 64-byte WRITEs on 4,096 QPs are slower than on one."""
        return self.of(64, QP_COUNTS[-1]).engine / self.of(64, 1).engine - 1

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return (
            self.of(64, 1).messages >= MESSAGE_TARGET
            and self.of(1 << 20, 1).gigabytes >= BULK_TARGET
            and self.slowdown <= SCALE_TARGET
        )

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "costs": [
                {
                    "size": cost.size,
                    "qps": cost.qps,
                    "messages_per_second": cost.messages,
                    "gigabytes_per_second": cost.gigabytes,
                    "ratio": cost.ratio,
                }
                for cost in self.costs
            ],
            "slowdown": self.slowdown,
            "rounds": self.rounds,
            "targets": {"messages": MESSAGE_TARGET, "gigabytes": BULK_TARGET, "slowdown": SCALE_TARGET},
            "met": self.met,
        }


class BenchHost:
    """The least a core could be: one piece of memory under one key, a queue of frames, a completion count."""

    __slots__ = ("completed", "failed", "frames", "memory", "qpn")

    def __init__(self, qpn: int, memory: bytearray, frames: deque[bytes]) -> None:
        self.qpn = qpn
        self.memory = memory
        self.frames = frames
        self.completed = 0
        self.failed = ""

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def owns_address(self, address: bytes) -> bool:
        return True

    def gather(self, sges: list[Sge], offset: int, length: int) -> bytes:
        start = sges[0].address + offset
        return bytes(self.memory[start : start + length])

    def scatter(self, sges: list[Sge], offset: int, data: bytes | memoryview) -> None:
        self.write_remote(KEY, sges[0].address + offset, data)

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        if rkey != KEY or address + length > WINDOW:
            raise ProtectionError(f"key {rkey:#x}")

    def write_remote(self, rkey: int, address: int, data: bytes | memoryview) -> None:
        self.memory[address : address + len(data)] = data

    def read_remote(self, rkey: int, address: int, length: int) -> bytes:
        return bytes(self.memory[address : address + length])

    def invalidate(self, rkey: int) -> None:
        raise ProtectionError(f"key {rkey:#x}")

    def atomic(self, rkey: int, address: int, operation: AtomicOperation) -> int:
        raise ProtectionError(f"key {rkey:#x}")

    def take_receive(self) -> ReceiveRequest | None:
        return None

    def complete(self, completion: Completion) -> None:
        self.completed += 1
        self.failed = self.failed or ("" if not completion.status else completion.status.name)

    def retire(self, index: int) -> None:
        pass

    def moved(self, state: QpState, reason: str) -> None:
        self.failed = reason

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        self.failed = reason

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        self.failed = reason

    def note_drop(self, counter: str, reason: str) -> None:
        self.failed = reason

    def note_timer(self, name: str) -> None:
        self.failed = name

    def count(self, counter: str) -> None:
        pass


class _Side:
    """All queue pairs of one end, and the frames that wait for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.memory = bytearray(bytes(range(256)) * (WINDOW // 256))
        self.frames: deque[bytes] = deque()
        self.engines: dict[int, RcEngine] = {}
        self.hosts: list[BenchHost] = []

    def open(self, count: int, peer: _Side) -> None:
        """Queue pairs in RTS, each connected to the one of the same number at ``peer``."""
        for qpn in range(FIRST_QPN, FIRST_QPN + count):
            host = BenchHost(qpn, self.memory, peer.frames)
            engine = RcEngine(host)
            for state in (QpState.INIT, QpState.RTR, QpState.RTS):
                engine.modify(_attributes(state, self.number, peer.number, qpn), QpState(state - 1))
            self.engines[qpn] = engine
            self.hosts.append(host)

    def deliver(self) -> None:
        """Handle what arrived, and let the queue pairs concerned answer."""
        frames, engines = self.frames, self.engines
        touched: dict[int, RcEngine] = {}
        while frames:
            packet = parse(frames.popleft())
            assert isinstance(packet, RocePacket)
            engine = engines[packet.dest_qpn]
            engine.receive(packet, 0)
            touched[packet.dest_qpn] = engine
        for engine in touched.values():
            while engine.transmit(0, BUDGET):
                pass


def _attributes(state: QpState, own: int, peer: int, qpn: int) -> QpAttributes:
    return QpAttributes(
        state=state,
        access=Access.LOCAL_WRITE | Access.REMOTE_WRITE,
        path_mtu=MTU,
        dest_qpn=qpn,
        retry_cnt=7,
        source_mac=bytes((2, 0, 0, 0, 0, own)),
        dest_mac=bytes((2, 0, 0, 0, 0, peer)),
        source_gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, own)),
        dest_gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, peer)),
    )


class _Bench:
    """Two sides with ``count`` connections."""

    def __init__(self, count: int) -> None:
        self.left, self.right = _Side(1), _Side(2)
        self.left.open(count, self.right)
        self.right.open(count, self.left)
        self._turns = list(self.left.engines.values())
        self._turn = 0
        self._index = 0

    def run(self, size: int, messages: int) -> float:
        """Seconds of processor time a message; every queue pair has its turn with a burst."""
        left, right = self.left, self.right
        turns = self._turns
        sges = [Sge(0, size, KEY)]
        burst = BURST if size <= MTU else 1
        done = 0
        start = time.process_time()
        while done < messages:
            engine = turns[self._turn]
            self._turn = (self._turn + 1) % len(turns)
            for _ in range(burst):
                self._index = (self._index + 1) & 0xFFFFFFFF
                engine.post(
                    SendRequest(
                        self._index,
                        Opcode.WRITE,
                        length=size,
                        sges=sges,
                        rkey=KEY,
                        signaled=True,
                    )
                )
            done += burst
            while not engine.idle():
                engine.transmit(0, BUDGET)
                right.deliver()
                left.deliver()
        taken = (time.process_time() - start) / done
        for host in (*left.hosts, *right.hosts):
            if host.failed:
                raise AssertionError(f"QP {host.qpn:#x}: {host.failed}")
        return taken


def raw_cost(size: int, messages: int) -> float:
    """Seconds a message of copying its packets and taking the CRC of each."""
    source, target = bytearray(size), bytearray(size)
    pieces = [(at, min(at + MTU, size)) for at in range(0, size, MTU)]
    start = time.process_time()
    for _ in range(messages):
        for begin, end in pieces:
            payload = bytes(source[begin:end])
            crc32(payload)
            target[begin:end] = payload
    return (time.process_time() - start) / messages


def run_roce_bench(
    *,
    sizes: Sequence[int] = SIZES,
    qp_counts: Sequence[int] = QP_COUNTS,
    rounds: int = 5,
    volume: int = 16 << 20,
    messages: int = 8192,
    progress: Callable[[str], None] = lambda _: None,
) -> RoceReport:
    """Measure every size with every number of queue pairs. Takes about a minute.

    A round is ``messages`` messages, or fewer when they would be more than ``volume`` bytes, or more when
    that is not a burst for each queue pair; ``progress`` is told what happens.
    """
    best: dict[tuple[int, int], float] = {}
    raw: dict[int, float] = {}
    counts = {size: max(1, min(messages, volume // size)) for size in sizes}
    benches = [(qps, _Bench(qps)) for qps in qp_counts]
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for size in sizes:
            raw[size] = min(raw.get(size, 1.0), raw_cost(size, counts[size]))
            # The benches take turns, so that a slow moment of the machine does not fall on one of them.
            for qps, bench in benches:
                each = qps * BURST if size <= MTU else 0
                cost = bench.run(size, max(counts[size], each))
                best[size, qps] = min(best.get((size, qps), 1.0), cost)
    costs = tuple(RoceCost(size, qps, best[size, qps], raw[size]) for qps in qp_counts for size in sizes)
    return RoceReport(costs, rounds)
