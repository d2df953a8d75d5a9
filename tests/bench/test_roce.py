# SPDX-License-Identifier: Apache-2.0
"""The RoCE benchmark moves what it says, and reports ratios of one run."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import emu.bench.roce as bench
from emu.bench.cost import Cost, Report
from emu.bench.roce import BULK_TARGET, MESSAGE_TARGET, SCALE_TARGET, run_roce_bench
from emu.cli.main import app
from emu.nic.engine import ProtectionError


def report(messages: float = 70_000, gigabytes: float = 0.6, slowdown: float = 0.1) -> Report:
    costs = (
        Cost(64, 1, 1 / messages, 1e-7),
        Cost(64, 4096, (1 + slowdown) / messages, 1e-7),
        Cost(1 << 20, 1, (1 << 20) / gigabytes / 1e9, 1e-4),
    )
    targets = {"messages": MESSAGE_TARGET, "gigabytes": BULK_TARGET, "slowdown": SCALE_TARGET}
    return Report("QPs", targets, costs, 5)


def test_every_size_is_measured_with_every_number_of_queue_pairs() -> None:
    told: list[str] = []
    found = run_roce_bench(
        sizes=(8, 5000), qp_counts=(1, 3), rounds=1, volume=1 << 16, messages=32, progress=told.append
    )
    assert [(cost.size, cost.peers) for cost in found.costs] == [(8, 1), (5000, 1), (8, 3), (5000, 3)]
    for cost in found.costs:
        assert cost.engine > 0 and cost.raw > 0
        assert cost.messages == pytest.approx(1 / cost.engine)
        assert cost.gigabytes == pytest.approx(cost.size * cost.messages / 1e9)
        assert cost.ratio == pytest.approx(cost.engine / cost.raw)
    assert told == ["round 1 of 1"]
    with pytest.raises(KeyError, match="64 bytes on 1 QPs"):
        found.of(64, 1)


@pytest.mark.parametrize(
    ("good", "values"),
    [(True, {}), (False, {"messages": 59_000}), (False, {"gigabytes": 0.4}), (False, {"slowdown": 0.2})],
)
def test_all_targets_must_be_met(good: bool, values: dict[str, float]) -> None:
    found = report(**values)
    assert found.met is good
    assert found.to_json()["met"] is good
    assert found.slowdown == pytest.approx(values.get("slowdown", 0.1))


def test_the_command_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_roce_bench", lambda **_: report())
    runner = CliRunner()
    shown = runner.invoke(app, ["bench", "roce"])
    assert shown.exit_code == 0
    assert "70,000" in shown.output and "at least 60,000" in shown.output and "10%" in shown.output
    plain = json.loads(runner.invoke(app, ["bench", "roce", "--json"]).stdout)
    assert plain["met"] is True
    assert plain["costs"][0]["messages_per_second"] == pytest.approx(70_000)


def test_a_failing_engine_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench._Bench(1)
    for host in made.right.hosts:
        monkeypatch.setattr(type(host), "check_remote", _refuse)
    with pytest.raises(AssertionError, match="QP 0x100"):
        made.run(8, 1)


def _refuse(*_: object) -> None:
    raise ProtectionError("no")
