# SPDX-License-Identifier: Apache-2.0
"""What RoCEv2 costs: WRITEs between two engines in one process, without QEMU, core and link.

Both sides' work runs on the one thread: gather, build, parse, check, place, acknowledge, complete. How that
is measured, and against what, says :mod:`emu.bench.cost`.

What limits it now: small messages pay some twenty Python calls each for two frames (request and, for a burst,
one acknowledgement); of a 4 KiB packet the two CRCs and four copies of the payload are about a third.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from emu.bench.cost import BURST, MTU, Report, measure
from emu.bench.host import FIRST_QPN, KEY, WINDOW, BenchHost
from emu.nic.work import Access, Opcode, QpAttributes, QpState, SendRequest, Sge
from emu.roce import RcEngine, RocePacket, parse

__all__ = ["BULK_TARGET", "MESSAGE_TARGET", "SCALE_TARGET", "run_roce_bench"]

MESSAGE_TARGET = 60_000
"""64-byte WRITEs a second on one QP that the benchmark wants to see."""
BULK_TARGET = 0.5
"""GB/s of 1 MiB WRITEs on one QP."""
SCALE_TARGET = 0.15
"""Share that 4,096 QPs may be slower than one (64-byte WRITEs)."""

SIZES = (8, 64, 1024, 65536, 1 << 20)
QP_COUNTS = (1, 64, 4096)
BUDGET = 64


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


def run_roce_bench(
    *,
    sizes: Sequence[int] = SIZES,
    qp_counts: Sequence[int] = QP_COUNTS,
    rounds: int = 5,
    volume: int = 16 << 20,
    messages: int = 8192,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure every size with every number of queue pairs, as :func:`emu.bench.cost.measure`. Takes about a
    minute.
    """
    return measure(
        "QPs",
        {"messages": MESSAGE_TARGET, "gigabytes": BULK_TARGET, "slowdown": SCALE_TARGET},
        {qps: _Bench(qps) for qps in qp_counts},
        sizes,
        rounds=rounds,
        volume=volume,
        messages=messages,
        progress=progress,
    )
