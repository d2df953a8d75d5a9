# SPDX-License-Identifier: Apache-2.0
"""Page lists against memory laid out by hand."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from emu.clock import VirtualScheduler
from emu.events import EventBus
from emu.nic.counters import Counters
from emu.nic.dma import Dma
from emu.nic.pages import PageList
from emu.nic.trace import Trace
from tests.nic.fakes import MemoryBus

SHIFT = 4
SIZE = 1 << SHIFT


def dma_over(bus: MemoryBus) -> Dma:
    """DMA without listeners."""
    return Dma(bus, Counters(), Trace(EventBus(), VirtualScheduler(), "nic"))


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Page addresses (some neighbours, some not), first offset, length."""
    pages = draw(st.lists(st.integers(0, 63), min_size=1, max_size=12, unique=True))
    offset = draw(st.integers(0, SIZE - 1))
    most = len(pages) * SIZE - offset
    least = max(1, most - SIZE + 1)
    return [page * SIZE for page in pages], offset, draw(st.integers(least, most))


def plain(pages: list[int], offset: int, length: int) -> list[int]:
    """Bus address of each byte."""
    addresses = [page + byte for page in pages for byte in range(SIZE)]
    return addresses[offset : offset + length]


@given(lists(), st.data())
def test_segments_name_the_bytes_of_the_pages_in_order(
    made: tuple[list[int], int, int], data: st.DataObject
) -> None:
    pages, offset, length = made
    listed = PageList(pages, SHIFT, offset, length)
    start = data.draw(st.integers(0, length - 1))
    size = data.draw(st.integers(0, length - start))
    pieces = listed.segments(start, size)
    flat = [address + byte for address, count in pieces for byte in range(count)]
    assert flat == plain(pages, offset, length)[start : start + size]
    for (left, count), (right, _) in pairwise(pieces):
        assert left + count != right, "neighbours are merged"


@given(lists(), st.data())
def test_reads_and_writes_reach_those_bytes_only(
    made: tuple[list[int], int, int], data: st.DataObject
) -> None:
    pages, offset, length = made
    bus = MemoryBus()
    memory = bus.map(0, 64 * SIZE)
    memory[:] = bytes(number & 0xFF for number in range(len(memory)))
    expected = bytearray(memory)
    listed = PageList(pages, SHIFT, offset, length)
    start = data.draw(st.integers(0, length - 1))
    payload = data.draw(st.binary(min_size=1, max_size=length - start))
    addresses = plain(pages, offset, length)[start : start + len(payload)]
    dma = dma_over(bus)
    assert listed.read(dma, start, len(payload)) == bytes(memory[address] for address in addresses)
    listed.write(dma, start, payload)
    for address, byte in zip(addresses, payload, strict=True):
        expected[address] = byte
    assert memory == expected


def test_a_contiguous_range_is_one_piece_of_any_size() -> None:
    listed = PageList.contiguous(0x1234, 1 << 40)
    assert listed.base == 0x1234
    assert listed.segments(5, 1 << 39) == [(0x1239, 1 << 39)]


def test_contiguous_at_knows_where_pages_meet() -> None:
    listed = PageList([0x100, 0x110, 0x300], SHIFT, 0, 48)
    assert listed.base is None
    assert listed.contiguous_at(0, 32) == 0x100
    assert listed.contiguous_at(32, 16) == 0x300
    assert listed.contiguous_at(31, 2) is None
