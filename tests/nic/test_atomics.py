# SPDX-License-Identifier: Apache-2.0
"""Atomics on one word, against adders made of single bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.atomics import ATOMIC_SIZES, AtomicMasks, AtomicOperation

WORDS = st.integers(0, (1 << 64) - 1)
SIZES = st.sampled_from(ATOMIC_SIZES)


def add_bit_by_bit(old: int, addend: int, boundary: int, bits: int) -> int:
    """Fields side by side: the carry out of a field's highest bit is thrown away."""
    total = carry = 0
    for position in range(bits):
        here = (old >> position & 1) + (addend >> position & 1) + carry
        total |= (here & 1) << position
        carry = 0 if boundary >> position & 1 else here >> 1
    return total


def swap_bit_by_bit(old: int, compare: int, swap: int, masks: AtomicMasks, bits: int) -> int | None:
    for position in range(bits):
        if masks.compare >> position & 1 and (old ^ compare) >> position & 1:
            return None
    return sum(
        ((swap if masks.swap >> position & 1 else old) >> position & 1) << position
        for position in range(bits)
    )


@given(SIZES, WORDS, WORDS, WORDS)
def test_fields_are_added_without_carries_between_them(
    size: int, old: int, addend: int, boundary: int
) -> None:
    bits = 8 * size
    old %= 1 << bits
    operation = AtomicOperation(add=True, operand=addend, size=size, masks=AtomicMasks(boundary=boundary))
    assert operation.apply(old) == add_bit_by_bit(old, addend, boundary, bits)


@given(SIZES, WORDS, WORDS, WORDS, WORDS, WORDS, st.booleans())
def test_only_masked_bits_are_compared_and_swapped(
    size: int, old: int, compare: int, swap: int, compare_mask: int, swap_mask: int, match: bool
) -> None:
    bits = 8 * size
    old %= 1 << bits
    if match:
        compare = old & compare_mask | compare & ~compare_mask
    masks = AtomicMasks(compare_mask, swap_mask)
    operation = AtomicOperation(add=False, operand=swap, compare=compare, size=size, masks=masks)
    assert operation.apply(old) == swap_bit_by_bit(old, compare, swap, masks, bits)


@given(SIZES, WORDS, WORDS)
def test_without_masks_all_bits_count(size: int, old: int, operand: int) -> None:
    word = (1 << 8 * size) - 1
    old &= word
    assert AtomicOperation(add=True, operand=operand, size=size).apply(old) == (old + operand) & word
    swap = AtomicOperation(add=False, operand=operand, compare=old, size=size)
    assert swap.apply(old) == operand & word
    assert swap.apply(old ^ 1) is None


@pytest.mark.parametrize(
    ("size", "old", "addend", "boundary", "after"),
    [
        (8, 0xFF, 1, 0, 0x100),
        (8, 0xFF, 1, 0x80, 0),
        (8, 0xFFFF, 0x0101, 0x80, 0x10000),
        (8, 0xFFFF, 0x0101, 0x8080, 0),
        (8, 0xFFFFFFFF, 1, 1 << 31, 0),
        (4, 0xFFFFFFFF, 1, 0, 0),
    ],
)
def test_a_carry_stops_where_a_field_ends(
    size: int, old: int, addend: int, boundary: int, after: int
) -> None:
    operation = AtomicOperation(add=True, operand=addend, size=size, masks=AtomicMasks(boundary=boundary))
    assert operation.apply(old) == after
