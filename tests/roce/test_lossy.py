# SPDX-License-Identifier: Apache-2.0
"""Any mix of loss, delay, repetition and damage ends as a perfect link would, or in a clean error."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.clock import US
from emu.nic.work import Opcode, QpState, Sge, Status, Transport
from tests.roce.bench import BASE, LATENCY, LKEY, RKEY, Host, Impairment, Pair, pattern, perfect

_SLOT = 0x1000
_RECEIVED = (Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV, Opcode.WRITE_IMM)
_LENGTHS = st.sampled_from([0, 1, 3, 256, 257, 700, 1024, 2500])
_OPCODES = st.sampled_from(list(Opcode))
_RATES = st.sampled_from([0.0, 0.02, 0.1, 0.25])


@dataclass(frozen=True)
class Step:
    """One element to post."""

    opcode: Opcode
    length: int
    fence: bool
    signaled: bool


_STEPS = st.lists(
    st.builds(Step, opcode=_OPCODES, length=_LENGTHS, fence=st.booleans(), signaled=st.booleans()),
    min_size=1,
    max_size=12,
)


def _impairment(seed: int, loss: float, repeat: float, damage: float, late: float) -> Impairment:
    source = random.Random(seed)

    def impair(sender: Host, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if source.random() < loss:
            return []
        if source.random() < damage:
            bit = source.randrange(len(frame) * 8)
            frame = frame[: bit // 8] + bytes([frame[bit // 8] ^ 1 << bit % 8]) + frame[bit // 8 + 1 :]
        delay = LATENCY if source.random() >= late else source.randrange(LATENCY, 300 * US)
        arrivals = [(delay, frame)]
        if source.random() < repeat:
            arrivals.append((source.randrange(LATENCY, 300 * US), frame))
        return arrivals

    return impair


def _key(number: int) -> int:
    """The key that step ``number`` may have invalidated."""
    return 0x100 + number


def _run(steps: list[Step], impair: Impairment, psn: int, ipv6: bool) -> Pair:
    """Each step has its own slot of memory at both ends, so no step may see or disturb another."""
    pair = Pair(
        impair, psn=psn, ipv6=ipv6, path_mtu=256, timeout=8, retry_cnt=7, rnr_retry=7, min_rnr_timer=1
    )
    for side, seed in ((pair.a, 1), (pair.b, 2)):
        for key in (pair.local(side), pair.remote(side)):
            key[:] = pattern(len(key), seed)
    for number, step in enumerate(steps):
        if step.opcode is Opcode.SEND_INV:
            pair.b.host.memory(_key(number))
        if step.opcode in _RECEIVED:
            pair.b.post_receive(number, _SLOT, BASE + number * _SLOT)
    for number, step in enumerate(steps):
        atomic = step.opcode in (Opcode.ATOMIC_ADD, Opcode.ATOMIC_CAS)
        length = 0 if step.opcode is Opcode.NOP else step.length
        if atomic:
            length = 4 if step.length % 2 else 8
        pair.a.post(
            step.opcode,
            length,
            sges=[Sge(BASE + number * _SLOT, length, LKEY)] if length else [],
            remote_address=BASE + number * _SLOT,
            rkey=_key(number) if step.opcode is Opcode.SEND_INV else RKEY,
            immediate=number,
            swap_add=number + 1,
            compare=int.from_bytes(pattern(_SLOT * 16, 2)[number * _SLOT :][:8], "little"),
            fence=step.fence,
            signaled=step.signaled,
        )
    pair.run()
    return pair


def _memory(pair: Pair) -> list[bytes]:
    return [bytes(memory) for side in (pair.a, pair.b) for memory in (pair.local(side), pair.remote(side))]


@pytest.mark.timeout(600)
@settings(max_examples=2000, deadline=None, print_blob=True)
@given(
    steps=_STEPS,
    seed=st.integers(0, 1 << 32),
    loss=_RATES,
    repeat=_RATES,
    damage=_RATES,
    late=_RATES,
    psn=st.sampled_from([0, 100, 0xFFFFF0, 0x7FFFF8]),
    ipv6=st.booleans(),
)
def test_any_link_gives_the_outcome_of_a_perfect_one(
    steps: list[Step], seed: int, loss: float, repeat: float, damage: float, late: float, psn: int, ipv6: bool
) -> None:
    wanted = _run(steps, perfect, psn, ipv6)
    assert all(status is Status.SUCCESS for _, status in wanted.a.host.statuses + wanted.b.host.statuses)
    got = _run(steps, _impairment(seed, loss, repeat, damage, late), psn, ipv6)

    if got.a.host.moves:
        _check_clean_error(got, wanted, len(steps))
        return
    assert got.a.host.completions == wanted.a.host.completions
    assert got.b.host.completions == wanted.b.host.completions
    assert _memory(got) == _memory(wanted)
    assert got.b.host.atomics == wanted.b.host.atomics
    assert got.a.host.retired == len(steps)
    assert got.a.engine.next_psn == wanted.a.engine.next_psn == got.b.engine.expected_psn
    assert got.a.engine.idle() and got.b.engine.idle()
    assert got.b.host.moves == []


def _check_clean_error(got: Pair, wanted: Pair, elements: int) -> None:
    """Retries ran out: what completed did so rightly, one element has the status, the rest is flushed."""
    assert [state for state, _ in got.a.host.moves] == [QpState.ERR]
    completions = got.a.host.completions
    good = [completion for completion in completions if completion.status is Status.SUCCESS]
    bad = completions[len(good) :]
    assert good == wanted.a.host.completions[: len(good)]
    assert bad[0].status is Status.RETRY_EXC_ERR
    assert all(completion.status is Status.WR_FLUSH_ERR for completion in bad[1:])
    assert [completion.index for completion in bad] == list(range(elements - len(bad), elements))
    received = got.b.host.completions
    assert received == wanted.b.host.completions[: len(received)]
    assert got.a.engine.idle()


def test_both_directions_at_once_over_a_bad_link() -> None:
    pair = Pair(_impairment(7, 0.05, 0.05, 0.05, 0.1), psn=0xFFFFF0, path_mtu=256, timeout=8, retry_cnt=7)
    for side, seed in ((pair.a, 3), (pair.b, 4)):
        pair.local(side)[:] = pattern(1 << 16, seed)
    for number in range(20):
        for side in (pair.a, pair.b):
            side.post(
                Opcode.WRITE,
                3000,
                sges=[Sge(BASE + number * 3000, 3000, LKEY)],
                remote_address=BASE + number * 3000,
            )
    pair.run()
    for side, seed in ((pair.a, 4), (pair.b, 3)):
        assert side.host.statuses == [(number, Status.SUCCESS) for number in range(20)]
        assert pair.remote(side)[:60000] == pattern(1 << 16, seed)[:60000]
    assert pair.a.host.retransmitted and pair.b.host.retransmitted


_UNRELIABLE_OPCODES = st.sampled_from([Opcode.SEND, Opcode.SEND_IMM, Opcode.WRITE_IMM, Opcode.NOP])


@settings(max_examples=500, deadline=None, print_blob=True)
@given(
    steps=st.lists(st.tuples(_UNRELIABLE_OPCODES, _LENGTHS), min_size=1, max_size=12),
    seed=st.integers(0, 1 << 32),
    loss=_RATES,
    damage=_RATES,
    psn=st.sampled_from([0, 100, 0xFFFFF8]),
)
def test_an_unreliable_connection_delivers_whole_messages_in_order(
    steps: list[tuple[Opcode, int]], seed: int, loss: float, damage: float, psn: int
) -> None:
    pair = Pair(_impairment(seed, loss, 0.0, damage, 0.0), psn=psn, path_mtu=256, transport=Transport.ROCE_UC)
    pair.local(pair.a)[:] = pattern(1 << 16)
    for number in range(len(steps)):
        pair.b.post_receive(number, _SLOT, BASE + number * _SLOT)
    for number, (opcode, length) in enumerate(steps):
        length = 0 if opcode is Opcode.NOP else length
        sges = [Sge(BASE + number, length, LKEY)] if length else []
        # A WRITE's data goes where only it goes; its number comes as immediate data.
        pair.a.post(opcode, length, sges=sges, remote_address=BASE + number * _SLOT, immediate=number)
    pair.run()
    assert pair.a.host.statuses == [(number, Status.SUCCESS) for number in range(len(steps))]
    assert pair.b.host.sent == [] and pair.b.host.moves == []
    position = 0
    for place, completion in enumerate(pair.b.host.completions):
        assert (completion.index, completion.status) == (place, Status.SUCCESS)
        while not _fits(steps[position], completion.immediate, position, completion.length):
            position += 1
        opcode, length = steps[position]
        memory = pair.remote(pair.b) if opcode is Opcode.WRITE_IMM else pair.local(pair.b)
        at = (position if opcode is Opcode.WRITE_IMM else place) * _SLOT
        if opcode is not Opcode.SEND:
            assert memory[at : at + length] == pattern(1 << 16)[position : position + length]
        position += 1
    if not loss and not damage:
        assert len(pair.b.host.completions) == sum(opcode is not Opcode.NOP for opcode, _ in steps)


def _fits(step: tuple[Opcode, int], immediate: int | None, number: int, length: int) -> bool:
    """Whether what was received can be this step."""
    opcode, size = step
    if opcode is Opcode.SEND:
        return immediate is None and size == length
    return opcode is not Opcode.NOP and immediate == number and size == length
