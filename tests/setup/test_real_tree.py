# SPDX-License-Identifier: Apache-2.0
"""The tree that scripts/setup made does what it is there for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emu.setup.accelerator import boot_to_marker, probe_command
from emu.setup.bootstrap import obtain_tree
from emu.setup.modules import build_modules
from emu.setup.suite import TREES
from emu.setup.tree import Bind, Tree

PROGRAM = '#include <stdio.h>\nint main(void) { puts("built by the tree"); return 0; }\n'


@pytest.fixture(scope="module")
def real() -> Tree:
    return Tree.require()


@pytest.mark.guest
def test_qemu_of_the_tree_boots_the_kernel_of_the_tree(real: Tree) -> None:
    assert boot_to_marker(probe_command(real, "tcg"), 60)[:2] == (True, "")


@pytest.mark.guest
def test_compiler_of_the_tree_works_on_a_bound_directory(real: Tree, tmp_path: Path) -> None:
    (tmp_path / "hello.c").write_text(PROGRAM)
    binds = [Bind(tmp_path, "/mnt/test", writable=True)]
    argv = real.command(["gcc", "-static", "-o", "hello", "hello.c"], cwd="/mnt/test", binds=binds)
    subprocess.run(argv, check=True)
    assert (
        subprocess.run([tmp_path / "hello"], capture_output=True, check=True).stdout == b"built by the tree\n"
    )


@pytest.mark.guest
def test_read_only_bind_cannot_be_written(real: Tree, tmp_path: Path) -> None:
    argv = real.command(["touch", "/mnt/test/x"], binds=[Bind(tmp_path, "/mnt/test")])
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "Read-only file system" in answer.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.guest
def test_tshark_of_the_tree_knows_rocev2(real: Tree) -> None:
    argv = [*real.tshark_command(), "-G", "protocols"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "\tinfiniband\t" in answer.stdout


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(TREES))
def test_modules_build_without_warnings_for_every_supported_kernel(name: str) -> None:
    built = build_modules(obtain_tree(TREES[name]))
    assert {path.name for path in built.files} == {"vgpu.ko", "vrnic.ko"}
    assert "warning" not in built.output.lower()
