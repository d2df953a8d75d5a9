# SPDX-License-Identifier: Apache-2.0
"""Running indices that wrap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emu.nic.serial import ahead, before


@given(st.integers(0, 0xFFFFFFFF), st.integers(-(1 << 31), (1 << 31) - 1))
def test_distance_survives_the_wrap(index: int, distance: int) -> None:
    assert ahead((index + distance) & 0xFFFFFFFF, index) == distance
    assert before((index + distance) & 0xFFFFFFFF, index) == (distance < 0)
