# SPDX-License-Identifier: Apache-2.0
"""The DMA map equals a plain array of bytes with holes, and says where the holes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.pcie.bus import BusError
from emu.transport.dma import DmaMap

PAGE = 16
PAGES = 12


def test_reads_and_writes_cross_adjacent_ranges() -> None:
    dma = DmaMap()
    low, high = bytearray(8), bytearray(8)
    dma.add(0x1008, 8, memoryview(high))
    dma.add(0x1000, 8, memoryview(low))
    dma.write(0x1004, b"abcdefgh")
    assert bytes(low) == b"\0\0\0\0abcd"
    assert bytes(high) == b"efgh\0\0\0\0"
    assert dma.read(0x1004, 8) == b"abcdefgh"
    with pytest.raises(BusError, match="leaves the mapping that ends at 0x1008"):
        dma.view(0x1004, 8)


def test_a_view_is_the_memory_itself() -> None:
    dma = DmaMap()
    memory = bytearray(64)
    dma.add(0x4000, 64, memoryview(memory))
    view = dma.view(0x4010, 4, writable=True)
    view[:] = b"data"
    assert memory[16:20] == b"data"
    memory[16] = 0x44
    assert view[0] == 0x44


def test_a_write_into_a_hole_changes_nothing_and_names_the_hole() -> None:
    dma = DmaMap()
    memory = bytearray(8)
    dma.add(0x1000, 8, memoryview(memory))
    with pytest.raises(BusError) as caught:
        dma.write(0x1004, b"abcdefgh")
    assert (caught.value.address, caught.value.length) == (0x1008, 4)
    assert memory == bytes(8)


def test_a_read_only_range_refuses_writes_only() -> None:
    dma = DmaMap()
    dma.add(0, 8, memoryview(b"constant"))
    assert dma.read(0, 8) == b"constant"
    with pytest.raises(BusError, match="read-only"):
        dma.write(0, b"x")
    with pytest.raises(BusError, match="read-only"):
        dma.view(0, 1, writable=True)


def test_a_range_without_memory_is_known_and_unreachable() -> None:
    dma = DmaMap()
    dma.add(0xFE000000, 0x1000, None)
    found = dma.find(0xFE000FFF)
    assert found is not None and found.memory is None and found.size == 0x1000
    for attempt in (lambda: dma.read(0xFE000000, 4), lambda: dma.view(0xFE000000, 4)):
        with pytest.raises(BusError, match="shares no memory"):
            attempt()


def test_the_last_hit_is_forgotten_when_its_range_goes() -> None:
    dma = DmaMap()
    dma.add(0x1000, 8, memoryview(bytearray(8)))
    assert dma.read(0x1000, 1) == b"\0"
    generation = dma.generation
    dma.remove(0x1000, 8)
    assert dma.generation > generation
    with pytest.raises(BusError, match="nothing is mapped"):
        dma.read(0x1000, 1)
    with pytest.raises(BusError, match="nothing is mapped"):
        dma.view(0x1000, 1)


@pytest.mark.parametrize(
    ("address", "size"), [(0x1000, 16), (0xFFF, 2), (0x100F, 1), (0x1004, 4), (0xF00, 0x1000)]
)
def test_overlap_is_refused(address: int, size: int) -> None:
    dma = DmaMap()
    dma.add(0x1000, 16, memoryview(bytearray(16)))
    dma.add(0x2000, 16, None)
    with pytest.raises(ValueError, match="overlaps"):
        dma.add(address, size, None)
    assert len(dma) == 2


@pytest.mark.parametrize(("address", "size"), [(0, 0), (1, -1), (-1, 4), ((1 << 64) - 1, 2)])
def test_an_impossible_range_is_refused(address: int, size: int) -> None:
    with pytest.raises(ValueError, match="empty or outside"):
        DmaMap().add(address, size, None)


def test_memory_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="given 0x4 bytes"):
        DmaMap().add(0, 8, memoryview(bytearray(4)))


def test_only_an_exact_range_can_be_removed() -> None:
    dma = DmaMap()
    dma.add(0x1000, 16, None)
    for address, size in ((0x1000, 8), (0x1008, 8), (0, 16)):
        with pytest.raises(KeyError):
            dma.remove(address, size)
    assert [entry.start for entry in dma] == [0x1000]
    dma.clear()
    assert len(dma) == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("map"), st.integers(0, PAGES - 1), st.integers(1, 3)),
        st.tuples(st.just("unmap"), st.integers(0, PAGES - 1), st.just(0)),
        st.tuples(st.just("write"), st.integers(0, PAGES * PAGE), st.integers(0, 5 * PAGE)),
        st.tuples(st.just("read"), st.integers(0, PAGES * PAGE), st.integers(0, 5 * PAGE)),
    ),
    max_size=40,
)


@given(steps)
def test_the_map_equals_an_array_with_holes(script: list[tuple[str, int, int]]) -> None:
    dma = DmaMap()
    model: list[int | None] = [None] * (PAGE * (PAGES + 8))
    ranges: dict[int, int] = {}
    for number, (what, at, length) in enumerate(script):
        if what == "map":
            start, size = at * PAGE, length * PAGE
            if any(cell is not None for cell in model[start : start + size]):
                with pytest.raises(ValueError, match="overlaps"):
                    dma.add(start, size, memoryview(bytearray(size)))
            else:
                dma.add(start, size, memoryview(bytearray(size)))
                model[start : start + size] = [0] * size
                ranges[start] = size
        elif what == "unmap":
            start = at * PAGE
            if start in ranges:
                size = ranges.pop(start)
                dma.remove(start, size)
                model[start : start + size] = [None] * size
            else:
                with pytest.raises(KeyError):
                    dma.remove(start, PAGE)
        else:
            span = model[at : at + length]
            hole = next((at + i for i, cell in enumerate(span) if cell is None), None)
            data = bytes((number + i) & 0xFF for i in range(length))
            if hole is not None:
                with pytest.raises(BusError) as caught:
                    dma.write(at, data) if what == "write" else dma.read(at, length)
                assert caught.value.address == hole
            elif what == "write":
                dma.write(at, data)
                model[at : at + length] = list(data)
            else:
                assert list(dma.read(at, length)) == span
    assert {entry.start: entry.size for entry in dma} == ranges
