# SPDX-License-Identifier: Apache-2.0
"""The mirror of guest sources follows the checkout and leaves what has not changed alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.setup.error import BuildError
from emu.setup.tree import Tree
from emu.setup.workspace import Workspace


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    folder = tmp_path / "guest"
    (folder / "driver").mkdir(parents=True)
    (folder / "driver/a.c").write_text("a")
    (folder / "driver/b.c").write_text("b")
    return folder


@pytest.fixture
def space(tree: Tree) -> Iterator[Workspace]:
    yield Workspace.open(tree, "modules")


def test_unchanged_files_keep_their_time(space: Workspace, guest: Path) -> None:
    space.mirror(guest, ["driver"])
    for name in ("a.c", "b.c"):
        os.utime(space.path / "driver" / name, (1, 1))
    (guest / "driver/b.c").write_text("changed")
    space.mirror(guest, ["driver"])
    assert (space.path / "driver/a.c").stat().st_mtime == 1
    assert (space.path / "driver/b.c").stat().st_mtime > 1
    assert (space.path / "driver/b.c").read_text() == "changed"


def test_vanished_sources_go_and_products_stay(space: Workspace, guest: Path) -> None:
    space.mirror(guest, ["driver"])
    (space.path / "driver/a.o").touch()
    (guest / "driver/a.c").unlink()
    space.mirror(guest, ["driver"])
    assert sorted(path.name for path in (space.path / "driver").iterdir()) == ["a.o", "b.c"]


def test_workspace_is_below_the_trees_root(space: Workspace) -> None:
    assert space.inside("driver") == "/build/modules/driver"


def test_compiler_errors_name_the_files_of_the_checkout(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(self: Tree, argv: list[str], **options: object) -> list[str]:
        return ["sh", "-c", "echo '/build/modules/driver/a.c:3:1: error: no'; exit 2"]

    monkeypatch.setattr(Tree, "command", command)
    with pytest.raises(BuildError) as caught:
        space.make("the modules")
    assert caught.value.output == "guest/driver/a.c:3:1: error: no\n"
