# SPDX-License-Identifier: Apache-2.0
"""The perftest benchmark: its arithmetic, and in guests that it runs and finds this NIC ahead of rxe."""

from __future__ import annotations

import pytest

from emu.bench.perftest import CASES, LOOPBACK, Case, Outcome, PerftestReport, run_perftest_bench
from emu.lab.failure import LabFailure

BANDWIDTH = (
    " #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]",
    "64 100 2.5 2.4 0.04",
)


def report(rate: float, loopback: float) -> PerftestReport:
    """A run whose only case asks for twice rxe's rate."""
    case = Case("ib_write_bw", 64, 100, "msg/s", 2.0)
    return PerftestReport((Outcome(case, rate, 1000.0),), loopback, 1.0, 1, "tcg")


def test_values_are_read_by_unit() -> None:
    assert Case("ib_write_bw", 64, 100, "msg/s").read(BANDWIDTH) == 40_000
    assert Case("ib_write_bw", 64, 100, "MiB/s").read(BANDWIDTH) == 2.4
    with pytest.raises(LabFailure, match="printed no result"):
        Case("ib_write_bw", 65, 100, "MiB/s").read(BANDWIDTH)
    with pytest.raises(LabFailure, match="printed no result"):
        Case("ib_write_lat", 64, 100, "us").read(BANDWIDTH)


def test_latency_is_better_when_it_is_shorter() -> None:
    assert Outcome(Case("ib_write_lat", 8, 100, "us"), 50.0, 400.0).ratio == 8
    assert Outcome(Case("ib_write_bw", 8, 100, "msg/s", 4.0), 400.0, 100.0).met
    assert not Outcome(Case("ib_write_bw", 8, 100, "msg/s", 4.0), 399.0, 100.0).met


def test_every_target_has_to_be_met() -> None:
    assert report(2000.0, 500.0).met
    assert not report(1999.0, 500.0).met
    assert not report(2000.0, 499.0).met
    assert report(2000.0, 500.0).to_json()["met"] is True


@pytest.mark.guest
@pytest.mark.full
@pytest.mark.timeout(900)
def test_this_nic_is_ahead_of_software_roce() -> None:
    cases = tuple(Case(case.tool, case.octets, min(case.iterations, 500), case.unit) for case in CASES)
    found = run_perftest_bench(
        cases=cases, loopback=Case(LOOPBACK.tool, LOOPBACK.octets, 2000, LOOPBACK.unit), rounds=1
    )
    assert all(outcome.ratio > 1 for outcome in found.outcomes), found
    assert found.loopback > 0 and found.loopback_seconds > 0
