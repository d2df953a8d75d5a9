# SPDX-License-Identifier: Apache-2.0
"""Stock guests on an mlx5-compatible NIC: nothing in them is ours but the agent that runs commands.

Kernel, drivers, libraries and tools are the distribution's. Both tools' TCP connections and their RDMA
traffic go through the NIC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node

pytestmark = pytest.mark.timeout(240)
full = pytest.mark.full

SERVER = "10.77.0.2"
PINGPONG_PORT, PERFTEST_PORT = 18515, 18515
COMPLAINT = re.compile(r"fail|error|warn|unable|invalid|abort|timeout|not supported|hw csum", re.IGNORECASE)
HARMLESS = ("PTM is not supported by PCIe",)
"""Lines about what a slot of this machine does not have."""


@pytest.fixture(scope="module")
def stock_pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two running guests with an mlx5-compatible NIC each."""
    nodes = tuple(Node(name, (Nic(device="mlx5"),), ()) for name in ("node0", "node1"))
    lab = Lab(nodes=nodes, name=f"mlx5-{tmp_path_factory.getbasetemp().name}"[:24])
    capture = tmp_path_factory.mktemp("mlx5") / "mlx5.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        yield running


def between(pair: LabRunner, tool: str, port: int = PINGPONG_PORT) -> tuple[str, ...]:
    """Run ``tool`` as server on node1 and as client on node0; the client's output. Both must succeed."""
    job = pair["node1"].spawn(tool, 60)
    listening = f"for n in $(seq 100); do netstat -ltn | grep -q :{port} && exit; sleep 0.1; done; exit 1"
    pair["node1"].run(listening, 20).check()
    client = pair["node0"].run(f"{tool} {SERVER}", 60)
    server = job.wait()
    assert client.status == 0, client
    assert server.status == 0, server
    return client.out


def mlx5_complaints(pair: LabRunner, node: str) -> list[str]:
    """Lines of the kernel log about the NIC that report trouble."""
    log = pair[node].run("dmesg | grep -E 'mlx5|infiniband|eth0|Call Trace|BUG'").out
    return [line for line in log if COMPLAINT.search(line) and not any(text in line for text in HARMLESS)]


def test_unmodified_drivers_bind_without_a_complaint(stock_pair: LabRunner) -> None:
    for node in ("node0", "node1"):
        log = stock_pair[node].run("dmesg").out
        assert any("mlx5_core" in line and "Link up" in line for line in log), log[-20:]
        assert mlx5_complaints(stock_pair, node) == []


@full
def test_tcp_carries_bytes_unchanged(stock_pair: LabRunner) -> None:
    left, right = stock_pair["node0"], stock_pair["node1"]
    left.run("head -c 3000000 /dev/urandom > /tmp/bytes").check()
    job = right.spawn("nc -l -p 7000 > /tmp/bytes", 60)
    right.run("for n in $(seq 50); do netstat -ltn | grep -q :7000 && exit; sleep 0.1; done; exit 1").check()
    left.run(f"nc {SERVER} 7000 < /tmp/bytes", 60).check()
    assert job.wait().status == 0
    sums = {guest.run("sha256sum < /tmp/bytes").out for guest in (left, right)}
    assert len(sums) == 1


def test_two_processes_of_one_guest(stock_pair: LabRunner) -> None:
    guest = stock_pair["node0"]
    command = (
        "ibv_rc_pingpong -g 1 -n 100 > /tmp/server & "
        "for n in $(seq 100); do netstat -ltn | grep -q :18515 && break; sleep 0.1; done; "
        "ibv_rc_pingpong -g 1 -n 100 10.77.0.1 && wait %1 && cat /tmp/server"
    )
    result = guest.run(command, 60).check()
    assert sum(line.startswith("100 iters in") for line in result.out) == 2


def active(pair: LabRunner, node: str) -> None:
    """Wait until the port of ``node`` is active."""
    wait = "for n in $(seq 100); do ibv_devinfo | grep -q PORT_ACTIVE && exit; sleep 0.1; done; exit 1"
    pair[node].run(wait, 30).check()


def set_link(pair: LabRunner, node: str, up: bool) -> None:
    """Plug the cable in or out."""
    with pair.server.control() as control:
        control.call("link", function=f"{node}.nic0", up=up)


def test_the_driver_hears_of_the_link(stock_pair: LabRunner) -> None:
    guest = stock_pair["node0"]
    set_link(stock_pair, "node0", False)
    down = "for n in $(seq 50); do ibv_devinfo | grep -q PORT_DOWN && exit; sleep 0.1; done; exit 1"
    guest.run(down, 20).check()
    assert any("Link down" in line for line in guest.run("dmesg").out)
    set_link(stock_pair, "node0", True)
    active(stock_pair, "node0")
    out = between(stock_pair, "ibv_rc_pingpong -g 1 -n 50")
    assert any(line.startswith("50 iters in") for line in out), out


@full
def test_the_driver_bound_again(stock_pair: LabRunner) -> None:
    guest = stock_pair["node1"]
    driver = "/sys/bus/pci/drivers/mlx5_core"
    guest.run(f"echo 0000:01:00.0 > {driver}/unbind", 30).check()
    guest.run(f"echo 0000:01:00.0 > {driver}/bind", 30).check()
    guest.run("ip addr add 10.77.0.2/24 dev eth0; ip link set eth0 up").check()
    active(stock_pair, "node1")
    out = between(stock_pair, "ibv_rc_pingpong -g 1 -n 50")
    assert any(line.startswith("50 iters in") for line in out), out


def test_drivers_come_back_after_they_were_unloaded(stock_pair: LabRunner) -> None:
    guest = stock_pair["node1"]
    guest.run("rmmod mlx5_ib && rmmod mlx5_core", 30).check()
    with stock_pair.server.control() as control:
        left = control.call("counters")["node1.nic0"]["objects"]
    assert {kind: number for kind, number in left.items() if number and kind != "contexts"} == {}
    guest.run("insmod /modules/stock/mlx5_core.ko && insmod /modules/stock/mlx5_ib.ko", 30).check()
    guest.run("ip addr add 10.77.0.2/24 dev eth0; ip link set eth0 up").check()
    guest.run(
        "for n in $(seq 100); do ibv_devinfo | grep -q PORT_ACTIVE && exit; sleep 0.1; done; exit 1", 20
    )
    out = between(stock_pair, "ibv_rc_pingpong -g 1 -n 50")
    assert any(line.startswith("50 iters in") for line in out), out


def test_nothing_of_this_made_a_driver_complain(stock_pair: LabRunner) -> None:
    for node in ("node0", "node1"):
        assert mlx5_complaints(stock_pair, node) == []
