# SPDX-License-Identifier: Apache-2.0
"""Middle packets of a message that travel together do what they do one by one, whatever happens to them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.fabric.run import FrameRun
from emu.nic.engine import AsyncEvent
from emu.nic.work import Access, Opcode, QpState, Sge, Status
from emu.roce import RocePacket, parse
from emu.roce.rc import RcEngine
from emu.roce.run import RUN_MAX, PacketRun
from tests.roce.bench import BASE, LATENCY, LKEY, RKEY, Host, Pair, Side, pattern, perfect

MTU = 256
LENGTHS = (0, 1, MTU, 3 * MTU, 4 * MTU + 1, 17 * MTU, 40 * MTU - 3, 150 * MTU + 5)


@dataclass
class RunHost(Host):
    """A host whose port carries runs: each whole, in pieces, or not at all, as ``fates`` draws."""

    fates: random.Random | None = None
    whole: list[int] = field(default_factory=list)
    pair: RunPair | None = None

    def send_run(self, run: FrameRun) -> None:
        assert isinstance(run, PacketRun) and self.pair is not None
        self.pair.carry_run(self, run)


class RunPair(Pair):
    """Two queue pairs whose ports carry runs. Without ``seed`` every run arrives whole."""

    def __init__(self, seed: int | None = None, **changes: object) -> None:
        super().__init__(perfect, host=RunHost, path_mtu=MTU, **changes)  # type: ignore[arg-type]
        for side in (self.a, self.b):
            assert isinstance(side.host, RunHost)
            side.host.pair = self
            side.host.fates = None if seed is None else random.Random(f"{seed}/{side.host.name}")

    def carry_run(self, host: RunHost, run: PacketRun) -> None:
        """What the port does with a run: ``sent`` keeps its frames either way."""
        receiver = self.b if host.name == "a" else self.a
        draw = 1.0 if host.fates is None else host.fates.random()
        if draw < 0.2:
            for frame in run.frames():
                host.send(frame)
            return
        host.sent += run.frames()
        assert len(b"".join(run.frames())) == run.octets
        host.whole.append(run.count)
        if draw < 0.35:
            return
        self.scheduler.call_at(self.scheduler.now() + LATENCY, partial(self._arrive, receiver, run))
        if draw < 0.5:
            later = self.scheduler.now() + 20 * LATENCY
            self.scheduler.call_at(later, partial(self._arrive, receiver, run))

    def _arrive(self, receiver: Side, run: PacketRun) -> None:
        engine = receiver.engine
        assert isinstance(engine, RcEngine)
        engine.receive_run(run, self.scheduler.now())
        receiver.service()


def play(pair: Pair, opcode: Opcode, lengths: list[int]) -> None:
    """Post one message of each length from ``a``, one behind the other in memory, and run to the end."""
    for region in (pair.a.host, pair.b.host):
        region.regions[LKEY].data = bytearray(1 << 18)
        region.regions[RKEY].data = bytearray(1 << 18)
    source = pair.remote(pair.b) if opcode is Opcode.READ else pair.local(pair.a)
    source[:] = pattern(1 << 18)
    at = BASE
    for index, length in enumerate(lengths):
        if opcode is Opcode.SEND:
            pair.b.post_receive(index, length, address=at)
        sges = [Sge(at, length, LKEY)] if length else []
        pair.a.post(opcode, length, sges=sges, remote_address=at)
        at += length
    pair.run()


def outcome(pair: Pair, opcode: Opcode) -> tuple[bytes, list[tuple[int, Status]], list[tuple[int, Status]]]:
    """Memory that was written, and completions of both ends."""
    if opcode is Opcode.READ:
        target = pair.local(pair.a)
    else:
        target = pair.remote(pair.b) if opcode is Opcode.WRITE else pair.local(pair.b)
    return bytes(target), pair.a.host.statuses, pair.b.host.statuses


messages = st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=4)
opcodes = st.sampled_from([Opcode.WRITE, Opcode.SEND, Opcode.READ])


@settings(max_examples=60)
@given(opcodes, messages)
def test_runs_make_the_same_packets(opcode: Opcode, lengths: list[int]) -> None:
    single, together = Pair(path_mtu=MTU), RunPair()
    play(single, opcode, lengths)
    play(together, opcode, lengths)
    assert outcome(together, opcode) == outcome(single, opcode)
    talker = "b" if opcode is Opcode.READ else "a"
    assert getattr(together, talker).host.sent == getattr(single, talker).host.sent
    assert together.a.engine.next_psn == single.a.engine.next_psn
    assert together.b.engine.expected_psn == single.b.engine.expected_psn


@settings(max_examples=120)
@given(opcodes, messages, st.integers(0, 1 << 16))
def test_lost_repeated_and_split_runs_change_nothing(opcode: Opcode, lengths: list[int], seed: int) -> None:
    single, together = Pair(path_mtu=MTU), RunPair(seed, retry_cnt=7, timeout=8)
    play(single, opcode, lengths)
    play(together, opcode, lengths)
    assert outcome(together, opcode) == outcome(single, opcode)


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.SEND, Opcode.READ])
def test_long_messages_leave_in_runs(opcode: Opcode) -> None:
    pair = RunPair()
    play(pair, opcode, [150 * MTU])
    host = pair.b.host if opcode is Opcode.READ else pair.a.host
    assert isinstance(host, RunHost)
    assert sum(host.whole) == 148
    assert max(host.whole) <= RUN_MAX
    assert len(host.whole) < 40


@pytest.mark.parametrize(
    ("opcode", "whole"), [(Opcode.WRITE, [5]), (Opcode.WRITE_IMM, [3]), (Opcode.SEND, [3])]
)
def test_a_short_write_leaves_as_one(opcode: Opcode, whole: list[int]) -> None:
    pair = RunPair()
    pair.b.post_receive(0, 8 * MTU)
    pair.a.post(opcode, 5 * MTU - 1)
    pair.run()
    host = pair.a.host
    assert isinstance(host, RunHost)
    assert host.whole == whole
    assert host.statuses == [(0, Status.SUCCESS)]


def test_a_write_in_one_run_is_refused_as_its_packets_would_be() -> None:
    for pair in (Pair(path_mtu=MTU), RunPair()):
        pair.a.post(Opcode.WRITE, 5 * MTU, remote_address=BASE + (1 << 16) - MTU)
        pair.run()
        assert pair.a.host.statuses == [(0, Status.REM_ACCESS_ERR)]
        assert pair.b.host.events == [AsyncEvent.QP_ACCESS_ERR]
        assert not any(pair.remote(pair.b))


def test_the_first_message_of_a_connection_is_an_event() -> None:
    for pair in (Pair(path_mtu=MTU), RunPair()):
        pair.b.modify(QpState.RESET)
        for state in (QpState.INIT, QpState.RTR):
            pair.b.modify(state)
        pair.a.post(Opcode.WRITE, 5 * MTU)
        pair.run()
        assert pair.b.host.events == [AsyncEvent.COMM_EST]


def test_a_run_that_does_not_fit_is_refused_where_its_packets_would_be() -> None:
    pairs = (Pair(path_mtu=MTU), RunPair())
    for pair in pairs:
        pair.b.post_receive(0, 5 * MTU)
        pair.a.post(Opcode.SEND, 9 * MTU)
        pair.run()
        assert pair.b.host.statuses == [(0, Status.LOC_LEN_ERR)]
        assert pair.a.host.statuses == [(0, Status.REM_INV_REQ_ERR)]
    assert pairs[1].b.engine.expected_psn == pairs[0].b.engine.expected_psn


def test_a_key_that_goes_away_under_a_run_ends_the_connection() -> None:
    pair = RunPair()
    pair.a.post(Opcode.WRITE, 40 * MTU)
    pair.b.host.regions[RKEY].access = Access.REMOTE_READ
    pair.run()
    assert pair.a.host.statuses == [(0, Status.REM_ACCESS_ERR)]
    assert pair.b.host.moves[-1][0] is QpState.ERR


def test_local_memory_that_goes_away_under_a_run_fails_its_element() -> None:
    pair = RunPair()
    pair.a.host.regions[LKEY].data = bytearray(10 * MTU)
    pair.a.post(Opcode.WRITE, 40 * MTU)
    pair.run()
    assert pair.a.host.statuses == [(0, Status.LOC_PROT_ERR)]


def test_the_packets_of_a_run_are_those_of_its_frames() -> None:
    pair = RunPair()
    seen: list[PacketRun] = []
    pair.carry_run = lambda host, run: seen.append(run)  # type: ignore[method-assign]
    pair.a.post(Opcode.WRITE, 40 * MTU)
    run = seen[0]
    packets = [parse(frame) for frame in run.frames()]
    assert [packet.psn for packet in packets if isinstance(packet, RocePacket)] == [
        run.psn + place for place in range(run.count)
    ]
    assert any(packet.ack_request for packet in packets if isinstance(packet, RocePacket)) == run.ack_request
    assert [packet.psn for packet in run.packets()][-1] == run.last
