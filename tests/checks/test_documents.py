# SPDX-License-Identifier: Apache-2.0
"""What is written about rules is current, complete, and true of the mutations it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.chaos import find_profile
from emu.checks.catalogue import CHECKS, find_rule
from emu.checks.coverage import REPORTS
from emu.checks.generate import CHECKS_FILE, LIMITS_FILE, main, outputs, stale
from emu.checks.rule import Rule
from emu.cli.main import app
from tests.simt.test_mutations import CASES


def test_the_documents_are_current() -> None:
    assert stale() == [], "run python -m emu.checks.generate"
    assert main(["--check"]) == 0


def test_an_edited_document_is_stale(tmp_path: Path) -> None:
    assert stale(tmp_path) == [CHECKS_FILE, LIMITS_FILE]
    for name, text in outputs().items():
        (tmp_path / name).write_text(text)
    assert stale(tmp_path) == []
    (tmp_path / LIMITS_FILE).write_text("none")
    assert stale(tmp_path) == [LIMITS_FILE]


def test_every_rule_says_all_there_is_to_say() -> None:
    assert set(CHECKS) == set(Rule) - {Rule.NONE}
    for check in CHECKS.values():
        assert check.sentence.endswith(".") and check.happens.endswith(".") and check.advice.endswith(".")
        assert check.evidence and check.personalities


def test_every_reported_mistake_is_shown_or_said_not_to_be() -> None:
    mutations = {(case.mutation, case.rule) for case in CASES}
    names = {mutation for mutation, _ in mutations}
    for reports in REPORTS.values():
        for report in reports:
            for profile in report.profiles.split():
                assert find_profile(profile).name == profile
            rules = [find_rule(rule).code for rule in report.rules.split()]
            for name in report.mutations.split():
                assert name in names, report.where
                assert any((name, rule) in mutations for rule in rules), (
                    f"{report.where}: {name} is not {rules}"
                )
            assert bool(report.why_not) != bool(report.rules or report.profiles), report.where


def test_rules_are_listed_and_explained_without_a_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    runner = CliRunner()
    listed = runner.invoke(app, ["checks", "list", "--json"])
    assert listed.exit_code == 0, listed.output
    assert [entry["rule"] for entry in json.loads(listed.output)] == [rule.code for rule in CHECKS]
    explained = runner.invoke(app, ["checks", "explain", "c8"])
    assert explained.exit_code == 0 and "doorbell record" in explained.output
    assert runner.invoke(app, ["checks", "explain", "C99"]).exit_code == 1
