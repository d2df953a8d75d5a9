# SPDX-License-Identifier: Apache-2.0
"""What direct submitters rely on: what a doorbell says, pushed descriptors, WAIT, DUMP, all atomics."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.clock import MS, VirtualScheduler
from emu.events import Kind
from emu.nic.work import QpState
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CqeOpcode, CqeSyndrome, WqeOpcode
from emu.personality.mlx5.formats.atomics import AtomicModifier
from emu.personality.mlx5.identity import UAR_SIZE
from tests.personality.mlx5.machine import Cq, Machine, Qp, data, inline, remote

PAGE = 4096
GID = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, 1))
CQE = 2 << 2
FENCE = 2 << 5


class Submitter:
    """A queue pair connected to another one of the same NIC, and memory of both sides."""

    def __init__(self) -> None:
        self.machine = machine = Machine(clock=VirtualScheduler())
        machine.address(0, GID)
        self.uar, self.pd = machine.uar(), machine.pd()
        self.eq, _ = machine.eq(vector=1)
        self.cq = machine.cq(self.eq, self.uar)
        self.own, self.theirs = machine.allocate(PAGE), machine.allocate(PAGE)
        self.key = machine.mkey(self.pd, self.own, PAGE)
        self.rkey = machine.mkey(self.pd, self.theirs, PAGE)
        self.qp = self.make(self.cq, self.uar)

    def make(self, cq: Cq, uar: int, **context: int) -> Qp:
        """A connected queue pair."""
        machine = self.machine
        qp, peer = machine.qp(self.pd, cq, uar, **context), machine.qp(self.pd, cq, uar)
        machine.connect(qp, peer.number, GID, machine.mac)
        machine.connect(peer, qp.number, GID, machine.mac)
        return qp

    def write(self, payload: bytes, flags: int = CQE, qp: Qp | None = None, at: int = 0) -> None:
        """A WRITE of inline bytes in the next slot, not rung."""
        target = remote(self.theirs + at, self.rkey)
        (qp or self.qp).write(WqeOpcode.RDMA_WRITE, target, inline(payload), flags=flags)

    def record(self, index: int, qp: Qp | None = None) -> None:
        """Store the send dword of the doorbell record."""
        self.machine.store((qp or self.qp).record + 4, (index & 0xFFFF).to_bytes(4, "big"))

    def ring(self, index: int, *, high: int = 0, qp: Qp | None = None, place: int = 0x800) -> None:
        """Ring with the index of the next free slot."""
        number = (qp or self.qp).number
        self.store(place, struct.pack(">II", high << 24 | (index & 0xFFFF) << 8, number << 8))

    def store(self, place: int, words: bytes) -> None:
        """A store to the doorbell page."""
        self.machine.registers.write(self.uar * UAR_SIZE + place, words)

    def slot(self, index: int, qp: Qp | None = None) -> bytes:
        """What is in a slot of the send ring."""
        return self.machine.load((qp or self.qp).sends + index % 16 * 64, 64)

    def run(self, duration: int = 5 * MS) -> None:
        """Let time pass."""
        self.machine.clock.run(until=self.machine.clock.now() + duration)

    def rules(self) -> list[str]:
        """Rules named so far, and forget them."""
        found = [text.split(":")[0] for text in self.machine.events.texts(Kind.CHECK)]
        self.machine.events.events.clear()
        return found

    def held(self, length: int = 8) -> bytes:
        """The peer's memory."""
        return self.machine.load(self.theirs, length)

    def counters(self) -> list[int]:
        """Counters of the completions that came, all good."""
        found = []
        while (done := self.cq.poll()) is not None:
            assert done.opcode == CqeOpcode.REQUESTER, done
            found.append(done.counter)
        return found


@pytest.fixture
def submitter() -> Submitter:
    """A connected one."""
    return Submitter()


# What a doorbell says


def test_the_index_of_the_next_free_slot_rings_without_a_record(submitter: Submitter) -> None:
    submitter.write(b"one")
    submitter.write(b"two")
    submitter.ring(1)
    submitter.run()
    assert submitter.counters() == [0]
    submitter.ring(2)
    submitter.run()
    assert submitter.counters() == [1]
    assert submitter.held(3) == b"two"


def test_bits_of_a_wider_index_above_it_do_not_count(submitter: Submitter) -> None:
    submitter.write(b"one")
    submitter.ring(1, high=0x17)
    submitter.run()
    assert submitter.counters() == [0]


def test_the_header_of_the_last_descriptor_rings_for_all_its_blocks(submitter: Submitter) -> None:
    submitter.write(bytes(100))
    assert submitter.qp.sent == 3
    submitter.store(0x900, submitter.slot(0)[:8])
    submitter.run()
    assert submitter.counters() == [0]


def test_the_record_counts_where_it_is_ahead(submitter: Submitter) -> None:
    for payload in (b"one", b"two", b"three"):
        submitter.write(payload)
    submitter.record(3)
    submitter.ring(1)
    submitter.run()
    assert submitter.counters() == [0, 1, 2]
    # The other doorbells were on their way.
    submitter.ring(2)
    submitter.ring(3)
    submitter.run()
    assert submitter.rules() == []
    assert submitter.machine.nic.counters.doorbells_ignored == 2


def test_a_doorbell_before_and_after_the_record_rings_once(submitter: Submitter) -> None:
    submitter.write(b"one")
    submitter.ring(1)
    submitter.record(1)
    submitter.ring(1)
    submitter.run()
    assert submitter.counters() == [0]
    assert submitter.rules() == []


def test_an_older_doorbell_is_named(submitter: Submitter) -> None:
    submitter.write(b"one")
    submitter.write(b"two")
    submitter.ring(2)
    submitter.ring(1)
    submitter.run()
    assert submitter.counters() == [0, 1]
    assert submitter.rules() == ["C07"]


def test_a_doorbell_beyond_the_ring_is_named_and_ignored(submitter: Submitter) -> None:
    submitter.ring(20)
    submitter.run()
    assert submitter.rules() == ["C06"]
    submitter.write(b"one")
    submitter.record(1)
    # The odd one was the last: this one is older, but the record is right.
    submitter.ring(1)
    submitter.run()
    assert submitter.counters() == [0]


def test_two_halves_ring_and_are_named(submitter: Submitter) -> None:
    submitter.write(b"one")
    submitter.record(1)
    submitter.store(0x800, bytes(4))
    submitter.store(0x804, (submitter.qp.number << 8).to_bytes(4, "big"))
    submitter.run()
    assert submitter.counters() == [0]
    assert submitter.rules() == ["C12"]


@pytest.mark.parametrize("store", [b"\0", b"\0\0", bytes(16)])
def test_a_store_of_another_width_is_named(submitter: Submitter, store: bytes) -> None:
    submitter.store(0x800, store)
    assert submitter.rules() == ["C12"]


def test_another_queues_page_does_not_ring(submitter: Submitter) -> None:
    submitter.write(b"one")
    other = submitter.machine.uar()
    doorbell = struct.pack(">II", 1 << 8, submitter.qp.number << 8)
    submitter.machine.registers.write(other * UAR_SIZE + 0x800, doorbell)
    submitter.run()
    assert submitter.counters() == []
    assert submitter.rules() == ["C02"]


def test_a_queue_pair_without_a_record_is_rung_by_doorbells_alone(submitter: Submitter) -> None:
    qp = submitter.make(submitter.cq, submitter.uar, send_dbr_mode=1, rq_type=3)
    qp.sends = qp.receives
    submitter.record(1, qp)
    submitter.write(b"one", qp=qp)
    submitter.write(b"two", qp=qp)
    submitter.ring(1, qp=qp)
    submitter.run()
    assert submitter.counters() == [0]


@pytest.mark.parametrize("start", [0xFFF0, 0xFFFF])
def test_indices_begin_where_the_context_says(submitter: Submitter, start: int) -> None:
    qp = submitter.make(
        submitter.cq, submitter.uar, hw_sq_wqebb_counter=start, sw_sq_wqebb_counter=start, rq_type=3
    )
    qp.sends, qp.sent = qp.receives, start
    submitter.record(start, qp)
    for number in range(20):
        submitter.write(b"%d" % number, qp=qp)
        submitter.ring(qp.sent, qp=qp)
        submitter.run()
        assert submitter.counters() == [(start + number) & 0xFFFF]


# Pushed descriptors


def push(submitter: Submitter, index: int, order: list[int], place: int = 0x800) -> None:
    """Store a slot's words to a doorbell register."""
    words = submitter.slot(index)
    for word in order:
        submitter.store(place + 8 * word, words[8 * word : 8 * word + 8])


@settings(max_examples=50)
@given(st.permutations(range(8)), st.sampled_from([0x800, 0x900, 0xA00]))
def test_words_of_a_pushed_descriptor_may_come_in_any_order(order: list[int], place: int) -> None:
    submitter = Submitter()
    for number in range(4):
        submitter.write(b"message %d" % number)
        submitter.record(number + 1)
        push(submitter, number, order, place)
        submitter.run()
        assert submitter.counters() == [number]
    assert submitter.machine.nic.counters.pushed_wqes == 4
    assert submitter.machine.nic.counters.wqe_fetches == 0
    assert submitter.held(9) == b"message 3"
    assert submitter.rules() == []


def test_one_with_a_missing_word_is_fetched(submitter: Submitter) -> None:
    submitter.write(b"message 0")
    push(submitter, 0, [0, 1, 2, 4, 5, 6, 7])
    submitter.run()
    assert submitter.counters() == [0]
    assert submitter.machine.nic.counters.pushed_wqes == 0
    # What is left of it does not spoil the next one.
    submitter.write(b"message 1")
    push(submitter, 1, list(range(8)))
    submitter.run()
    assert submitter.counters() == [1]
    assert submitter.held(9) == b"message 1"
    assert submitter.rules() == []


def test_one_that_comes_too_late_is_fetched(submitter: Submitter) -> None:
    submitter.write(b"message 0")
    push(submitter, 0, [0])
    submitter.run()
    push(submitter, 0, [1, 2, 3, 4, 5, 6, 7])
    submitter.run()
    assert submitter.counters() == [0]
    assert submitter.machine.nic.counters.wqe_fetches == 1
    assert submitter.machine.nic.counters.pushed_wqes == 0


def test_one_that_the_ring_has_otherwise_is_named_and_fetched(submitter: Submitter) -> None:
    submitter.write(b"as pushed")
    words = submitter.slot(0)
    submitter.qp.sent = 0
    submitter.write(b"in memory")
    for word in range(7, -1, -1):
        submitter.store(0x800 + 8 * word, words[8 * word : 8 * word + 8])
    submitter.run()
    assert submitter.held(9) == b"in memory"
    assert submitter.rules() == ["C04"]


def test_only_the_sole_descriptor_to_fetch_is_taken_as_pushed(submitter: Submitter) -> None:
    submitter.write(b"message 0")
    submitter.write(b"message 1")
    push(submitter, 1, [7, 6, 5, 4, 3, 2, 1, 0])
    submitter.run()
    assert submitter.counters() == [0, 1]
    assert submitter.machine.nic.counters.pushed_wqes == 0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 127), st.binary(min_size=8, max_size=8)), max_size=60))
def test_garbage_in_the_page_hurts_no_later_work(stores: list[tuple[int, bytes]]) -> None:
    submitter = Submitter()
    for word, value in stores:
        submitter.store(0x800 + 8 * word, value)
    submitter.run()
    submitter.write(b"message 0")
    submitter.record(1)
    push(submitter, 0, list(range(8)))
    submitter.run()
    assert submitter.counters() == [0]


# WAIT and DUMP


def wait(index: int, cqn: int) -> bytes:
    """The segment of a WAIT."""
    return struct.pack(">8xII", index, cqn)


def test_a_queue_waits_for_another_ones_completion(submitter: Submitter) -> None:
    second = submitter.machine.cq(submitter.eq, submitter.uar)
    companion = submitter.make(second, submitter.uar)
    companion.write(WqeOpcode.WAIT, wait(1, submitter.cq.number), flags=CQE)
    submitter.write(b"behind", qp=companion)
    companion.ring()
    submitter.write(b"first", at=64)
    submitter.qp.ring()
    submitter.run()
    # One completion is there, number 0; number 1 is still to come.
    assert submitter.counters() == [0]
    assert second.poll() is None
    assert submitter.held(6) == bytes(6)
    submitter.write(b"second", at=64)
    submitter.qp.ring()
    submitter.run()
    assert submitter.held(6) == b"behind"
    waited, written = second.poll(), second.poll()
    assert waited is not None and written is not None
    assert (waited.wqe_opcode, waited.counter, written.counter) == (WqeOpcode.WAIT, 0, 1)


def test_a_completion_that_is_there_is_not_waited_for(submitter: Submitter) -> None:
    submitter.write(b"first")
    submitter.qp.ring()
    submitter.run()
    companion = submitter.make(submitter.cq, submitter.uar)
    companion.post(WqeOpcode.WAIT, wait(0, submitter.cq.number))
    submitter.run()
    assert submitter.counters() == [0, 0]


def test_a_waiting_queue_can_be_reset_and_destroyed(submitter: Submitter) -> None:
    companion = submitter.make(submitter.cq, submitter.uar)
    companion.post(WqeOpcode.WAIT, wait(7, submitter.cq.number))
    submitter.run()
    submitter.machine.do(Op.QP_2ERR, qpn=companion.number)
    submitter.run()
    flushed = submitter.cq.poll()
    assert flushed is not None and flushed.syndrome == CqeSyndrome.FLUSHED
    submitter.machine.do(Op.DESTROY_QP, qpn=companion.number)
    submitter.write(b"on")
    submitter.qp.ring()
    submitter.run()
    assert submitter.counters() == [0]


def failing(submitter: Submitter, *segments: bytes, opcode: int, modifier: int = 0) -> int:
    """Post one that must end the queue pair; its syndrome."""
    submitter.qp.write(opcode | modifier << 24, *segments, flags=CQE)
    submitter.qp.ring()
    submitter.run()
    done = submitter.cq.poll()
    assert done is not None and done.opcode == CqeOpcode.REQUESTER_ERROR
    assert submitter.machine.nic.qps.items[submitter.qp.number].state is QpState.ERR
    return done.syndrome


def test_a_wait_for_nothing_fails(submitter: Submitter) -> None:
    assert failing(submitter, wait(0, 999), opcode=WqeOpcode.WAIT) == CqeSyndrome.LOCAL_QP_OPERATION


def test_a_wait_for_a_cq_of_another_page_fails(submitter: Submitter) -> None:
    other = submitter.machine.cq(submitter.eq, submitter.machine.uar())
    syndrome = failing(submitter, wait(0, other.number), opcode=WqeOpcode.WAIT)
    assert syndrome == CqeSyndrome.LOCAL_QP_OPERATION


@pytest.mark.parametrize(("segments", "modifier"), [((), 0), ((wait(0, 1),), 1), ((wait(0, 1),), 2)])
def test_a_malformed_wait_fails(submitter: Submitter, segments: tuple[bytes, ...], modifier: int) -> None:
    syndrome = failing(submitter, *segments, opcode=WqeOpcode.WAIT, modifier=modifier)
    assert syndrome == CqeSyndrome.LOCAL_QP_OPERATION
    assert submitter.rules() == ["C29"]


def test_a_cq_that_is_waited_for_and_destroyed_fails_the_wait(submitter: Submitter) -> None:
    other = submitter.machine.cq(submitter.eq, submitter.uar)
    submitter.qp.post(WqeOpcode.WAIT, wait(0, other.number))
    submitter.run()
    assert submitter.cq.poll() is None
    submitter.machine.do(Op.DESTROY_CQ, cqn=other.number)
    submitter.run()
    done = submitter.cq.poll()
    assert done is not None and done.syndrome == CqeSyndrome.LOCAL_QP_OPERATION


def test_a_dump_reads_and_completes_behind_what_came_before(submitter: Submitter) -> None:
    submitter.machine.store(submitter.theirs, b"fetched!")
    piece = data(submitter.own, 8, submitter.key)
    submitter.qp.write(WqeOpcode.RDMA_READ, remote(submitter.theirs, submitter.rkey), piece, flags=0)
    submitter.qp.write(WqeOpcode.DUMP, data(submitter.own, 1, submitter.key), flags=CQE | FENCE)
    submitter.qp.ring()
    submitter.machine.bus.log.clear()
    submitter.run()
    assert submitter.counters() == [1]
    assert submitter.machine.load(submitter.own, 8) == b"fetched!"
    accesses = [entry for entry in submitter.machine.bus.log if entry[1] == submitter.own]
    assert [entry[0] for entry in accesses[:2]] == ["write", "read"]


def test_a_dump_of_foreign_memory_fails(submitter: Submitter) -> None:
    piece = data(submitter.own, 2 * PAGE, submitter.key)
    assert failing(submitter, piece, opcode=WqeOpcode.DUMP) == CqeSyndrome.LOCAL_PROTECTION


# Atomics

WORD = 0x1122334455667788
FOUR, EIGHT = AtomicModifier.FOUR << 24, AtomicModifier.EIGHT << 24


@pytest.mark.parametrize(
    ("opcode", "operands", "size", "after"),
    [
        (WqeOpcode.ATOMIC_FA, struct.pack(">QQ", 1, 0), 8, WORD + 1),
        (WqeOpcode.ATOMIC_CS, struct.pack(">QQ", 5, WORD), 8, 5),
        (WqeOpcode.ATOMIC_CS, struct.pack(">QQ", 5, 6), 8, WORD),
        (WqeOpcode.ATOMIC_MASKED_FA | EIGHT, struct.pack(">QQ", 0x100, 0), 8, WORD + 0x100),
        (WqeOpcode.ATOMIC_MASKED_FA | EIGHT, struct.pack(">QQ", 0xFF, 0x80), 8, WORD & ~0xFF | 0x87),
        (WqeOpcode.ATOMIC_MASKED_FA | FOUR, struct.pack(">II8x", -17 & 0xFFFFFFFF, 0), 4, WORD - 17),
        (WqeOpcode.ATOMIC_MASKED_CS | FOUR, struct.pack(">IIII", 7, 0, 0xFF, 0), 4, WORD & ~0xFF | 7),
        (WqeOpcode.ATOMIC_MASKED_CS | FOUR, struct.pack(">IIII", 7, 1, 0xFF, 0xFF), 4, WORD),
        (WqeOpcode.ATOMIC_MASKED_CS | EIGHT, struct.pack(">QQQQ", 9, 0, 2**64 - 1, 0), 8, 9),
    ],
)
def test_atomics(submitter: Submitter, opcode: int, operands: bytes, size: int, after: int) -> None:
    submitter.machine.store(submitter.theirs, WORD.to_bytes(8, "little"))
    result = data(submitter.own, size, submitter.key)
    submitter.qp.post(opcode, remote(submitter.theirs, submitter.rkey), operands, result)
    submitter.run()
    assert submitter.counters() == [0]
    assert submitter.machine.load(submitter.own, 8) == WORD.to_bytes(8, "little")[:size].ljust(8, b"\0")
    assert submitter.held() == after.to_bytes(8, "little")


@pytest.mark.parametrize("modifier", [0, 1, 0x0A, 0xFF])
def test_a_masked_atomic_of_no_known_size_fails(submitter: Submitter, modifier: int) -> None:
    segments = (
        remote(submitter.theirs, submitter.rkey),
        bytes(16),
        data(submitter.own, 8, submitter.key),
    )
    syndrome = failing(submitter, *segments, opcode=WqeOpcode.ATOMIC_MASKED_FA, modifier=modifier)
    assert syndrome == CqeSyndrome.LOCAL_QP_OPERATION


# Collapsed and overrun-ignoring queues


def test_a_collapsed_cq_shows_the_last_completion_for_ever(submitter: Submitter) -> None:
    collapsed = submitter.machine.cq(submitter.eq, submitter.uar, cc=1, oi=1, log_cq_size=10)
    qp = submitter.make(collapsed, submitter.uar)
    order = list(range(200))
    random.Random(1).shuffle(order)
    for number in range(200):
        submitter.write(bytes([number]), qp=qp)
        qp.ring()
        submitter.run(1 * MS)
        entry = submitter.machine.load(collapsed.ring, 64)
        assert int.from_bytes(entry[60:62], "big") == number
        assert entry[63] >> 4 == CqeOpcode.REQUESTER
    # Nothing beyond the slot was touched.
    assert submitter.machine.load(collapsed.ring + 64, 64) == bytes(63) + b"\xf1"


def test_a_ring_that_ignores_overruns_goes_on(submitter: Submitter) -> None:
    lenient = submitter.machine.cq(submitter.eq, submitter.uar, oi=1)
    qp = submitter.make(lenient, submitter.uar)
    for _ in range(40):
        submitter.write(b"more", qp=qp)
        qp.ring()
        submitter.run(1 * MS)
    assert submitter.machine.nic.qps.items[qp.number].state is QpState.RTS
    assert submitter.machine.nic.counters.cq_overruns == 0
    assert submitter.rules() == []
