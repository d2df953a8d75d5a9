# SPDX-License-Identifier: Apache-2.0
"""The submission kernels on mlx5-compatible NICs: correct ones break no rule, each mistake is named."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simt.harness import Outcome
from tests.simt.mlx5_harness import run_mlx5_kernel

FORMS = [
    "single",
    "single --dbr none --start 0xfff0",
    "single --doorbell blueflame",
    "coalesced",
    "coalesced --warps 4 --qps 2 --messages 384",
    "coalesced --slots 6 --size 1024 --start 0xfffffff0 --doorbell last",
    "coalesced --doorbell blueflame --data host",
    "shared",
    "shared --ctas 4 --warps 3 --batch 4 --ring host --messages 512",
    "shared --ring host --data host",
    "shared --cq ring --messages 1024",
    "shared --dbr none --doorbell last",
    "shared --batch 1 --doorbell blueflame --messages 128",
    "exclusive --ctas 4 --ring host --messages 512",
    "exclusive --cq ring --order doorbell-record-doorbell",
    "eager --qps 2 --size 2048 --data host",
    "verbs",
    "verbs --qps 3 --data host --cq ring --doorbell last",
    "moe",
    "moe --routing hot --topk 4 --ring host",
    "moe --routing idle --data host --hidden 512 --tokens 4 --doorbell last",
    "wrap",
    "wrap --messages 4096 --start 0xfff0 --cq ring",
]


def assert_silent(outcome: Outcome) -> None:
    """Every rank verified its bytes, and nobody named a rule."""
    assert outcome.statuses == [0] * len(outcome.statuses), outcome.errors
    assert all(record["ok"] is record["verified"] is True for record in outcome.records)
    assert outcome.shim_rules == []
    assert outcome.device_rules == []


@pytest.mark.parametrize("engine", ["direct", "weak"])
@pytest.mark.parametrize("form", FORMS)
def test_a_correct_kernel_breaks_no_rule(simt: Path, form: str, engine: str) -> None:
    assert_silent(run_mlx5_kernel(simt, f"{form} --engine {engine}"))


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ["direct", "weak"])
@pytest.mark.parametrize(
    "form", ["single", "coalesced", "shared", "exclusive", "verbs", "moe", "eager", "wrap"]
)
def test_whatever_the_seed(simt: Path, form: str, engine: str) -> None:
    for seed in range(1, 201):
        assert_silent(run_mlx5_kernel(simt, f"{form} --engine {engine}", seed=seed))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_thousand_laps_of_a_small_ring(simt: Path) -> None:
    assert_silent(run_mlx5_kernel(simt, "wrap --messages 128000 --start 0xfff0 --timeout 600"))


@pytest.mark.parametrize("form", ["shared", "verbs", "moe --engine weak"])
def test_loss_on_the_link_changes_nothing(simt: Path, form: str) -> None:
    outcome = run_mlx5_kernel(simt, form, loss=0.02, seed=3)
    assert_silent(outcome)
    assert outcome.counter("retransmitted_packets")


@pytest.mark.parametrize("form", ["coalesced", "verbs"])
def test_ranks_in_a_ring_reach_the_right_one(simt: Path, form: str) -> None:
    assert_silent(run_mlx5_kernel(simt, form, ranks=4))


def test_a_pushed_descriptor_is_not_fetched(simt: Path) -> None:
    fetching = run_mlx5_kernel(simt, "single")
    pushing = run_mlx5_kernel(simt, "single --doorbell blueflame")
    assert fetching.counter("wqe_fetches") == pushing.counter("pushed_wqes") == 64
    assert pushing.counter("wqe_fetches") == fetching.counter("pushed_wqes") == 0


def test_one_completion_and_few_doorbells_for_a_warp(simt: Path) -> None:
    outcome = run_mlx5_kernel(simt, "coalesced --messages 96")
    assert outcome.counter("wqes") == 2 * 96
    assert outcome.counter("cqes") == 2 * 3


@dataclass(frozen=True)
class Case:
    """A mutation in a kernel, the rules of which the NIC names one first, and the shim's rule.

    The formats have 16 bits of the index, the QPN and no phase: what is C03 on a vrnic NIC, a slot of an
    earlier pass, is an index that does not match here, or in a fresh ring no QPN. Stores that come behind the
    doorbell show as payload that changes under way (C05).
    """

    mutation: str
    kernel: str
    device: frozenset[str]
    shim: str | None = None
    seeds: int = 2
    loss: float = 0.0


def case(mutation: str, kernel: str, *device: str, shim: str | None = None, seeds: int = 2) -> Case:
    """A case without loss."""
    return Case(mutation, kernel, frozenset(device), shim, seeds)


CASES = [
    case("masked-index", "coalesced", "C01"),
    case("masked-index", "wrap --start 0 --engine weak", "C01"),
    case("neighbour-qpn", "coalesced", "C02"),
    case("ring-before-ready", "shared --messages 128", "C01", "C02"),
    case("ring-before-ready", "shared --messages 128 --engine weak --timeout 1", "C01", "C02", "C05"),
    case("drop-publish-fence", "shared --engine weak --timeout 1", "C01", "C02", "C05", seeds=3),
    case("drop-ring-fence", "shared --ring host --data host --engine weak", "C01", "C02", "C05", seeds=4),
    case("change-wqe", "coalesced", "C04"),
    case("reuse-payload", "coalesced", "C05"),
    case("skip-slot-check", "coalesced", "C06"),
    case("ring-all-lanes", "coalesced", "C07"),
    case("dbr-dword0", "coalesced", "C08"),
    case("swap-doorbell", "coalesced --timeout 2", "C02"),
    case("swap-keys", "coalesced", "C11"),
    case("split-doorbell", "coalesced", "C12"),
    case("forget-last-doorbell", "shared --batch 64 --messages 96 --timeout 4", "C14"),
    case("forget-consumer", "single --cq ring --messages 384 --timeout 2", "C15"),
    case("unclean-cq", "coalesced", "C16"),
    case("ring-before-connect", "coalesced", "C21"),
    case("misaligned-atomic", "verbs", "C23"),
    case("stale-psn", "coalesced", "C26"),
    case("four-byte-atomic", "verbs", "C29"),
    case("cta-scope-on-shared", "exclusive", shim="C10"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.mutation}-{case.kernel.replace(' ', '')}")
def test_the_mistake_is_named_first(simt: Path, case: Case) -> None:
    device, shim = set(), set()
    for seed in range(1, case.seeds + 1):
        outcome = run_mlx5_kernel(
            simt, f"{case.kernel} --mutation {case.mutation}", seed=seed, loss=case.loss
        )
        assert all(status in (0, 1) for status in outcome.statuses), outcome.errors
        device |= set(outcome.device_rules[:1])
        shim |= set(outcome.shim_rules[:1])
    assert device <= case.device
    assert bool(device) is bool(case.device)
    assert shim <= ({case.shim} if case.shim else set())
    assert bool(shim) is bool(case.shim)


@pytest.mark.parametrize("engine", ["direct", "weak"])
def test_garbage_hurts_nobody_else(simt: Path, engine: str) -> None:
    rules = set()
    for seed in range(1, 4):
        outcome = run_mlx5_kernel(simt, f"garbage --qps 3 --engine {engine} --cq ring", seed=seed)
        assert all(status in (0, 1) for status in outcome.statuses), outcome.errors
        rules |= set(outcome.device_rules)
        for machine in outcome.machines:
            machine.device.reset("test")
            left = machine.nic.objects().to_json()
            assert {kind: number for kind, number in left.items() if number and kind != "contexts"} == {}
    assert rules


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--cq counter", "mlx5 CQs have entries"),
        ("--transport uet-rud", "the lab's to choose"),
        ("--doorbell twice", "--doorbell cannot be twice"),
    ],
)
def test_what_the_formats_do_not_have_is_refused(simt: Path, options: str, complaint: str) -> None:
    argv = [str(simt), "single", "--device", "mlx5", "--role", "a", *options.split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
