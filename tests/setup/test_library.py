# SPDX-License-Identifier: Apache-2.0
"""Where libvfio-user comes from and what is changed in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.setup.apt import source_line
from emu.setup.error import SetupError
from emu.setup.library import raise_region_limit

KEYRING = Path("/keys.gpg")


@pytest.mark.parametrize(
    "sources",
    [
        "deb file:///mirror trixie main\ndeb file:///security trixie-security main\n",
        "deb [signed-by=/k arch=amd64] file:///mirror trixie main\n",
        "Types: deb\nURIs: file:///mirror\nSuites: trixie\nComponents: main\n",
    ],
)
@pytest.mark.parametrize("suite", ["trixie", "bookworm"])
def test_source_line_uses_the_trees_mirror(sources: str, suite: str) -> None:
    line = source_line(sources, "trixie", suite, KEYRING)
    assert line == f"deb-src [signed-by=/keys.gpg] file:///mirror {suite} main\n"


def test_sources_without_a_mirror_are_refused() -> None:
    with pytest.raises(SetupError, match="name no mirror"):
        source_line("# nothing\n", "trixie", "trixie", KEYRING)


def test_region_limit_is_raised_and_nothing_else_changed(tmp_path: Path) -> None:
    header = tmp_path / "private.h"
    header.write_text("#define MAX_DMA_SIZE 7\n#define MAX_DMA_REGIONS 16\n")
    raise_region_limit(header)
    assert header.read_text() == "#define MAX_DMA_SIZE 7\n#define MAX_DMA_REGIONS 128\n"


def test_library_without_a_fixed_limit_stays_as_it_is(tmp_path: Path) -> None:
    header = tmp_path / "private.h"
    header.write_text("#define MAX_DMA_SIZE 7\n")
    raise_region_limit(header)
    assert header.read_text() == "#define MAX_DMA_SIZE 7\n"
