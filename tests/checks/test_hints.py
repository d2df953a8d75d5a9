# SPDX-License-Identifier: Apache-2.0
"""The hint ring: what it says is judged, and what it says wrongly hurts nobody."""

from __future__ import annotations

import random
from typing import Any

import pytest

from emu.checks.hint import HintKind, Part, SignalOp, Wait
from emu.checks.rule import Rule
from emu.clock import MS
from emu.nic.work import Opcode
from emu.personality.vrnic.contract.codes import AdminOpcode, AdminStatus
from emu.personality.vrnic.contract.descriptors import DoorbellOffset, DoorbellType
from emu.personality.vrnic.contract.hints import HINT_HEADER_SIZE, HINT_SIZE, NO_HINTS, HintEntry, HintHeader
from tests.checks.pair import Pair, Side
from tests.personality.driver import Refused

LOG_SIZE = 4
SECOND = 1000 * MS


class Ring:
    """A hint ring as software writes it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.at = side.driver.allocate(HINT_HEADER_SIZE + (HINT_SIZE << LOG_SIZE))
        self.producer = 0
        side.driver.command(
            AdminOpcode.SET_HINTS,
            ctx=side.driver.ctx,
            ring_key=side.driver.key,
            ring_address=side.driver.virtual(self.at),
            log_size=LOG_SIZE,
        )

    def write(self, kind: int, **values: Any) -> None:
        fields = dict(HintEntry.parse(bytes(HINT_SIZE)))
        fields |= {"kind": kind, "sequence": self.producer, "qpn": self.side.qp.number} | values
        slot = self.producer & ((1 << LOG_SIZE) - 1)
        self.side.machine.store(self.at + HINT_HEADER_SIZE + slot * HINT_SIZE, HintEntry.build(fields))
        self.producer += 1
        self.publish(self.producer)

    def publish(self, producer: int) -> None:
        self.side.machine.store(self.at, (producer & 0xFFFFFFFF).to_bytes(4, "little"))

    def ring(self) -> None:
        driver = self.side.driver
        driver.ring(driver.ctx, DoorbellOffset.HINTS, driver.doorbell_value(DoorbellType.HINTS, 0, 0))

    def consumer(self) -> int:
        return int(HintHeader.parse(self.side.machine.load(self.at, HINT_HEADER_SIZE)).consumer)


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def ring(pair: Pair) -> Ring:
    return Ring(pair.a)


ORDER = {"detail": Part.WQE, "lane": 3, "writer": 7, "writer_cta": 1, "writer_clock": 5, "needed": 2}


@pytest.mark.parametrize(
    ("known", "loose", "rule"),
    [(5, 5, None), (9, 9, None), (4, 5, Rule.C10_SCOPE), (4, 4, Rule.C09_ORDER)],
)
def test_clocks_are_compared(pair: Pair, ring: Ring, known: int, loose: int, rule: Rule | None) -> None:
    ring.write(HintKind.ORDER, **ORDER, index=0, known_clock=known, loose_clock=loose, address=0x1234)
    pair.post()
    pair.run()
    assert pair.a.rules() == ([] if rule is None else [rule])
    if rule is not None:
        (found,) = pair.a.violations()
        assert (found.address, found.index, found.writers) == (0x1234, 0, ("lane 7 of CTA 1",))


def test_a_hint_counts_with_the_doorbell_behind_it_however_late_the_device_looks(
    pair: Pair, ring: Ring
) -> None:
    ring.write(HintKind.LOCK, lane=4, writer=2, index=1)
    pair.run(SECOND)
    assert pair.a.rules() == []
    pair.post()
    assert pair.a.rules() == [Rule.C20_LOCK]
    assert "which lane 2 holds" in pair.a.violations()[0].text


@pytest.mark.parametrize(
    ("kind", "values", "rule"),
    [
        (HintKind.REUSE, {"detail": Part.PAYLOAD, "index": 3, "value": 3}, Rule.C05_REUSE),
        (HintKind.SCOPE, {"cta": 0, "writer_cta": 1}, Rule.C10_SCOPE),
        (HintKind.MISSING, {"address": 0x10, "value": 0x20}, Rule.C24_UNORDERED),
    ],
)
def test_evidence_of_each_kind_is_judged(
    pair: Pair, ring: Ring, kind: HintKind, values: dict[str, int], rule: Rule
) -> None:
    ring.write(kind, **values)
    ring.ring()
    assert pair.a.rules() == [rule]


def test_reuse_of_what_was_seen_complete_is_none(pair: Pair, ring: Ring) -> None:
    ring.write(HintKind.REUSE, detail=Part.PAYLOAD, index=3, value=4)
    ring.ring()
    assert pair.a.rules() == []


def test_ready_work_is_named_when_every_lane_waits(pair: Pair, ring: Ring) -> None:
    ring.write(HintKind.STALL, detail=Wait.COMPLETION, index=1, value=2)
    ring.ring()
    pair.run(SECOND)
    assert pair.a.rules() == [Rule.C14_UNRUNG]


def test_work_that_is_rung_in_time_is_not(pair: Pair, ring: Ring) -> None:
    ring.write(HintKind.STALL, detail=Wait.COMPLETION, index=0, value=1)
    ring.ring()
    pair.post()
    pair.run(SECOND)
    assert pair.a.rules() == []


def test_waiting_on_a_queue_pair_in_reset_is_spinning() -> None:
    pair = Pair(connect=False)
    ring = Ring(pair.a)
    ring.write(HintKind.STALL, detail=Wait.COMPLETION, index=1)
    ring.ring()
    assert pair.a.rules() == [Rule.C31_SPIN]


def test_polling_after_an_error_is_named(pair: Pair, ring: Ring) -> None:
    pair.post(rkey=0xDEAD00)
    pair.run(SECOND)
    count = len(pair.a.rules())
    ring.write(HintKind.STALL, detail=Wait.COMPLETION, index=1, value=1)
    ring.ring()
    assert pair.a.rules()[count:] == [Rule.C17_IGNORED_ERROR]


def test_a_queue_pair_is_used_for_the_rank_it_was_declared_for(pair: Pair, ring: Ring) -> None:
    ring.write(HintKind.PEER, writer=2)
    ring.write(HintKind.USE, writer=2, index=0)
    ring.ring()
    assert pair.a.rules() == []
    ring.write(HintKind.USE, writer=1, index=5)
    ring.ring()
    assert pair.a.rules() == [Rule.C28_PEER]


@pytest.mark.parametrize(
    ("offset", "length", "opcode", "named"),
    [
        (0, 8, Opcode.WRITE, False),
        (0, 4, Opcode.WRITE, True),
        (4, 8, Opcode.WRITE, True),
        (8, 8, Opcode.WRITE, False),
        (0, 64, Opcode.WRITE, True),
        (0, 8, Opcode.ATOMIC_ADD, True),
    ],
)
def test_a_signal_changes_as_declared(
    pair: Pair, offset: int, length: int, opcode: Opcode, named: bool
) -> None:
    ring = Ring(pair.b)
    signal = pair.b.driver.virtual(pair.b.window + 256)
    ring.write(HintKind.SIGNAL, qpn=0, detail=SignalOp.SET, length=8, address=signal)
    ring.ring()
    more: dict[str, Any] = {}
    if opcode is Opcode.ATOMIC_ADD:
        more = {"result_address": pair.a.driver.virtual(pair.a.window), "result_lkey": pair.a.driver.key}
    pair.post(length, opcode=opcode, remote_address=signal + offset, **more)
    pair.run()
    assert pair.b.rules() == ([Rule.C25_SIGNAL] if named else [])


@pytest.mark.parametrize(
    "values",
    [
        {"kind": 0},
        {"kind": 99},
        {"kind": HintKind.ORDER, "detail": 9},
        {"kind": HintKind.ORDER, "detail": 1, "scope": 9},
        {"kind": HintKind.LOCK, "qpn": 0x777},
        {"kind": HintKind.STALL, "detail": 77},
        {"kind": HintKind.SIGNAL, "qpn": 0, "length": 3, "detail": 1},
        {"kind": HintKind.LOCK, "sequence": 12345},
    ],
)
def test_a_bad_hint_is_named_and_ignored(pair: Pair, ring: Ring, values: dict[str, int]) -> None:
    ring.write(values.pop("kind"), **values)
    ring.ring()
    assert pair.a.rules() == [Rule.C34_HINT]
    assert ring.consumer() == 1


def test_another_process_cannot_be_hinted_about(pair: Pair, ring: Ring) -> None:
    driver = pair.a.driver
    own = driver.ctx, driver.pd, driver.key
    driver.ctx = driver.command(AdminOpcode.ALLOC_CTX).ctx
    driver.pd = driver.command(AdminOpcode.ALLOC_PD, ctx=driver.ctx).object
    driver.key = driver.register(pair.a.machine.ram_base, pair.a.machine.ram_size)
    other = driver.create_qp(driver.create_cq(events=False))
    driver.ctx, driver.pd, driver.key = own
    ring.write(HintKind.LOCK, qpn=other.number)
    ring.ring()
    assert pair.a.rules() == [Rule.C34_HINT]


def test_a_producer_that_runs_away_is_named_and_the_ring_goes_on(pair: Pair, ring: Ring) -> None:
    ring.publish(1000)
    ring.ring()
    assert pair.a.rules() == [Rule.C34_HINT]
    ring.producer = 1000
    ring.write(HintKind.LOCK, writer=1)
    ring.ring()
    assert pair.a.rules() == [Rule.C34_HINT, Rule.C20_LOCK]


def test_the_ring_goes_round_and_tells_how_far_the_device_is(pair: Pair, ring: Ring) -> None:
    for number in range(5 << LOG_SIZE):
        ring.write(HintKind.PEER, writer=1)
        if number % 7 == 6:
            ring.ring()
    ring.ring()
    assert ring.consumer() == 5 << LOG_SIZE
    assert pair.a.rules() == []


def test_the_ring_pins_its_region_until_it_ends(pair: Pair, ring: Ring) -> None:
    driver = pair.a.driver
    with pytest.raises(Refused) as refused:
        driver.command(AdminOpcode.DEREG_MR, object=driver.key)
    assert refused.value.status is AdminStatus.BUSY
    driver.command(AdminOpcode.SET_HINTS, ctx=driver.ctx, log_size=NO_HINTS)
    for number in (pair.a.qp.number,):
        driver.command(AdminOpcode.DESTROY_QP, object=number)
    driver.command(AdminOpcode.DESTROY_CQ, object=pair.a.cq.number)
    driver.command(AdminOpcode.DEREG_MR, object=driver.key)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"log_size": 17}, AdminStatus.BAD_FIELD),
        ({"ctx": 200}, AdminStatus.BAD_OBJECT),
        ({"ring_key": 0x123}, AdminStatus.BAD_OBJECT),
        ({"ring_address": 1}, AdminStatus.BAD_FIELD),
    ],
)
def test_a_ring_that_cannot_be_is_refused(pair: Pair, values: dict[str, int], status: AdminStatus) -> None:
    driver = pair.a.driver
    fields = {
        "ctx": driver.ctx,
        "ring_key": driver.key,
        "ring_address": driver.virtual(driver.allocate(8192)),
        "log_size": 4,
    }
    with pytest.raises(Refused) as refused:
        driver.command(AdminOpcode.SET_HINTS, **(fields | values))
    assert refused.value.status is status


def test_a_hint_doorbell_without_a_ring_is_refused(pair: Pair) -> None:
    driver = pair.a.driver
    driver.ring(driver.ctx, DoorbellOffset.HINTS, driver.doorbell_value(DoorbellType.HINTS, 0, 0))
    assert pair.a.rules() == [Rule.C29_UNSUPPORTED]


def test_any_bytes_in_the_ring_hurt_nobody(pair: Pair, ring: Ring) -> None:
    rng = random.Random(1)
    for _ in range(300):
        size = HINT_SIZE << LOG_SIZE
        at = rng.randrange(size)
        piece = rng.randbytes(rng.randrange(1, 200))[: size - at]
        pair.a.machine.store(ring.at + HINT_HEADER_SIZE + at, piece)
        ring.producer += rng.randrange(20) if rng.random() < 0.95 else rng.randrange(1 << 32)
        ring.publish(ring.producer)
        ring.ring()
        pair.post()
        pair.run()
    assert set(pair.a.rules()) <= {
        Rule.C34_HINT,
        Rule.C09_ORDER,
        Rule.C10_SCOPE,
        Rule.C24_UNORDERED,
        Rule.C05_REUSE,
        Rule.C20_LOCK,
        Rule.C14_UNRUNG,
        Rule.C28_PEER,
        Rule.C17_IGNORED_ERROR,
    }
    assert Rule.C34_HINT in pair.a.rules()
    # The queue pair works on, and so does its peer.
    assert pair.a.machine.nic.counters.wqes == 300
    assert pair.b.rules() == []
