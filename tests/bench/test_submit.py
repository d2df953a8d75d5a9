# SPDX-License-Identifier: Apache-2.0
"""The submission benchmark: its forms run, its counts are those of the protocol, its ratios add up."""

from __future__ import annotations

import pytest

from emu.bench.submit import FORMS, Form, SubmitCost, SubmitReport, run_submit_bench


def test_rates_are_multiples_of_each_form_s_base() -> None:
    forms = (Form("a", ""), Form("b", ""), Form("b +rules", "", checks=True, base="b"))
    costs = tuple(
        SubmitCost(form, rate, 1.0, 0.5, 1.0, 0.0)
        for form, rate in zip(forms, (200.0, 500.0, 400.0), strict=True)
    )
    report = SubmitReport(costs, rounds=2, accelerator="tcg")
    assert [report.ratio(cost) for cost in costs] == [1.0, 2.5, 0.8]
    assert report.check_cost == pytest.approx(0.2)
    document = report.to_json()
    assert document["rounds"] == 2
    assert document["costs"] == [
        {
            "name": name,
            "base": base,
            "rate": rate,
            "ratio": ratio,
            "doorbells": 1.0,
            "fetches": 0.5,
            "completions": 1.0,
            "cpu_touches": 0.0,
        }
        for name, base, rate, ratio in (
            ("a", "a", 200.0, 1.0),
            ("b", "a", 500.0, 2.5),
            ("b +rules", "b", 400.0, 0.8),
        )
    ]


def test_every_base_is_a_form() -> None:
    names = {form.name for form in FORMS}
    assert {form.base for form in FORMS} - {""} <= names
    assert len(names) == len(FORMS)


def check_counts(report: SubmitReport) -> None:
    """What each form must count, whatever the time it takes."""
    for cost in report.costs:
        assert cost.rate > 0
        name = cost.form.name
        if "warp" in name and "alone" not in name:
            assert cost.completions == pytest.approx(1 / 32)
            # Several warps may share a doorbell, and the NIC may find work before it is rung for.
            assert 0 < cost.doorbells <= 1 / 32
        assert (cost.cpu_touches > 0) == (name == "CPU proxy")


@pytest.mark.guest
@pytest.mark.timeout(300)
def test_a_warp_rings_once_and_a_proxy_touches_every_message() -> None:
    chosen = ("one lane", "16 warps", "16 warps +rules", "16 warps mapped", "CPU proxy")
    said: list[str] = []
    report = run_submit_bench(
        rounds=1, forms=tuple(form for form in FORMS if form.name in chosen), progress=said.append
    )
    assert said[-1] == "mapped doorbells, round 1 of 1"
    assert [cost.form.name for cost in report.costs] == list(chosen)
    check_counts(report)
    assert report.of("one lane").completions == 1
    assert report.of("CPU proxy").cpu_touches >= 2


@pytest.mark.guest
@pytest.mark.full
@pytest.mark.timeout(600)
def test_every_form_runs() -> None:
    report = run_submit_bench(rounds=1)
    assert [cost.form for cost in report.costs] == list(FORMS)
    check_counts(report)
    assert report.of("16 warps, half alone").completions > report.of("16 warps").completions
