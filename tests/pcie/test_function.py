# SPDX-License-Identifier: Apache-2.0
"""A whole function: regions, decoding, reset."""

from __future__ import annotations

import pytest

from emu.pcie.bus import BusError
from emu.pcie.header import Command, bar_offset
from emu.transport.model import CONFIG_REGION, RegionSpec, ResetKind
from tests.pcie.parts import MEMORY_SIZE, MSIX_SIZE, REGISTER_SIZE, VECTORS, Device, ram


def test_regions_are_the_bars_and_configuration_space() -> None:
    device = Device()
    assert device.function.regions == (
        RegionSpec(0, REGISTER_SIZE),
        RegionSpec(2, MEMORY_SIZE, device.memory.fd),
        RegionSpec(4, MSIX_SIZE),
        RegionSpec(CONFIG_REGION, 4096),
    )
    assert device.function.msix_vectors == VECTORS


def test_a_bar_answers_only_while_memory_decoding_is_on() -> None:
    device = Device()
    assert device.function.region_read(0, 8, 4) == b"\xff" * 4
    device.function.region_write(0, 8, b"lost")
    assert device.registers.accesses == []
    assert device.function.unsupported == 2
    device.set_command(Command.MEMORY)
    assert device.function.region_read(0, 8, 4) == b"\x08\x09\x0a\x0b"
    device.function.region_write(0, 8, b"kept")
    assert device.registers.accesses[-1] == ("write", 8, b"kept")


@pytest.mark.parametrize("index", [1, 3, 5, 6, 8, -1])
def test_regions_that_do_not_exist_read_ones_and_drop_writes(index: int) -> None:
    device = Device()
    device.set_command()
    assert device.function.region_read(index, 0, 2) == b"\xff\xff"
    device.function.region_write(index, 0, b"\0")
    assert device.function.unsupported == 2


def test_memory_can_be_accessed_by_message() -> None:
    device = Device()
    device.set_command()
    device.function.region_write(2, 0x40, b"message")
    assert device.function.region_read(2, 0x40, 7) == b"message"
    device.function.region_write(2, MEMORY_SIZE - 2, b"edge")
    assert device.function.region_read(2, MEMORY_SIZE - 2, 4) == b"ed\xff\xff"


def test_a_bar_has_an_address_only_when_it_answers_there() -> None:
    device = Device()
    device.place(2, 0x38_0000_0000)
    assert device.function.bar_address(2) is None
    device.set_command(Command.MEMORY)
    assert device.function.bar_address(2) == 0x38_0000_0000
    assert device.function.bar_address(0) is None


def test_an_flr_keeps_bar_addresses_and_a_device_reset_does_not() -> None:
    device = Device()
    device.place(2, 0x38_0000_0000)
    device.set_command()
    device.function.reset(ResetKind.FLR)
    assert device.read_config(0x04, 2) == 0
    assert device.read_config(bar_offset(2), 8) & ~0xF == 0x38_0000_0000
    assert not device.function.bus.mastering
    device.function.reset(ResetKind.DEVICE)
    assert device.read_config(bar_offset(2), 8) == 0xC


def test_listeners_find_the_function_already_reset() -> None:
    device = Device()
    device.set_command()
    seen: list[tuple[ResetKind, bool, int]] = []
    device.function.on_reset(
        lambda kind: seen.append((kind, device.function.bus.mastering, device.msix.pending))
    )
    device.msix.trigger(0)
    device.function.reset(ResetKind.DEVICE)
    assert seen == [(ResetKind.DEVICE, False, 0)]


def test_a_lost_client_takes_its_memory_with_it() -> None:
    device = Device()
    dma, _ = ram(0x1000, 0x1000)
    device.function.attached(dma)
    device.function.reset(ResetKind.LOST)
    device.set_command()
    with pytest.raises(BusError, match="no client"):
        device.function.bus.read(0x1000, 4)


def test_other_resets_leave_the_client_attached() -> None:
    device = Device()
    dma, _ = ram(0x1000, 0x1000)
    device.function.attached(dma)
    device.function.reset(ResetKind.FLR)
    device.set_command()
    assert device.function.bus.read(0x1000, 4) == bytes(4)


def test_listeners_hear_of_memory_that_goes_away() -> None:
    device = Device()
    heard: list[tuple[int, int]] = []
    device.function.on_unmap(lambda address, size: heard.append((address, size)))
    device.function.dma_unmapping(0x1000, 0x2000)
    assert heard == [(0x1000, 0x2000)]


def test_a_function_has_one_msix_table() -> None:
    device = Device()
    with pytest.raises(ValueError, match="MSI-X already"):
        device.function.add_msix(5, 1, bar_size=0x1000)
