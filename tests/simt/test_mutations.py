# SPDX-License-Identifier: Apache-2.0
"""Every mistake a kernel can make on request is named, by the NIC or by the submitter's own side."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simt.harness import run_kernel


@dataclass(frozen=True)
class Case:
    """A mutation in a kernel and the rule that is named first, by the NIC and by the shim.

    ``seeds`` runs are tried; at least one names the rule, and none names another one first. ``same``: rules
    that the same mistake may show as, when lanes run in another order.
    """

    mutation: str
    kernel: str
    device: str | None = None
    shim: str | None = None
    seeds: int = 2
    loss: float = 0.0
    same: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.mutation}-{self.kernel.split()[0]}-{'weak' if 'weak' in self.kernel else 'direct'}"


CASES = [
    # C01 to C03: what is in the ring
    Case("masked-index", "coalesced", "C01"),
    Case("masked-index", "coalesced --engine weak", "C01"),
    Case("masked-index", "wrap --start 0", "C01"),
    Case("neighbour-qpn", "coalesced", "C02"),
    Case("neighbour-qpn", "shared --engine weak", "C02"),
    Case("masked-phase", "coalesced", "C03"),
    Case("masked-phase", "wrap --start 0 --engine weak", "C03"),
    Case("ring-before-ready", "shared --messages 128", "C03", "C05"),
    Case("ring-before-ready", "shared --messages 128 --engine weak", "C03", "C09", 6, same=("C05",)),
    Case("drop-publish-fence", "shared --engine weak", "C03", "C09", 6),
    Case("drop-publish-fence", "shared --ring host --data host --engine weak", "C03", "C09", 6),
    # C05 to C08, C12: indices, doorbells, the record
    Case("reuse-payload", "coalesced", None, "C05"),
    Case("skip-slot-check", "coalesced", "C06", "C05"),
    Case("skip-slot-check", "coalesced --engine weak", "C06", "C05"),
    Case("ring-all-lanes", "coalesced", "C07"),
    Case("ring-all-lanes", "coalesced --engine weak", "C07"),
    Case("dbr-dword0", "coalesced --dbr strict", "C08"),
    Case("drop-ring-fence", "coalesced --ring host --dbr strict --engine weak", "C08", None, 6),
    Case("swap-doorbell", "coalesced", "C12"),
    Case("split-doorbell", "coalesced", "C12"),
    Case("split-doorbell", "verbs --engine weak", "C12"),
    Case("forget-consumer", "single --cq ring --messages 384 --timeout 2", "C15"),
    Case("consumer-ahead", "single --cq ring --messages 128 --engine weak", "C19"),
    # What only the submitter's side can see
    Case("cta-scope-on-shared", "exclusive", None, "C10"),
    Case("cta-scope-on-shared", "exclusive --engine weak", None, "C10"),
    Case("forget-last-doorbell", "single --timeout 1", None, "C14"),
    Case("forget-last-doorbell", "shared --batch 64 --messages 96 --timeout 1", None, "C14"),
    Case("signal-on-other-qp", "verbs --qps 2", None, "C24", 6, 0.03),
    Case("drop-signal-fence", "verbs --transport uet-rud", None, "C24", 3, 0.02),
    Case("drop-fence", "verbs --qps 2", None, "C24", 8, 0.08),
    # C21 to C23, C29: states, keys, operations
    Case("ring-before-connect", "coalesced", "C21"),
    Case("swap-keys", "coalesced", "C22"),
    Case("swap-keys", "moe", "C22"),
    Case("misaligned-atomic", "verbs", "C23"),
    Case("misaligned-atomic", "moe", "C23"),
    Case("four-byte-atomic", "verbs", "C29"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mistake_is_named_first(simt: Path, case: Case) -> None:
    named: list[tuple[str | None, str | None]] = []
    for seed in range(1, case.seeds + 1):
        arguments = f"{case.kernel} --mutation {case.mutation}"
        outcome = run_kernel(simt, arguments, seed=seed, loss=case.loss)
        named.append((next(iter(outcome.device_rules), None), next(iter(outcome.shim_rules), None)))
        assert all(status in (0, 1) for status in outcome.statuses), outcome.errors
    device, shim = ({first for first in firsts if first} for firsts in zip(*named, strict=True))
    assert device == ({case.device} if case.device else set())
    assert shim - set(case.same) == ({case.shim} if case.shim else set())


def test_the_sentence_says_what_the_nic_found(simt: Path) -> None:
    outcome = run_kernel(simt, "coalesced --mutation neighbour-qpn")
    assert any("first error LOC_QP_OP_ERR (QPN_MISMATCH) at index 0" in error for error in outcome.errors)
    outcome = run_kernel(simt, "verbs --mutation misaligned-atomic")
    assert any("ended it for what its peer asked of it" in error for error in outcome.errors)


def test_every_mutation_the_program_offers_is_in_the_table(simt: Path) -> None:
    done = subprocess.run([simt, "--help"], capture_output=True, text=True, timeout=20, check=True)
    _, _, listed = done.stdout.partition("--mutation NAME")
    offered = {line.split()[0] for line in listed.splitlines()[1:]}
    assert offered == {case.mutation for case in CASES}


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
    assert len(rules) >= 3


@pytest.mark.parametrize("mutation", ["masked-index", "swap-keys", "skip-slot-check"])
def test_a_wrong_kernel_hurts_its_own_queue_pairs_only(simt: Path, mutation: str) -> None:
    outcome = run_kernel(simt, f"coalesced --mutation {mutation} --timeout 1")
    assert outcome.device_rules
    for machine in outcome.machines:
        # The NIC goes on: admin commands are served, and everything can be taken down and brought up.
        machine.reset()
        assert set(machine.nic.objects().to_json().values()) == {0}
