# SPDX-License-Identifier: Apache-2.0
"""The demo with unmodified drivers and tools, as a user runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.lab.demo_mlx5 import STEPS
from emu.lab.installation import Installation
from tests.boot.test_demo import claims, run_demo

pytestmark = pytest.mark.timeout(420)


@pytest.fixture(scope="module")
def clean(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run without loss."""
    return run_demo(tmp_path_factory.mktemp("stock"), "--device", "mlx5")


def test_every_tool_says_what_it_measured(clean: dict[str, Any]) -> None:
    rows = {row["tool"]: row for row in clean["tools"]}
    assert list(rows) == [step.name for step in STEPS]
    for step in STEPS:
        row = rows[step.name]
        assert row["result"] == "ok", row
        assert row["packets"] > 0, row
        assert row["retransmitted"] == 0 or step.name in ("iperf3", "ping"), row
        measured = [row["mebibytes"], row["latency_us"]]
        assert any(value is not None and value > 0 for value in measured) == step.measures, row


def test_counters_logs_and_capture_agree(clean: dict[str, Any]) -> None:
    assert all(claims(clean).values()), clean["checks"]
    assert len(clean["checks"]) == 8
    assert Path(clean["capture"]).stat().st_size > 1 << 20


@pytest.mark.full
def test_under_loss_every_tool_that_repeats_succeeds(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    report = run_demo(tmp_path_factory.mktemp("lossy"), "--device", "mlx5", "--loss", "0.01", "--seed", "7")
    assert all(claims(report).values()), report["checks"]
    assert sum(row["retransmitted"] for row in report["tools"]) > 0
    for step, row in zip(STEPS, report["tools"], strict=True):
        assert (row["result"] == "ok") == step.repairs, row
