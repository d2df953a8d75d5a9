# SPDX-License-Identifier: Apache-2.0
"""What a packet costs from requester to responder and back, as a ratio to copying it and taking its CRC.

Run as ``python -m tests.bench.roce_stream``. Two engines, no link: build, parse, place, acknowledge,
complete. Times are processor time, the best of several rounds.
"""

from __future__ import annotations

import time
from collections import deque

from emu.nic.engine import Engine
from emu.nic.work import Opcode, SendRequest, Sge
from emu.roce import RocePacket, parse
from emu.wire.icrc import crc32
from tests.roce.bench import BASE, LKEY, RKEY, Pair

__all__ = ["main", "measure"]

ROUNDS = 5
PACKETS = 8192
BURST = 16


class _Sink(list[bytes]):
    """Keeps nothing: the bench host records every frame, which is no part of the cost."""

    def append(self, frame: bytes, /) -> None:
        pass


def _raw(size: int) -> float:
    """Seconds per packet of one copy and one CRC."""
    source = bytearray(size)
    start = time.process_time()
    for _ in range(PACKETS):
        crc32(bytes(source))
    return (time.process_time() - start) / PACKETS


def _stream(message: int, mtu: int) -> float:
    """Seconds per data packet of a stream of WRITEs of ``message`` bytes, answers included."""
    pair = Pair(path_mtu=mtu)
    a, b = pair.a.engine, pair.b.engine
    there: deque[bytes] = deque()
    back: deque[bytes] = deque()
    pair.a.host.wire, pair.b.host.wire = there.append, back.append
    pair.a.host.sent, pair.b.host.sent = _Sink(), _Sink()
    data = bytes(mtu)
    pair.a.host.gather = lambda sges, offset, length: data[:length]  # type: ignore[method-assign]
    pair.b.host.write_remote = lambda rkey, address, data: None  # type: ignore[method-assign]
    messages = max(1, PACKETS * mtu // message)
    packets = 0
    start = time.process_time()
    for index in range(messages):
        a.post(
            SendRequest(
                index,
                Opcode.WRITE,
                length=message,
                sges=[Sge(BASE, message, LKEY)],
                remote_address=BASE,
                rkey=RKEY,
            )
        )
        if index % BURST != BURST - 1 and index != messages - 1:
            continue
        while not a.idle():
            a.transmit(0, BURST)
            packets += _deliver(there, b)
            while b.transmit(0, BURST):
                pass
            _deliver(back, a)
    return (time.process_time() - start) / packets


def _deliver(queue: deque[bytes], engine: Engine) -> int:
    count = 0
    while queue:
        packet = parse(queue.popleft())
        assert isinstance(packet, RocePacket)
        engine.receive(packet, 0)
        count += 1
    return count


def measure(message: int, mtu: int) -> tuple[float, float]:
    """(microseconds per data packet, ratio to a copy and CRC of its payload)."""
    cost = min(_stream(message, mtu) for _ in range(ROUNDS))
    return cost * 1e6, cost / min(_raw(mtu) for _ in range(ROUNDS))


def main() -> None:
    """Print a line per message size and MTU."""
    print("message   mtu   us/packet   x copy+CRC")
    for message, mtu in ((1024, 1024), (65536, 1024), (65536, 4096)):
        cost, ratio = measure(message, mtu)
        print(f"{message:7} {mtu:5} {cost:11.1f} {ratio:12.1f}")


if __name__ == "__main__":
    main()
