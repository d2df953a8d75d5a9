# SPDX-License-Identifier: Apache-2.0
"""Which guests see the Debian tree, and how their QEMU is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu.lab import installation as module
from emu.lab.file import format_lab, parse_lab
from emu.lab.installation import Installation
from emu.lab.runner import qemu_command
from emu.lab.topology import Lab, Nic, Node
from emu.setup.error import SetupError
from emu.setup.tree import Kernel, Tree


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """One without anything in it, whose images are not built."""
    monkeypatch.setattr(module.Installation, "image", lambda self, **options: tmp_path / f"{options}")
    kernel = Kernel("full", "6.12", tmp_path / "vmlinuz", tmp_path, "/headers")
    return Installation(Tree(tmp_path / "tree"), ("qemu",), kernel, (), tmp_path, "tcg", tmp_path)


@pytest.mark.parametrize(
    ("node", "interactive", "shared"),
    [
        (Node("a"), False, False),
        (Node("a"), True, True),
        (Node("a", tools=True), False, True),
        (Node("a", (Nic(device="mlx5"),)), False, True),
        (Node("a", (Nic(device="mlx5"),), tools=False), False, False),
    ],
)
def test_the_tree_is_shared_with_who_has_tools(
    installation: Installation, tmp_path: Path, node: Node, interactive: bool, shared: bool
) -> None:
    command = qemu_command(Lab((node,)), "a", installation, tmp_path, interactive=interactive)
    assert [share.folder == tmp_path / "tree" for share in command.shares] == [True] * shared
    assert ("vrnic.share=tree:/tree:steady" in command.kernel_arguments().split()) is shared
    # The image can mount what it is given, and only then holds what that takes.
    assert f"'shares': {shared}" in str(command.image)


@pytest.mark.parametrize("tools", [True, False, None])
def test_a_lab_file_says_who_has_tools(tools: bool | None) -> None:
    lab = Lab((Node("a", tools=tools), Node("b", (Nic(device="mlx5"),), tools=tools)))
    again = parse_lab(format_lab(lab))
    assert [node.has_tools for node in again.nodes] == [node.has_tools for node in lab.nodes]
    assert parse_lab('[[node]]\nname = "a"\ntools = true\n').nodes[0] == replace(
        Node("a", (), ()), tools=True
    )


def test_a_kernel_there_is_none_of_is_refused() -> None:
    with pytest.raises(SetupError, match=r"no kernel '5\.4'") as caught:
        Installation.require(kernel="5.4")
    assert "6.1, 6.12, 7" in caught.value.hint
