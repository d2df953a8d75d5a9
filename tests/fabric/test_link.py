# SPDX-License-Identifier: Apache-2.0
"""A link keeps order, never calls back into the sender, and loses exactly what its seed says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.clock import US, VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.impairments import Impairments
from emu.fabric.lane import BURST_FRAMES, MAX_FRAME, MIN_FRAME
from emu.fabric.link import Link

ROOT = Path(__file__).parents[2]


class Bench:
    """A link with both ends recording what arrives and when."""

    def __init__(
        self, forward: Impairments | None = None, *, queue_frames: int = 1024, name: str = "n0"
    ) -> None:
        self.scheduler = VirtualScheduler(start=1_000)
        self.bus = EventBus()
        self.drops: list[Event] = []
        self.link_events: list[Event] = []
        self.bus.subscribe(self.drops.append, [Kind.FRAME_DROP])
        self.bus.subscribe(self.link_events.append, [Kind.LINK])
        self.link = Link(self.scheduler, self.bus, name, forward, queue_frames=queue_frames)
        self.near: list[tuple[int, bytes]] = []
        self.far: list[tuple[int, bytes]] = []
        self.link.near.attach(lambda frame: self.near.append((self.scheduler.now(), frame)))
        self.link.far.attach(lambda frame: self.far.append((self.scheduler.now(), frame)))


def numbered(number: int, size: int = 64) -> bytes:
    return number.to_bytes(4, "big").rjust(size, b"\0")


def survivors(loss: float, seed: int, count: int = 500, name: str = "n0") -> list[int]:
    bench = Bench(Impairments(loss=loss, seed=seed), name=name)
    for number in range(count):
        bench.link.near.send(numbered(number))
    bench.scheduler.run()
    return [int.from_bytes(frame[-4:], "big") for _, frame in bench.far]


def test_frames_arrive_in_order_and_unchanged_in_both_directions() -> None:
    bench = Bench()
    for number in range(3 * BURST_FRAMES + 1):
        bench.link.near.send(numbered(number))
        bench.link.far.send(numbered(number + 10_000))
    bench.scheduler.run()
    assert [frame for _, frame in bench.far] == [numbered(n) for n in range(3 * BURST_FRAMES + 1)]
    assert [frame for _, frame in bench.near] == [numbered(n + 10_000) for n in range(3 * BURST_FRAMES + 1)]
    assert not bench.drops


def test_nothing_is_delivered_before_send_returns() -> None:
    bench = Bench()
    bench.link.near.send(numbered(1))
    assert bench.far == []
    bench.scheduler.run()
    assert len(bench.far) == 1


def test_a_receiver_that_answers_is_not_re_entered() -> None:
    bench = Bench()
    depth = 0
    deepest = 0

    def answer(frame: bytes) -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        number = int.from_bytes(frame[-4:], "big")
        if number < 20:
            bench.link.far.send(numbered(number + 1))
            bench.link.near.send(numbered(number + 1))
        depth -= 1

    bench.link.far.attach(answer)
    bench.link.near.attach(answer)
    bench.link.near.send(numbered(10))
    bench.scheduler.run()
    assert deepest == 1
    assert bench.link.forward.counters.delivered > 10


def test_a_burst_leaves_room_for_other_work() -> None:
    bench = Bench()
    for number in range(2 * BURST_FRAMES):
        bench.link.near.send(numbered(number))
    seen: list[int] = []
    bench.scheduler.call_soon(lambda: seen.append(len(bench.far)))
    bench.scheduler.run()
    assert seen == [BURST_FRAMES]


def test_delay_is_exact_and_keeps_spacing() -> None:
    bench = Bench(Impairments(delay_ns=5 * US))
    bench.link.near.send(numbered(1))
    bench.scheduler.run(until=3_000)
    bench.link.near.send(numbered(2))
    bench.scheduler.run()
    assert [when for when, _ in bench.far] == [1_000 + 5 * US, 3_000 + 5 * US]


@given(st.floats(0.01, 0.99), st.integers(0, 2**64))
def test_the_same_seed_loses_the_same_frames(loss: float, seed: int) -> None:
    assert survivors(loss, seed, 100) == survivors(loss, seed, 100)


def test_losses_are_the_same_in_another_process() -> None:
    program = "from tests.fabric.test_link import survivors; print(survivors(0.3, 7, 200))"
    words = [sys.executable, "-c", program]
    other = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(survivors(0.3, 7, 200))


def test_other_seeds_links_and_directions_lose_other_frames() -> None:
    assert survivors(0.3, 1) != survivors(0.3, 2)
    assert survivors(0.3, 1, name="n0") != survivors(0.3, 1, name="n1")
    bench = Bench(Impairments(loss=0.3, seed=1))
    for number in range(500):
        bench.link.far.send(numbered(number))
    bench.scheduler.run()
    assert [int.from_bytes(frame[-4:], "big") for _, frame in bench.near] != survivors(0.3, 1)


def test_loss_comes_close_to_its_probability() -> None:
    kept = len(survivors(0.1, 42, 1000))
    assert 860 <= kept <= 940
    assert survivors(1.0, 0) == []
    assert len(survivors(0.0, 0)) == 500


def test_a_lost_frame_is_counted_and_reported_with_its_bytes() -> None:
    bench = Bench(Impairments(loss=1.0))
    bench.link.near.send(numbered(9))
    assert bench.link.counters()["out.lost"] == 1
    (drop,) = bench.drops
    assert (drop.function, drop.length, drop.frame) == ("n0", 64, numbered(9))
    assert drop.text == "64 bytes to far end: lost, as the link's loss of 1 asks"


def test_backlog_is_what_was_sent_and_has_not_arrived() -> None:
    bench = Bench(Impairments(delay_ns=2 * US))
    for _ in range(3):
        bench.link.near.send(bytes(64))
    assert (bench.link.near.backlog, bench.link.far.backlog) == (3, 0)
    assert (bench.link.near.arriving, bench.link.far.arriving) == (0, 3)
    bench.scheduler.run()
    assert bench.link.near.backlog == 0


@pytest.mark.parametrize(
    ("size", "counter"), [(0, "runt"), (MIN_FRAME - 1, "runt"), (MAX_FRAME + 1, "giant")]
)
def test_frames_of_impossible_size_are_dropped(size: int, counter: str) -> None:
    bench = Bench()
    bench.link.near.send(bytes(size))
    bench.scheduler.run()
    assert bench.far == []
    assert bench.link.counters()[f"out.{counter}"] == 1
    assert str(size) in bench.drops[0].text


@pytest.mark.parametrize("size", [MIN_FRAME, MAX_FRAME])
def test_frames_at_the_size_limits_pass(size: int) -> None:
    bench = Bench()
    bench.link.near.send(bytes(size))
    bench.scheduler.run()
    assert [len(frame) for _, frame in bench.far] == [size]


def test_a_full_queue_drops_the_newest() -> None:
    bench = Bench(queue_frames=4)
    for number in range(6):
        bench.link.near.send(numbered(number))
    bench.scheduler.run()
    assert [frame for _, frame in bench.far] == [numbered(n) for n in range(4)]
    assert bench.link.counters()["out.overflow"] == 2
    assert [drop.frame for drop in bench.drops] == [numbered(4), numbered(5)]


def test_link_down_drops_what_is_offered_and_what_is_under_way() -> None:
    bench = Bench(Impairments(delay_ns=100))
    changes: list[bool] = []
    bench.link.near.watch(changes.append)
    bench.link.near.send(numbered(1))
    bench.link.set_up(False)
    bench.link.set_up(False)
    bench.link.near.send(numbered(2))
    bench.scheduler.run()
    assert not bench.link.near.up and not bench.link.far.up
    assert bench.far == [] and bench.link.counters()["out.down"] == 2
    bench.link.set_up(True)
    bench.link.near.send(numbered(3))
    bench.scheduler.run()
    assert [frame for _, frame in bench.far] == [numbered(3)]
    assert changes == [False, True]
    assert [(event.value, event.text) for event in bench.link_events] == [(0, "link down"), (1, "link up")]


def test_a_receiver_may_take_the_link_down() -> None:
    bench = Bench()
    bench.link.far.attach(lambda frame: bench.link.set_up(False))
    bench.link.near.send(numbered(1))
    bench.link.near.send(numbered(2))
    bench.scheduler.run()
    counters = bench.link.counters()
    assert (counters["out.delivered"], counters["out.down"], counters["out.queued"]) == (1, 1, 0)


def test_frames_for_nobody_are_counted() -> None:
    bench = Bench()
    bench.link.far.detach()
    bench.link.near.send(numbered(1))
    bench.scheduler.run()
    assert bench.link.counters()["out.unattended"] == 1
    assert bench.far == []


def test_a_failing_receiver_does_not_strand_the_frames_behind() -> None:
    bench = Bench()
    arrived: list[bytes] = []

    def receive(frame: bytes) -> None:
        arrived.append(frame)
        if len(arrived) == 1:
            raise RuntimeError("receiver is broken")

    bench.link.far.attach(receive)
    bench.link.near.send(numbered(1))
    bench.link.near.send(numbered(2))
    with pytest.raises(RuntimeError, match="receiver is broken"):
        bench.scheduler.run()
    bench.scheduler.run()
    assert arrived == [numbered(1), numbered(2)]


@given(
    st.lists(st.integers(0, MAX_FRAME + 10), max_size=60),
    st.floats(0, 1),
    st.integers(1, 8),
    st.sampled_from([0, 50]),
)
def test_every_frame_has_exactly_one_fate(sizes: list[int], loss: float, queue: int, delay: int) -> None:
    bench = Bench(Impairments(loss=loss, delay_ns=delay, seed=3), queue_frames=queue)
    for turn, size in enumerate(sizes):
        bench.link.near.send(bytes(size))
        if turn % 5 == 0:
            bench.scheduler.run()
    bench.scheduler.run()
    counters = {name: value for name, value in bench.link.counters().items() if name.startswith("out.")}
    assert counters.pop("out.octets") == sum(sizes)
    assert counters.pop("out.fec_uncorrectable") == counters["out.lost"]
    assert counters.pop("out.frames") == len(sizes) == sum(counters.values())
    assert len(bench.drops) == len(sizes) - len(bench.far)


@pytest.mark.parametrize("name", ["loss", "trim", "mark"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(name: str, value: float) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} .* is not a probability"):
        Impairments(**fields)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Impairments(delay_ns=-1)


def test_a_link_with_a_speed_takes_time_for_every_byte() -> None:
    bench = Bench(Impairments(rate=1_000_000_000, delay_ns=500))
    for number in range(3):
        bench.link.near.send(numbered(number, 100))
    bench.scheduler.run()
    assert [time for time, _ in bench.far] == [1600, 1700, 1800]
    bench.link.near.send(numbered(3, 200))
    bench.scheduler.run()
    assert bench.far[3][0] == 1800 + 200 + 500


def test_jitter_delays_and_keeps_order() -> None:
    bench = Bench(Impairments(delay_ns=1000, jitter_ns=500))
    for number in range(100):
        bench.link.near.send(numbered(number))
    bench.scheduler.run()
    assert [frame for _, frame in bench.far] == [numbered(number) for number in range(100)]
    late = [time - 2000 for time, _ in bench.far]
    assert 0 <= late[0] < late[-1] <= 500
    for name in ("rate", "jitter_ns"):
        with pytest.raises(ValueError, match=name):
            Impairments(**{name: -1})  # type: ignore[arg-type]
