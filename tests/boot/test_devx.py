# SPDX-License-Identifier: Apache-2.0
"""Direct submission on an mlx5-compatible NIC: queues made by DevX, rings in video memory, no system calls.

Kernel, mlx5 drivers and libmlx5 are the distribution's; the vGPU's driver, which hands out video memory as
dma-bufs, and the program that plays the GPU are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emu.control.locate import lab_directory
from emu.lab.failure import LabFailure
from emu.lab.installation import Installation
from emu.lab.relay import Side, run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import Gpu, Lab, Nic, Node
from tests.boot.traffic import counters

pytestmark = pytest.mark.timeout(300)

STEPS = ["wait", "write", "inline", "read", "atomics", "masked-atomics", "laps"]
ERROR = 6
ADDRESSED = "for n in $(seq 200); do ibv_devinfo -v | grep -q '::ffff:10' && exit; sleep 0.1; done; exit 1"


@pytest.fixture(scope="module")
def gpu_pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two running guests with an mlx5-compatible NIC and a vGPU each, drivers loaded, ports active."""
    nodes = tuple(Node(name, (Nic(device="mlx5"),), (Gpu("64M"),)) for name in ("node0", "node1"))
    lab = Lab(nodes=nodes, name=f"devx-{tmp_path_factory.getbasetemp().name}"[:24])
    capture = tmp_path_factory.mktemp("devx") / "devx.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        for guest in running.guests:
            guest.run("reload-driver", 60).check()
            guest.run(ADDRESSED, 60).check()
        yield running


def run(pair: LabRunner, command: str) -> list[dict[str, Any]]:
    """Run a program on both guests; what each says."""
    left, right = pair.guests
    try:
        sides: tuple[Side, Side] = run_pair(
            (left, f"{command} --role a"), (right, f"{command} --role b"), 120
        )
    except LabFailure as error:
        error.add_note(error.hint)
        raise
    return [record for side in sides for record in side.records]


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--ring host --data host --doorbell last --cq ring",
        "--ring host --order doorbell-record-doorbell",
        "--data host --order doorbell",
        "--doorbell blueflame --cq ring",
    ],
)
def test_every_operation_is_submitted_directly(gpu_pair: LabRunner, options: str) -> None:
    before = counters(gpu_pair, "node0.nic0")
    records = run(gpu_pair, f"vrnic-devx --timeout 60 {options}")
    assert len(records) == 2
    for record in records:
        assert record["ok"] is True
        assert record["steps"] == STEPS
        assert record["no_system_calls"] is True
        assert record["payload"] == ("mr" if "--data host" in options else "dmabuf-mr")
        assert record["doorbells"] < record["blocks"]
    # The peer refused the last WRITE of one end: its completion says why, and its queue pair is in error.
    assert records[0]["refusal"].startswith("index")
    assert "REM_ACCESS_ERR (syndrome 0x13, vendor 0x88)" in records[0]["refusal"]
    assert records[0]["state"] == ERROR
    after = counters(gpu_pair, "node0.nic0")
    # The NIC may have found by its record what a later doorbell was for.
    rung = sum(after[name] - before[name] for name in ("doorbells", "doorbells_ignored"))
    assert rung >= records[0]["doorbells"]
    if "blueflame" in options:
        assert after["pushed_wqes"] > before["pushed_wqes"]


@pytest.mark.parametrize(
    "form",
    [
        "single --start 0xfff0 --dbr none",
        "coalesced --engine weak --doorbell blueflame",
        "shared --ring host --cq ring --messages 1024",
        "exclusive --engine weak --order doorbell-record-doorbell",
        "verbs --doorbell last --data host",
        "moe --engine weak --routing hot",
        "eager --qps 2 --size 2048",
        "wrap --messages 4096",
    ],
)
def test_the_submission_kernels_run_on_the_stock_driver(gpu_pair: LabRunner, form: str) -> None:
    before = violations(gpu_pair)
    records = run(gpu_pair, f"vrnic-simt {form} --device mlx5 --timeout 60")
    assert len(records) == 2
    for record in records:
        assert record["ok"] is record["verified"] is True
        assert record["violations"] == []
        assert record["messages"] > 0
    assert violations(gpu_pair) == before


def violations(pair: LabRunner) -> int:
    """Rules broken so far, on both NICs."""
    return sum(counters(pair, f"node{node}.nic0")["check_violations"] for node in (0, 1))


def test_a_wrong_kernel_ends_in_a_sentence_and_a_rule(gpu_pair: LabRunner) -> None:
    before = violations(gpu_pair)
    with pytest.raises(LabFailure) as failure:
        run(gpu_pair, "vrnic-simt coalesced --device mlx5 --mutation masked-index --timeout 60")
    assert "completed with" in failure.value.hint
    assert "it is in error" in failure.value.hint
    assert violations(gpu_pair) > before
    # The guests and their NICs go on.
    assert all(record["ok"] for record in run(gpu_pair, "vrnic-simt coalesced --messages 64 --device mlx5"))
