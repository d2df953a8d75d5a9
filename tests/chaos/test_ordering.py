# SPDX-License-Identifier: Apache-2.0
"""What the ordering adversary may do, and what it must not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.clock import US, VirtualScheduler
from emu.pcie.bus import BusError
from emu.pcie.ordering import PostedWrites
from tests.nic.fakes import CountingInterrupts, MemoryBus

BASE, SIZE = 0x1000, 4096
HOLD = 100 * US


@dataclass
class Rig:
    """An adversary over one page, and the order in which things arrived."""

    seed: int = 0
    tear: bool = False
    clock: VirtualScheduler = field(default_factory=VirtualScheduler)
    bus: MemoryBus = field(default_factory=MemoryBus)
    interrupts: CountingInterrupts = field(default_factory=CountingInterrupts)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = self.bus.map(BASE, SIZE)
        self.posted = PostedWrites(
            self.bus,
            self.interrupts,
            self.clock,
            random.Random(self.seed),
            hold_ns=HOLD,
            tear=self.tear,
            note=self.notes.append,
        )

    def arrived(self) -> list[int]:
        """Offsets of the writes that reached memory since the last call."""
        return [address - BASE for address, _ in self.bus.operations("write")]


seeds = st.integers(0, 1 << 32)


@given(seeds, st.lists(st.booleans(), min_size=2, max_size=20))
def test_only_a_relaxed_write_overtakes(seed: int, relaxed: list[bool]) -> None:
    rig = Rig(seed)
    for number, kind in enumerate(relaxed):
        (rig.posted.write_relaxed if kind else rig.posted.write)(BASE + 64 * number, bytes(8))
    rig.clock.run()
    order = [offset // 64 for offset in rig.arrived()]
    assert sorted(order) == list(range(len(relaxed)))
    for place, number in enumerate(order):
        if any(earlier > number for earlier in order[:place]):
            continue
        late = [other for other in order[place + 1 :] if other < number]
        assert not late or relaxed[number], f"strict write {number} came before {late}"


@given(seeds)
def test_an_interrupt_comes_behind_what_was_written_before_it(seed: int) -> None:
    rig = Rig(seed)
    for number in range(4):
        rig.posted.write(BASE + 8 * number, b"\1" * 8)
    rig.posted.trigger(3)
    while not rig.interrupts.fired:
        assert rig.clock.step()
    assert rig.memory[:32] == b"\1" * 32
    assert rig.interrupts.fired == [3]


@given(seeds, st.integers(0, 7), st.integers(9, 200))
def test_the_words_of_a_strict_write_come_in_ascending_order(seed: int, start: int, length: int) -> None:
    rig = Rig(seed, tear=True)
    rig.posted.write(BASE + start, b"\xaa" * length)
    rig.clock.run()
    offsets = rig.arrived()
    assert offsets == sorted(offsets)
    assert all(offset % 8 == 0 for offset in offsets[1:])
    assert rig.memory[start : start + length] == b"\xaa" * length
    assert sum(rig.memory) == 0xAA * length


def test_some_seed_shows_a_torn_write_and_some_an_overtaken_one() -> None:
    torn = overtaken = 0
    for seed in range(20):
        rig = Rig(seed, tear=True)
        rig.posted.write(BASE, bytes(range(64)))
        rig.posted.write_relaxed(BASE + 512, bytes(64))
        rig.clock.run()
        torn += rig.posted.torn
        overtaken += rig.posted.overtaken
    assert torn > 5
    assert overtaken > 2


@given(seeds)
def test_writes_to_the_same_bytes_keep_their_order_even_relaxed(seed: int) -> None:
    rig = Rig(seed, tear=True)
    for value in range(1, 9):
        rig.posted.write_relaxed(BASE, bytes([value]) * 32)
    rig.clock.run()
    assert rig.memory[:32] == b"\x08" * 32


@given(seeds)
def test_a_read_sees_everything_written_before(seed: int) -> None:
    rig = Rig(seed, tear=True)
    rig.posted.write_relaxed(BASE, b"\1" * 40)
    rig.posted.write(BASE + 256, b"\2" * 40)
    assert rig.posted.read(BASE, 40) == b"\1" * 40
    assert rig.memory[256:296] == b"\2" * 40


@given(seeds)
def test_nothing_waits_longer_than_it_may(seed: int) -> None:
    rig = Rig(seed)
    for number in range(100):
        rig.posted.write(BASE + 8 * number, b"\1" * 8)
    rig.clock.run(until=HOLD)
    assert rig.memory[:800] == b"\1" * 800


def test_an_unreachable_address_is_refused_at_once_and_behind_the_rest() -> None:
    rig = Rig()
    rig.posted.write(BASE, b"\1" * 8)
    with pytest.raises(BusError):
        rig.posted.write(BASE + SIZE, bytes(8))
    assert rig.memory[:8] == b"\1" * 8


def test_memory_that_went_away_loses_the_write_and_is_counted() -> None:
    rig = Rig()
    rig.posted.write(BASE, b"\1" * 8)
    rig.bus.unmap(BASE)
    rig.clock.run()
    assert rig.posted.lost == 1


def test_a_reset_forgets_what_was_on_its_way() -> None:
    rig = Rig()
    rig.posted.write(BASE, b"\1" * 8)
    rig.posted.trigger(1)
    rig.posted.clear()
    rig.clock.run()
    assert rig.arrived() == []
    assert not rig.interrupts.fired
