# SPDX-License-Identifier: Apache-2.0
"""The archive writer, judged by a reader written from the format's description and by cpio itself."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.lab.cpio import CpioArchive, CpioError
from emu.setup.tree import Tree


def members(data: bytes) -> Iterator[tuple[str, dict[str, int], bytes]]:
    """Name, header fields and data of each member, from the kernel's description of "newc"."""
    names = "ino mode uid gid nlink mtime filesize maj min rmaj rmin namesize chksum"
    offset = 0
    while True:
        assert data[offset : offset + 6] == b"070701"
        values = [int(data[offset + 6 + 8 * place : offset + 14 + 8 * place], 16) for place in range(13)]
        header = dict(zip(names.split(), values, strict=True))
        end = offset + 110 + header["namesize"]
        assert data[end - 1] == 0
        name = data[offset + 110 : end - 1].decode()
        start = end + -end % 4
        stop = start + header["filesize"]
        if name == "TRAILER!!!":
            assert not data[stop:].strip(b"\0")
            return
        yield name, header, data[start:stop]
        offset = stop + -stop % 4


def sample() -> CpioArchive:
    archive = CpioArchive()
    archive.add_file("/bin/tool", b"#!/bin/sh\n", 0o755)
    archive.add_file("/etc/empty", b"")
    archive.add_directory("/tmp", 0o1777)
    archive.add_symlink("/bin/sh", "busybox")
    archive.add_character_device("/dev/console", 5, 1)
    return archive


def test_members_keep_type_mode_and_bytes() -> None:
    found = {name: (header, data) for name, header, data in members(sample().to_bytes())}
    assert found["bin/tool"][1] == b"#!/bin/sh\n"
    assert found["bin/tool"][0]["mode"] == stat.S_IFREG | 0o755
    assert found["tmp"][0]["mode"] == stat.S_IFDIR | 0o1777
    assert (found["bin/sh"][0]["mode"], found["bin/sh"][1]) == (stat.S_IFLNK | 0o777, b"busybox")
    console = found["dev/console"][0]
    assert (console["mode"], console["rmaj"], console["rmin"]) == (stat.S_IFCHR | 0o600, 5, 1)


def test_missing_parents_are_added_and_come_first() -> None:
    archive = CpioArchive()
    archive.add_file("/a/b/c", b"x")
    assert archive.paths == ("/a", "/a/b", "/a/b/c")


def test_every_member_has_an_inode_of_its_own() -> None:
    inodes = [header["ino"] for _, header, _ in members(sample().to_bytes())]
    assert len(set(inodes)) == len(inodes)


def test_the_order_of_adding_does_not_matter() -> None:
    forward, backward = CpioArchive(), CpioArchive()
    for name in ("a", "b", "c"):
        forward.add_file(f"/{name}", name.encode())
    for name in ("c", "b", "a"):
        backward.add_file(f"/{name}", name.encode())
    assert forward.to_bytes() == backward.to_bytes()


@pytest.mark.parametrize("path", ["", "/", "relative", "/a//b", "/a/../b", "/a/", "/a\0b", "/" + "x" * 4096])
def test_paths_the_kernel_would_misplace_are_refused(path: str) -> None:
    with pytest.raises(CpioError):
        CpioArchive().add_file(path, b"")


def test_nothing_goes_below_a_file() -> None:
    archive = CpioArchive()
    archive.add_file("/a", b"")
    with pytest.raises(CpioError, match="/a is a file"):
        archive.add_file("/a/b", b"")


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,12}\Z"), st.binary(max_size=50), max_size=8))
def test_any_content_reads_back(files: dict[str, bytes]) -> None:
    archive = CpioArchive()
    for name, data in files.items():
        archive.add_file(f"/{name}", data)
    data = archive.to_bytes()
    assert {name: content for name, _, content in members(data)} == files
    assert len(data) % 512 == 0


def test_cpio_itself_unpacks_it(tmp_path: Path) -> None:
    tree = Tree.find()
    if tree is not None:
        unpack = [str(tree.path / "usr/bin/busybox"), "cpio"]
    elif found := shutil.which("cpio"):
        unpack = [found]
    else:
        pytest.skip("neither the set-up's Debian tree nor a cpio program is here")
    archive = CpioArchive()
    archive.add_file("/bin/tool", b"#!/bin/sh\n", 0o755)
    archive.add_symlink("/bin/sh", "tool")
    subprocess.run(
        [*unpack, "-idm"], input=archive.to_bytes(), cwd=tmp_path, check=True, capture_output=True, timeout=20
    )
    assert (tmp_path / "bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/sh").readlink() == Path("tool")
