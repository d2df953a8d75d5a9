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


def test_the_port_is_active_with_roce_v2_addresses(stock_pair: LabRunner) -> None:
    shown = "\n".join(stock_pair["node0"].run("ibv_devinfo -v").check().out)
    assert re.search(r"state:\s+PORT_ACTIVE", shown)
    assert re.search(r"link_layer:\s+Ethernet", shown)
    assert re.search(r"GID\[\s*0\]:\s+fe80::76:72ff:fe00:1, RoCE v2", shown)
    assert re.search(r"GID\[\s*1\]:\s+::ffff:10\.77\.0\.1, RoCE v2", shown)


def test_the_function_says_what_it_is(stock_pair: LabRunner) -> None:
    shown = "\n".join(stock_pair["node0"].run("lspci -vv -s 01:00.0").check().out)
    assert "Virtual Function" in shown
    assert "Kernel driver in use: mlx5_core" in shown or "MSI-X: Enable+" in shown


def test_network_devices_reach_each_other(stock_pair: LabRunner) -> None:
    for address in (SERVER, "fe80::76:72ff:fe00:2%eth0"):
        ping = stock_pair["node0"].run(f"ping -c 3 -s 1400 {address}", 20)
        assert "3 packets received" in "\n".join(ping.out), ping


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


@pytest.mark.parametrize(
    "options",
    [
        "-g 1 -n 200",
        pytest.param("-g 0 -e -s 65536 -n 30", marks=full),
        pytest.param("-g 1 -s 1 -n 100", marks=full),
    ],
)
def test_messages_over_a_reliable_connection(stock_pair: LabRunner, options: str) -> None:
    out = between(stock_pair, f"ibv_rc_pingpong {options}")
    iterations = options.split()[-1]
    assert any(line.startswith(f"{iterations} iters in") for line in out), out


@pytest.mark.parametrize("tool", ["ibv_uc_pingpong", "ibv_ud_pingpong"])
def test_messages_without_a_reliable_connection(stock_pair: LabRunner, tool: str) -> None:
    out = between(stock_pair, f"{tool} -g 1 -n 100")
    assert any(line.startswith("100 iters in") for line in out), out


@pytest.mark.parametrize(
    ("tool", "size", "count"),
    [
        ("ib_write_bw", "65536", "100"),
        pytest.param("ib_read_bw", "65536", "100", marks=full),
        pytest.param("ib_send_bw", "65536", "100", marks=full),
        pytest.param("ib_send_bw -c UD", "1024", "100", marks=full),
        pytest.param("ib_write_lat", "8", "200", marks=full),
        pytest.param("ib_atomic_bw", "8", "100", marks=full),
        pytest.param("ib_write_bw -q 4", "65536", "400", marks=full),
    ],
)
def test_perftest(stock_pair: LabRunner, tool: str, size: str, count: str) -> None:
    length = "" if "atomic" in tool else f" -s {size}"
    each = str(int(count) // 4) if "-q 4" in tool else count
    out = between(stock_pair, f"{tool} -F -x 1{length} -n {each}", PERFTEST_PORT)
    assert any(line.split()[:2] == [size, count] for line in out), out


@pytest.mark.parametrize("options", ["-n 100", pytest.param("-e -n 100 -q 4", marks=full)])
def test_messages_into_a_shared_receive_queue(stock_pair: LabRunner, options: str) -> None:
    out = between(stock_pair, f"ibv_srq_pingpong -g 1 {options}")
    assert any(line.startswith("100 iters in") for line in out), out


def test_the_connection_manager_connects(stock_pair: LabRunner) -> None:
    """Its datagrams go through queue pair 1; nothing else tells the peers about each other."""
    job = stock_pair["node1"].spawn("ib_send_bw -R -F -s 4096 -n 100", 60)
    stock_pair["node1"].run(
        "for n in $(seq 50); do rdma res show cm_id | grep -q LISTEN && exit; sleep 0.1; done"
    )
    client = stock_pair["node0"].run(f"ib_send_bw -R -F -s 4096 -n 100 {SERVER}", 60)
    assert job.wait().status == 0
    assert any(line.split()[:2] == ["4096", "100"] for line in client.check().out), client


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
