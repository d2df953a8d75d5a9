# SPDX-License-Identifier: Apache-2.0
"""The doctor says what is missing and never raises, whatever state the machine is in."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from emu.setup.cache import Cache
from emu.setup.doctor import Finding, run_doctor
from emu.setup.tree import Tree


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_empty_cache_fails_with_the_command_that_repairs_it(cache: Cache) -> None:
    found = by_name(run_doctor(cache))
    for name in ("debian tree", "qemu", "kernels", "libvfio-user", "accelerator"):
        assert found[name].status == "fail"
        assert "scripts/setup" in found[name].remedy
    assert found["python"].status == "ok"


def test_damaged_tree_programs_are_reported_not_raised(tree: Tree, cache: Cache) -> None:
    loader = tree.path / "lib64/ld-linux-x86-64.so.2"
    loader.write_text("#!/bin/sh\necho broken loader >&2\nexit 1\n")
    loader.chmod(0o755)
    found = by_name(run_doctor(cache))
    assert found["qemu"].status == "fail"
    assert "broken loader" in found["qemu"].what
    assert found["tree programs"].status == "fail"


def test_tree_of_another_recipe_is_pointed_out(tree: Tree, cache: Cache) -> None:
    other = cache.root / "tree/0123456789abcdef"
    other.mkdir()
    finding = by_name(run_doctor(cache))["leftovers"]
    assert finding.status == "warn"
    assert str(other) in finding.remedy
    assert str(tree.path) not in finding.remedy


def test_environments_of_a_vanished_checkout_are_pointed_out(cache: Cache, tmp_path: Path) -> None:
    for name, checkout in (("gone", tmp_path / "absent"), ("used", tmp_path)):
        (cache.root / "venv" / name).mkdir(parents=True)
        (cache.root / "venv" / name / ".complete").write_text(f"{checkout}\n")
    remedy = by_name(run_doctor(cache))["leftovers"].remedy
    assert str(cache.root / "venv/gone") in remedy
    assert str(cache.root / "venv/used") not in remedy


def test_findings_are_plain_data(cache: Cache) -> None:
    assert json.dumps([dataclasses.asdict(finding) for finding in run_doctor(cache)])
