# SPDX-License-Identifier: Apache-2.0
"""Anything at all on UET's port: whatever it is, nothing but counters changes, and work goes on."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS, US
from emu.nic.work import Opcode, Status, Transport
from emu.uet import NsccConfig, Parameters
from emu.uet.headers import PDS_SIZES
from emu.uet.path import PeerPath
from emu.uet.tss_keys import SecureDomain
from emu.wire.uet_names import NextHeader, PdsType, RequestOpcode
from emu.wire.uet_profile import Profile, Trailer
from tests.roce.bench import RKEY
from tests.uet.bench import Nic, pair

PARAMETERS = {
    "udp": Parameters(),
    "crc": Parameters(wire=Profile(trailer=Trailer.CRC)),
    "native": Parameters(wire=Profile(over_udp=False)),
    "secured": Parameters(security=SecureDomain((bytes(range(32)),))),
}
TRAFFIC_CLASSES = [0, 2, 3, 16 << 2 | 2, 18 << 2 | 2, 46 << 2]
STRANGER = 0x77
PDCS_MAX = 64
FABRIC = NsccConfig(base_rtt_ns=12 * US, bytes_per_second=12_500_000_000)
"""A window of some packets: a stranger gets no more credit than that at a time."""
_SES = {NextHeader.REQUEST_STD: 44, NextHeader.REQUEST_MEDIUM: 32, NextHeader.REQUEST_SMALL: 20}


def plausible(draw: random.Random, qpn: int) -> bytes:
    """A packet with a header chain that fits, most of it at random; requests often name the queue pair.

    The upper half of a memory key is never that of a region here.
    """
    kind = draw.choice([*PdsType, draw.randrange(32)])
    following = draw.choice(list(NextHeader))
    octets = bytearray(draw.randbytes(140))
    flags = draw.choice([0, 4, 8, 0x0C, 0x10, draw.getrandbits(7)])
    struct.pack_into(">H", octets, 0, (kind & 0x1F) << 11 | following << 7 | flags)
    at = PDS_SIZES.get(kind, 12)
    size = _SES.get(following, 12)
    if draw.random() < 0.7:
        # No reserved bits, whole messages, the right job and queue pair.
        octets[at] = draw.choice(list(RequestOpcode))
        octets[at + 1] = draw.choice([0x0B, 0x03, 0x0F, 0x09, 0x0A])
        struct.pack_into(">HIHH", octets, at + 2, draw.choice([1, 100]), 1, qpn >> 12, qpn & 0xFFF)
        if following == NextHeader.REQUEST_STD:
            struct.pack_into(">I", octets, at + 40, draw.choice([0, 1, 8, 20, 5000]))
    if following in (NextHeader.REQUEST_STD, NextHeader.REQUEST_MEDIUM):
        octets[at + 24] |= 0x80
    length = draw.choice([at, at + size, at + size + 4, at + size + 8, draw.randrange(len(octets))])
    return bytes(octets[: max(length, 4)])


def ends(parameters: Parameters) -> tuple[Nic, PeerPath]:
    """A NIC that does some work with a peer, and the way to it from somebody else."""
    parameters = replace(parameters, max_pdcs=PDCS_MAX, nscc=FABRIC)
    net, a, b = pair(Transport.UET_RUD, parameters=parameters)
    a.post(Opcode.WRITE, 16)
    net.scheduler.run(until=MS)
    # From an address without a queue pair, so that no guess can hit a context of the pair.
    stranger = bytes((2, 0, 0, 0, 0, STRANGER)), b.nic.mac, bytes((10, 77, 0, STRANGER)), b.nic.ip
    return b.nic, PeerPath(*stranger, parameters.wire)


@pytest.mark.parametrize("kind", PARAMETERS)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.lists(st.binary(min_size=1, max_size=90), max_size=4),
    st.sampled_from(TRAFFIC_CLASSES),
)
def test_nothing_but_counters_changes(kind: str, seed: int, bodies: list[bytes], tos: int) -> None:
    nic, path = ends(PARAMETERS[kind])
    (qp,) = nic.qps.values()
    net = nic.net
    (peer,) = [other.qps[number] for other in net.nics.values() if other is not nic for number in other.qps]
    draw = random.Random(seed)
    before = bytes(qp.host.regions[RKEY].data)
    packets = [*bodies, *(plausible(draw, qp.host.qpn) for _ in range(12))]
    draw.shuffle(packets)
    for body in packets:
        frame = path.frame(tos, 0xC000, body)
        damaged = draw.random() < 0.1
        nic.deliver(frame[: draw.randrange(len(frame))] if damaged else frame)
        net.scheduler.run(until=net.scheduler.now() + draw.randrange(MS))
    assert len(nic.fep.pdcs) <= PDCS_MAX
    if kind == "secured":
        assert len(nic.drops) == len(packets)
        assert not any(frame[:6] == path.source_mac for frame in nic.sent)
    net.scheduler.run(until=net.scheduler.now() + 10 * MS)
    assert qp.host.regions[RKEY].data == before
    assert not qp.host.completions
    assert qp.host.moves == []
    assert qp.host.atomics == 0
    peer.post(Opcode.WRITE, 16)
    net.scheduler.run(until=net.scheduler.now() + 500 * MS)
    assert peer.host.statuses[-1][1] is Status.SUCCESS


def test_what_is_plausible_gets_to_every_part() -> None:
    """The generator is no use if all it makes is refused at the door."""
    draw = random.Random(1)
    nic, path = ends(PARAMETERS["udp"])
    (qp,) = nic.qps.values()
    for _ in range(1500):
        nic.deliver(path.frame(2, 0xC000, plausible(draw, qp.host.qpn)))
        nic.net.scheduler.run(until=nic.net.scheduler.now() + 10_000)
    answers = {packet.kind for packet in nic.packets()}
    assert {PdsType.ACK_CC, PdsType.NACK, PdsType.RUDI_RESP} <= answers
    refused = {packet.word >> 8 for packet in nic.packets() if packet.is_nack}
    assert len(refused) >= 4
    assert len({drop.reason for drop in nic.drops}) >= 8


def test_a_peer_that_asks_for_all_there_is_gets_a_window_of_credit() -> None:
    nic, path = ends(PARAMETERS["udp"])
    request = bytearray(16)
    struct.pack_into(">HhIHHI", request, 0, PdsType.RUD_CC_REQ << 11 | 0x0C, -1, 7, 9, 0, 0x7FFFFF)
    nic.deliver(path.frame(2, 0xC000, bytes(request)))
    nic.net.scheduler.run(until=nic.net.scheduler.now() + 100 * MS)
    credits = [packet for packet in nic.packets() if packet.kind == PdsType.CP and packet.following == 7]
    window = 1.5 * FABRIC.bytes_per_second * FABRIC.base_rtt_ns / 1e9
    # A stock of one round trip comes unasked.
    assert 0 < len(credits) <= 2 * window / 4096
