# SPDX-License-Identifier: Apache-2.0
"""Submission kernels under chaos: correct ones do not care about harmless profiles, and notice the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu.chaos import PROFILES, find_profile
from emu.clock import MS
from tests.simt.conftest import simt
from tests.simt.harness import Outcome, run_kernel

__all__ = ["simt"]

HARMLESS = [name for name, profile in PROFILES.items() if profile.harmless]
FORMS = ["shared", "verbs", "moe", "exclusive --cq ring", "wrap", "shared --transport uet-rud"]
REPEATING = {"repeated-doorbells", "storm"}


def assert_right(outcome: Outcome, profile: str) -> None:
    """Every byte is right; nothing is named but the doorbells that came again."""
    assert outcome.statuses == [0, 0], outcome.errors
    assert outcome.shim_rules == []
    assert set(outcome.device_rules) <= ({"C07"} if profile in REPEATING else set())
    assert all(record["verified"] is True for record in outcome.records)


@pytest.mark.parametrize("profile", HARMLESS)
@pytest.mark.parametrize("form", FORMS)
def test_a_correct_kernel_lives_with_it(simt: Path, form: str, profile: str) -> None:
    for engine, seed in (("direct", 1), ("weak", 2)):
        outcome = run_kernel(simt, f"{form} --engine {engine}", seed=seed, chaos=find_profile(profile))
        assert_right(outcome, profile)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("profile", HARMLESS)
@pytest.mark.parametrize("form", FORMS)
def test_a_correct_kernel_lives_with_it_with_any_seed(simt: Path, form: str, profile: str) -> None:
    for seed in range(1, 101):
        engine = ("direct", "weak")[seed % 2]
        outcome = run_kernel(simt, f"{form} --engine {engine}", seed=seed, chaos=find_profile(profile))
        assert_right(outcome, profile)


@pytest.mark.parametrize("profile", HARMLESS)
def test_a_harmless_profile_does_something(simt: Path, profile: str) -> None:
    outcome = run_kernel(simt, "verbs", chaos=find_profile(profile), relaxed=True)
    plain = run_kernel(simt, "verbs", relaxed=True)
    acts = sum(machine.chaos.acts for machine in outcome.machines if machine.chaos is not None)
    times = [[machine.clock.now() for machine in run.machines] for run in (outcome, plain)]
    assert acts > 0 or times[0] != times[1]


@pytest.mark.parametrize("form", ["moe", "shared"])
def test_signals_stay_behind_payload_where_memory_is_relaxed(simt: Path, form: str) -> None:
    for seed in range(1, 5):
        outcome = run_kernel(simt, form, seed=seed, chaos=find_profile("torn-writes"), relaxed=True)
        assert_right(outcome, "torn-writes")


@pytest.mark.parametrize("form", ["eager --size 2048", "verbs"])
def test_a_write_in_relaxed_memory_does_not_vouch_for_the_one_before_it(simt: Path, form: str) -> None:
    """K9 polls a tag inside payload, K7 a flag that a WRITE sets: strict ordering alone makes that right."""
    named = []
    for seed in range(1, 11):
        outcome = run_kernel(simt, form, seed=seed, chaos=find_profile("torn-writes"), relaxed=True)
        named += outcome.shim_rules
        strict = run_kernel(simt, form, seed=seed, chaos=find_profile("torn-writes"))
        assert_right(strict, "torn-writes")
    assert named
    assert set(named) == {"C24"}


def test_failed_work_is_an_error_with_its_cause(simt: Path) -> None:
    outcome = run_kernel(simt, "shared", chaos=find_profile("failed-work"))
    assert any("REM_OP_ERR (REMOTE_NAK)" in error for error in outcome.errors)
    assert outcome.statuses == [1, 1]


def test_a_peer_without_atomics_refuses_them_by_name(simt: Path) -> None:
    outcome = run_kernel(simt, "verbs", chaos=find_profile("no-atomics"))
    assert outcome.statuses == [1, 1]
    assert set(outcome.device_rules) == {"C23"}
    # Kernels that use none do not notice.
    assert_right(run_kernel(simt, "shared", chaos=find_profile("no-atomics")), "no-atomics")


def test_a_reset_under_traffic_ends_in_an_error_not_in_a_hang(simt: Path) -> None:
    early = replace(find_profile("reset"), reset_ns=MS // 100)
    outcome = run_kernel(simt, "shared --messages 2048", chaos=early)
    assert outcome.statuses == [1, 1]
    assert all(outcome.errors)


def test_lost_doorbells_are_made_good_by_the_next_or_named(simt: Path) -> None:
    results = [
        run_kernel(simt, "shared", seed=seed, chaos=find_profile("lost-doorbells")) for seed in range(8)
    ]
    assert any(outcome.statuses == [0, 0] for outcome in results)
    for outcome in results:
        assert outcome.statuses == [0, 0] or any(outcome.errors)


def test_the_same_seed_does_the_same(simt: Path) -> None:
    first, second = (run_kernel(simt, "moe", seed=5, chaos=find_profile("storm")) for _ in range(2))
    assert first.counter("retransmitted_packets") == second.counter("retransmitted_packets")
    assert [m.chaos.acts for m in first.machines if m.chaos] == [
        m.chaos.acts for m in second.machines if m.chaos
    ]


def test_an_unknown_profile_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'torn-writes'"):
        find_profile("torn-write")
