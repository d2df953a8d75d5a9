# SPDX-License-Identifier: Apache-2.0
"""KVM is used only where a guest came up with it, and the answer is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emu.setup import accelerator
from emu.setup.accelerator import boot_to_marker, choose_accelerator, probe_command
from emu.setup.cache import Cache
from emu.setup.tree import Tree

MARKER = "Unable to mount root fs"


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_guest_that_reaches_the_marker_counts_as_booted() -> None:
    booted, _, seconds = boot_to_marker(shell(f"echo 'VFS: {MARKER}'; exec sleep 60"), 30)
    assert booted
    assert seconds < 30


def test_silent_guest_is_ended_when_the_time_is_over() -> None:
    booted, outcome, seconds = boot_to_marker(shell("exec sleep 60"), 0.2)
    assert not booted
    assert "did not come up" in outcome
    assert 0.2 <= seconds < 10


def test_refusal_of_qemu_ends_the_probe_at_once() -> None:
    booted, outcome, seconds = boot_to_marker(
        shell("echo 'KVM internal error. Suberror: 1'; exec sleep 60"), 30
    )
    assert not booted
    assert "KVM internal error" in outcome
    assert seconds < 30


def test_qemu_that_ends_early_is_reported() -> None:
    assert boot_to_marker(shell("exit 1"), 30)[:2] == (False, "QEMU ended before the guest came up")


def test_probe_boots_the_trees_kernel(tree: Tree) -> None:
    words = probe_command(tree, "kvm")
    assert words[words.index("-accel") + 1] == "kvm"
    assert words[words.index("-kernel") + 1] == str(tree.kernel("cloud").image)


def test_missing_device_needs_no_probe(tree: Tree, cache: Cache, tmp_path: Path) -> None:
    answer = choose_accelerator(tree, cache, device=tmp_path / "kvm")
    assert (answer.name, answer.seconds) == ("tcg", 0)


@pytest.mark.parametrize(("booted", "name"), [(True, "kvm"), (False, "tcg")])
def test_answer_is_remembered_until_the_machine_changes(
    tree: Tree, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, booted: bool, name: str
) -> None:
    device = tmp_path / "kvm"
    device.touch()
    probes: list[Sequence[str]] = []

    def probe(argv: Sequence[str], *_: object) -> tuple[bool, str, float]:
        probes.append(argv)
        return booted, "it hangs", 1.5

    monkeypatch.setattr(accelerator, "boot_to_marker", probe)
    first = choose_accelerator(tree, cache, device=device)
    assert first.name == name
    assert choose_accelerator(tree, cache, device=device) == first
    assert len(probes) == 1
    monkeypatch.setattr(accelerator, "machine_identity", lambda tree: {"boot": "another"})
    choose_accelerator(tree, cache, device=device)
    assert len(probes) == 2


def test_damaged_record_is_probed_again(
    tree: Tree, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(accelerator, "boot_to_marker", lambda argv: (True, "", 1.0))
    choose_accelerator(tree, cache, device=device)
    for record in (cache.root / "accelerator").iterdir():
        record.write_text("[]")
    assert choose_accelerator(tree, cache, device=device).name == "kvm"
