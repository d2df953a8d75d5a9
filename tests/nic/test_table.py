# SPDX-License-Identifier: Apache-2.0
"""Object numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.errors import ErrorKind, NicError
from emu.nic.table import ObjectTable


@given(st.lists(st.booleans(), max_size=200))
def test_numbers_are_unique_in_range_and_limited(steps: list[bool]) -> None:
    table: ObjectTable[str] = ObjectTable("thing", 5, 10, 17)
    for make in steps:
        if make and len(table) < 5:
            number = table.reserve()
            assert 10 <= number <= 17
            assert number not in table.items
            table.items[number] = "x"
        elif table.items:
            del table.items[next(iter(table.items))]


def test_a_freed_number_is_the_last_to_come_back() -> None:
    table: ObjectTable[str] = ObjectTable("thing", 1, 0, 3)
    assert [table.reserve() for _ in range(6)] == [0, 1, 2, 3, 0, 1]


def test_a_full_table_and_a_missing_object_are_named() -> None:
    table: ObjectTable[str] = ObjectTable("thing", 1, 1, 9)
    table.items[table.reserve()] = "x"
    with pytest.raises(NicError, match="all 1 things are in use") as full:
        table.reserve()
    assert full.value.kind is ErrorKind.NO_RESOURCE
    with pytest.raises(NicError, match="there is no thing 0x5") as missing:
        table.get(5, "which")
    assert (missing.value.kind, missing.value.field) == (ErrorKind.BAD_OBJECT, "which")


def test_clearing_forgets_the_objects_but_not_which_numbers_were_used() -> None:
    table: ObjectTable[str] = ObjectTable("thing", 2, 1, 9)
    table.items[table.reserve()] = "x"
    table.clear()
    assert (len(table), table.reserve()) == (0, 2)
