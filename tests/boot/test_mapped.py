# SPDX-License-Identifier: Apache-2.0
"""Doorbell pages that are memory: the same kernels, without a trap for each doorbell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def mapped(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two guests whose doorbell pages are memory."""
    nodes = tuple(Node(name, nics=(Nic(doorbells="mapped"),)) for name in ("node0", "node1"))
    lab = Lab(nodes=nodes, name=f"map-{tmp_path_factory.getbasetemp().name}"[:24])
    with LabRunner(lab, installation, lab_directory(lab.name), None) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", 30).check()
        yield running


@pytest.mark.parametrize(
    "command",
    [
        "vrnic-kernels pingpong",
        "vrnic-simt shared --engine weak",
        "vrnic-simt verbs --cq ring",
        "vrnic-simt moe",
    ],
)
def test_a_kernel_verifies_every_byte(mapped: LabRunner, command: str) -> None:
    left, right = mapped.guests
    sides = run_pair((left, f"{command} --role a"), (right, f"{command} --role b"), 60)
    records: list[dict[str, Any]] = [record for side in sides for record in side.records]
    assert len(records) == 2
    assert all(record["verified"] is True for record in records)
    with mapped.server.control() as client:
        counters: Any = client.call("counters")
    for name in ("node0.nic0", "node1.nic0"):
        assert counters[name]["nic"]["doorbells"] > 0
        assert counters[name]["nic"]["check_violations"] == 0
