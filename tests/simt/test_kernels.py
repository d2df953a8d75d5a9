# SPDX-License-Identifier: Apache-2.0
"""Correct kernels end with the right bytes and break no rule, whatever the order of lanes and stores."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.simt.harness import Outcome, run_kernel

FORMS = [
    "single",
    "single --dbr none --start 0xfff0",
    "coalesced",
    "coalesced --warps 4 --qps 2 --messages 384",
    "coalesced --slots 6 --size 1024 --start 0xfffffff0",
    "shared",
    "shared --ctas 4 --warps 3 --batch 4 --ring host --messages 512",
    "shared --ring host --data host --dbr strict",
    "shared --data host --dbr authoritative --qps 2",
    "exclusive",
    "exclusive --ctas 4 --ring host --messages 512",
    "eager",
    "eager --qps 2 --size 2048 --data host",
    "shared --cq ring --messages 1024",
    "shared --cq counter",
    "exclusive --cq ring --order doorbell-record-doorbell",
    "shared --order doorbell-record-doorbell --dbr authoritative",
    "moe --cq counter",
    "verbs",
    "verbs --qps 3 --data host --cq ring",
    "verbs --ring host --data host --size 256",
    "moe",
    "moe --routing hot --topk 4 --ring host",
    "moe --routing idle --data host --hidden 512 --tokens 4",
    "shared --transport uet-rud --cq counter",
    "verbs --transport uet-rud",
    "verbs --transport uet-rod --ring host",
    "eager --transport uet-rud --size 2048",
    "wrap",
    "wrap --transport uet-rod",
    "wrap --start 0xfff0",
    "wrap --start 0xfffffff0 --ring host",
]
"""Kernels and options; each in both memory engines."""
ENGINES = ["direct", "weak"]


def assert_silent(outcome: Outcome) -> None:
    """Every rank verified every byte, and nobody named a rule."""
    assert outcome.statuses == [0] * len(outcome.statuses), outcome.errors
    assert outcome.device_rules == outcome.shim_rules == []
    for record in outcome.records:
        assert record["ok"] is record["verified"] is True
        assert record["messages"] > 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_a_correct_kernel_breaks_no_rule(simt: Path, form: str, engine: str) -> None:
    for seed in (1, 2):
        assert_silent(run_kernel(simt, f"{form} --engine {engine}", seed=seed))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", FORMS)
def test_a_correct_kernel_breaks_no_rule_with_any_seed(simt: Path, form: str, engine: str) -> None:
    for seed in range(1, 201):
        assert_silent(run_kernel(simt, f"{form} --engine {engine}", seed=seed))


@pytest.mark.parametrize(
    "form",
    [
        "shared --engine weak",
        "verbs --qps 2",
        "verbs --transport uet-rud",
        "eager",
        "moe --engine weak",
        "moe --transport uet-rud",
        "moe --transport uet-rod",
    ],
)
def test_a_correct_kernel_stands_loss(simt: Path, form: str) -> None:
    for seed in (1, 2, 3):
        assert_silent(run_kernel(simt, form, seed=seed, loss=0.02))


def test_a_seed_is_a_run(simt: Path) -> None:
    first, again = (run_kernel(simt, "shared --engine weak", seed=5) for _ in range(2))
    other = run_kernel(simt, "shared --engine weak", seed=6)
    assert first.records == again.records
    assert [machine.clock.now() for machine in first.machines] == [m.clock.now() for m in again.machines]
    assert first.machines[0].clock.now() != other.machines[0].clock.now()


def test_a_warp_together_needs_one_doorbell_and_one_completion(simt: Path) -> None:
    alone = run_kernel(simt, "single --messages 96")
    together = run_kernel(simt, "coalesced --messages 96")
    assert_silent(alone)
    assert_silent(together)
    assert [record["doorbells"] for record in alone.records] == [96, 96]
    assert [record["doorbells"] for record in together.records] == [3, 3]
    for outcome, each in ((alone, 96), (together, 3)):
        assert outcome.counter("wqes") == 2 * 96
        assert outcome.counter("doorbells") == outcome.counter("cqes") == 2 * each


def test_completions_are_what_the_mode_makes_of_them(simt: Path) -> None:
    # With counters every WQE counts, asked for or not; nothing is written but the counters.
    modes = {"collapsed": 6, "ring": 6, "counter": 192}
    for mode, each in modes.items():
        outcome = run_kernel(simt, f"coalesced --cq {mode}")
        assert_silent(outcome)
        assert outcome.counter("cqes") == 2 * each


def test_an_early_doorbell_is_legal_unless_the_record_is_strict(simt: Path) -> None:
    order = "coalesced --order doorbell-record-doorbell"
    for policy in ("recovery", "authoritative", "none"):
        assert_silent(run_kernel(simt, f"{order} --dbr {policy}"))
    assert set(run_kernel(simt, f"{order} --dbr strict").device_rules) == {"C08"}


def test_doorbells_are_batched_where_nobody_is_last(simt: Path) -> None:
    for batch in (4, 32):
        outcome = run_kernel(simt, f"shared --messages 256 --batch {batch}")
        assert_silent(outcome)
        for record in outcome.records:
            # Warps together never need more than one each, and the last of a batch always rings.
            assert 256 // 32 <= record["doorbells"] <= 256 // batch + 256 // 8


@pytest.mark.parametrize(
    ("start", "wraps"),
    [
        pytest.param(start, wraps, marks=[pytest.mark.full, pytest.mark.timeout(600)] if wraps > 20 else [])
        for start in ("0xfff0", "0xfffffff0")
        for wraps in (20, 1000)
    ],
)
def test_a_ring_goes_round_past_every_width_of_the_index(simt: Path, start: str, wraps: int) -> None:
    outcome = run_kernel(simt, f"wrap --slots 7 --messages {128 * wraps} --start {start} --timeout 600")
    assert_silent(outcome)
    assert outcome.counter("wqes") == 2 * 128 * wraps


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("puts", "no kernel is called puts"),
        ("single --batch 24", "--batch is 24, not a power of two"),
        ("single --size 12", "--size is 12, not a multiple of 8"),
        ("single --engine strong", "--engine cannot be strong"),
        ("single --mutation typo", "--mutation cannot be typo"),
        ("single --seed -1", "--seed is -1, not a number"),
        ("single single", "one kernel at a time"),
        ("", "which kernel?"),
    ],
)
def test_a_wrong_command_line_is_refused_in_words(simt: Path, arguments: str, complaint: str) -> None:
    argv = [str(simt), *arguments.split(), "--role", "a"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("shared --messages 100", "not a multiple of a warp's 32 lanes"),
        ("coalesced --slots 5", "more than the ring's slots"),
        ("exclusive --ctas 2 --qps 3", "each CTA has a queue pair"),
        ("wrap --warps 2", "wrap is one warp"),
        ("eager --size 96", "not a multiple of a tile's 64 bytes"),
        ("moe --experts 7", "not a multiple of the ranks"),
        ("moe --experts 4 --topk 4", "--topk is not below --experts"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_words(simt: Path, form: str, complaint: str) -> None:
    outcome = run_kernel(simt, form)
    assert outcome.statuses == [1, 1]
    for record in outcome.records:
        assert complaint in record["error"]


def test_eager_messages_need_two_ranks(simt: Path) -> None:
    outcome = run_kernel(simt, "eager", ranks=3)
    assert [record["error"] for record in outcome.records] == ["eager is between two ranks"] * 3


@pytest.mark.parametrize("form", ["coalesced", "shared --engine weak", "verbs"])
def test_ranks_in_a_ring_reach_the_right_one(simt: Path, form: str) -> None:
    assert_silent(run_kernel(simt, form, ranks=4))
