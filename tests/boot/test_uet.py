# SPDX-License-Identifier: Apache-2.0
"""The demo and the kernels over UET, in real guests, on links that lose frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emu.capture.summary import summarize
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from tests.boot.test_demo import claims, run_demo

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


@pytest.mark.parametrize("transport", ["uet-rud", "uet-rod"])
@pytest.mark.parametrize("form", ["send", "send --size 5000", "read", "read --mtu 4096 --size 65536"])
def test_sends_and_reads_arrive(pair: LabRunner, transport: str, form: str) -> None:
    left, right = pair.guests
    command = f"vrnic-kernels {form} --transport {transport} --role "
    sides = run_pair((left, command + "a"), (right, command + "b"), 40)
    assert [side.status for side in sides] == [0, 0], json.dumps([side.records for side in sides])
    assert all(record["verified"] is True for side in sides for record in side.records)
