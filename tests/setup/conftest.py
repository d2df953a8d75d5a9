# SPDX-License-Identifier: Apache-2.0
"""A cache and a miniature of the Debian tree, made in the test's own directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.setup.cache import STAMP, Cache, content_key
from emu.setup.suite import MAIN
from emu.setup.tree import Tree

STATUS = """\
Package: qemu-utils
Status: install ok installed
Version: 1:9.9.9

Package: qemu-system-x86
Status: install ok installed
Architecture: amd64
Version: 1:11.1.3+ds-1~bpo13+1
Description: emulator
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def tree(cache: Cache) -> Tree:
    """A tree with every file the suite needs, all of them empty, and a finished entry's stamp."""
    path = cache.entry(MAIN.name, content_key(MAIN.inputs()))
    releases = ("6.12.9+deb13-cloud-amd64", "6.12.118+deb13-cloud-amd64", "6.12.118+deb13-amd64")
    files = [pattern for pattern in MAIN.needs if "*" not in pattern]
    files += [f"boot/vmlinuz-{release}" for release in releases]
    files += [f"usr/src/linux-headers-{release}/Makefile" for release in releases]
    for name in files:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (path / "var/lib/dpkg").mkdir(parents=True)
    (path / "var/lib/dpkg/status").write_text(STATUS)
    (path / STAMP).write_text("{}")
    return Tree(path)
