# SPDX-License-Identifier: Apache-2.0
"""The demo as a user runs it, and its capture held against tshark and a second ICRC."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from emu.capture.pcapng import Direction, LinkType
from emu.capture.reader import PcapngReader
from emu.capture.tshark import tshark_arguments
from emu.lab.installation import Installation
from emu.wire.opcodes import RcOpcode
from tests.wire.icrc_reference import icrc_of_frame

pytestmark = pytest.mark.timeout(300)

KERNELS = {"put", "ping-pong", "atomics", "bulk 1 MiB", "put, host proxy"}
ONE_PSN_EACH = {
    RcOpcode.WRITE_FIRST,
    RcOpcode.WRITE_MIDDLE,
    RcOpcode.WRITE_LAST,
    RcOpcode.WRITE_ONLY,
    RcOpcode.FETCH_ADD,
    RcOpcode.COMPARE_SWAP,
}
"""The requests the demo's kernels make; each takes one PSN."""


def run_demo(out: Path, *options: str) -> dict[str, Any]:
    """Run the command; its report."""
    program = "from emu.cli.main import main; main()"
    argv = [sys.executable, "-c", program, "demo", "--json", "--out", str(out), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def clean(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run without loss."""
    return run_demo(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def lossy(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run in which every link loses one frame in fifty."""
    return run_demo(tmp_path_factory.mktemp("lossy"), "--loss", "0.02", "--seed", "7")


def claims(report: dict[str, Any]) -> dict[str, bool]:
    """What the demo claims, and whether it holds."""
    return {check["claim"]: check["holds"] for check in report["checks"]}


def tshark(installation: Installation, capture: str, *fields: str) -> list[list[str]]:
    """Columns of every RoCE packet, as stock tshark decodes it."""
    words = ["-Y", "infiniband", "-T", "fields"]
    for field in fields:
        words += ["-e", field]
    argv = [*installation.tree.tshark_command(), *tshark_arguments(capture, *words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_every_byte_arrives_and_no_cpu_submits(clean: dict[str, Any]) -> None:
    assert all(claims(clean).values())
    rows = clean["measurements"]
    assert {row["step"] for row in rows} == KERNELS
    for row in rows:
        assert row["verified"] is True
        assert row["syscalls"] == 0
        proxied = row["step"] == "put, host proxy" and row["messages"]
        assert bool(row["cpu_touches"]) == bool(proxied), row
        assert row["retransmitted"] == 0


def test_both_directions_move_a_mebibyte_from_video_memory(clean: dict[str, Any]) -> None:
    bulk = {row["guest"]: row["octets"] for row in clean["measurements"] if row["step"] == "bulk 1 MiB"}
    assert bulk == {"node0": 1 << 20, "node1": 1 << 20}


def test_tshark_shows_psns_in_sequence_and_nothing_malformed(
    clean: dict[str, Any], installation: Installation
) -> None:
    rows = tshark(
        installation,
        clean["capture"],
        "frame.interface_name",
        "frame.packet_flags_direction",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "_ws.malformed",
    )
    psns: dict[tuple[str, str], list[int]] = defaultdict(list)
    opcodes: set[int] = set()
    for interface, direction, opcode, psn, qp, *malformed in rows:
        assert not any(malformed)
        opcodes.add(int(opcode))
        if int(direction, 0) == Direction.OUTBOUND and int(opcode) in ONE_PSN_EACH:
            psns[interface, qp].append(int(psn))
    assert opcodes == {*ONE_PSN_EACH, RcOpcode.ACKNOWLEDGE, RcOpcode.ATOMIC_ACKNOWLEDGE}
    assert len(psns) >= len(KERNELS)
    for flow, found in psns.items():
        first = found[0]
        assert found == [(first + step) & 0xFFFFFF for step in range(len(found))], flow


@pytest.mark.parametrize("run", ["clean", "lossy"])
def test_a_second_routine_agrees_with_every_icrc(run: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(run)
    frames = 0
    with PcapngReader(report["capture"]) as reader:
        for record in reader:
            if record.interface.link_type == LinkType.ETHERNET:
                computed, carried = icrc_of_frame(record.data, zlib.crc32)
                assert computed == carried, record
                frames += 1
    assert frames > 1000


def test_under_loss_every_byte_still_arrives(lossy: dict[str, Any]) -> None:
    assert all(claims(lossy).values())
    assert all(row["verified"] for row in lossy["measurements"])


def test_the_capture_shows_the_retransmissions(lossy: dict[str, Any], installation: Installation) -> None:
    assert sum(row["retransmitted"] for row in lossy["measurements"]) > 0
    rows = tshark(
        installation,
        lossy["capture"],
        "frame.interface_name",
        "frame.packet_flags_direction",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
    )
    sent = [
        tuple(row) for row in rows if int(row[1], 0) == Direction.OUTBOUND and int(row[2]) in ONE_PSN_EACH
    ]
    assert len(sent) > len(set(sent))
