# SPDX-License-Identifier: Apache-2.0
"""The demo's report as text and as values."""

from __future__ import annotations

import io
import json

from rich.console import Console

from emu.lab.report import Check, DemoReport, Measurement


def report() -> DemoReport:
    return DemoReport(
        transport="roce-rc",
        loss=0.02,
        seed=1,
        capture="/out/my demo/demo.pcapng",
        tshark="tshark -r '/out/my demo/demo.pcapng'",
        accelerator="tcg",
        boot_seconds={"node0": 4.0, "node1": 4.5},
        measurements=[
            Measurement("put, host proxy", "node0", 1234, 1 << 20, 34, 3454, 720_700.0, 24, 0, True),
            Measurement("put, host proxy", "node1", 0, 0, 0, 0, None, 0, 0, True),
            Measurement("ping-pong", "node1", 1, 8, None, 0, 1.5e9, None, None, None),
        ],
        checks=[Check("it works", True, "64 [rung] doorbells")],
    )


def rendered(value: DemoReport, width: int = 80) -> str:
    file = io.StringIO()
    value.render(Console(file=file, width=width))
    return file.getvalue()


def test_the_table_fits_80_columns_uncut() -> None:
    lines = rendered(report()).splitlines()
    header = next(line for line in lines if line.startswith("kernel"))
    assert header.split() == [
        *("kernel", "guest", "messages", "bytes", "doorbells", "resent", "latency", "CPU", "calls")
    ]
    row = next(line for line in lines if line.startswith("put"))
    assert " ".join(row.split()) == "put, host proxy node0 1,234 1,048,576 34 3,454 720.7 us 24 0"


def test_what_was_not_reported_is_a_dash_and_idle_ends_are_left_out() -> None:
    text = rendered(report())
    row = next(line for line in text.splitlines() if line.startswith("ping-pong"))
    assert " ".join(row.split()) == "ping-pong node1 1 8 - 0 1.5 s - -"
    assert sum(line.startswith("put") for line in text.splitlines()) == 1


def test_paths_and_claims_are_printed_as_they_are() -> None:
    text = rendered(report(), 60)
    assert "capture: /out/my demo/demo.pcapng\n" in text
    assert "vrnic pcap show '/out/my demo/demo.pcapng'\n" in text
    assert "tshark -r '/out/my demo/demo.pcapng'\n" in text
    assert "ok   it works (64 [rung] doorbells)\n" in text


def test_a_failed_claim_fails_the_run_and_stands_out() -> None:
    value = report()
    assert value.passed
    value.checks.append(Check("bytes are right", False))
    assert not value.passed
    assert "FAIL bytes are right\n" in rendered(value)


def test_a_run_that_claims_nothing_has_not_passed() -> None:
    value = report()
    value.checks.clear()
    assert not value.passed


def test_it_is_json() -> None:
    values = json.loads(json.dumps(report().to_json()))
    assert values["passed"] is True
    assert values["measurements"][0]["doorbells"] == 34
