# SPDX-License-Identifier: Apache-2.0
"""A capture of two UET endpoints over a bad link reads as what happened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether

from emu.capture.pcapng import LinkType
from emu.capture.writer import PcapngWriter
from emu.clock import MS, US
from emu.nic.work import Opcode, Sge, Status, Transport
from emu.wire import uet
from tests.capture.tshark_program import require_scripts, run_tshark
from tests.capture.uet_comparison import assert_tshark_agrees, complaints_of, fields
from tests.roce.bench import BASE, LKEY
from tests.uet.bench import LATENCY, Nic, Qp, pair

WORK = [
    Opcode.WRITE,
    Opcode.SEND,
    Opcode.READ,
    Opcode.ATOMIC_ADD,
    Opcode.WRITE_IMM,
    Opcode.READ,
    Opcode.WRITE,
]
LENGTHS = [5000, 700, 3000, 8, 1024, 16, 0]


def tapped(path: Path, transport: Transport, loss: float) -> tuple[list[bytes], Qp]:
    """Do some work over a link that, with ``loss``, also reorders; the capture has every frame sent."""
    draw = random.Random(11)
    frames: list[bytes] = []
    with PcapngWriter(path, application="t") as writer:
        port = writer.add_interface(LinkType.ETHERNET, "tap")

        def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
            frames.append(frame)
            writer.add_packet(port, sender.net.scheduler.now(), frame)
            delay = LATENCY + (draw.randrange(30) * US if loss else 0)
            return [] if draw.random() < loss else [(delay, frame)]

        net, a, b = pair(transport, impair)
        for index, (opcode, length) in enumerate(zip(WORK, LENGTHS, strict=True)):
            if opcode in (Opcode.SEND, Opcode.WRITE_IMM):
                b.post_receive(index, length)
            pieces = [Sge(BASE, length, LKEY)] if length else []
            a.post(opcode, length, sges=pieces, immediate=index, swap_add=1)
        net.scheduler.run(until=60_000 * MS)
        net.scheduler.run()
    return frames, a


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
def test_tshark_tells_what_the_endpoints_did(tmp_path: Path, transport: Transport, loss: float) -> None:
    require_scripts()
    path = tmp_path / "a.pcapng"
    octets, a = tapped(path, transport, loss)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(WORK))]
    frames = [Ether(frame) for frame in octets]
    assert_tshark_agrees(path, frames)
    assert [complaints_of(frame) for frame in frames] == [[]] * len(frames)
    wrong = "uet.short || uet.length || uet.crc_bad || _ws.malformed || _ws.lua.error || udp.checksum.bad"
    assert run_tshark(path, "-Y", wrong) == []

    names = ("uet.pds.retransmission_of", "uet.pds.request_in", "uet.pds.acked_in")
    links = fields(path, *names, more=("-2", "-R", "frame"))
    for position, (frame, (original, request, acked)) in enumerate(zip(frames, links, strict=True)):
        packet = frame[uet.UET]
        if isinstance(packet, uet.Request):
            assert bool(original) == bool(packet.retx)
            assert acked, "everything that was sent got through in the end"
        for number in original:
            first = frames[int(number) - 1][uet.UET]
            assert (first.psn, first.spdcid, first.retx) == (packet.psn, packet.spdcid, 0)
        for number in request:
            assert packet.answers(frames[int(number) - 1][uet.UET])
            assert int(number) <= position
    assert any(original for original, _, _ in links) == (loss > 0)
