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
from emu.uet import Parameters
from emu.uet.tss_keys import SecureDomain
from emu.wire import uet
from emu.wire.uet_names import PdsType
from emu.wire.uet_profile import Profile, Trailer
from tests.capture.tshark_program import require_scripts, run_tshark
from tests.capture.uet_comparison import assert_tshark_agrees, complaints_of, fields, number
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


def tapped(
    path: Path, transport: Transport, loss: float, parameters: Parameters | None = None
) -> tuple[list[bytes], Qp]:
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

        net, a, b = pair(transport, impair, parameters)
        for index, (opcode, length) in enumerate(zip(WORK, LENGTHS, strict=True)):
            if transport is Transport.UET_RUDI and opcode is not Opcode.READ:
                # What may happen twice is all that this way has.
                opcode = Opcode.WRITE
            if opcode in (Opcode.SEND, Opcode.WRITE_IMM):
                b.post_receive(index, length)
            pieces = [Sge(BASE, length, LKEY)] if length else []
            a.post(opcode, length, sges=pieces, immediate=index, swap_add=1)
        net.scheduler.run(until=60_000 * MS)
        net.scheduler.run()
    return frames, a


NATIVE = Parameters(wire=Profile(over_udp=False))
CRC = Parameters(wire=Profile(trailer=Trailer.CRC))


@pytest.mark.parametrize(
    ("transport", "loss", "parameters"),
    [
        (Transport.UET_RUD, 0.0, None),
        (Transport.UET_RUD, 0.1, None),
        (Transport.UET_ROD, 0.0, None),
        (Transport.UET_ROD, 0.1, None),
        (Transport.UET_RUD, 0.1, NATIVE),
        (Transport.UET_RUD, 0.1, CRC),
    ],
)
def test_tshark_tells_what_the_endpoints_did(
    tmp_path: Path, transport: Transport, loss: float, parameters: Parameters | None
) -> None:
    require_scripts()
    path = tmp_path / "a.pcapng"
    octets, a = tapped(path, transport, loss, parameters)
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
        for place in original:
            first = frames[int(place) - 1][uet.UET]
            assert (first.psn, first.spdcid, first.retx) == (packet.psn, packet.spdcid, 0)
        for place in request:
            assert packet.answers(frames[int(place) - 1][uet.UET])
            assert int(place) <= position
    assert any(original for original, _, _ in links) == (loss > 0)


def test_tshark_links_requests_without_contexts_to_their_responses(tmp_path: Path) -> None:
    require_scripts()
    path = tmp_path / "a.pcapng"
    octets, a = tapped(path, Transport.UET_RUDI, 0.1)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(WORK))]
    frames = [Ether(frame) for frame in octets]
    assert_tshark_agrees(path, frames)
    found = fields(path, "uet.pds.request_in", "uet.pds.retransmission_of", more=("-2", "-R", "frame"))
    answers = repeats = 0
    for frame, (request, original) in zip(frames, found, strict=True):
        packet = frame[uet.UET]
        if packet.type == PdsType.RUDI_RESP:
            answers += 1
            assert packet.answers(frames[int(request[0]) - 1][uet.UET])
        elif packet.retx:
            repeats += 1
            assert frames[int(original[0]) - 1][uet.UET].pkt_id == packet.pkt_id
    assert answers > len(WORK) and repeats > 0


def test_of_secured_packets_tshark_tells_the_header(tmp_path: Path) -> None:
    require_scripts()
    path = tmp_path / "a.pcapng"
    domain = SecureDomain((bytes(range(32)),), sdi=0xABCDEF)
    octets, a = tapped(path, Transport.UET_RUD, 0.1, Parameters(security=domain))
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(WORK))]
    assert_tshark_agrees(path, [Ether(frame) for frame in octets])
    names = ("uet.tss.sdi", "uet.tss.tsc.counter", "uet.icv", "uet.encrypted")
    found = fields(path, *names, "ip.src")
    counters: dict[str, list[int]] = {}
    for octets_of, (sdi, counter, icv, encrypted, source) in zip(octets, found, strict=True):
        assert number(sdi[0]) == 0xABCDEF
        assert icv == [octets_of[-16:].hex()]
        assert encrypted == [octets_of[54:-16].hex()]
        counters.setdefault(source[0], []).append(number(counter[0]))
    assert [seen == list(range(len(seen))) for seen in counters.values()] == [True, True]
    wrong = "uet.short || uet.length || uet.impossible || _ws.malformed || _ws.lua.error"
    assert run_tshark(path, "-Y", wrong) == []
    assert run_tshark(path, "-T", "fields", "-e", "_ws.col.Info")[0].startswith("TSS sdi=")
