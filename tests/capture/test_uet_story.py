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
from emu.nic.work import Opcode, SendMode, Sge, Status, Transport
from emu.uet import Parameters
from emu.uet.tss_keys import SecureDomain
from emu.wire import uet
from emu.wire.uet_names import PdsType
from emu.wire.uet_profile import Profile, Trailer
from tests.capture.tshark_program import require_scripts, run_tshark
from tests.capture.uet_comparison import assert_tshark_agrees, complaints_of, fields, number
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Net, Nic, Qp, pair
from tests.uet.test_tagged import Tags
from tests.uet.test_uud import Rig

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


def recorded(net: Net) -> list[bytes]:
    """Every frame sent in ``net`` from now on."""
    frames: list[bytes] = []
    carry = net.carry

    def record(sender: Nic, number: int, frame: bytes) -> None:
        frames.append(frame)
        carry(sender, number, frame)

    net.carry = record  # type: ignore[method-assign]
    return frames


def written(path: Path, frames: list[bytes]) -> Path:
    """A capture of ``frames`` one microsecond apart."""
    with PcapngWriter(path, application="t") as writer:
        port = writer.add_interface(LinkType.ETHERNET, "tap")
        for number, frame in enumerate(frames, 1):
            writer.add_packet(port, number * US, frame)
    return path


def test_tshark_tells_of_every_kind_of_send(tmp_path: Path) -> None:
    """With a receive element ready, and with one that comes later: unexpected, fetched, called off."""
    require_scripts()
    octets: list[bytes] = []
    for mode in SendMode:
        for tag in (None, 0x1234):
            for early in (False, True):
                # A sender that nobody waits for asks again after 10 ms.
                tags = Tags(min_rnr_timer=20)
                sent = recorded(tags.net)
                if early:
                    tags.receive(tag)
                for length in (100, 5000):
                    tags.send(tag, length, mode)
                for index in range(early, 2):
                    tags.receive(tag, index=index)
                tags.settle()
                assert [status for _, status in tags.a.host.statuses] == [Status.SUCCESS] * 2
                octets += sent
    frames = [Ether(frame) for frame in octets]
    path = written(tmp_path / "a.pcapng", octets)
    seen = assert_tshark_agrees(path, frames)
    assert [complaints_of(frame) for frame in frames] == [[]] * len(frames)
    assert "uet.ses.rendv_ext_hdr.eager_length" in seen
    opcodes = {frame[uet.StdRequest].opcode for frame in frames if uet.StdRequest in frame}
    # Sends of every kind, reads by which a rendezvous is fetched, and what asks for a deferred send again.
    assert {5, 6, 8, 9, 10, 11, 2, 12} <= opcodes
    wrong = "uet.short || uet.length || uet.impossible || _ws.malformed || _ws.lua.error"
    assert run_tshark(path, "-Y", wrong) == []


def test_tshark_tells_of_datagrams(tmp_path: Path) -> None:
    require_scripts()
    rig = Rig()
    octets = recorded(rig.net)
    rig.b.post_receive(0, 200, BASE, RKEY)
    for length in (0, 16, 100):
        rig.send(length, Opcode.SEND_IMM, immediate=length)
    path = written(tmp_path / "a.pcapng", octets)
    assert len(octets) == 3
    assert_tshark_agrees(path, [Ether(frame) for frame in octets])
    found = fields(path, "uet.pds.type", "uet.ses.std.opcode", "uet.payload", "_ws.expert.message")
    assert [(number(kind[0]), number(opcode[0])) for kind, opcode, _, _ in found] == [(6, 7)] * 3
    assert [len(payload[0]) // 2 if payload else 0 for _, _, payload, _ in found] == [0, 16, 100]
    assert [told for *_, told in found] == [[]] * 3
