# SPDX-License-Identifier: Apache-2.0
"""The guest's C sources please the compiler, sparse and checkpatch."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emu.setup.cache import CHECKOUT
from emu.setup.checkpatch import current_checkpatch
from emu.setup.suite import KERNELS_6_1, KERNELS_7, MAIN, Suite
from emu.setup.tree import Tree
from emu.setup.workspace import Workspace
from tests.guest_sources.conftest import require_tree

pytestmark = pytest.mark.timeout(600)  # building modules from nothing, on a busy machine

DRIVER = CHECKOUT / "guest/driver"
SPDX = {
    "guest/driver": "GPL-2.0 OR BSD-2-Clause",
    "guest/include": "GPL-2.0 OR BSD-2-Clause",
    "guest/lib": "Apache-2.0",
    "guest/kernels": "Apache-2.0",
    "guest/simt": "Apache-2.0",
    "guest/verbs": "Apache-2.0",
}


def build_driver(suite: Suite, *options: str) -> str:
    """Build both modules from scratch for a suite's cloud kernel; what make printed."""
    tree = require_tree(suite)
    space = Workspace.open(tree, "test-driver")
    kbuild = ("-C", tree.kernel("cloud").headers, f"M={space.inside('driver')}")
    with space.lock():
        space.mirror(CHECKOUT / "guest", ("driver", "include"))
        space.make("clean modules", *kbuild, "clean")
        return space.make("the modules", *kbuild, "W=1", *options, "modules")


def complaints(output: str) -> list[str]:
    """Lines that name a place in our sources."""
    return re.findall(r"^\S*?\w+\.[ch]:\d+.*(?:warning|error):.*$", output, re.MULTILINE)


@pytest.mark.parametrize("suite", [KERNELS_6_1, KERNELS_7], ids=lambda suite: str(suite.name))
def test_the_modules_build_without_a_warning(suite: Suite) -> None:
    assert complaints(build_driver(suite)) == []


def test_neither_the_compiler_nor_sparse_complains_about_the_modules() -> None:
    output = build_driver(MAIN, "C=2")
    assert "CHECK" in output, "sparse did not run"
    assert complaints(output) == []


def test_complaints_are_found_where_there_are_some() -> None:
    line = "/build/test-driver/driver/mr.c:12:3: warning: unused variable 'x' [-Wunused-variable]"
    assert complaints(f"  CC [M]  mr.o\n{line}\n") == [line]


def checkpatch() -> Path:
    """The kernel's style checker, which the plain set-up leaves out: it comes with the kernel's sources."""
    script = current_checkpatch()
    if script is None:
        pytest.skip("the kernel's style checker is not set up: scripts/setup --kernels fetches it")
    if shutil.which("perl") is None:
        pytest.skip("checkpatch.pl needs perl")
    return script


@pytest.mark.parametrize("source", sorted(DRIVER.glob("*.[ch]")), ids=lambda path: str(path.name))
def test_checkpatch_finds_nothing_in_the_modules(source: Path) -> None:
    # compat.h exists to compare kernel versions; an in-tree driver would not.
    ignored = ["--ignore", "LINUX_VERSION_CODE"] if source.name == "compat.h" else []
    flags = ["--no-tree", "--strict", "--terse", "--no-summary", *ignored]
    argv = ["perl", str(checkpatch()), *flags, "-f", str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout + done.stderr == ""


def test_the_library_and_the_programs_compile_without_a_warning(tree: Tree) -> None:
    space = Workspace.open(tree, "test-programs")
    with space.lock():
        space.mirror(CHECKOUT / "guest", ("include", "driver", "lib", "simt", "kernels", "verbs"))
        for folder in ("kernels", "verbs"):
            make = ("-C", space.inside(folder), f"OUT={space.inside('out')}")
            space.make("clean programs", *make, "clean")
            assert complaints(space.make("the programs", *make)) == []


def test_every_source_names_its_licence() -> None:
    wrong = [
        str(path)
        for folder, licence in SPDX.items()
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and f"SPDX-License-Identifier: {licence}" not in path.read_text()
    ]
    assert wrong == []
