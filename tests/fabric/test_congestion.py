# SPDX-License-Identifier: Apache-2.0
"""Links that trim and mark: which frames, how many, and what UET endpoints make of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from emu.clock import MS, VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.nic.work import Opcode, Status, Transport
from emu.wire.congestion import mark, trim
from emu.wire.uet_names import NackCode
from tests.capture.sample import WRITE
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import LATENCY, Nic, decode, pair
from tests.wire.uet_vectors import FRAMES

DATA = FRAMES["E1"]
ACK = DATA[:12] + FRAMES["E3"][12:]


def crossing(frames: list[bytes], **impairments: Any) -> tuple[list[bytes], dict[str, int], dict[str, int]]:
    """Frames from A to B through a switch whose port B is impaired; counters of the two links."""
    scheduler = VirtualScheduler()
    switch = Switch(scheduler, EventBus())
    a, b = switch.port("a"), switch.port("b", seed=1, **impairments)
    arrived: list[bytes] = []
    b.attach(arrived.append)
    for frame in frames:
        a.send(frame)
    scheduler.run()
    return arrived, switch.link("a").counters(), switch.link("b").counters()


def test_a_link_trims_uet_data_and_tells_that_it_is_the_last_hop() -> None:
    arrived, first, last = crossing([DATA, ACK, WRITE], trim=1.0)
    assert arrived == [trim(DATA, last_hop=True), ACK, WRITE]
    assert (first["out.trimmed"], last["in.trimmed"], last["in.delivered"]) == (0, 1, 3)


def test_the_senders_link_is_not_the_last_hop() -> None:
    scheduler = VirtualScheduler()
    switch = Switch(scheduler, EventBus())
    a, b = switch.port("a", trim=1.0), switch.port("b")
    arrived: list[bytes] = []
    b.attach(arrived.append)
    a.send(DATA)
    scheduler.run()
    assert arrived == [trim(DATA)]


def test_a_link_marks_what_allows_it() -> None:
    plain = bytes.fromhex("020000000002020000000001080600010800")
    arrived, _, last = crossing([DATA, ACK, plain], mark=1.0)
    assert arrived == [mark(DATA), ACK, plain]
    assert last["in.marked"] == 1


def test_probabilities_hold_and_lost_frames_stay_lost() -> None:
    arrived, _, last = crossing([DATA] * 2000, trim=0.25, mark=0.5, loss=0.1)
    assert len(arrived) == 2000 - last["in.lost"]
    trimmed = sum(len(frame) < len(DATA) for frame in arrived)
    assert trimmed == last["in.trimmed"]
    assert 0.2 < trimmed / len(arrived) < 0.3
    assert 0.45 < last["in.marked"] / len(arrived) < 0.55


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
def test_endpoints_answer_a_trimmed_packet_with_a_nack_and_repeat_it(transport: Transport) -> None:
    draw = random.Random(5)
    cut: list[int] = []

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        shorter = trim(frame) if draw.random() < 0.1 else None
        if shorter is not None:
            cut.append(decode(frame).psn)
        return [(LATENCY, shorter or frame)]

    _, a, b = net = pair(transport, impair)
    payload = random.Random(1).randbytes(1 << 16)
    a.host.regions[LKEY].data[:] = payload
    a.post(Opcode.WRITE, 1 << 16)
    net[0].scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert b.host.regions[RKEY].data == payload
    refused = [packet for packet in b.nic.packets() if packet.is_nack]
    nacks = [packet.psn for packet in refused if packet.word >> 8 == NackCode.TRIMMED]
    assert cut and set(nacks) <= set(cut)
    if transport is Transport.UET_RUD:
        assert sorted(nacks) == sorted(cut)
        again = [packet.psn for packet in a.nic.packets() if packet.is_request and packet.flags & 0x10]
        assert sorted(again) == sorted(cut)
