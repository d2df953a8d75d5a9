# SPDX-License-Identifier: Apache-2.0
"""What became of the tests of rdma-core's Python binding in a guest, and the document that publishes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["FAILURES", "Outcome", "document", "explained", "parse"]

FAILURES: Mapping[str, str] = {
    "test_flow.FlowTest.": "raw packet queue pairs are not offered",
    "test_rss_traffic.": "raw packet queue pairs are not offered",
    "test_mlx5_timestamp.": "raw packet queue pairs are not offered",
    "test_mlx5_flow.": "raw packet queue pairs are not offered",
    "test_qp.QPTest.test_create_raw_qp": "raw packet queue pairs are not offered",
    "test_qp.QPTest.test_query_raw_qp": "raw packet queue pairs are not offered",
    "test_mlx5_dr.": "raw packet queue pairs are not offered, and these tests begin with one",
    "test_mlx5_lag_affinity.": "raw packet queue pairs are not offered",
    "test_mlx5_dm_ops.": "asks for a capability page of device memory, which there is none of",
}
"""Beginnings of the names of tests that are known to fail, and why. Every other failure is a mistake."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: ``word`` is passed, skipped, failed, crashed or hung, ``reason`` why it did not pass."""

    name: str
    word: str
    reason: str


def parse(lines: Iterable[str]) -> list[Outcome]:
    """The outcomes among the lines ``guest/verbs/run-verbs-tests`` printed."""
    found = []
    for line in lines:
        if line.startswith('{"test": "tests.'):
            record = json.loads(line)
            found.append(Outcome(record["test"].removeprefix("tests."), record["outcome"], record["reason"]))
    return found


def explained(outcome: Outcome) -> str | None:
    """Why a test is known not to pass; None when it should."""
    return next((why for start, why in FAILURES.items() if outcome.name.startswith(start)), None)


def document(outcomes: Iterable[Outcome], *, kernel: str, version: str) -> str:
    """Markdown: totals, then every module with what did not pass in it and why."""
    outcomes = list(outcomes)
    total = Counter(outcome.word for outcome in outcomes)
    lines = [
        "# rdma-core's own tests on the mlx5-compatible function",
        "",
        f"The tests of Debian's `python3-pyverbs` {version}, unmodified, in a stock guest (Linux {kernel})",
        "with one NIC. `tests/boot/test_mlx5_pyverbs.py` runs them; with `VRNIC_WRITE_DOCUMENTS=1` it writes",
        "this file.",
        "",
        f"{len(outcomes)} run: "
        + ", ".join(f"{number} {word}" for word, number in sorted(total.items()))
        + ".",
        "",
        "| Module | Passed | Skipped | Failed |",
        "|---|---|---|---|",
    ]
    modules = sorted({outcome.name.split(".")[0] for outcome in outcomes})
    for module in modules:
        words = Counter(each.word for each in outcomes if each.name.split(".")[0] == module)
        failed = sum(words.values()) - words["passed"] - words["skipped"]
        lines.append(f"| {module} | {words['passed']} | {words['skipped']} | {failed} |")
    lines += ["", "## Failed", "", "| Test | Said | Reason |", "|---|---|---|"]
    for outcome in outcomes:
        if outcome.word not in ("passed", "skipped"):
            lines.append(
                f"| {outcome.name} | {_cell(outcome.reason)} | {explained(outcome) or 'unexplained'} |"
            )
    lines += ["", "## Skipped, by what the tests gave as the reason", ""]
    skips: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.word == "skipped":
            skips.setdefault(outcome.reason, []).append(outcome.name)
    for reason, names in sorted(skips.items()):
        lines += [f"- {_cell(reason)}: {', '.join(names)}"]
    lines += ["", "## Passed", ""]
    lines += [f"- {outcome.name}" for outcome in outcomes if outcome.word == "passed"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())[:200]
