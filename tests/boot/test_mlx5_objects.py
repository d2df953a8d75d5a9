# SPDX-License-Identifier: Apache-2.0
"""Memory windows, keys over keys, dma-bufs, XRC, groups, events, counters, in stock guests.

Kernel, drivers and libraries are the distribution's; ``mlx5-verbs`` is a small program on top of them. The
vGPU's driver hands out video memory as dma-bufs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.topology import Gpu, Lab, Nic, Node
from tests.boot.mlx5 import SERVER, between, complaints

pytestmark = pytest.mark.timeout(400)

CASES = (
    "window-type1",
    "window-type2",
    "invalidate-remote",
    "key-list",
    "key-interleaved",
    "reregister",
    "resize",
    "group",
    "event-queue-pair",
    "event-shared-receive",
    "event-overrun",
    "dmabuf",
)
ACTIVE = "for n in $(seq 300); do ibv_devinfo -v | grep -q '::ffff:10' && exit; sleep 0.1; done; exit 1"
LISTENS = "for n in $(seq 300); do netstat -ltn | grep -q :18515 && exit; sleep 0.1; done; exit 1"


@pytest.fixture(scope="module")
def pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two running guests with an mlx5-compatible NIC, one with a vGPU, drivers loaded, ports active."""
    nodes = (Node("node0", (Nic(device="mlx5"),), (Gpu("16M"),)), Node("node1", (Nic(device="mlx5"),), ()))
    lab = Lab(nodes=nodes, name=f"objects-{tmp_path_factory.getbasetemp().name}"[:24])
    capture = tmp_path_factory.mktemp("objects") / "objects.pcapng"
    with LabRunner(lab, installation, lab_directory(lab.name), capture) as running:
        running.start()
        running["node0"].run("reload-driver", 60).check()
        for guest in running.guests:
            guest.run(ACTIVE, 90).check()
        yield running


def test_objects_beyond_queue_pairs(pair: LabRunner) -> None:
    """Every case of the program, between two queue pairs of one device."""
    result = pair["node0"].run(f"mlx5-verbs {' '.join(CASES)}", 180)
    assert [line for line in result.out if not line.startswith("ok ")] == []
    assert [line.removeprefix("ok ") for line in result.out] == list(CASES)
    assert result.status == 0


def test_messages_into_queues_of_an_xrc_domain(pair: LabRunner) -> None:
    command = "ibv_xsrq_pingpong -g 1 -n 50 -c 2"
    server = pair["node1"].spawn(command, 120)
    pair["node1"].run(LISTENS, 60).check()
    second = pair["node0"].spawn(f"{command} {SERVER}", 120)
    first = pair["node0"].run(f"{command} {SERVER}", 120)
    for outcome in (first, second.wait(), server.wait()):
        assert outcome.status == 0, outcome
        assert "success" in outcome.out, outcome


def test_completions_of_128_bytes(pair: LabRunner) -> None:
    out = between(pair, "MLX5_CQE_SIZE=128 ibv_rc_pingpong -g 1 -n 100")
    assert any(line.startswith("100 iters in") for line in out), out


def counters(pair: LabRunner, node: str, folder: str) -> dict[str, int]:
    """Counters of the port as sysfs shows them."""
    path = f"/sys/class/infiniband/mlx5_0/ports/1/{folder}"
    shown = pair[node].run(f"cd {path} && for f in *; do echo $f $(cat $f); done").check().out
    return {name: int(value) for name, value in (line.split() for line in shown)}


def test_counters_are_live_under_the_names_of_linux(pair: LabRunner) -> None:
    before = counters(pair, "node1", "counters"), counters(pair, "node1", "hw_counters")
    between(pair, "ib_write_bw -F -x 1 -s 4096 -n 100")
    between(pair, "ib_read_bw -F -x 1 -s 4096 -n 50")
    after = counters(pair, "node1", "counters"), counters(pair, "node1", "hw_counters")
    grown = [{name: new[name] - old[name] for name in new} for old, new in zip(before, after, strict=True)]
    assert grown[0]["port_rcv_packets"] > 400
    assert grown[0]["port_xmit_data"] > 50 * 4096 // 4
    assert grown[1]["rx_write_requests"] >= 100
    assert grown[1]["rx_read_requests"] >= 50
    # Of the program's cases: what was refused, and why, at both ends of one device.
    errors = counters(pair, "node0", "hw_counters")
    assert errors["req_remote_access_errors"] == errors["resp_remote_access_errors"] >= 4
    assert errors["req_cqe_error"] >= errors["req_remote_access_errors"]
    shown = pair["node1"].run("ethtool -S eth0").check().out
    port = {name.strip(): int(value) for name, _, value in (line.partition(":") for line in shown[1:])}
    assert port["rx_packets_phy"] > port["rx_vport_unicast_packets"] > 0
    assert port["rx_prio0_bytes"] == port["rx_bytes_phy"] > port["rx_vport_rdma_unicast_bytes"] > 100 * 4096


def test_a_promiscuous_netdev_is_served(pair: LabRunner) -> None:
    """tcpdump and bridges need it; the kernel then adds a rule and says so to the vport."""
    guest = pair["node1"]
    guest.run("ifconfig eth0 promisc allmulti").check()
    ping = pair["node0"].run(f"ping -c 2 {SERVER}", 20)
    assert "2 packets received" in "\n".join(ping.out), ping
    guest.run("ifconfig eth0 -promisc -allmulti").check()


def test_no_driver_complained(pair: LabRunner) -> None:
    wanted = re.compile(r"cq_err_event_notifier.*CQ error on CQN \w+, syndrome 0x1")
    for node in ("node0", "node1"):
        assert [line for line in complaints(pair, node) if not wanted.search(line)] == []
