# SPDX-License-Identifier: Apache-2.0
"""The UET benchmark moves what it says, and reports ratios of one run."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import emu.bench.uet as bench
from emu.bench.cost import Cost, Report
from emu.bench.uet import MESSAGE_TARGET, SCALE_TARGET, run_uet_bench
from emu.cli.main import app


def report(messages: float = 50_000, slowdown: float = 0.1) -> Report:
    costs = (Cost(64, 1, 1 / messages, 1e-7), Cost(64, 4096, (1 + slowdown) / messages, 1e-7))
    return Report("PDCs", {"messages": MESSAGE_TARGET, "slowdown": SCALE_TARGET}, costs, 5)


def test_every_size_is_measured_with_every_number_of_contexts() -> None:
    told: list[str] = []
    found = run_uet_bench(
        sizes=(8, 5000), pdc_counts=(1, 3), rounds=1, volume=1 << 16, messages=32, progress=told.append
    )
    assert [(cost.size, cost.peers) for cost in found.costs] == [(8, 1), (5000, 1), (8, 3), (5000, 3)]
    for cost in found.costs:
        assert cost.engine > 0 and cost.raw > 0
        assert cost.messages == pytest.approx(1 / cost.engine)
        assert cost.gigabytes == pytest.approx(cost.size * cost.messages / 1e9)
        assert cost.ratio == pytest.approx(cost.engine / cost.raw)
    assert told == ["round 1 of 1"]
    with pytest.raises(KeyError, match="64 bytes on 1 PDCs"):
        found.of(64, 1)


@pytest.mark.parametrize(
    ("good", "values"), [(True, {}), (False, {"messages": 39_000}), (False, {"slowdown": 0.2})]
)
def test_all_targets_must_be_met(good: bool, values: dict[str, float]) -> None:
    found = report(**values)
    assert found.met is good
    assert found.to_json()["met"] is good


def test_the_command_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_uet_bench", lambda **_: report())
    runner = CliRunner()
    shown = runner.invoke(app, ["bench", "uet"])
    assert shown.exit_code == 0
    assert "50,000" in shown.output and "at least 40,000" in shown.output and "10%" in shown.output
    plain = json.loads(runner.invoke(app, ["bench", "uet", "--json"]).stdout)
    assert plain["met"] is True
