# SPDX-License-Identifier: Apache-2.0
"""What an engine can reach: gather and scatter lists, remote ranges, atomics, and each way to be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.checks.rule import Rule
from emu.events import Kind
from emu.nic.atomics import AtomicOperation
from emu.nic.engine import EngineHost, ProtectionError
from emu.nic.pages import PageList
from emu.nic.work import Access, Cause, Sge
from tests.nic.rig import RAM, Rig

SPACE = 0x7000_0000
SIZE = 0x2000
AT = RAM + 0x8_0000

ADD_ONE = AtomicOperation(add=True, operand=1)


class Setup:
    """A rig with one queue pair and a region of two far pages in reverse order."""

    def __init__(self) -> None:
        self.rig = Rig()
        cq, _ = self.rig.create_cq()
        self.qp, engine, _, _ = self.rig.create_qp(cq)
        self.host: EngineHost = engine.host
        pages = PageList([AT + 0x1000, AT], 12, 0, SIZE)
        self.region = self.rig.region(SPACE, pages)
        self.key = self.region.key

    def memory(self) -> bytes:
        """The region's bytes in virtual order."""
        return self.rig.load(AT + 0x1000, 0x1000) + self.rig.load(AT, 0x1000)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def cause(call: object, *arguments: object, **named: object) -> Cause:
    """Cause of a refused call."""
    with pytest.raises(ProtectionError) as caught:
        call(*arguments, **named)  # type: ignore[operator]
    return Cause(caught.value.cause)


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 700)), min_size=1, max_size=6), st.data())
def test_gather_and_scatter_are_slices_of_the_list_laid_end_to_end(
    elements: list[tuple[int, int]], data: st.DataObject
) -> None:
    made = Setup()
    sges = [Sge(SPACE + at, min(size, SIZE - at), made.key) for at, size in elements]
    total = sum(sge.length for sge in sges)
    start = data.draw(st.integers(0, total))
    length = data.draw(st.integers(0, total - start))
    filler = bytes((position * 31 + 7) & 0xFF for position in range(SIZE))
    made.rig.store(AT + 0x1000, filler[:0x1000])
    made.rig.store(AT, filler[0x1000:])
    flat = [sge.address - SPACE + byte for sge in sges for byte in range(sge.length)][start : start + length]
    assert made.host.gather(sges, start, length) == bytes(filler[at] for at in flat)
    payload = bytes((position * 13 + 1) & 0xFF for position in range(length))
    made.host.scatter(sges, start, payload)
    expected = bytearray(filler)
    for at, byte in zip(flat, payload, strict=True):
        expected[at] = byte
    assert made.memory() == expected


def test_a_range_past_the_list_is_refused(setup: Setup) -> None:
    sges = [Sge(SPACE, 8, setup.key), Sge(SPACE + SIZE - 8, 8, setup.key)]
    assert cause(setup.host.gather, sges, 0, 17) is Cause.LKEY_BOUNDS
    assert cause(setup.host.scatter, sges, 12, b"x" * 9) is Cause.LKEY_BOUNDS


def test_remote_bytes_go_and_come(setup: Setup) -> None:
    setup.host.check_remote(setup.key, SPACE + 0xFF0, 0x20, Access.REMOTE_WRITE)
    setup.host.write_remote(setup.key, SPACE + 0xFF0, b"0123456789abcdef" * 2)
    assert setup.host.read_remote(setup.key, SPACE + 0xFF8, 0x10) == b"89abcdef01234567"
    assert setup.rig.load(AT + 0x1FF0, 16) == setup.rig.load(AT, 16) == b"0123456789abcdef"


@pytest.mark.parametrize("add", [0, 1, (1 << 64) - 1, 1 << 63])
def test_fetch_and_add_wraps_at_64_bits(setup: Setup, add: int) -> None:
    setup.rig.store(AT + 0x1008, (5).to_bytes(8, "little"))
    assert setup.host.atomic(setup.key, SPACE + 8, AtomicOperation(add=True, operand=add)) == 5
    assert int.from_bytes(setup.rig.load(AT + 0x1008, 8), "little") == (5 + add) % (1 << 64)


@pytest.mark.parametrize(("compare", "after"), [(7, 99), (8, 7)])
def test_compare_and_swap_swaps_only_on_a_match(setup: Setup, compare: int, after: int) -> None:
    setup.rig.store(AT + 0x1000, (7).to_bytes(8, "little"))
    assert setup.host.atomic(setup.key, SPACE, AtomicOperation(add=False, operand=99, compare=compare)) == 7
    assert int.from_bytes(setup.rig.load(AT + 0x1000, 8), "little") == after


def test_refusals_are_counted_and_reported_with_their_rule(setup: Setup) -> None:
    assert cause(setup.host.gather, [Sge(SPACE, 8, 0x9999)], 0, 8) is Cause.LKEY_UNKNOWN
    assert cause(setup.host.write_remote, setup.key, SPACE + SIZE, b"x") is Cause.RKEY_BOUNDS
    assert cause(setup.host.read_remote, 0x9999, SPACE, 1) is Cause.RKEY_UNKNOWN
    counters, checks = setup.rig.nic.counters, setup.rig.nic.checks
    assert (counters.protection_errors, counters.check_violations) == (3, 3)
    assert (checks.last_rule, checks.last_qpn) == (Rule.C22_KEY, setup.qp.number)
    assert setup.rig.events.texts(Kind.CHECK)[1].startswith(
        f"C22: QP {setup.qp.number:#x}: rkey {setup.key:#x} covers"
    )


def test_another_domains_key_is_refused(setup: Setup) -> None:
    rig = setup.rig
    other = rig.nic.alloc_pd(rig.context)
    region = rig.nic.register_mr(
        other, access=Access.LOCAL_WRITE, address=0, pages=PageList.contiguous(AT, 64)
    )
    assert cause(setup.host.gather, [Sge(0, 8, region.key)], 0, 8) is Cause.LKEY_PD
    assert cause(setup.host.write_remote, region.key, 0, b"x") is Cause.RKEY_PD


def test_a_region_deregistered_in_the_middle_is_refused(setup: Setup) -> None:
    setup.host.check_remote(setup.key, SPACE, 16, Access.REMOTE_READ)
    setup.rig.nic.deregister_mr(setup.region)
    assert cause(setup.host.read_remote, setup.key, SPACE, 16) is Cause.RKEY_UNKNOWN


@pytest.mark.parametrize("right", [Access.REMOTE_WRITE, Access.REMOTE_READ, Access.REMOTE_ATOMIC])
def test_each_remote_right_counts(setup: Setup, right: Access) -> None:
    region = setup.rig.region(0, PageList.contiguous(AT, 64), Access.LOCAL_WRITE)
    assert cause(setup.host.check_remote, region.key, 0, 8, right) is Cause.RKEY_ACCESS


def test_scattering_needs_local_write_and_gathering_does_not(setup: Setup) -> None:
    region = setup.rig.region(0, PageList.contiguous(AT, 64), Access.REMOTE_READ)
    assert cause(setup.host.scatter, [Sge(0, 8, region.key)], 0, b"x") is Cause.LKEY_ACCESS
    assert len(setup.host.gather([Sge(0, 8, region.key)], 0, 8)) == 8


@pytest.mark.parametrize("address", [SPACE + 1, SPACE + 4])
def test_a_misaligned_atomic_is_refused(setup: Setup, address: int) -> None:
    assert cause(setup.host.atomic, setup.key, address, ADD_ONE) is Cause.RKEY_ACCESS
    assert setup.rig.nic.checks.last_rule is Rule.C23_ATOMIC


def test_memory_that_is_not_atomic_capable_takes_no_atomic(setup: Setup) -> None:
    region = setup.rig.region(0, PageList.contiguous(AT, 64), atomic=False)
    assert cause(setup.host.check_remote, region.key, 0, 8, Access.REMOTE_ATOMIC) is Cause.RKEY_ACCESS
    assert cause(setup.host.atomic, region.key, 0, ADD_ONE) is Cause.RKEY_ACCESS
    assert setup.rig.nic.checks.last_rule is Rule.C23_ATOMIC


def test_unmapped_memory_is_a_bus_error_not_an_exception(setup: Setup) -> None:
    region = setup.rig.region(0, PageList.contiguous(0xDEAD_0000, 64))
    for call, arguments in (
        (setup.host.gather, ([Sge(0, 8, region.key)], 0, 8)),
        (setup.host.scatter, ([Sge(0, 8, region.key)], 0, b"x")),
        (setup.host.write_remote, (region.key, 0, b"x")),
        (setup.host.read_remote, (region.key, 0, 1)),
    ):
        assert cause(call, *arguments) is Cause.BUS_ERROR
    assert cause(setup.host.atomic, region.key, 0, ADD_ONE) is Cause.BUS_ERROR
    assert setup.rig.nic.counters.dma_errors == 5


def test_bytes_moved_are_counted(setup: Setup) -> None:
    counters = setup.rig.nic.counters
    before = counters.dma_read_bytes, counters.dma_write_bytes
    setup.host.gather([Sge(SPACE, 100, setup.key)], 0, 100)
    setup.host.write_remote(setup.key, SPACE, b"x" * 30)
    assert (counters.dma_read_bytes - before[0], counters.dma_write_bytes - before[1]) == (100, 30)


def test_notes_are_counted_and_traced(setup: Setup) -> None:
    setup.host.note_retransmit(5, 3, 3000, "timeout")
    setup.host.note_drop("out_of_sequence", "PSN 9 while expecting 5")
    setup.host.note_drop("rx_dropped", "a stray response")
    setup.host.note_timer("no answer")
    setup.host.count("send_rnr_err")
    counters = setup.rig.nic.counters
    assert (counters.retransmitted_packets, counters.retransmitted_bytes) == (3, 3000)
    assert (counters.rx_dropped, counters.out_of_sequence, counters.send_rnr_err) == (2, 1, 1)
    name = f"QP {setup.qp.number:#x}"
    assert setup.rig.events.texts(Kind.RETRANSMIT) == [f"{name}: 3 packets again from PSN 5 (timeout)"]
    assert setup.rig.events.texts(Kind.FRAME_DROP)[1] == f"{name}: a stray response"
    assert setup.rig.events.texts(Kind.TIMER) == [f"{name}: no answer"]


def test_frames_are_counted_and_traced_with_their_bytes(setup: Setup) -> None:
    setup.host.send(b"frame")
    counters = setup.rig.nic.counters
    assert (counters.tx_packets, counters.tx_bytes) == (1, 5)
    assert setup.rig.port.sent == [b"frame"]
    assert [event.frame for event in setup.rig.events.events if event.kind is Kind.FRAME_OUT] == [b"frame"]
