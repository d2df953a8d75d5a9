# SPDX-License-Identifier: Apache-2.0
"""The capture tells the lab's story in order, and outlives kills and full disks."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emu.capture.capture import FLUSH_NS, Capture
from emu.capture.events_format import decode
from emu.capture.pcapng import Direction, LinkType
from emu.capture.reader import PacketRecord, PcapngReader
from emu.clock import VirtualScheduler
from emu.events import Event, EventBus, Kind
from tests.capture.sample import ACK, SEND, WRITE, Stage
from tests.capture.tshark_program import require_tshark, run_tshark

ROOT = Path(__file__).parents[2]


def read(path: Path) -> list[PacketRecord]:
    with PcapngReader(path) as reader:
        records = list(reader)
    assert reader.damage == ""
    return records


def test_frames_and_events_interleave_as_they_happened(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng", ports=["node0.nic0", "node1.nic0"])
    stage.emit(Kind.DOORBELL, qpn=0x101, index=7)
    stage.carry(WRITE)
    stage.emit(Kind.CQE, "node1.nic0", qpn=0x12, index=0)
    stage.capture.close()
    told = [(r.interface.name, r.direction, (r.time - Stage.EPOCH) // 1000) for r in read(stage.path)]
    assert told == [
        ("events", Direction.UNKNOWN, 1),
        ("node0.nic0", Direction.OUTBOUND, 2),
        ("node1.nic0", Direction.INBOUND, 3),
        ("events", Direction.UNKNOWN, 4),
    ]


def test_events_come_back_whole(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.emit(Kind.DMA_WRITE, "node1.nic0", address=0x1000, length=64, text="payload")
    stage.capture.close()
    (record,) = read(stage.path)
    assert record.interface.link_type == LinkType.USER0
    assert decode(record.data) == Event(
        Kind.DMA_WRITE, 0, "node1.nic0", address=0x1000, length=64, text="payload"
    )


def test_ports_named_beforehand_keep_their_order_and_others_follow(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng", ports=["b", "a"])
    stage.carry(SEND, "c", "a")
    stage.capture.close()
    with PcapngReader(stage.path) as reader:
        assert len(list(reader)) == 2
    assert [i.name for i in reader.interfaces] == ["events", "b", "a", "c"]


def test_stamps_never_go_backwards(tmp_path: Path) -> None:
    scheduler, bus = VirtualScheduler(), EventBus()
    with Capture(tmp_path / "a.pcapng", scheduler, bus, 100) as capture:
        for stamp in (50, 40, 60, 0):
            bus.emit(Event(Kind.DOORBELL, stamp, "n0"))
    assert [r.time for r in read(Path(capture.path))] == [150, 150, 160, 160]


def test_the_wall_clock_is_the_default(tmp_path: Path) -> None:
    scheduler, bus = VirtualScheduler(start=5_000), EventBus()
    before = time.time_ns()
    with Capture(tmp_path / "a.pcapng", scheduler, bus):
        after = time.time_ns()
        bus.emit(Event(Kind.DOORBELL, scheduler.now(), "n0"))
    (record,) = read(tmp_path / "a.pcapng")
    assert before <= record.time <= after


def test_the_queue_pair_of_a_frame_is_its_queue(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.emit(Kind.FRAME_OUT, frame=SEND, qpn=0x11)
    stage.emit(Kind.FRAME_IN, frame=SEND)
    stage.capture.close()
    assert [r.queue for r in read(stage.path)] == [0x11, None]
    shown = run_tshark(stage.path, "-T", "fields", "-e", "frame.interface_queue", plain=True)
    assert [int(line) if line else None for line in shown] == [0x11, None]


def test_a_dropped_frame_is_an_event_that_names_the_packet(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(WRITE, lost=True)
    stage.emit(Kind.FRAME_DROP, frame=b"\xff" * 20, text="lost")
    stage.capture.close()
    frame, drop, other = read(stage.path)
    assert (frame.interface.name, frame.direction) == ("node0.nic0", Direction.OUTBOUND)
    assert decode(drop.data).text == "RC WRITE ONLY to QP 0x12 PSN 259; lost"
    assert decode(other.data).text == "lost"


def test_only_the_kinds_asked_for_are_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng", kinds=[Kind.FRAME_OUT, Kind.CQE])
    assert stage.bus.mask == Kind.FRAME_OUT.bit | Kind.CQE.bit
    stage.carry(SEND)
    stage.emit(Kind.CQE)
    stage.emit(Kind.DOORBELL)
    stage.capture.close()
    assert len(read(stage.path)) == 2
    assert stage.bus.mask == 0


def test_the_file_is_readable_from_the_start_and_current_after_the_flush_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    assert read(stage.path) == []
    stage.carry(SEND)
    assert read(stage.path) == []
    stage.scheduler.run(until=stage.scheduler.now() + FLUSH_NS)
    assert len(read(stage.path)) == 2
    stage.carry(SEND)
    stage.capture.flush()
    assert len(read(stage.path)) == 4
    stage.scheduler.run()
    stage.carry(ACK)
    stage.scheduler.run()
    assert len(read(stage.path)) == 6


def test_close_ends_it_for_good(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(SEND)
    stage.capture.close()
    size = stage.path.stat().st_size
    stage.capture.close()
    stage.carry(SEND)
    stage.scheduler.run()
    assert stage.path.stat().st_size == size
    assert stage.capture.snapshot() == {"frames": 2, "events": 0, "octets": size, "lost": 0, "stopped": 0}


def test_statistics_at_the_end_satisfy_tshark(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(SEND)
    stage.capture.close()
    assert len(run_tshark(stage.path, plain=True)) == 2


def test_the_size_limit_stops_the_capture_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path / "a.pcapng", max_octets=1000)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            stage.carry(SEND)
            stage.capture.flush()
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage() == (
        f"capture {stage.path} stopped: it has reached its limit of 1000 bytes; the device goes on without it"
    )
    stage.capture.close()
    taken = len(read(stage.path))
    assert 0 < taken < 40
    assert stage.capture.lost == 40 - taken
    assert stage.capture.snapshot()["stopped"] == 1


FILE_LIMIT = 40_000


def fill_until_refused(path: Path) -> None:
    """Runs in a process of its own: capture into a file that may not grow beyond FILE_LIMIT."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))
    stage = Stage(path)
    for _ in range(500):
        stage.carry(SEND)
        stage.scheduler.run(until=stage.scheduler.now() + FLUSH_NS)
    print(stage.capture.lost, stage.capture.snapshot()["stopped"])
    stage.capture.close()


def python(call: str) -> list[str]:
    """The words that run one function of this module in a process of its own."""
    return [sys.executable, "-c", f"from tests.capture.test_capture import *\n{call}"]


def test_a_file_that_cannot_grow_ends_the_capture_not_the_device(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    words = python(f"fill_until_refused(Path({str(path)!r}))")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("stopped: File too large; the device goes on without it") == 1
    lost, stopped = map(int, done.stdout.split())
    assert stopped == 1
    taken = len(read(path))
    assert taken > 0 and taken + lost == 1000
    assert FILE_LIMIT - 200 < path.stat().st_size <= FILE_LIMIT


def test_a_full_disk_ends_the_capture_not_the_device(caplog: pytest.LogCaptureFixture) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with caplog.at_level(logging.WARNING):
        stage = Stage(Path("/dev/full"))
        for _ in range(10):
            stage.carry(SEND)
            stage.capture.flush()
    assert [r.getMessage() for r in caplog.records] == [
        "capture /dev/full stopped: No space left on device; the device goes on without it"
    ]
    assert stage.capture.lost == 20
    stage.capture.close()


def capture_for_ever(path: Path) -> None:
    """Runs in a process of its own until it is killed; says when the first write is out."""
    stage = Stage(path)
    said = False
    while True:
        for _ in range(50):
            stage.emit(Kind.DOORBELL, qpn=1, index=2, text="a doorbell")
            stage.carry(WRITE)
        stage.scheduler.run()
        if not said:
            print("writing", flush=True)
            said = True


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_writer_leaves_a_file_that_tshark_reads(tmp_path: Path, attempt: int) -> None:
    require_tshark()
    path = tmp_path / "a.pcapng"
    words = python(f"capture_for_ever(Path({str(path)!r}))")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
    with PcapngReader(path) as reader:
        count = sum(1 for _ in reader)
    assert count >= 150
    lines = run_tshark(path, "-T", "fields", "-e", "frame.number", plain=True)
    assert len(lines) == count
