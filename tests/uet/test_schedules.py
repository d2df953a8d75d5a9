# SPDX-License-Identifier: Apache-2.0
"""Any work over any link: loss, reorder between and within paths, duplication, in virtual time.

What must hold whatever happens: every element completes once and in order, every byte is where it belongs,
each packet reaches semantics at most once, and the initiator ends without a PDC.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS
from emu.nic.work import CompletionOpcode, Opcode, Sge, Status, Transport
from emu.uet.headers import RequestHeader
from emu.uet.outgoing import Verdict
from emu.uet.packet import UetPacket
from emu.uet.pdc import Pdc
from emu.uet.psn import distance
from emu.wire.uet_names import PdsType
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import LATENCY, Impairment, Nic, decode, pair

COUNTER = 0xFFF8
RESULTS = 0xF000
WORK = st.tuples(
    st.sampled_from(
        [Opcode.WRITE, Opcode.WRITE, Opcode.WRITE_IMM, Opcode.SEND, Opcode.READ, Opcode.ATOMIC_ADD]
    ),
    st.sampled_from([0, 1, 8, 16, 17, 1024, 1025, 5000]),
    st.integers(0, 3),
)


@dataclass
class Weather:
    """A link that loses, repeats and delays at random."""

    seed: int
    loss: float
    repeat: float
    jitter: int

    def impairment(self) -> Impairment:
        """As the bench wants it."""
        draw = random.Random(self.seed)

        def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
            copies = 0 if draw.random() < self.loss else 1
            copies += draw.random() < self.repeat
            return [(LATENCY + draw.randrange(self.jitter + 1), frame) for _ in range(copies)]

        return impair


WEATHER = st.builds(
    Weather,
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.0, 0.02, 0.1, 0.2]),
    repeat=st.sampled_from([0.0, 0.1]),
    jitter=st.sampled_from([0, 5000, 3 * MS]),
)


class Watch:
    """Sees what each PDC hands to semantics: no PSN twice, and in order where that is promised."""

    def __init__(self, nic: Nic) -> None:
        self._request = nic.fep.request
        self._seen: dict[int, set[int]] = {}
        nic.fep.request = self.request  # type: ignore[method-assign]

    def request(self, packet: UetPacket, header: RequestHeader, pdc: Pdc | None) -> Verdict:
        """As the endpoint's."""
        assert pdc is not None
        seen = self._seen.setdefault(id(pdc), set())
        assert packet.psn not in seen, "a packet reached semantics twice"
        if pdc.rod:
            assert distance(packet.psn, pdc.start_psn) == len(seen), "out of order on ROD"
        seen.add(packet.psn)
        return self._request(packet, header, pdc)


def check_headers(nic: Nic) -> None:
    """Ids are never 0 where they must not be, and CLEAR_PSN stays behind the packet that carries it."""
    for packet in nic.packets():
        assert packet.spdcid or packet.is_nack
        if packet.is_request and not packet.syn:
            assert packet.dpdcid
            assert packet.offset < 0


def play(transport: Transport, weather: Weather, work: list[tuple[Opcode, int, int]]) -> None:
    """Post ``work`` at one end while the weather rages, and check everything."""
    net, a, b = pair(transport, weather.impairment())
    Watch(b.nic)
    outbox, inbox = a.host.regions[LKEY].data, b.host.regions[RKEY].data
    a.host.memory(LKEY, 1 << 17)
    outbox = a.host.regions[LKEY].data
    outbox[: 1 << 16] = random.Random(weather.seed).randbytes(1 << 16)
    written: dict[int, bytes] = {}
    taken: list[tuple[int, CompletionOpcode, int, int | None]] = []
    adds = 0
    for index, (opcode, length, pause) in enumerate(work):
        at = index * 0x1400
        piece = [Sge(BASE + at, length, LKEY)] if length else []
        if opcode is Opcode.ATOMIC_ADD:
            result = [Sge(BASE + 0x10000 + 8 * index, 8, LKEY)]
            a.post(opcode, 8, sges=result, remote_address=BASE + COUNTER, swap_add=1)
            adds += 1
        elif opcode is Opcode.READ:
            result = [Sge(BASE + 0x11000, length, LKEY)] if length else []
            a.post(opcode, length, sges=result, remote_address=BASE)
        else:
            if opcode is not Opcode.WRITE:
                kind = CompletionOpcode.RECV if opcode is Opcode.SEND else CompletionOpcode.RECV_WRITE_IMM
                immediate = None if opcode is Opcode.SEND else index
                taken.append((len(taken), kind, length, immediate))
                b.post_receive(len(taken) - 1, length, BASE + at, RKEY)
            a.post(opcode, length, sges=piece, remote_address=BASE + at, immediate=index)
            written[at] = bytes(outbox[at : at + length])
        net.scheduler.run(until=net.scheduler.now() + pause * MS)
    net.scheduler.run(until=net.scheduler.now() + 60_000 * MS)
    assert a.host.statuses == [(index, Status.SUCCESS) for index in range(len(work))]
    done = [(found.index, found.opcode, found.length, found.immediate) for found in b.host.completions]
    assert done == taken
    for at, octets in written.items():
        assert inbox[at : at + len(octets)] == octets
    assert b.host.atomics == adds
    check_headers(a.nic)
    check_headers(b.nic)
    assert not a.nic.fep.pdcs
    # A close command that is lost for good leaves the target's end; it goes when its room is needed.
    assert len(b.nic.fep.pdcs) <= 1
    net.scheduler.run()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([Transport.UET_RUD, Transport.UET_ROD]), WEATHER, st.lists(WORK, max_size=10))
def test_every_schedule_ends_right(
    transport: Transport, weather: Weather, work: list[tuple[Opcode, int, int]]
) -> None:
    play(transport, weather, work)


@pytest.mark.full
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([Transport.UET_RUD, Transport.UET_ROD]), WEATHER, st.lists(WORK, max_size=10))
def test_two_thousand_schedules_end_right(
    transport: Transport, weather: Weather, work: list[tuple[Opcode, int, int]]
) -> None:
    play(transport, weather, work)


def test_only_what_was_lost_is_sent_again_and_every_path_is_used() -> None:
    """With 2 % loss on paths of different delay, at most 1.2 times the lost bytes go out again."""
    draw = random.Random(3)
    lost = []

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if draw.random() < 0.02:
            lost.append(frame)
            return []
        return [(LATENCY + 500 * (decode(frame).ev % 8), frame)]

    net, a, b = pair(Transport.UET_RUD, impair)
    for host, key in ((a.host, LKEY), (b.host, RKEY)):
        host.memory(key, 1 << 20)
    payload = random.Random(1).randbytes(1 << 20)
    a.host.regions[LKEY].data[:] = payload
    a.post(Opcode.WRITE, 1 << 20)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert b.host.regions[RKEY].data == payload
    missing = sum(len(frame) for frame in lost if decode(frame).kind == PdsType.RUD_REQ)
    again = sum(len(frame) for frame in a.nic.sent if decode(frame).is_request and decode(frame).flags & 0x10)
    assert 0 < missing <= again <= 1.2 * missing
    paths: dict[int, int] = {}
    for packet in a.nic.packets():
        if packet.is_request:
            paths[packet.ev] = paths.get(packet.ev, 0) + 1
    assert len(paths) == 8
    fair = sum(paths.values()) / 8
    assert all(0.8 * fair <= count <= 1.2 * fair for count in paths.values())
