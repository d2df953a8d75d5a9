# SPDX-License-Identifier: Apache-2.0
"""Two whole NICs under one capture: the file tells what happened, in order, and tshark agrees."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.capture.capture import Capture
from emu.capture.events_format import decode
from emu.capture.pcapng import Direction
from emu.capture.reader import PacketRecord, PcapngReader
from emu.capture.summary import summarize
from emu.events import Kind
from emu.nic.work import Opcode, Status
from emu.transport.loop import Loop
from emu.transport.model import DeviceModel
from tests.capture.tshark_program import run_tshark
from tests.personality.test_device import Lab, pattern
from tests.vfio_user import Client

LENGTH = 10_000


def captured_write(
    path: Path, loop: Loop, connect: Callable[[DeviceModel], Client], *, loss: float = 0.0, gid_index: int = 1
) -> list[PacketRecord]:
    """One WRITE of LENGTH bytes from node1 to node2, and what the capture says about it."""
    lab = Lab(loop, connect, loss)
    # 4 s where nothing is lost: on a busy machine the usual 17 ms run out and packets are sent again.
    qp, cq, _, _ = lab.pair(gid_index=gid_index, timeout=12 if loss else 20)
    a, b = lab.a.driver, lab.b.driver
    source, target = a.allocate(LENGTH), b.allocate(LENGTH)
    lab.a.machine.store(source, pattern(LENGTH, 5))
    with Capture(path, loop, lab.events, ports=["node1.nic0", "node2.nic0"]):
        qp.post(
            Opcode.WRITE,
            remote_address=b.virtual(target),
            rkey=b.key,
            length=LENGTH,
            local_address=a.virtual(source),
            lkey=a.key,
        )
        qp.ring()
        (cqe,) = lab.await_cqes(cq)
    assert cqe.status == Status.SUCCESS
    assert lab.b.machine.load(target, LENGTH) == pattern(LENGTH, 5)
    with PcapngReader(path) as reader:
        records = list(reader)
    assert reader.damage == ""
    return records


def first(story: list[str], line: str) -> int:
    assert line in story, story
    return story.index(line)


def test_a_write_is_told_from_doorbell_to_completion(
    tmp_path: Path, loop: Loop, vfio_client: Callable[[DeviceModel], Client]
) -> None:
    story = []
    for record in captured_write(tmp_path / "a.pcapng", loop, vfio_client):
        if record.interface.name == "events":
            event = decode(record.data)
            story.append(f"{event.function} {event.kind.name}")
        else:
            story.append(f"{record.interface.name} {record.direction.name}")
    steps = [
        "node1.nic0 DOORBELL",
        "node1.nic0 WQE_FETCH",
        "node1.nic0 OUTBOUND",
        "node2.nic0 INBOUND",
        "node2.nic0 DMA_WRITE",
        "node2.nic0 OUTBOUND",
        "node1.nic0 INBOUND",
        "node1.nic0 CQE",
    ]
    places = [first(story, step) for step in steps]
    assert places == sorted(places)


def test_stamps_and_sequence_numbers_run_forward(
    tmp_path: Path, loop: Loop, vfio_client: Callable[[DeviceModel], Client]
) -> None:
    records = captured_write(tmp_path / "a.pcapng", loop, vfio_client)
    times = [record.time for record in records]
    assert times == sorted(times)
    summary = summarize(tmp_path / "a.pcapng")
    forth = next(flow for flow in summary.flows if flow.sender == "node1.nic0")
    requests = forth.sent.requests
    assert requests.first is not None and requests.last is not None
    assert forth.sent.packets == (requests.last - requests.first) % (1 << 24) + 1
    assert forth.sent.payload == forth.received.payload == LENGTH
    assert (forth.lost, summary.retransmitted, summary.bad_icrc, summary.other_frames) == (0, 0, 0, 0)
    assert len(forth.source_qpns) == 1


@pytest.mark.parametrize("gid_index", [0, 1], ids=["ipv6", "ipv4"])
def test_tshark_agrees_frame_by_frame(
    tmp_path: Path, loop: Loop, vfio_client: Callable[[DeviceModel], Client], gid_index: int
) -> None:
    path = tmp_path / "a.pcapng"
    records = captured_write(path, loop, vfio_client, gid_index=gid_index)
    fields = ("-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "_ws.malformed")
    shown = run_tshark(path, "-Y", "infiniband && frame.packet_flags_direction == 2", "-T", "fields", *fields)
    rows = [line.split("\t") for line in shown]
    frames = [r for r in records if r.direction is Direction.OUTBOUND]
    assert len(rows) == len(frames) >= 4
    assert not any(row[2] for row in rows)
    requests = [(int(row[0]), int(row[1])) for row in rows if int(row[0]) != 0x11]
    opcodes = [opcode for opcode, _ in requests]
    assert opcodes == [0x06, *[0x07] * (len(opcodes) - 2), 0x08]
    assert [psn - requests[0][1] for _, psn in requests] == list(range(len(requests)))


@pytest.mark.parametrize("gid_index", [0, 1], ids=["ipv6", "ipv4"])
def test_every_icrc_is_right_by_another_computation(
    tmp_path: Path, loop: Loop, vfio_client: Callable[[DeviceModel], Client], gid_index: int
) -> None:
    records = captured_write(tmp_path / "a.pcapng", loop, vfio_client, gid_index=gid_index)
    frames = [r.data for r in records if r.direction is not Direction.UNKNOWN]
    assert frames
    for frame in frames:
        size = 40 if gid_index == 0 else 20
        masks = (
            {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF}
            if gid_index == 0
            else {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF}
        )
        masks |= {size + 6: 0xFF, size + 7: 0xFF, size + 8 + 4: 0xFF}
        length = int.from_bytes(frame[14 + size + 4 : 14 + size + 6])
        octets = bytearray(frame[14 : 14 + size + length])
        for place, mask in masks.items():
            octets[place] |= mask
        assert zlib.crc32(b"\xff" * 8 + octets[:-4]).to_bytes(4, "little") == octets[-4:]


def test_loss_shows_as_drops_and_retransmissions(
    tmp_path: Path, loop: Loop, vfio_client: Callable[[DeviceModel], Client]
) -> None:
    records = captured_write(tmp_path / "a.pcapng", loop, vfio_client, loss=0.2)
    summary = summarize(tmp_path / "a.pcapng")
    forth = next(flow for flow in summary.flows if flow.sender == "node1.nic0")
    assert summary.retransmitted > 0
    assert forth.lost > 0
    events = [decode(r.data) for r in records if r.interface.name == "events"]
    drops = [e.text for e in events if e.kind is Kind.FRAME_DROP and "lost" in e.text]
    assert drops and all(text.startswith("RC ") for text in drops)
    assert any(e.kind is Kind.RETRANSMIT for e in events)
