# SPDX-License-Identifier: Apache-2.0
"""The demo and the kernels over UET, in real guests, on links that lose frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from emu.capture.summary import summarize
from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node
from tests.boot.test_demo import claims, run_demo
from tests.boot.test_mlx5 import PERFTEST_PORT, between

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("transport", ["uet-rud", "uet-rod"])
def test_the_demo_runs_and_what_was_lost_is_sent_again(
    installation: Installation, tmp_path: Path, transport: str
) -> None:
    report = run_demo(tmp_path, "--transport", transport, "--loss", "0.02", "--seed", "7")
    assert all(claims(report).values())
    summary = summarize(report["capture"])
    assert summary.flows and all(flow.pdc for flow in summary.flows)
    names = {name for flow in summary.flows for name in flow.sent.opcodes}
    kind = "ROD_REQ" if transport == "uet-rod" else "RUD_REQ"
    assert {f"{kind} WRITE", f"{kind} FETCHING_ATOMIC", "ACK_CC"} <= names
    if transport == "uet-rud":
        lost = sum(
            count - flow.received.opcodes[name]
            for flow in summary.flows
            for name, count in flow.sent.opcodes.items()
            if name.startswith("RUD_REQ")
        )
        assert 0 < lost <= summary.retransmitted <= 1.5 * lost


@pytest.mark.parametrize(
    ("form", "transport"),
    [
        *((form, name) for form in ("send", "send --size 5000", "read") for name in ("uet-rud", "uet-rod")),
        ("read --mtu 4096 --size 65536", "uet-rud"),
        # RUDI has what may happen twice: no sends, no atomics.
        ("put --size 3000", "uet-rudi"),
        ("read --mtu 4096 --size 65536", "uet-rudi"),
    ],
)
def test_kernels_verify_every_byte(pair: LabRunner, form: str, transport: str) -> None:
    left, right = pair.guests
    command = f"vrnic-kernels {form} --transport {transport} --role "
    sides = run_pair((left, command + "a"), (right, command + "b"), 40)
    assert [side.status for side in sides] == [0, 0], json.dumps([side.records for side in sides])
    assert all(record["verified"] is True for side in sides for record in side.records)


@pytest.fixture(scope="module")
def carried_pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two stock guests with mlx5-compatible NICs whose reliable connections are UET on the wire."""
    nodes = tuple(Node(name, (Nic(device="mlx5"),), ()) for name in ("node0", "node1"))
    name = f"carry-{tmp_path_factory.getbasetemp().name}"[:24]
    lab = Lab(nodes=nodes, name=name, carry="uet-rud", loss=0.005)
    capture = tmp_path_factory.mktemp("carry") / "carry.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        yield running


@pytest.mark.parametrize("tool", ["ib_write_bw", "ib_send_lat", "ib_read_bw", "ib_atomic_bw"])
def test_unmodified_tools_run_over_uet(carried_pair: LabRunner, tool: str) -> None:
    size = "" if "atomic" in tool else "-s 8192"
    out = between(carried_pair, f"{tool} -x 1 -n 100 {size}", PERFTEST_PORT)
    assert any(line.split()[1:2] == ["100"] for line in out), out
    with carried_pair.server.control() as client:
        counters = cast(dict[str, dict[str, dict[str, int]]], client.call("counters"))
    assert all(counters[f"{node}.nic0"]["nic"]["pdcs_opened"] for node in ("node0", "node1"))
