# SPDX-License-Identifier: Apache-2.0
"""MSI-X: masks, pending bits, and the two kinds of clients."""

from __future__ import annotations

import pytest

from emu.pcie.caps.msix import MsixCapability
from emu.pcie.config import ConfigSpace
from emu.pcie.header import Command
from emu.transport.model import ResetKind
from tests.pcie.parts import MSIX_SIZE, VECTORS, Device

ENABLE, FUNCTION_MASK = 0x8000, 0x4000
PBA = MSIX_SIZE // 2


def started() -> tuple[Device, int]:
    """A device whose vectors may fire, and the offset of its MSI-X control word."""
    device = Device()
    device.set_command()
    control = device.capability(0x11) + 2
    device.write_config(control, 2, ENABLE)
    return device, control


def unmask(device: Device, vector: int, *, masked: bool = False) -> None:
    device.function.region_write(4, 16 * vector + 12, bytes([masked, 0, 0, 0]))


def pba(device: Device) -> int:
    return int.from_bytes(device.function.region_read(4, PBA, 8), "little")


def test_an_enabled_vector_fires_at_once() -> None:
    device, _ = started()
    device.msix.trigger(2)
    assert device.sink.vectors == [2]
    assert (device.msix.raised, device.msix.held) == (1, 0)


def test_a_client_that_keeps_the_table_itself_is_not_held_back_by_ours() -> None:
    device, _ = started()
    assert device.function.region_read(4, 12, 4) == b"\x01\0\0\0"
    device.msix.trigger(0)
    assert device.sink.vectors == [0]


def test_a_masked_vector_waits_and_fires_once_when_unmasked() -> None:
    device, _ = started()
    unmask(device, 1, masked=True)
    device.msix.trigger(1)
    device.msix.trigger(1)
    assert device.sink.vectors == []
    assert pba(device) == 0b10
    unmask(device, 1)
    assert device.sink.vectors == [1]
    assert pba(device) == 0


def test_the_first_table_write_makes_the_other_entries_masks_count() -> None:
    device, _ = started()
    unmask(device, 0)
    device.msix.trigger(0)
    device.msix.trigger(3)
    assert device.sink.vectors == [0]
    assert pba(device) == 0b1000


def test_the_function_mask_holds_all_vectors() -> None:
    device, control = started()
    device.write_config(control, 2, ENABLE | FUNCTION_MASK)
    device.msix.trigger(0)
    device.msix.trigger(3)
    assert pba(device) == 0b1001
    device.write_config(control, 2, ENABLE)
    assert device.sink.vectors == [0, 3]


def test_a_vector_triggered_before_enable_fires_at_enable() -> None:
    device = Device()
    device.set_command()
    device.msix.trigger(1)
    assert device.sink.vectors == []
    device.write_config(device.capability(0x11) + 2, 2, ENABLE)
    assert device.sink.vectors == [1]


def test_messages_need_bus_mastering() -> None:
    device, _ = started()
    device.set_command(Command.MEMORY)
    device.msix.trigger(0)
    assert device.sink.vectors == []
    device.set_command()
    assert device.sink.vectors == [0]


@pytest.mark.parametrize("vector", [-1, VECTORS, 1000])
def test_an_absent_vector_is_counted_and_ignored(vector: int) -> None:
    device, _ = started()
    device.msix.trigger(vector)
    assert device.sink.vectors == []
    assert device.msix.absent == 1


@pytest.mark.parametrize("kind", list(ResetKind))
def test_every_reset_forgets_masks_and_pending_bits(kind: ResetKind) -> None:
    device, control = started()
    unmask(device, 0, masked=True)
    device.msix.trigger(0)
    device.function.reset(kind)
    device.set_command()
    device.write_config(control, 2, ENABLE)
    assert device.sink.vectors == []
    assert pba(device) == 0
    assert device.function.region_read(4, 0, 16) == b"\0" * 12 + b"\x01\0\0\0"


def test_the_table_keeps_addresses_and_data_but_only_one_control_bit() -> None:
    device, _ = started()
    entry = bytes(range(1, 13)) + b"\xff\xff\xff\xff"
    device.function.region_write(4, 16, entry[:8])
    device.function.region_write(4, 24, entry[8:])
    assert device.function.region_read(4, 16, 16) == entry[:12] + b"\x01\0\0\0"


def test_pending_bits_and_gaps_are_read_only() -> None:
    device, _ = started()
    device.function.region_write(4, PBA, b"\xff" * 8)
    device.function.region_write(4, 16 * VECTORS, b"\xff" * 8)
    assert device.function.region_read(4, PBA, 8) == bytes(8)
    assert device.function.region_read(4, 16 * VECTORS, 8) == bytes(8)
    assert device.function.region_read(4, MSIX_SIZE - 4, 4) == bytes(4)


@pytest.mark.parametrize(("vectors", "offset"), [(0, 0x800), (2049, 0x8000), (32, 0x100), (4, 0x804)])
def test_tables_that_do_not_fit_are_refused(vectors: int, offset: int) -> None:
    with pytest.raises(ValueError, match=r"MSI-X vectors|pending bits"):
        MsixCapability(ConfigSpace(), vectors, 4, offset, lambda: None)
