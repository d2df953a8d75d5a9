# SPDX-License-Identifier: Apache-2.0
"""The one line two programs exchange to connect: written, read, refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.setup.cache import CHECKOUT
from emu.setup.tree import Tree
from emu.setup.workspace import Workspace

Read = Callable[[list[str]], list[str]]

GOOD = (
    "vrnic1 qpn=0x12 psn=0xffffff gid=00000000000000000000ffff0a4d0001 mac=027672000001 "
    "rkey=0x100 addr=0x7f0000001000 len=0x2000"
)


@pytest.fixture(scope="module")
def read(tree: Tree) -> Read:
    """What libvrnic makes of lines; the library runs on the host, it needs no device for this."""
    space = Workspace.open(tree, "test-endpoint")
    with space.lock():
        space.mirror(CHECKOUT / "guest", ("include", "driver", "lib"))
        shutil.copy(Path(__file__).with_name("endpoint_filter.c"), space.path)
        sources = ("endpoint_filter.c", "lib/endpoint.c")
        flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Ilib", "-Idriver", "-Iinclude", "-static")
        argv = tree.command(["gcc", *flags, "-o", "filter", *sources], cwd=space.inside())
        subprocess.run(argv, check=True, timeout=120)
        program = space.path / "filter"

    def filter_lines(lines: list[str]) -> list[str]:
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run([program], input=text, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.splitlines()

    return filter_lines


def test_a_line_is_read_and_written_the_same(read: Read) -> None:
    assert read([GOOD]) == [GOOD]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 0xFFFFFF),
            st.integers(0, 0xFFFFFF),
            st.binary(min_size=16, max_size=16),
            st.binary(min_size=6, max_size=6),
            st.integers(0, 0xFFFFFFFF),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_endpoint_survives_the_trip(
    read: Read, endpoints: list[tuple[int, int, bytes, bytes, int, int, int]]
) -> None:
    lines = [
        f"vrnic1 qpn={qpn:#x} psn={psn:#x} gid={gid.hex()} mac={mac.hex()} "
        f"rkey={rkey:#x} addr={address:#x} len={length:#x}"
        for qpn, psn, gid, mac, rkey, address, length in endpoints
    ]
    assert read(lines) == lines


def test_the_order_of_the_fields_does_not_matter(read: Read) -> None:
    prefix, *fields = GOOD.split()
    assert read([" ".join([prefix, *reversed(fields)])]) == [GOOD]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "vrnic1",
        GOOD.replace("vrnic1", "vrnic2"),
        GOOD.replace("qpn=0x12", "qpn=0x1000000"),
        GOOD.replace("qpn=0x12", "qpn=12"),
        GOOD.replace("qpn=0x12", "qpn=0x"),
        GOOD.replace("qpn=0x12", "qpn=0x-1"),
        GOOD.replace("qpn=0x12", "qpn"),
        GOOD.replace("qpn=0x12 ", ""),
        GOOD.replace("psn=0xffffff", "psn=0x1 psn=0x2"),
        GOOD.replace("mac=027672000001", "mac=02767200000"),
        GOOD.replace("mac=027672000001", "mac=02767200000g"),
        GOOD.replace("gid=00", "gid="),
        GOOD.replace("rkey=0x100", "rkey=0x100000000"),
        GOOD.replace("len=0x2000", "len=0x10000000000000000"),
        GOOD + " colour=0x1",
        GOOD + " " * 200,
    ],
)
def test_a_damaged_line_is_refused(read: Read, line: str) -> None:
    assert read([line, GOOD]) == ["invalid", GOOD]
