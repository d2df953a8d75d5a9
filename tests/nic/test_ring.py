# SPDX-License-Identifier: Apache-2.0
"""Rings: spans that wrap, scattered memory, and the order of an entry's two writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.pages import PageList
from emu.nic.ring import Ring, RingMemory
from emu.pcie.bus import BusError
from tests.nic.fakes import MemoryBus
from tests.nic.test_pages import dma_over

SLOT = 16


def contiguous(bus: MemoryBus, log_size: int = 3) -> Ring:
    """A ring of 16-byte slots, each filled with its number."""
    memory = bus.map(0x1000, SLOT << log_size)
    for slot in range(1 << log_size):
        memory[slot * SLOT : (slot + 1) * SLOT] = bytes([slot]) * SLOT
    return Ring(RingMemory(PageList.contiguous(0x1000, SLOT << log_size), 0), SLOT, log_size, dma_over(bus))


@given(st.integers(0, 0xFFFFFFFF), st.integers(1, 8))
def test_a_span_takes_one_read_or_two_when_it_wraps(index: int, count: int) -> None:
    bus = MemoryBus()
    data = contiguous(bus).read(index, count)
    assert data == b"".join(bytes([(index + number) % 8]) * SLOT for number in range(count))
    assert len(bus.operations("read")) == (2 if index % 8 + count > 8 else 1)


def test_scattered_memory_is_read_page_by_page() -> None:
    bus = MemoryBus()
    bus.map(0x2000, 32)[:] = b"a" * 32
    bus.map(0x9000, 32)[:] = b"b" * 32
    ring = Ring(RingMemory(PageList([0x2000, 0x9000], 5, 0, 64), 0), SLOT, 2, dma_over(bus))
    assert ring.read(1, 2) == b"a" * SLOT + b"b" * SLOT
    ring.write(2, b"c" * 12, b"DDDD")
    assert bytes(bus.view(0x9000, SLOT)) == b"c" * 12 + b"DDDD"


def test_the_commit_word_goes_last() -> None:
    bus = MemoryBus()
    ring = contiguous(bus)
    ring.write(9, b"b" * 8, b"c" * 8)
    assert bus.operations("write") == [(0x1010, 8), (0x1018, 8)]


def test_an_entry_of_a_commit_word_alone_is_one_write() -> None:
    bus = MemoryBus()
    contiguous(bus).write(1, b"", b"c" * SLOT)
    assert bus.operations("write") == [(0x1010, SLOT)]


def test_an_unmapped_ring_raises_at_each_use() -> None:
    bus = MemoryBus()
    ring = contiguous(bus)
    bus.unmap(0x1000)
    with pytest.raises(BusError):
        ring.read(0, 1)
    with pytest.raises(BusError):
        ring.write(0, b"", b"x")
