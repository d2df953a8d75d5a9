# SPDX-License-Identifier: Apache-2.0
"""The distribution's tools between two stock guests on mlx5-compatible NICs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.tools import CM_LISTENS, tcp_listens
from tests.boot.mlx5 import ADDRESSES, SERVER, between, complaints, stock_guests

pytestmark = pytest.mark.timeout(300)
full = pytest.mark.full

LINK_LOCAL = "fe80::76:72ff:fe00:2%eth0"
IPERF_PORT = 5201


@pytest.fixture(scope="module")
def pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two stock guests."""
    with stock_guests(installation, tmp_path_factory.mktemp("tools"), "tools") as running:
        yield running


def text(pair: LabRunner, command: str) -> str:
    """What a command on node0 prints."""
    return "\n".join(pair["node0"].run(command, 60).check().out)


# What the tools say of the device


def test_devinfo_shows_an_active_port_and_its_limits(pair: LabRunner) -> None:
    shown = text(pair, "ibv_devinfo -v")
    for line in (
        r"hca_id:\s+mlx5_0",
        r"phys_port_cnt:\s+1",
        r"state:\s+PORT_ACTIVE \(4\)",
        r"max_mtu:\s+4096 \(5\)",
        r"active_mtu:\s+4096 \(5\)",
        r"link_layer:\s+Ethernet",
        r"atomic_cap:\s+ATOMIC_HCA \(1\)",
        r"max_qp:\s+[1-9]\d{3,}",
        r"max_srq:\s+[1-9]\d*",
        r"GID\[\s*0\]:\s+fe80::76:72ff:fe00:1, RoCE v2",
        r"GID\[\s*1\]:\s+::ffff:10\.77\.0\.1, RoCE v2",
    ):
        assert re.search(line, shown), line


def test_rdma_names_device_link_and_objects(pair: LabRunner) -> None:
    link = json.loads(text(pair, "rdma -j link show mlx5_0/1"))[0]
    assert (link["state"], link["physical_state"], link["netdev"]) == ("ACTIVE", "LINK_UP", "eth0")
    device = json.loads(text(pair, "rdma -j dev show mlx5_0"))[0]
    assert (device["node_type"], device["protocol"]) == ("ca", "roce")
    held = json.loads(text(pair, "rdma -j resource show mlx5_0"))[0]
    # The queue pair of the connection manager's messages.
    assert held["qp"] >= 1 and held["cq"] >= 1 and held["pd"] >= 1


def test_ethtool_names_driver_link_features_and_counters(pair: LabRunner) -> None:
    driver = text(pair, "ethtool -i eth0")
    assert re.search(r"^driver: mlx5_core$", driver, re.MULTILINE)
    assert re.search(r"^bus-info: 0000:01:00\.0$", driver, re.MULTILINE)
    link = text(pair, "ethtool eth0")
    assert re.search(r"Speed: [1-9]\d+Mb/s", link), link
    assert "Duplex: Full" in link and "Link detected: yes" in link
    features = text(pair, "ethtool -k eth0")
    for feature in ("rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload"):
        assert re.search(rf"^{feature}: on", features, re.MULTILINE), feature


def counter(pair: LabRunner, name: str) -> int:
    """A counter of ``ethtool -S`` on node0."""
    found = re.search(rf"^\s+{name}: (\d+)$", text(pair, "ethtool -S eth0"), re.MULTILINE)
    assert found, f"ethtool -S has no {name}"
    return int(found[1])


def test_ethtool_counts_what_ping_sends(pair: LabRunner) -> None:
    before = counter(pair, "tx_packets"), counter(pair, "rx_packets")
    text(pair, f"ping -c 5 -i 0.2 {SERVER}")
    assert counter(pair, "tx_packets") >= before[0] + 5
    assert counter(pair, "rx_packets") >= before[1] + 5


def test_devlink_shows_the_function(pair: LabRunner) -> None:
    assert "pci/0000:01:00.0" in json.loads(text(pair, "devlink -j dev show"))["dev"]
    info = json.loads(text(pair, "devlink -j dev info pci/0000:01:00.0"))["info"]["pci/0000:01:00.0"]
    assert info["driver"] == "mlx5_core"


def test_lspci_shows_a_virtual_function_with_its_capabilities(pair: LabRunner) -> None:
    shown = text(pair, "lspci -vv -s 01:00.0")
    assert "Virtual Function" in shown.splitlines()[0]
    for line in (
        r"Control: .*Mem\+ BusMaster\+",
        r"Region 0: Memory at [0-9a-f]+ \(64-bit, prefetchable\) \[size=\d+M\]",
        r"Express \(v2\) Endpoint",
        r"FLReset\+",
        r"LnkSta:\s+Speed \S+GT/s, Width x\d+",
        r"MSI-X: Enable\+ Count=\d+ Masked-",
        r"Advanced Error Reporting",
        r"Device Serial Number 02-76-72-ff-fe-00-00-01",
        r"Kernel driver in use: mlx5_core",
    ):
        assert re.search(line, shown), line
    # Every capability is decoded: none is of a kind lspci does not know, none is cut off.
    assert "<?>" not in shown and "<access denied>" not in shown and "unhandled" not in shown.lower()


# Messages between two guests


@pytest.mark.parametrize(
    "options",
    [
        "-g 1 -c -n 200",
        "-g 0 -c -e -n 100",
        *(pytest.param(f"-g 1 -c -s {size} -n 50", marks=full) for size in (1, 255, 4097, 65536)),
        pytest.param("-g 1 -c -e -s 1 -n 50", marks=full),
        "-g 1 -c -s 1048576 -n 5",
        pytest.param("-g 1 -c -e -s 1048576 -n 5", marks=full),
        *(
            pytest.param(f"-g 1 -c -m {mtu} -s 10001 -n 20", marks=full)
            for mtu in (256, 512, 1024, 2048, 4096)
        ),
    ],
)
def test_rc_pingpong(pair: LabRunner, options: str) -> None:
    """-c: both ends compare every byte."""
    out = between(pair, f"ibv_rc_pingpong {options}")
    assert any(line.startswith(f"{options.split()[-1]} iters in") for line in out), out
    assert not any("invalid data" in line for line in out), out


@pytest.mark.parametrize(
    "tool",
    [
        "ibv_uc_pingpong -c -n 100",
        pytest.param("ibv_uc_pingpong -c -e -s 9000 -n 50", marks=full),
        "ibv_ud_pingpong -c -n 100",
        pytest.param("ibv_ud_pingpong -c -e -s 1024 -n 50", marks=full),
        "ibv_srq_pingpong -c -n 100",
        pytest.param("ibv_srq_pingpong -c -e -q 4 -n 100", marks=full),
    ],
)
def test_other_pingpongs(pair: LabRunner, tool: str) -> None:
    out = between(pair, f"{tool} -g 1")
    assert any(line.startswith(f"{tool.split()[-1]} iters in") for line in out), out
    assert not any("invalid data" in line for line in out), out


# The network device


@pytest.mark.parametrize("address", [SERVER, LINK_LOCAL])
@pytest.mark.parametrize("size", [56, 3000])
def test_ping(pair: LabRunner, address: str, size: int) -> None:
    out = text(pair, f"ping -c 3 -i 0.2 -s {size} {address}")
    assert "3 packets received" in out, out


@pytest.mark.parametrize(
    "options",
    ["-n 4M", pytest.param("-n 16M -R", marks=full), pytest.param("-n 4M -P 4", marks=full)],
)
def test_iperf3_over_tcp(pair: LabRunner, options: str) -> None:
    out = between(
        pair,
        "iperf3 -s -1",
        client=f"iperf3 -c {SERVER} -J {options}",
        ready=tcp_listens(IPERF_PORT),
    )
    end = json.loads("\n".join(out))["end"]
    asked = int(options.split()[1].rstrip("M")) << 20
    # The receiver is told to stop, so what is then under way may miss.
    assert end["sum_sent"]["bytes"] >= asked
    assert end["sum_received"]["bytes"] >= asked * 0.5


@full
def test_iperf3_over_udp_loses_nothing(pair: LabRunner) -> None:
    out = between(
        pair,
        "iperf3 -s -1",
        client=f"iperf3 -c {SERVER} -J -u -b 4M -t 2",
        ready=tcp_listens(IPERF_PORT),
    )
    total = json.loads("\n".join(out))["end"]["sum"]
    assert total["packets"] > 100
    assert total["lost_packets"] == 0


# The connection manager, whose datagrams go through queue pair 1


@pytest.mark.parametrize("address", [SERVER, LINK_LOCAL])
def test_rping(pair: LabRunner, address: str) -> None:
    out = between(
        pair,
        f"rping -s -a {address} -C 10 -V",
        client=f"rping -c -a {address} -C 10 -v -V",
        ready=CM_LISTENS,
    )
    assert [f"rdma-ping-{number}:" in "\n".join(out) for number in range(10)] == [True] * 10


def test_udaddy(pair: LabRunner) -> None:
    out = between(pair, "udaddy -c 10", client=f"udaddy -c 10 -s {SERVER}", ready=CM_LISTENS)
    assert "return status 0" in out


# Trouble


@pytest.mark.parametrize("node", list(ADDRESSES))
def test_nothing_of_this_made_a_driver_complain(pair: LabRunner, node: str) -> None:
    assert complaints(pair, node) == []
