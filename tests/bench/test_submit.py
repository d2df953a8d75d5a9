# SPDX-License-Identifier: Apache-2.0
"""The submission benchmark: its forms run, its counts are those of the protocol, its ratios add up."""

from __future__ import annotations

import pytest

from emu.bench.submit import FORMS, SubmitCost, SubmitReport, run_submit_bench


def test_rates_are_multiples_of_the_first_form() -> None:
    costs = tuple(SubmitCost(name, rate, 1.0, 0.5, 1.0, 0.0) for name, rate in (("a", 200.0), ("b", 500.0)))
    document = SubmitReport(costs, rounds=2, accelerator="tcg").to_json()
    assert document["rounds"] == 2
    assert document["costs"] == [
        {
            "name": name,
            "rate": rate,
            "doorbells": 1.0,
            "fetches": 0.5,
            "completions": 1.0,
            "cpu_touches": 0.0,
            "ratio": ratio,
        }
        for name, rate, ratio in (("a", 200.0, 1.0), ("b", 500.0, 2.5))
    ]


@pytest.mark.guest
@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_warp_rings_once_and_a_proxy_touches_every_message() -> None:
    said: list[str] = []
    report = run_submit_bench(rounds=1, progress=said.append)
    assert said[-1] == "round 1 of 1"
    assert [cost.name for cost in report.costs] == [form.name for form in FORMS]
    cost = {each.name: each for each in report.costs}
    assert cost["one lane"].doorbells == cost["one lane"].completions == 1
    for warps in ("1 warp", "4 warps", "16 warps"):
        assert cost[warps].completions == pytest.approx(1 / 32)
        # Several warps may share a doorbell.
        assert 0 < cost[warps].doorbells <= 1 / 32
    assert cost["16 warps, mixed"].completions > cost["16 warps"].completions
    assert {each.cpu_touches for each in report.costs if each.name != "CPU proxy"} == {0}
    assert cost["CPU proxy"].cpu_touches >= 2
    assert all(each.rate > 0 for each in report.costs)
