# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests of its Python binding, as Debian ships them, in a stock guest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.qemu import Share
from emu.lab.runner import LabRunner
from emu.lab.tools import bring_up_rdma
from emu.lab.topology import Lab, Nic, Node
from emu.setup.cache import CHECKOUT
from emu.setup.verbs_tests import current_verbs_tests
from tests.boot.verbs_results import Outcome, document, explained, parse

pytestmark = [pytest.mark.timeout(1800), pytest.mark.full]

DOCUMENT = Path(__file__).with_name("PYVERBS.md")
LEAST_PASSED = 120
TESTS, PROGRAM = "/verbs-tests", "/verbs"


def test_rdma_cores_own_tests(installation: Installation, tmp_path: Path) -> None:
    folder = current_verbs_tests()
    if folder is None:
        pytest.skip("the tests of the verbs binding are not set up: scripts/setup --kernels fetches them")
    shares = (Share("tests", folder, TESTS, steady=True), Share("verbs", CHECKOUT / "guest/verbs", PROGRAM))
    lab = Lab(
        (Node("node0", (Nic(device="mlx5"),), (), memory="1G"),), name=f"pv-{tmp_path.parent.name}"[:24]
    )
    with LabRunner(lab, installation, lab_directory(lab.name), None, shares=shares) as running:
        running.start(120)
        guest = running["node0"]
        bring_up_rdma(guest, "10.77.0.1")
        ran = guest.run(f"{PROGRAM}/run-verbs-tests {TESTS} --seconds 60", 1500)
        outcomes = parse(ran.out)
        assert ran.status == 0, ran.err[-20:]
        # Whatever they did, the NIC serves the next program.
        running.server.check()
        after = guest.run("ibv_devinfo && grep -c mlx5_ib /proc/modules", 60).check().out
        assert any("PORT_ACTIVE" in line for line in after)
        with running.server.control() as control:
            held = control.call("counters")["node0.nic0"]["objects"]
        assert held["qps"] <= 4, f"queue pairs are left: {held}"
        kernel = guest.agent.release
    if os.environ.get("VRNIC_WRITE_DOCUMENTS"):
        version = installation.tree.package_version("python3-pyverbs") or "?"
        DOCUMENT.write_text(document(outcomes, kernel=kernel, version=version))
    _judge(outcomes)


def _judge(outcomes: list[Outcome]) -> None:
    """Enough passed, nothing crashed or hung, and what failed is known to and why."""
    bad = [each for each in outcomes if each.word not in ("passed", "skipped") and explained(each) is None]
    assert bad == [], "\n".join(f"{each.name}: {each.word}: {each.reason}" for each in bad)
    passed = [each.name for each in outcomes if each.word == "passed"]
    assert len(passed) >= LEAST_PASSED
    published = DOCUMENT.read_text().partition("## Passed")[2]
    missing = [
        name for line in published.splitlines() if (name := line.removeprefix("- ")) not in passed and name
    ]
    assert missing == [], f"these passed when {DOCUMENT.name} was written"
