# SPDX-License-Identifier: Apache-2.0
"""UET without UDP: an entropy header behind IP, in single frames and end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from emu.clock import MS
from emu.nic.engine import Drop
from emu.nic.work import Opcode, Status, Transport
from emu.uet import Parameters
from emu.uet.packet import Parser, UetPacket
from emu.uet.path import PeerPath
from emu.wire import uet
from emu.wire.congestion import trim
from emu.wire.uet_names import PdsType
from emu.wire.uet_profile import DEFAULT, Trailer
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import Nic, pair, perfect
from tests.wire.uet_vectors import FRAMES

NATIVE = replace(DEFAULT, over_udp=False)
A, B = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
MACS = bytes((2, 0, 0, 0, 0, 1)), bytes((2, 0, 0, 0, 0, 2))


def test_the_worked_example_is_built_and_taken_apart() -> None:
    profile = replace(NATIVE, trailer=Trailer.CRC)
    expected = FRAMES["E1N"]
    octets = expected[38:-4]
    assert PeerPath(*MACS, A, B, profile).frame(2, 0xC001, octets[:12], octets[12:]) == expected
    packet = Parser(profile).parse(expected)
    assert isinstance(packet, UetPacket)
    assert (packet.kind, packet.ev, packet.spdcid, packet.start_psn) == (2, 0xC001, 0x1234, 0x10000)
    # Transport size is from the entropy header through the trailer.
    assert packet.nominal == len(expected) - 34 + 40
    assert packet.frame[packet.end - 16 : packet.end] == bytes(range(16))


@pytest.mark.parametrize("version", [4, 6])
def test_frames_are_those_of_the_layers(version: int) -> None:
    addresses = (A, B) if version == 4 else (bytes(12) + A, bytes(12) + B)
    octets = bytes(uet.Control(ctl_type="NOOP", psn=1, spdcid=2, dpdcid=3))
    frame = PeerPath(*MACS, *addresses, NATIVE).frame(0xB8, 0xC001, octets)
    built = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    if version == 4:
        built /= IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB8, id=0, flags="DF", ttl=64)
    else:
        built /= IPv6(src="::10.0.0.1", dst="::10.0.0.2", tc=0xB8, hlim=64)
    built /= uet.Entropy(entropy=0xC001) / uet.Control(octets)
    assert bytes(built) == frame
    assert Ether(frame)[uet.Control].spdcid == 2


def test_each_side_drops_what_comes_the_other_way() -> None:
    octets = bytes(uet.Control(ctl_type="NOOP", psn=1, spdcid=2, dpdcid=3))
    for sent, expected in ((DEFAULT, NATIVE), (NATIVE, DEFAULT)):
        found = Parser(expected).parse(PeerPath(*MACS, A, B, sent).frame(0, 0xC001, octets))
        assert isinstance(found, Drop) and found.foreign
    short = PeerPath(*MACS, A, B, NATIVE).frame(0, 0xC001, b"")
    for frame in (short, short[:-2], short[:-4] + bytes(60)):
        assert isinstance(Parser(NATIVE).parse(frame), Drop)


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD, Transport.UET_RUDI])
@pytest.mark.parametrize("trailer", list(Trailer))
def test_work_runs_without_udp(transport: Transport, trailer: Trailer) -> None:
    profile = replace(NATIVE, trailer=trailer)

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        # Some are lost, some cut by a switch.
        if number % 7 == 3:
            return []
        return perfect(sender, number, (trim(frame, profile=profile) or frame) if number % 5 == 2 else frame)

    net, a, b = pair(transport, impair, Parameters(wire=profile))
    payload = bytes(range(250)) * 24
    a.host.regions[LKEY].data[: len(payload)] = payload
    a.post(Opcode.WRITE, len(payload))
    a.post(Opcode.READ, 3000)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert b.host.regions[RKEY].data[: len(payload)] == payload
    assert not any(Ether(frame).haslayer(UDP) for frame in a.nic.sent)
    nacks = [packet for packet in b.nic.packets() if packet.kind == PdsType.NACK]
    assert nacks, "trimmed packets are refused"
