# SPDX-License-Identifier: Apache-2.0
"""Rules of configuration space, bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.pcie.config import CONFIG_SIZE, ConfigSpace
from emu.transport.model import ResetKind

WORD = st.integers(0, 0xFFFFFFFF)


@given(reset=WORD, writable=WORD, clearable=WORD, written=WORD)
def test_each_bit_follows_its_kind(reset: int, writable: int, clearable: int, written: int) -> None:
    clearable &= ~writable
    config = ConfigSpace()
    config.define(0x80, 4, reset, writable=writable, clearable=clearable)
    config.write(0x80, written.to_bytes(4, "little"))
    expected = reset & ~writable & ~(written & clearable) | written & writable
    assert config.get(0x80, 4) == expected


@given(writable=WORD, written=WORD, splits=st.sampled_from([(1, 1, 1, 1), (2, 2), (1, 3), (4,)]))
def test_a_register_may_be_written_in_pieces(writable: int, written: int, splits: tuple[int, ...]) -> None:
    config = ConfigSpace()
    config.define(0x80, 4, 0, writable=writable)
    data = written.to_bytes(4, "little")
    at = 0
    for size in splits:
        config.write(0x80 + at, data[at : at + size])
        at += size
    assert config.get(0x80, 4) == written & writable


@given(offset=st.integers(0, CONFIG_SIZE + 8), data=st.binary(min_size=1, max_size=8))
def test_undefined_bytes_never_change(offset: int, data: bytes) -> None:
    config = ConfigSpace()
    config.write(offset, data)
    assert config.read(0, CONFIG_SIZE) == bytes(CONFIG_SIZE)


def test_reads_beyond_the_space_give_ones() -> None:
    config = ConfigSpace()
    assert config.read(CONFIG_SIZE - 2, 4) == b"\0\0\xff\xff"
    assert config.read(CONFIG_SIZE + 100, 4) == b"\xff\xff\xff\xff"


def test_a_bit_cannot_be_both_writable_and_clearable() -> None:
    with pytest.raises(ValueError, match="both RW and RW1C"):
        ConfigSpace().define(0x80, 4, 0, writable=0x3, clearable=0x2)


@pytest.mark.parametrize(
    ("kind", "survivors"), [(ResetKind.LOST, 0x0), (ResetKind.DEVICE, 0x1), (ResetKind.FLR, 0x3)]
)
def test_sticky_and_kept_bits_live_through_the_resets_they_should(kind: ResetKind, survivors: int) -> None:
    config = ConfigSpace()
    config.define(0x80, 1, 0, writable=0x7, sticky=0x1, kept=0x2)
    config.write(0x80, b"\x07")
    config.reset(kind)
    assert config.get(0x80, 1) == survivors


def test_watchers_hear_of_writes_that_touch_their_bytes() -> None:
    config = ConfigSpace()
    heard: list[int] = []
    config.define(0x80, 4, 0, writable=0xFFFFFFFF)
    config.watch(0x82, 1, lambda: heard.append(config.get(0x80, 4)))
    config.write(0x80, b"\x11\x22")
    assert heard == []
    config.write(0x81, b"\x33\x44")
    assert heard == [0x443311]


def test_capabilities_form_a_chain_that_ends() -> None:
    config = ConfigSpace()
    first = config.add_capability(0x01, 8)
    second = config.add_capability(0x11, 12)
    assert config.get(0x34, 1) == first == 0x40
    assert config.get(first, 2) == second << 8 | 0x01
    assert config.get(second, 2) == 0x11
    assert config.get(0x06, 2) & 0x10


def test_the_chains_outlive_a_reset() -> None:
    config = ConfigSpace()
    config.add_capability(0x01, 8)
    config.add_capability(0x11, 12)
    config.add_extended_capability(0x0001, 2, 0x2C)
    config.add_extended_capability(0x0003, 1, 12)
    before = config.read(0, CONFIG_SIZE)
    config.reset(ResetKind.LOST)
    assert config.read(0, CONFIG_SIZE) == before
    assert config.get(0x100, 4) == 0x12C << 20 | 2 << 16 | 0x0001
    assert config.get(0x12C, 4) == 1 << 16 | 0x0003


def test_chains_refuse_what_does_not_fit() -> None:
    config = ConfigSpace()
    with pytest.raises(ValueError, match="no room for capability"):
        config.add_capability(0x09, 0xC1)
    config.add_extended_capability(0x000B, 1, 0xF00 - 4)
    with pytest.raises(ValueError, match="no room for extended capability"):
        config.add_extended_capability(0x000B, 1, 8)
