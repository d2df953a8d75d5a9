# SPDX-License-Identifier: Apache-2.0
"""Every kernel in every form, and what the drivers must refuse, in real guests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emu.lab.relay import Side, run_pair
from emu.lab.runner import LabRunner

pytestmark = pytest.mark.timeout(240)

FORMS = [
    "put --start 0xfffffffc",
    "put --ring host --data host --cq ring",
    "put --dbr strict --slots 2 --messages 20",
    "put --dbr authoritative --gid 0",
    "put --dbr none --mtu 256 --size 1000",
    "pingpong --ring host",
    "read",
    "read --mtu 4096 --size 65536",
    "send",
    "send --size 5000 --cq ring",
    "atomics --data host",
    "datagram --transport roce-ud",
    "datagram --transport roce-ud --ring host --data host --gid 0 --size 4096 --messages 64 --cq ring",
    "bulk --mtu 4096",
    "bulk --data host --seed 9",
]
"""Kernels and options beyond those the demo runs."""


def run(pair: LabRunner, arguments: str) -> list[dict[str, Any]]:
    """Run a kernel on both guests; their results."""
    left, right = pair.guests
    command = f"vrnic-kernels {arguments} --role "
    sides: tuple[Side, Side] = run_pair((left, command + "a"), (right, command + "b"), 40)
    assert [side.status for side in sides] == [0, 0]
    return [record for side in sides for record in side.records]


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_verifies_every_byte_without_a_system_call(pair: LabRunner, form: str) -> None:
    records = run(pair, form)
    assert len(records) == 2
    assert sum(record["messages"] for record in records) > 0
    for record in records:
        assert record["verified"] is True
        assert record["syscalls"] == record["ioctls"] == record["cpu_touches"] == 0, record


def test_the_drivers_refuse_and_survive_what_they_must(pair: LabRunner) -> None:
    result = pair.guests[0].run("vrnic-selftest", 120)
    claims = [json.loads(line) for line in result.out if line.startswith("{")]
    assert [claim for claim in claims if claim.get("ok") is not True] == []
    assert len(claims) >= 80
    assert result.status == 0
