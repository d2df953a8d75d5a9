# SPDX-License-Identifier: Apache-2.0
"""A link with link-level retry loses nothing and keeps order; error correction is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.clock import MS, US, VirtualScheduler
from emu.events import EventBus
from emu.fabric.impairments import Impairments
from emu.fabric.lane import REPLAY_NS, REPLAYS_MAX
from emu.fabric.link import Link
from emu.nic.work import Opcode, Status, Transport
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import Net, Nic, Qp, connect


class Cable:
    """One link, with what arrives at its far end and when."""

    def __init__(self, impairments: Impairments) -> None:
        self.scheduler = VirtualScheduler()
        self.link = Link(self.scheduler, EventBus(), "n0", impairments)
        self.arrived: list[tuple[int, bytes]] = []
        self.link.far.attach(lambda frame: self.arrived.append((self.scheduler.now(), frame)))

    def counters(self) -> dict[str, int]:
        """Of the direction to the far end."""
        return {
            name.removeprefix("out."): value
            for name, value in self.link.counters().items()
            if name.startswith("out.")
        }


def test_a_lost_frame_is_repeated_after_a_round_trip_and_holds_up_the_next() -> None:
    cable = Cable(Impairments(loss=0.2, delay_ns=5 * US, seed=4, llr=True))
    for number in range(200):
        cable.link.near.send(number.to_bytes(64, "big"))
    cable.scheduler.run()
    assert [frame for _, frame in cable.arrived] == [number.to_bytes(64, "big") for number in range(200)]
    found = cable.counters()
    assert found["lost"] == 0
    assert found["replayed"] == found["fec_uncorrectable"] > 30
    times = [time for time, _ in cable.arrived]
    assert times == sorted(times)
    # Each repetition takes one round trip of the link more.
    assert {(time - 5 * US) % (10 * US + REPLAY_NS) for time in times} == {0}


def test_without_retry_each_loss_is_one() -> None:
    cable = Cable(Impairments(loss=0.5, seed=4))
    for number in range(200):
        cable.link.near.send(number.to_bytes(64, "big"))
    cable.scheduler.run()
    found = cable.counters()
    assert found["lost"] == found["fec_uncorrectable"] == 200 - len(cable.arrived)
    assert found["replayed"] == 0


def test_a_dead_link_gives_up() -> None:
    cable = Cable(Impairments(loss=1.0, llr=True))
    cable.link.near.send(bytes(64))
    cable.scheduler.run()
    assert cable.arrived == []
    assert (cable.counters()["lost"], cable.counters()["replayed"]) == (1, REPLAYS_MAX)


@pytest.mark.parametrize(("size", "words"), [(64, 1), (642, 1), (643, 2), (9000, 15)])
def test_code_words_that_errors_were_corrected_in_are_counted(size: int, words: int) -> None:
    cable = Cable(Impairments(symbol_errors=1.0))
    cable.link.near.send(bytes(size))
    cable.scheduler.run()
    assert len(cable.arrived) == 1
    assert cable.counters()["fec_corrected"] == words


@given(st.lists(st.integers(0, 20), max_size=40), st.floats(0, 0.9), st.sampled_from([0, 700]), st.booleans())
def test_order_holds_and_every_frame_has_one_fate(
    pauses: list[int], loss: float, delay_ns: int, llr: bool
) -> None:
    cable = Cable(Impairments(loss=loss, delay_ns=delay_ns, seed=9, llr=llr))
    for number, pause in enumerate(pauses):
        cable.link.near.send(number.to_bytes(64, "big"))
        cable.scheduler.run(until=cable.scheduler.now() + 100 * pause)
    cable.scheduler.run()
    numbers = [int.from_bytes(frame, "big") for _, frame in cable.arrived]
    assert numbers == sorted(numbers)
    assert len(numbers) + cable.counters()["lost"] == len(pauses)


class Cabled(Net):
    """NICs joined by one link instead of the bench's own."""

    def __init__(self, impairments: Impairments) -> None:
        super().__init__()
        self.link = Link(self.scheduler, EventBus(), "n0", impairments)
        self.link.far.attach(self._arrive)
        self.link.near.attach(self._arrive)

    def carry(self, sender: Nic, number: int, frame: bytes) -> None:
        (self.link.near if sender.name == "a" else self.link.far).send(frame)


def write_over(impairments: Impairments) -> Qp:
    net = Cabled(impairments)
    a, b = connect(net.nic("a"), net.nic("b"), Transport.UET_RUD)
    a.host.regions[LKEY].data[:] = bytes(range(256)) * 256
    a.post(Opcode.WRITE, 1 << 16)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert b.host.regions[RKEY].data == bytes(range(256)) * 256
    return a


def test_the_transport_does_not_notice_what_the_link_repeats() -> None:
    assert write_over(Impairments(loss=0.05, delay_ns=US, seed=2)).nic.retransmitted
    assert not write_over(Impairments(loss=0.05, delay_ns=US, seed=2, llr=True)).nic.retransmitted
