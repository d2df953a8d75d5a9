# SPDX-License-Identifier: Apache-2.0
"""What UET costs: WRITEs between two fabric endpoints in one process, without QEMU, core and link.

Measured as :mod:`emu.bench.cost` says. Every queue pair has a peer address of its
own, and so a packet delivery context (PDC) of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from emu.bench.cost import BURST, MTU, Report, measure
from emu.bench.host import FIRST_QPN, KEY, WINDOW, BenchHost
from emu.clock import VirtualScheduler
from emu.nic.engine import Engine
from emu.nic.work import Access, Opcode, QpAttributes, QpState, SendRequest, Sge, Transport
from emu.uet import Fep

__all__ = ["MESSAGE_TARGET", "PDC_COUNTS", "SCALE_TARGET", "run_uet_bench"]

MESSAGE_TARGET = 40_000
"""64-byte WRITEs a second on one PDC that the benchmark wants to see."""
SCALE_TARGET = 0.15
"""Share that 4,096 PDCs may be slower than one (64-byte WRITEs)."""

SIZES = (64, 1024, 65536)
PDC_COUNTS = (1, 64, 4096)
ROUND_TRIP_NS = 20_000
"""What the endpoints' clock sees: timers come due as they would."""


class _Nic:
    """The least a core could be to an endpoint: a queue of frames to the other side, and a clock at rest."""

    def __init__(self, scheduler: VirtualScheduler, frames: deque[bytes]) -> None:
        self.scheduler = scheduler
        self.frames = frames
        self.backlog = 0
        self.failed = ""

    def send(self, frame: bytes, qpn: int | None) -> None:
        self.frames.append(frame)

    def wake(self, qpn: int) -> None:
        pass

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        self.failed = reason

    def note_drop(self, counter: str, reason: str) -> None:
        self.failed = reason

    def note_timer(self, name: str) -> None:
        self.failed = name

    def count(self, counter: str) -> None:
        pass


class _Bench:
    """Two endpoints with ``count`` queue pairs in RTS, each on a PDC of its own."""

    def __init__(self, count: int) -> None:
        self.scheduler = VirtualScheduler()
        there: deque[bytes] = deque()
        back: deque[bytes] = deque()
        self._nics = (_Nic(self.scheduler, there), _Nic(self.scheduler, back))
        left, right = (Fep(nic) for nic in self._nics)
        self._lanes = ((there, right), (back, left))
        self._hosts: list[BenchHost] = []
        memories = [bytearray(bytes(range(256)) * (WINDOW // 256)) for _ in self._lanes]
        numbers = range(FIRST_QPN, FIRST_QPN + count)
        self._turns = [self._open(left, 1, qpn, memories[0]) for qpn in numbers]
        for qpn in numbers:
            self._open(right, 2, qpn, memories[1])
        self._turn = self._index = 0

    def _open(self, fep: Fep, side: int, qpn: int, memory: bytearray) -> Engine:
        host = BenchHost(qpn, memory, deque())
        self._hosts.append(host)
        engine = fep.create_engine(Transport.UET_RUD, host)
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            attributes = QpAttributes(
                state=state,
                access=Access.LOCAL_WRITE | Access.REMOTE_WRITE,
                path_mtu=MTU,
                dest_qpn=qpn,
                source_mac=bytes((2, 0, 0, 0, 0, side)),
                dest_mac=bytes((2, 0, 0, 0, 0, 3 - side)),
                source_gid=bytes(10) + b"\xff\xff" + bytes((10, side)) + qpn.to_bytes(2, "big"),
                dest_gid=bytes(10) + b"\xff\xff" + bytes((10, 3 - side)) + qpn.to_bytes(2, "big"),
            )
            engine.modify(attributes, QpState(state - 1))
        return engine

    def run(self, size: int, messages: int) -> float:
        """Seconds of processor time a message; every queue pair has its turn with a burst."""
        sges = [Sge(0, size, KEY)]
        burst = BURST if size <= MTU else 1
        turns, scheduler = self._turns, self.scheduler
        done = 0
        start = time.process_time()
        while done < messages:
            engine = turns[self._turn]
            self._turn = (self._turn + 1) % len(turns)
            for _ in range(burst):
                self._index = (self._index + 1) & 0xFFFFFFFF
                engine.post(
                    SendRequest(self._index, Opcode.WRITE, length=size, sges=sges, rkey=KEY, signaled=True)
                )
            done += burst
            engine.transmit(scheduler.now(), burst)
            while not engine.idle():
                now = scheduler.now() + ROUND_TRIP_NS // 2
                scheduler.run(until=now)
                for frames, fep in self._lanes:
                    while frames:
                        fep.receive(frames.popleft(), now)
        taken = (time.process_time() - start) / done
        for failed in (*(host.failed for host in self._hosts), *(nic.failed for nic in self._nics)):
            if failed:
                raise AssertionError(failed)
        return taken


def run_uet_bench(
    *,
    sizes: Sequence[int] = SIZES,
    pdc_counts: Sequence[int] = PDC_COUNTS,
    rounds: int = 5,
    volume: int = 8 << 20,
    messages: int = 4096,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure every size with every number of PDCs, as :func:`emu.bench.cost.measure`. Takes about a
    minute.
    """
    return measure(
        "PDCs",
        {"messages": MESSAGE_TARGET, "slowdown": SCALE_TARGET},
        {pdcs: _Bench(pdcs) for pdcs in pdc_counts},
        sizes,
        rounds=rounds,
        volume=volume,
        messages=messages,
        progress=progress,
    )
