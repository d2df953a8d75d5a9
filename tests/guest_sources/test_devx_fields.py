# SPDX-License-Identifier: Apache-2.0
"""The DevX program's table of command fields against the device's own."""

from __future__ import annotations

import re

import pytest

from emu.personality.mlx5.layout import commands, contexts
from emu.personality.mlx5.layout.structure import Structure
from emu.setup.cache import CHECKOUT

SOURCE = (CHECKOUT / "guest/kernels/devx/fields.h").read_text()
FIELD = re.compile(r"^#define (\w+?)_(OUT_)?([a-z]\w*) F\(([^,]+), (\d+)\)$", re.MULTILINE)
STRUCTURES: dict[str, list[tuple[Structure, int]]] = {
    "CREATE_CQ": [(contexts.CQC, 0x080), (commands.CREATE_CQ_IN, 0)],
    "CREATE_CQ_OUT_": [(commands.CREATE_CQ_OUT, 0)],
    "CREATE_QP": [(commands.CREATE_QP_IN, 0)],
    "CREATE_QP_OUT_": [(commands.CREATE_QP_OUT, 0)],
    "QPC": [(contexts.QPC, 0x0C0)],
    "MODIFY_QP": [(commands.RST2INIT_QP_IN, 0)],
    "QUERY_QP_OUT_": [(contexts.QPC, 0x0C0)],
    "CREATE_MKEY": [(contexts.MKC, 0x080), (commands.CREATE_MKEY_IN, 0)],
    "CREATE_MKEY_OUT_": [(commands.CREATE_MKEY_OUT, 0)],
}
"""By prefix of a name in the header: tables that have the field, and where they begin."""


def offset(text: str) -> int:
    """The value of a sum of numbers."""
    return sum(int(part, 0) for part in text.split("+"))


FIELDS = [
    (prefix + ("_OUT_" if out else ""), name, offset(at), int(width))
    for prefix, out, name, at, width in FIELD.findall(SOURCE)
]


def test_the_header_was_read() -> None:
    assert len(FIELDS) > 60


@pytest.mark.parametrize(("prefix", "name", "at", "width"), FIELDS, ids=lambda value: str(value))
def test_a_field_is_where_the_device_has_it(prefix: str, name: str, at: int, width: int) -> None:
    found = [
        (base + field.offset, field.width)
        for table, base in STRUCTURES[prefix]
        for known, field in table.fields.items()
        if known.rpartition(".")[2] == name and (base or "." not in known)
    ]
    assert (at, width) in found
