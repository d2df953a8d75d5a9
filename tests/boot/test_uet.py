# SPDX-License-Identifier: Apache-2.0
"""The demo and the kernels over UET, in real guests, on links that lose frames."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from emu.capture.reader import PcapngReader
from emu.capture.summary import summarize
from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node
from emu.wire.uet_names import UET_PORT, PdsType
from tests.boot.test_demo import claims, run_demo
from tests.boot.test_mlx5 import PERFTEST_PORT, PINGPONG_PORT, between

pytestmark = pytest.mark.timeout(300)

UET = UET_PORT.to_bytes(2, "big")


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
        ("datagram", "uet-uud"),
        ("datagram --ring host --data host --gid 0 --size 4096 --messages 64 --cq ring", "uet-uud"),
    ],
)
def test_kernels_verify_every_byte(pair: LabRunner, form: str, transport: str) -> None:
    left, right = pair.guests
    command = f"vrnic-kernels {form} --transport {transport} --role "
    sides = run_pair((left, command + "a"), (right, command + "b"), 40)
    assert [side.status for side in sides] == [0, 0], json.dumps([side.records for side in sides])
    assert all(record["verified"] is True for side in sides for record in side.records)


def stock_pair(
    installation: Installation, factory: pytest.TempPathFactory, name: str, **options: Any
) -> Iterator[LabRunner]:
    """Two running stock guests with mlx5-compatible NICs whose traffic is UET on the wire."""
    nodes = tuple(Node(node, (Nic(device="mlx5"),), ()) for node in ("node0", "node1"))
    lab = Lab(nodes=nodes, name=f"{name}-{factory.getbasetemp().name}"[:24], carry="uet-rud", **options)
    capture = factory.mktemp(name) / f"{name}.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        yield running


def counters(pair: LabRunner) -> dict[str, dict[str, dict[str, int]]]:
    """By NIC and group."""
    with pair.server.control() as client:
        return cast(dict[str, dict[str, dict[str, int]]], client.call("counters"))


@pytest.fixture(scope="module")
def carried_pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Links that lose frames, and a switch whose queues fill."""
    yield from stock_pair(
        installation,
        tmp_path_factory,
        "carry",
        loss=0.005,
        speed_mbps=400,
        ecn_min_kib=16,
        ecn_max_kib=64,
        trim_kib=128,
    )


@pytest.mark.parametrize("tool", ["ib_write_bw", "ib_send_lat", "ib_read_bw", "ib_atomic_bw"])
def test_unmodified_tools_run_over_uet(carried_pair: LabRunner, tool: str) -> None:
    size = "" if "atomic" in tool else "-s 8192"
    out = between(carried_pair, f"{tool} -x 1 -n 100 {size}", PERFTEST_PORT)
    assert any(line.split()[1:2] == ["100"] for line in out), out
    found = counters(carried_pair)
    assert all(found[f"{node}.nic0"]["nic"]["pdcs_opened"] for node in ("node0", "node1"))


def test_a_switch_marks_what_comes_faster_than_a_link_takes_it(carried_pair: LabRunner) -> None:
    between(carried_pair, "ib_write_bw -x 1 -n 200 -s 65536", PERFTEST_PORT)
    link = counters(carried_pair)["node1.nic0"]["link"]
    assert link["queue.peak"] > 16 << 10
    assert link["queue.marked"] > 0
    assert link["queue.dropped"] == 0


@pytest.fixture(scope="module")
def secured_pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Links that lose nothing; all UET packets are secured."""
    yield from stock_pair(installation, tmp_path_factory, "secured", secret="5e" * 32)


@pytest.mark.parametrize(
    ("tool", "port"),
    [
        ("ib_write_bw -x 1 -n 100 -s 8192", PERFTEST_PORT),
        ("ib_send_lat -c UD -x 1 -n 100 -s 1024", PERFTEST_PORT),
        ("ibv_ud_pingpong -g 1 -n 100", PINGPONG_PORT),
    ],
)
def test_connections_and_datagrams_run_secured(secured_pair: LabRunner, tool: str, port: int) -> None:
    before = {name: found["nic"] for name, found in counters(secured_pair).items()}
    between(secured_pair, tool, port)
    for name, found in counters(secured_pair).items():
        sent, received = (found["nic"][key] - before[name][key] for key in ("tx_packets", "rx_packets"))
        assert sent >= 50 and received >= 50
        assert not any(count for key, count in found["nic"].items() if key.startswith("tss_"))
    with secured_pair.server.control() as client:
        path = Path(cast(dict[str, str], client.call("info"))["capture"])
        client.call("flush")
    with PcapngReader(path) as packets:
        types = Counter(
            packet.data[42] >> 3
            for packet in packets
            if packet.data[12:14] == b"\x08\x00" and packet.data[34:38].endswith(UET)
        )
    assert types[PdsType.TSS] >= 200
    assert set(types) == {PdsType.TSS}
