# SPDX-License-Identifier: Apache-2.0
"""Kernels of many lanes in real guests: rings and payload in video memory or in the guest's own."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from emu.lab.failure import LabFailure
from emu.lab.relay import Side, run_pair
from emu.lab.runner import LabRunner
from tests.boot.traffic import counters

pytestmark = pytest.mark.timeout(240)

FORMS = [
    "single",
    "coalesced --engine weak",
    "shared --engine weak --dbr strict",
    "shared --ring host --data host --qps 2 --batch 4",
    "exclusive --ring host",
    "verbs",
    "verbs --engine weak --data host",
    "moe --engine weak --routing hot",
    "moe --ring host --data host",
    "eager --size 2048",
    "shared --cq ring --ring host --messages 1024",
    "coalesced --cq counter",
    "verbs --transport uet-rud --ring host",
    "moe --transport uet-rud --engine weak",
    "wrap --start 0xfffffff0 --messages 512",
]


def run(pair: LabRunner, arguments: str) -> list[dict[str, Any]]:
    """Run a kernel on both guests; their results."""
    left, right = pair.guests
    command = f"vrnic-simt {arguments} --role "
    sides: tuple[Side, Side] = run_pair((left, command + "a"), (right, command + "b"), 60)
    return [record for side in sides for record in side.records]


def violations(pair: LabRunner) -> int:
    """Rules broken so far, on both NICs."""
    return sum(counters(pair, f"node{node}.nic0")["check_violations"] for node in (0, 1))


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_verifies_every_byte_and_breaks_no_rule(pair: LabRunner, form: str) -> None:
    before = violations(pair)
    records = run(pair, form)
    assert len(records) == 2
    for record in records:
        assert record["ok"] is record["verified"] is True
        assert record["violations"] == []
        assert record["messages"] > 0
        assert record["doorbells"] > 0
    assert violations(pair) == before


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ("coalesced --mutation masked-index", "INDEX_MISMATCH"),
        ("shared --mutation swap-keys", "REM_ACCESS_ERR|for what its peer asked of it"),
        ("coalesced --mutation swap-doorbell --timeout 2", "gave up waiting"),
    ],
)
def test_a_wrong_kernel_ends_in_a_sentence_and_a_rule(pair: LabRunner, form: str, error: str) -> None:
    before = violations(pair)
    with pytest.raises(LabFailure) as failure:
        run(pair, form)
    assert re.search(error, failure.value.hint)
    assert violations(pair) > before
    # The guests and their NICs go on.
    assert all(record["ok"] for record in run(pair, "coalesced --messages 64"))


def test_garbage_hurts_nobody_else(pair: LabRunner) -> None:
    before = violations(pair)
    for form in ("--dbr authoritative --cq ring", "--ring host --transport uet-rud --engine weak"):
        # What it says of itself does not matter.
        with contextlib.suppress(LabFailure):
            run(pair, f"garbage --qps 2 {form}")
    assert violations(pair) > before
    assert all(record["ok"] for record in run(pair, "verbs"))


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ("shared --engine weak --mutation drop-publish-fence", "C09"),
        ("coalesced --ring host --engine weak --mutation narrow-ring-fence", "C10"),
        ("coalesced --mutation ring-all-lanes", "C20"),
        ("coalesced --mutation unclean-cq", "C16"),
        ("single --mutation garbage-hints", "C34"),
        ("single --timeout 2 --mutation forget-last-doorbell", "C14"),
    ],
)
def test_a_mistake_in_a_guest_is_named_by_its_nic(pair: LabRunner, form: str, rule: str) -> None:
    before = rules_of(pair)
    # What becomes of the kernel does not matter here.
    with contextlib.suppress(LabFailure):
        run(pair, form)
    named = {name for name, count in rules_of(pair).items() if count > before[name]}
    assert rule in named, named


def rules_of(pair: LabRunner) -> dict[str, int]:
    """How often each rule was broken so far, on both NICs."""
    with pair.server.control() as client:
        found = client.call("checks")
    assert isinstance(found, dict)
    total: dict[str, int] = {}
    for nic in found.values():
        for state in nic["rules"]:
            total[state["rule"]] = total.get(state["rule"], 0) + state["count"]
    return total


def test_a_nic_can_be_stopped_looked_into_and_let_go(pair: LabRunner) -> None:
    with pair.server.control() as client:
        client.call("checks_set", rule="C20", action="stop")
        with contextlib.suppress(LabFailure):
            run(pair, "coalesced --mutation ring-all-lanes --timeout 2")
        state = client.call("checks")
        assert {nic["stopped_by"]["rule"] for nic in state.values()} == {"C20"}
        for dump in client.call("checks_dump"):
            assert dump["stopped_by"]["rule"] == "C20"
            assert dump["doorbells"] and dump["violations"]
        written = list(pair.server.directory.glob("*.C20.dump.txt"))
        assert len(written) == 2
        client.call("checks_set", rule="C20", action="log")
        client.call("checks_resume")
    assert all(record["ok"] for record in run(pair, "coalesced --messages 64"))
