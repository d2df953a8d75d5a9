# SPDX-License-Identifier: Apache-2.0
"""Every mistake a kernel can make on request is named, by the NIC or by the submitter's own side."""

from __future__ import annotations

import importlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from emu.chaos import find_profile
from emu.checks.catalogue import CHECKS, find_rule
from emu.checks.rule import Rule
from tests.simt.harness import Outcome, run_kernel


@dataclass(frozen=True)
class Case:
    """A mutation in a kernel and the rule that is named first.

    ``seeds`` runs are tried; at least one names the rule, and none names another one first. ``same``: rules
    that the same mistake may show as, when lanes run in another order. ``chaos`` is the fault that brings a
    mistake to light.
    """

    mutation: str
    kernel: str
    rule: str
    seeds: int = 2
    loss: float = 0.0
    same: tuple[str, ...] = ()
    ranks: int = 2
    chaos: str = ""

    def __str__(self) -> str:
        engine = "weak" if "weak" in self.kernel else "direct"
        return f"{self.rule}-{self.mutation or 'none'}-{self.kernel.split()[0]}-{engine}"

    def run(self, simt: Path, seed: int, off: tuple[Rule, ...] = ()) -> Outcome:
        """One run."""
        arguments = self.kernel + (f" --mutation {self.mutation}" if self.mutation else "")
        chaos = find_profile(self.chaos) if self.chaos else None
        return run_kernel(simt, arguments, seed=seed, loss=self.loss, ranks=self.ranks, chaos=chaos, off=off)


CASES = [
    # What is in the ring
    Case("masked-index", "coalesced", "C01"),
    Case("masked-index", "coalesced --engine weak", "C01"),
    Case("masked-index", "wrap --start 0", "C01"),
    Case("neighbour-qpn", "coalesced", "C02"),
    Case("neighbour-qpn", "shared --engine weak", "C02"),
    Case("ring-before-ready", "shared --messages 128", "C03"),
    Case("change-wqe", "coalesced --hints off", "C04"),
    Case("swap-index", "coalesced", "C11"),
    Case("masked-phase", "coalesced", "C18"),
    Case("masked-phase", "wrap --start 0 --engine weak", "C18"),
    Case("narrow-index", "coalesced --start 0xfff0", "C18"),
    Case("narrow-index", "wrap --start 0xfff0 --engine weak", "C18"),
    # What is still in use
    Case("reuse-payload", "coalesced", "C05"),
    Case("reuse-payload", "coalesced --hints off", "C05"),
    Case("change-wqe", "coalesced --engine weak", "C05", same=("C04",)),
    Case("reuse-result", "verbs", "C05"),
    Case("reuse-result", "verbs --engine weak", "C05"),
    Case("skip-slot-check", "coalesced", "C05"),
    Case("skip-slot-check", "coalesced --engine weak", "C05"),
    Case("skip-slot-check", "coalesced --hints off", "C06"),
    # Doorbells and the record
    Case("ring-all-lanes", "coalesced --hints off", "C07"),
    Case("dbr-dword0", "coalesced --dbr strict", "C08"),
    Case("dbr-dword0", "coalesced", "C08"),
    Case("swap-doorbell", "coalesced --timeout 1", "C11"),
    Case("split-doorbell", "coalesced --timeout 1", "C12"),
    Case("split-doorbell", "verbs --engine weak --timeout 1", "C12"),
    Case("", "single --dbr none --timeout 1", "C13", chaos="lost-doorbells"),
    Case("forget-last-doorbell", "single --timeout 1", "C14"),
    Case("forget-last-doorbell", "shared --batch 64 --messages 96 --timeout 2", "C14"),
    Case("keep-lock", "shared --messages 128 --timeout 2", "C14"),
    Case("narrow-doorbell", "coalesced --start 0xfff0 --timeout 1", "C18"),
    # Order, scopes, locks
    Case("drop-publish-fence", "shared --engine weak", "C09"),
    Case("drop-publish-fence", "shared --ring host --data host --engine weak", "C09"),
    Case("drop-ring-fence", "coalesced --engine weak", "C09"),
    Case("drop-ring-fence", "coalesced --ring host --dbr strict --engine weak", "C09"),
    Case("ring-before-ready", "shared --messages 128 --engine weak", "C09", 6),
    Case("drop-block-barrier", "verbs --engine weak", "C09", same=("C05",)),
    Case("cta-scope-on-shared", "exclusive", "C10"),
    Case("cta-scope-on-shared", "exclusive --engine weak", "C10"),
    Case("narrow-ring-fence", "coalesced --ring host --engine weak", "C10"),
    Case("ring-all-lanes", "coalesced", "C20"),
    Case("ring-all-lanes", "coalesced --engine weak", "C20"),
    Case("drop-lock", "shared", "C20"),
    Case("drop-lock", "shared --engine weak", "C20"),
    Case("signal-on-other-qp", "verbs --qps 2", "C24", 6, 0.03),
    Case("drop-signal-fence", "verbs --transport uet-rud", "C24", 3, 0.02),
    Case("drop-fence", "verbs --qps 2", "C24", 8, 0.08),
    # Completions
    Case("forget-consumer", "single --cq ring --messages 384 --timeout 2", "C15"),
    Case("unclean-cq", "coalesced", "C16"),
    Case("unclean-cq", "coalesced --cq ring", "C16"),
    Case("unclean-ring", "coalesced", "C16"),
    Case("ignore-errors", "coalesced --timeout 2", "C17", chaos="failed-work"),
    Case("ignore-errors", "shared --cq counter --timeout 2", "C17", chaos="failed-work"),
    Case("consumer-ahead", "single --cq ring --messages 128 --engine weak", "C19"),
    # States, keys, operations, paths, declarations
    Case("swap-keys", "coalesced", "C11"),
    Case("swap-keys", "moe", "C11"),
    Case("ring-before-connect", "coalesced", "C21"),
    Case("stray-key", "coalesced", "C22"),
    Case("misaligned-atomic", "verbs", "C23"),
    Case("misaligned-atomic", "moe", "C23"),
    Case("narrow-signal", "verbs --timeout 1", "C25"),
    Case("stale-psn", "coalesced --timeout 1", "C26"),
    Case("no-retries", "coalesced --timeout 2", "C27", loss=0.1),
    Case("pe-major", "coalesced --qps 2", "C28", ranks=3),
    Case("four-byte-atomic", "verbs", "C29"),
    Case("garbage-hints", "single", "C34"),
]

ELSEWHERE = {
    Rule.C30_LIFECYCLE: "tests.checks.test_device.test_what_is_left_behind_is_named",
    Rule.C31_SPIN: "tests.checks.test_device.test_polling_what_cannot_change_is_named",
    Rule.C32_REGISTER: "tests.checks.test_device.test_registers_that_are_not_there_are_named",
    Rule.C33_REARM: "tests.checks.test_device.test_events_that_nobody_armed_for_are_named",
}
"""Rules that drivers break, not kernels, and the tests that break them."""


def first(outcome: Outcome) -> str | None:
    return next(iter(outcome.device_rules), None)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mistake_is_named_first(simt: Path, case: Case) -> None:
    named: set[str | None] = set()
    for seed in range(1, case.seeds + 1):
        outcome = case.run(simt, seed)
        named.add(first(outcome))
        assert all(status in (0, 1) for status in outcome.statuses), outcome.errors
    assert case.rule in named
    assert named - {case.rule, None} <= set(case.same)


def test_every_rule_is_broken_by_some_test() -> None:
    covered = {case.rule for case in CASES} | {rule.code for rule in ELSEWHERE}
    assert covered == {rule.code for rule in CHECKS}
    for name in ELSEWHERE.values():
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("rule", sorted({case.rule for case in CASES}))
def test_without_its_rule_the_mistake_is_not_named(simt: Path, rule: str) -> None:
    """Each case stands on its own check: without it, that name does not come up."""
    case = next(case for case in CASES if case.rule == rule)
    outcome = case.run(simt, 1, off=(find_rule(rule),))
    assert rule not in outcome.device_rules
    assert sum(machine.nic.checks.counts[find_rule(rule)] for machine in outcome.machines) == 0


def test_the_sentence_says_what_the_nic_found(simt: Path) -> None:
    outcome = run_kernel(simt, "coalesced --mutation neighbour-qpn")
    assert any("first error LOC_QP_OP_ERR (QPN_MISMATCH) at index 0" in error for error in outcome.errors)
    outcome = run_kernel(simt, "verbs --mutation misaligned-atomic")
    assert any("ended it for what its peer asked of it" in error for error in outcome.errors)


def test_every_mutation_the_program_offers_is_in_the_table(simt: Path) -> None:
    done = subprocess.run([simt, "--help"], capture_output=True, text=True, timeout=20, check=True)
    _, _, listed = done.stdout.partition("--mutation NAME")
    offered = {line.split()[0] for line in listed.splitlines()[1:]}
    assert offered == {case.mutation for case in CASES} - {""}


@pytest.mark.parametrize("engine", ["direct", "weak"])
@pytest.mark.parametrize("transport", ["roce-rc", "uet-rud"])
def test_garbage_hurts_nobody_else(simt: Path, transport: str, engine: str) -> None:
    rules = set()
    for seed in range(1, 6):
        arguments = f"garbage --qps 3 --transport {transport} --engine {engine} --dbr authoritative --cq ring"
        outcome = run_kernel(simt, arguments, seed=seed)
        # Ended, not hung, not killed; what it reports of itself does not matter.
        assert all(status in (0, 1) for status in outcome.statuses), outcome.errors
        rules |= set(outcome.device_rules)
        for machine in outcome.machines:
            machine.reset()
            assert set(machine.nic.objects().to_json().values()) == {0}
    assert len(rules) >= 4 and "C34" in rules


@pytest.mark.parametrize("mutation", ["masked-index", "swap-keys", "skip-slot-check"])
def test_a_wrong_kernel_hurts_its_own_queue_pairs_only(simt: Path, mutation: str) -> None:
    outcome = run_kernel(simt, f"coalesced --mutation {mutation} --timeout 1")
    assert outcome.device_rules
    for machine in outcome.machines:
        # The NIC goes on: admin commands are served, and everything can be taken down and brought up.
        machine.reset()
        assert set(machine.nic.objects().to_json().values()) == {0}
