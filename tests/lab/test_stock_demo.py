# SPDX-License-Identifier: Apache-2.0
"""What the demonstration with unmodified tools reads out of their output, and how it reports."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from emu.lab.claims import counter_claims
from emu.lab.demo_mlx5 import STEPS, StockStep, stock_lab
from emu.lab.report import Check
from emu.lab.stock_report import StockReport, ToolRow

OUTPUT = {
    "ping": ("5 packets transmitted, 5 packets received", "round-trip min/avg/max = 0.301/0.412/0.603 ms"),
    "iperf3": ("{", '"end": {"sum_received": {"bits_per_second": 83886080.0}}', "}"),
    "ibv_rc_pingpong": (
        "8192000 bytes in 0.05 seconds = 1230.45 Mbit/sec",
        "1000 iters in 0.05 seconds = 53.26 usec/iter",
    ),
}


def step(name: str) -> StockStep:
    (found,) = [step for step in STEPS if step.name == name]
    return found


def test_values_are_read() -> None:
    assert step("ping").read(OUTPUT["ping"]) == (None, 412.0)
    assert step("iperf3").read(OUTPUT["iperf3"]) == (10.0, None)
    rate, latency = step("ibv_rc_pingpong").read(OUTPUT["ibv_rc_pingpong"])
    assert rate == pytest.approx(1230.45e6 / 8 / (1 << 20))
    assert latency == 53.26


@pytest.mark.parametrize("name", [step.name for step in STEPS if step.measures])
def test_nonsense_is_no_result(name: str) -> None:
    assert step(name).read(("{", "no numbers here", "= fast Mbit/sec")) == (None, None)


def test_every_client_but_the_local_ones_names_its_server() -> None:
    assert all("{server}" in step.client for step in STEPS)
    assert len({step.name for step in STEPS}) == len(STEPS) == 16


def test_the_lab_is_two_stock_guests() -> None:
    lab = stock_lab(0.02, 7)
    assert [nic.device for nic in lab.nics] == ["mlx5", "mlx5"]
    assert (lab.loss, lab.seed, lab.gpus) == (0.02, 7, ())


def test_a_report_fails_with_one_claim_and_shows_every_tool() -> None:
    report = StockReport("mlx5", 0.0, 1, "/tmp/demo.pcapng", "tshark -r x")
    assert not report.passed
    report.tools = [ToolRow("ib_write_bw", "ok", mebibytes=31.5, packets=4991, retransmitted=3)]
    report.checks = [Check("one", True)]
    assert report.passed
    report.checks.append(Check("other", False, "why"))
    assert not report.passed and report.to_json()["passed"] is False
    text = io.StringIO()
    report.render(Console(file=text, width=120, markup=False))
    shown = text.getvalue()
    assert "31.50" in shown and "4,991" in shown and "FAIL other (why)" in shown


def test_tolerated_errors_and_kinds_of_object() -> None:
    def counters(flushed: int, keys: int, qps: int) -> dict[str, dict[str, dict[str, int]]]:
        names = ("dma_errors", "protection_errors", "bad_mmio", "check_violations", "rx_icrc_encapsulated")
        nic = {**dict.fromkeys(names, 0), "rx_icrc_errors": 0, "cqe_errors": flushed}
        return {"node0.nic0": {"nic": nic, "objects": {"mrs": keys, "qps": qps}}}

    start = counters(0, 1, 1)
    lenient = counter_claims(start, counters(5, 2, 1), tolerated=("cqe_errors",), kinds=("qps",))
    assert all(check.holds for check in lenient)
    assert [check.holds for check in counter_claims(start, counters(5, 2, 1))] == [False, False]
    assert not counter_claims(start, counters(0, 1, 2), kinds=("qps",))[1].holds
