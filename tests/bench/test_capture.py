# SPDX-License-Identifier: Apache-2.0
"""The capture benchmark measures what it says."""

from __future__ import annotations

from pathlib import Path

from emu.capture.summary import summarize
from tests.bench.capture import measure


def test_a_small_run_measures_and_captures(tmp_path: Path) -> None:
    row = measure(78, tmp_path / "a.pcapng", frames=64, turns=2)
    assert row["on"] > row["off"] > row["reference"] > 0
    found = summarize(tmp_path / "a.pcapng")
    assert found.interfaces == {"events": 2 * 64 * 5, "node0.nic0": 2 * 64, "node1.nic0": 2 * 64}
