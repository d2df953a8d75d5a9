# SPDX-License-Identifier: Apache-2.0
"""DMA: guest RAM, the BARs of peers, and what nothing answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.pcie.bus import BusError
from emu.pcie.header import Command, Status
from emu.pcie.hierarchy import Hierarchy
from tests.pcie.parts import MEMORY_SIZE, REGISTER_SIZE, Device, ram

RAM = 0x10_0000
RAM_SIZE = 0x8000
MEMORY = 0x38_0000_0000
REGISTERS = 0xFE00_0000


class Node:
    """Two functions of one guest: ``nic`` masters, ``gpu`` answers at MEMORY and REGISTERS."""

    def __init__(self) -> None:
        hierarchy = Hierarchy()
        self.nic = Device(hierarchy, "node0.nic0")
        self.gpu = Device(hierarchy, "node0.gpu0")
        self.dma, self.ram = ram(RAM, RAM_SIZE)
        self.nic.function.attached(self.dma)
        self.nic.set_command()
        self.gpu.place(0, REGISTERS)
        self.gpu.place(2, MEMORY)
        self.gpu.set_command(Command.MEMORY)
        self.bus = self.nic.function.bus


def test_ram_is_read_written_and_viewed() -> None:
    node = Node()
    node.bus.write(RAM + 16, b"hello")
    assert node.ram[16:21] == b"hello"
    assert node.bus.read(RAM + 16, 5) == b"hello"
    node.bus.view(RAM, 4, writable=True)[:] = b"abcd"
    assert node.ram[:4] == b"abcd"
    assert (node.bus.bytes_read, node.bus.bytes_written, node.bus.errors) == (5, 9, 0)


def test_a_peers_memory_is_the_same_memory() -> None:
    node = Node()
    node.bus.write(MEMORY + 0x100, b"payload!")
    assert bytes(node.gpu.memory.view[0x100:0x108]) == b"payload!"
    view = node.bus.view(MEMORY + MEMORY_SIZE - 8, 8)
    node.gpu.memory.view[-8:] = b"zerocopy"
    assert bytes(view) == b"zerocopy"


def test_own_bars_can_be_reached_too() -> None:
    node = Node()
    node.nic.place(2, MEMORY + MEMORY_SIZE)
    node.bus.write(MEMORY + MEMORY_SIZE, b"\x01")
    assert node.nic.memory.view[0] == 1
    assert node.gpu.memory.view[0] == 0


def test_a_peers_registers_are_called_in_aligned_words() -> None:
    node = Node()
    node.bus.write(REGISTERS + 0x10, bytes(range(8)))
    node.bus.write(REGISTERS + 0x24, bytes(range(8)))
    assert node.gpu.registers.accesses == [
        ("write", 0x10, bytes(range(8))),
        ("write", 0x24, bytes(range(4))),
        ("write", 0x28, bytes(range(4, 8))),
    ]
    assert node.bus.read(REGISTERS + 0x11, 3) == b"\x11\x12\x13"


@given(offset=st.integers(0, 64), data=st.binary(min_size=1, max_size=64))
def test_register_writes_by_dma_cover_exactly_the_span(offset: int, data: bytes) -> None:
    node = Node()
    node.bus.write(REGISTERS + offset, data)
    image: dict[int, int] = {}
    for _, at, piece in node.gpu.registers.accesses:
        assert isinstance(piece, bytes)
        assert len(piece) in (1, 2, 4, 8)
        assert at % len(piece) == 0
        image.update({at + i: octet for i, octet in enumerate(piece)})
    assert image == {offset + i: octet for i, octet in enumerate(data)}


def test_registers_cannot_be_viewed() -> None:
    node = Node()
    with pytest.raises(BusError, match=r"BAR0 of node0\.gpu0 is registers"):
        node.bus.view(REGISTERS, 8)


def test_an_access_may_not_leave_a_bar() -> None:
    node = Node()
    before = bytes(node.gpu.memory.view)
    with pytest.raises(BusError, match=r"leaves BAR2 of node0\.gpu0"):
        node.bus.write(MEMORY + MEMORY_SIZE - 4, bytes(range(1, 9)))
    assert bytes(node.gpu.memory.view) == before
    with pytest.raises(BusError, match="leaves BAR0"):
        node.bus.read(REGISTERS + REGISTER_SIZE - 4, 8)


def test_an_access_may_not_run_from_ram_into_a_bar() -> None:
    node = Node()
    node.gpu.place(0, RAM + RAM_SIZE)
    with pytest.raises(BusError):
        node.bus.write(RAM + RAM_SIZE - 4, bytes(8))
    assert node.gpu.registers.accesses == []


def test_a_peer_that_does_not_decode_memory_does_not_answer() -> None:
    node = Node()
    node.gpu.set_command(Command(0))
    with pytest.raises(BusError, match="nothing is mapped"):
        node.bus.read(MEMORY, 4)
    node.gpu.set_command(Command.MEMORY)
    assert node.bus.read(MEMORY, 4) == bytes(4)


def test_a_moved_bar_answers_only_at_its_new_place() -> None:
    node = Node()
    node.gpu.memory.view[0:4] = b"here"
    assert node.bus.read(MEMORY, 4) == b"here"
    node.gpu.place(2, 2 * MEMORY)
    with pytest.raises(BusError):
        node.bus.read(MEMORY, 4)
    assert node.bus.read(2 * MEMORY, 4) == b"here"


def test_a_bar_without_an_address_hides_no_ram() -> None:
    device = Device()
    low, backing = ram(0, 0x1000)
    backing[:4] = b"low!"
    device.function.attached(low)
    device.set_command()
    assert device.function.bus.read(0, 4) == b"low!"


def test_without_bus_mastering_nothing_is_read_or_written() -> None:
    node = Node()
    node.nic.set_command(Command.MEMORY)
    for access in (
        lambda: node.bus.read(RAM, 4),
        lambda: node.bus.write(RAM, b"x"),
        lambda: node.bus.view(MEMORY, 4),
    ):
        with pytest.raises(BusError, match="bus mastering is off"):
            access()
    assert node.bus.errors == 3
    assert node.ram[0] == 0
    assert node.nic.read_config(0x06, 2) & Status.RECEIVED_MASTER_ABORT == 0


def test_an_address_nothing_answers_is_counted_and_shown_in_the_status_register() -> None:
    node = Node()
    with pytest.raises(BusError, match="nothing is mapped there"):
        node.bus.read(RAM + RAM_SIZE, 4)
    assert node.bus.errors == 1
    assert node.nic.read_config(0x06, 2) & Status.RECEIVED_MASTER_ABORT


def test_read_only_ram_refuses_writes() -> None:
    device = Device()
    dma, _ = ram(RAM, 0x1000, readonly=True)
    device.function.attached(dma)
    device.set_command()
    with pytest.raises(BusError, match="read-only"):
        device.function.bus.write(RAM, b"x")


def test_without_a_client_there_is_no_ram() -> None:
    device = Device()
    device.set_command()
    with pytest.raises(BusError, match="no client"):
        device.function.bus.read(RAM, 4)


def test_functions_of_another_guest_are_out_of_reach() -> None:
    node, stranger = Node(), Device(Hierarchy(), "node1.gpu0")
    stranger.place(2, 4 * MEMORY)
    stranger.set_command()
    with pytest.raises(BusError):
        node.bus.read(4 * MEMORY, 4)


def test_where_windows_overlap_the_one_that_starts_last_wins() -> None:
    node = Node()
    node.nic.place(0, REGISTERS)
    node.gpu.place(0, REGISTERS - REGISTER_SIZE)
    node.gpu.place(2, REGISTERS & ~(MEMORY_SIZE - 1))
    node.nic.place(0, REGISTERS + REGISTER_SIZE)
    node.bus.write(REGISTERS + REGISTER_SIZE, b"\x01")
    assert node.nic.registers.accesses == [("write", 0, b"\x01")]
    assert bytes(node.gpu.memory.view) == bytes(MEMORY_SIZE)
