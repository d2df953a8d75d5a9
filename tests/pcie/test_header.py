# SPDX-License-Identifier: Apache-2.0
"""The type 0 header: identity, BAR sizing, command and status."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.pcie.config import ConfigSpace
from emu.pcie.header import Command, Header, Status, bar_offset
from tests.pcie.parts import IDENTITY, Device


def header() -> tuple[ConfigSpace, Header]:
    config = ConfigSpace()
    return config, Header(config, IDENTITY)


def test_identity_is_where_software_looks() -> None:
    config, _ = header()
    assert config.read(0, 4) == b"\x34\x12\x78\x56"
    assert config.read(8, 4) == b"\x03\x00\x00\x02"
    assert config.read(0x0E, 1) == b"\x00"
    assert config.read(0x2C, 4) == b"\x34\x12\xbc\x9a"
    assert config.read(0x3D, 1) == b"\x00"


@given(log_size=st.integers(4, 31), flags=st.booleans())
def test_sizing_a_32_bit_bar_gives_its_mask(log_size: int, flags: bool) -> None:
    config, head = header()
    head.add_bar(0, 1 << log_size, wide=False, prefetchable=flags)
    config.write(bar_offset(0), b"\xff\xff\xff\xff")
    expected = (1 << 32) - (1 << log_size) | (0x8 if flags else 0)
    assert config.get(bar_offset(0), 4) == expected


@given(log_size=st.integers(4, 40))
def test_sizing_a_64_bit_bar_gives_its_mask_in_two_halves(log_size: int) -> None:
    config, head = header()
    head.add_bar(2, 1 << log_size, wide=True, prefetchable=True)
    config.write(bar_offset(2), b"\xff\xff\xff\xff")
    config.write(bar_offset(3), b"\xff\xff\xff\xff")
    low, high = config.get(bar_offset(2), 4), config.get(bar_offset(3), 4)
    assert low & 0xF == 0xC
    assert (high << 32 | low & ~0xF) == (1 << 64) - (1 << log_size)


@given(log_size=st.integers(12, 30), address=st.integers(0, (1 << 64) - 1))
def test_an_address_keeps_its_bits_above_the_size(log_size: int, address: int) -> None:
    config, head = header()
    head.add_bar(2, 1 << log_size, wide=True, prefetchable=False)
    config.write(bar_offset(2), address.to_bytes(8, "little"))
    assert head.bar_address(2) == address >> log_size << log_size


@pytest.mark.parametrize(
    ("index", "size", "wide", "why"),
    [
        (0, 3000, False, "power of two"),
        (0, 8, False, "at least 16"),
        (0, 1 << 32, False, "64-bit"),
        (5, 4096, True, "outside"),
        (-1, 4096, False, "outside"),
        (6, 4096, False, "outside"),
    ],
)
def test_bars_that_cannot_exist_are_refused(index: int, size: int, wide: bool, why: str) -> None:
    _, head = header()
    with pytest.raises(ValueError, match=why):
        head.add_bar(index, size, wide=wide, prefetchable=False)


@pytest.mark.parametrize(
    ("first", "second"), [((2, True), (3, False)), ((2, True), (1, True)), ((2, False), (2, False))]
)
def test_bars_cannot_share_a_slot(first: tuple[int, bool], second: tuple[int, bool]) -> None:
    _, head = header()
    head.add_bar(first[0], 4096, wide=first[1], prefetchable=False)
    with pytest.raises(ValueError, match="taken"):
        head.add_bar(second[0], 4096, wide=second[1], prefetchable=False)


def test_unused_slots_read_zero_whatever_is_written() -> None:
    device = Device()
    device.write_config(bar_offset(1), 4, 0xFFFFFFFF)
    device.write_config(0x30, 4, 0xFFFFFFFF)
    assert device.read_config(bar_offset(1), 4) == 0
    assert device.read_config(0x30, 4) == 0


def test_the_command_register_has_only_the_bits_the_function_implements() -> None:
    device = Device()
    device.write_config(0x04, 2, 0xFFFF)
    assert device.read_config(0x04, 2) == sum(Command) == 0x546


def test_status_bits_are_cleared_by_writing_ones() -> None:
    config, head = header()
    head.note(Status.RECEIVED_MASTER_ABORT)
    head.note(Status.DETECTED_PARITY)
    config.write(0x06, (Status.DETECTED_PARITY).to_bytes(2, "little"))
    assert config.get(0x06, 2) == Status.RECEIVED_MASTER_ABORT
