# SPDX-License-Identifier: Apache-2.0
"""Real guests for the tests of this folder. They need the set-up's Debian tree; scripts/test provides it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here boots a guest."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.guest)


@pytest.fixture(scope="session")
def installation() -> Installation:
    """Tree, kernel, drivers and programs, built when their sources changed."""
    return Installation.require()


@pytest.fixture(scope="module")
def pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two running guests with a NIC and a vGPU each, drivers loaded."""
    # Two processors on one side: its driver then serves two event queues.
    nodes = (Node("node0"), Node("node1", cpus=2))
    lab = Lab(nodes=nodes, name=f"test-{tmp_path_factory.getbasetemp().name}"[:24])
    capture = tmp_path_factory.mktemp("pair") / "pair.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", 30).check()
        yield running
