# SPDX-License-Identifier: Apache-2.0
"""The layout tables against the header of every kernel the set-up knows, and their reader and writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.personality.mlx5.layout import capabilities, commands, contexts, counters, ports, steering
from emu.personality.mlx5.layout.structure import Field, Structure
from emu.setup.cache import Cache
from emu.setup.suite import KERNELS_7
from tests.personality.mlx5.kernel_header import HeaderStructure, KernelHeader

TABLES = [
    value
    for module in (capabilities, commands, contexts, counters, ports, steering)
    for value in vars(module).values()
    if isinstance(value, Structure)
]
HEADERS = sorted(
    Cache.default().root.glob("*/*/usr/src/linux-headers-*-common/include/linux/mlx5/mlx5_ifc.h")
)
VERSION_PART = 5
"""Of a header's path counted from its end: the folder with the kernel's version."""


@pytest.fixture(scope="module", params=HEADERS, ids=lambda path: path.parts[-VERSION_PART])
def header(request: pytest.FixtureRequest) -> KernelHeader:
    """One kernel's header."""
    path = request.param
    assert isinstance(path, Path)
    return KernelHeader(path)


GREW = {"allowed_list_size": 12, "log_page_size": 5, "prio_tc": 3}
"""Fields that became wider, towards more significant bits: their width in older headers."""
YOUNG = (
    "cmd_hca_cap.page_request_disable",
    "create_qp_in.wq_umem_offset",
    "create_qp_in.wq_umem_id",
    "query_q_counter_out.req_rnr_retries_exceeded",
    "wq.wq_umem_offset",
    "wq.wq_umem_id",
)
"""Ends of the names of fields that not every header has; the bit is reserved where it is missing."""
NOT_IN_HEADERS = (
    "dbr_umem_id",
    "cq_umem_id",
    "cq_umem_offset",
    "mkey_umem_id",
    "mkey_umem_offset",
    "send_dbr_mode",
)
"""Fields of queues in user memory that only user space fills in; the kernel's header has them as reserved."""
EXTENDED = {"query_qp_out"}
"""Structures that became longer at their end, where nothing is used."""


def _same(name: str, ours: Field, theirs: tuple[int, int] | None) -> bool:
    if theirs is None:
        return name.endswith(YOUNG)
    older = GREW.get(name.rpartition(".")[2])
    ends_alike = theirs[0] + theirs[1] == ours.offset + ours.width
    return tuple(ours) == theirs or (theirs[1] == older and ends_alike)


def test_every_field_is_where_the_kernel_has_it(header: KernelHeader) -> None:
    wrong = []
    for table in TABLES:
        theirs = header.structure(table.name) or HeaderStructure()
        for name, where in table.fields.items():
            if tuple(where) == theirs.arrays.get(name) or name.endswith(NOT_IN_HEADERS):
                continue
            if not _same(f"{table.name}.{name}", where, theirs.fields.get(name)):
                wrong.append(f"{table.name}.{name}: {tuple(where)}, the kernel has {theirs.fields.get(name)}")
    assert wrong == [], "\n".join(wrong)


def test_every_structure_is_as_long_as_the_kernels(header: KernelHeader) -> None:
    ours = {table.name: table.size for table in TABLES}
    theirs = {name: found.bits // 8 for name in ours if (found := header.structure(name))}
    longer = {name for name, size in theirs.items() if size > ours[name]}
    assert longer <= EXTENDED
    assert {**ours, **dict.fromkeys(longer, 0)} == {**theirs, **dict.fromkeys(longer, 0)}


def test_the_newest_header_has_every_field_at_its_full_width() -> None:
    if not any(KERNELS_7.name in path.parts for path in HEADERS):
        pytest.skip("the newest kernel's headers are not set up: scripts/setup --kernels fetches them")
    headers = [KernelHeader(path) for path in HEADERS]
    for table in TABLES:
        for name, where in table.fields.items():
            if name.endswith(NOT_IN_HEADERS):
                continue
            found = [
                place
                for each in headers
                if (structure := each.structure(table.name)) is not None
                for place in (structure.fields.get(name), structure.arrays.get(name))
            ]
            assert tuple(where) in found, f"{table.name}.{name}"


SMALL = Structure("small", 64, {"top": (0, 3), "odd": (5, 17), "last": (32, 32)})


@given(top=st.integers(0, 7), odd=st.integers(0, (1 << 17) - 1), last=st.integers(0, (1 << 32) - 1))
def test_what_is_written_is_read_back(top: int, odd: int, last: int) -> None:
    values = {"top": top, "odd": odd, "last": last}
    assert SMALL.unpack(SMALL.pack(values)) == values


@given(before=st.binary(min_size=8, max_size=8), odd=st.integers(0, (1 << 17) - 1))
def test_writing_a_field_leaves_its_neighbours(before: bytes, odd: int) -> None:
    buffer = bytearray(before)
    SMALL.write(buffer, {"odd": odd})
    assert SMALL.unpack(buffer) == {**SMALL.unpack(before), "odd": odd}


def test_bits_are_counted_from_the_most_significant_of_the_first_byte() -> None:
    assert bytes(SMALL.pack({"top": 5, "odd": 1, "last": 0xCAFE})) == bytes.fromhex("a00004000000cafe")


def test_a_value_too_wide_for_its_field_is_refused() -> None:
    with pytest.raises(ValueError, match="top"):
        SMALL.pack({"top": 8})


def test_bytes_past_the_end_read_as_zero() -> None:
    assert SMALL.unpack(b"\xff\xff\xff\xff") == {"top": 7, "odd": (1 << 17) - 1, "last": 0}
