# SPDX-License-Identifier: Apache-2.0
"""What a frame costs on the emulated wire, with the capture off and on, against copying it and taking its
CRC.

``python -m tests.bench.capture [--json] [--file PATH]``. All three are measured in turns in the same run, and
the best of the turns is taken, so the ratios hold on a shared machine. "off" is a frame that crosses two
links and the switch with nobody listening; "on" is the same with the frame in the capture twice and five
device events, as a small message has them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from emu.capture.capture import Capture
from emu.clock import VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.switch import Switch
from emu.wire.icrc import crc32

__all__ = ["main", "measure"]

SIZES = (78, 1082, 4154)
"""Frame bytes: a 16-byte WRITE, and full ones at path MTU 1024 and 4096."""

FRAMES = 2_000
TURNS = 7
_DEVICE_EVENTS = (Kind.DOORBELL, Kind.WQE_FETCH, Kind.DMA_READ, Kind.DMA_WRITE, Kind.CQE)
_DEVICE_BITS = sum(kind.bit for kind in _DEVICE_EVENTS)


class _Wire:
    """Two NICs on a switch that emit what real ones emit."""

    def __init__(self, size: int) -> None:
        self.scheduler = VirtualScheduler()
        self.bus = EventBus()
        switch = Switch(self.scheduler, self.bus)
        self.sender = switch.port("node0.nic0")
        self.receiver = switch.port("node1.nic0")
        self.receiver.attach(self._arrived)
        station = bytes.fromhex("027672000001"), bytes.fromhex("027672000002")
        # The switch has to know the receiver, or it floods.
        self.receiver.send(b"\xff" * 6 + station[1] + bytes(52))
        self.scheduler.run()
        self.frame = station[1] + station[0] + b"\x08\x00" + bytes(size - 14)

    def carry(self, count: int) -> None:
        """Send ``count`` frames in bursts of 32 and deliver them."""
        bus, now, frame, size = self.bus, self.scheduler.now, self.frame, len(self.frame)
        for start in range(0, count, 32):
            for index in range(start, min(start + 32, count)):
                if bus.mask & _DEVICE_BITS:
                    for kind in _DEVICE_EVENTS:
                        bus.emit(Event(kind, now(), "node0.nic0", 0x101, index, 0x1000, 64, 1, "a line"))
                if bus.mask & Kind.FRAME_OUT.bit:
                    bus.emit(Event(Kind.FRAME_OUT, now(), "node0.nic0", qpn=0x101, length=size, frame=frame))
                self.sender.send(frame)
            self.scheduler.run()

    def _arrived(self, frame: bytes) -> None:
        if self.bus.mask & Kind.FRAME_IN.bit:
            now = self.scheduler.now()
            self.bus.emit(Event(Kind.FRAME_IN, now, "node1.nic0", length=len(frame), frame=frame))


def _copy_and_crc(frame: bytes, count: int) -> None:
    for _ in range(count):
        crc32(bytes(bytearray(frame)))


def measure(size: int, path: Path, *, frames: int = FRAMES, turns: int = TURNS) -> dict[str, float]:
    """CPU nanoseconds per frame of ``size`` bytes: ``reference``, ``off`` and ``on``, and their ratios."""
    silent, captured = _Wire(size), _Wire(size)
    with Capture(path, captured.scheduler, captured.bus):
        jobs: dict[str, Callable[[], None]] = {
            "reference": lambda: _copy_and_crc(silent.frame, frames),
            "off": lambda: silent.carry(frames),
            "on": lambda: captured.carry(frames),
        }
        best = dict.fromkeys(jobs, float("inf"))
        for _ in range(turns):
            for name, job in jobs.items():
                start = time.process_time_ns()
                job()
                best[name] = min(best[name], (time.process_time_ns() - start) / frames)
    return {
        **best,
        "off_ratio": best["off"] / best["reference"],
        "on_ratio": best["on"] / best["reference"],
        "on_over_off": best["on"] / best["off"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of a frame with the capture off and on.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--file", type=Path, help="capture into this file (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "bench.pcapng"
        results = {size: measure(size, path) for size in SIZES}
    if options.json:
        print(json.dumps(results))
        return
    print("bytes  copy+CRC     off      on   off/ref   on/ref   on/off")
    for size, row in results.items():
        print(
            f"{size:5}  {row['reference']:5.0f} ns {row['off']:5.0f} ns {row['on']:5.0f} ns"
            f"  {row['off_ratio']:7.1f}  {row['on_ratio']:7.1f}  {row['on_over_off']:7.1f}"
        )


if __name__ == "__main__":
    main()
