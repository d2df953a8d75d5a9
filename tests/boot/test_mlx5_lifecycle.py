# SPDX-License-Identifier: Apache-2.0
"""An unmodified driver loses its device, or the device its driver, under traffic: nothing leaks, the peer is
told, and it all works again.

The tests share one pair of guests and leave it usable, each for the next. What the peer is told is what
hardware tells it: RETRY_EXC_ERR, status 12 of ``enum ibv_wc_status``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from emu.control.locate import lab_directory
from emu.lab.agent import Job, Result
from emu.lab.demo_mlx5 import complaints
from emu.lab.failure import LabFailure
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.tools import bring_up_rdma, run_tool, tcp_listens
from emu.lab.topology import Lab, Nic, Node
from tests.boot.traffic import counters, wait_until

pytestmark = pytest.mark.timeout(400)
full = pytest.mark.full

SURVIVOR, VICTIM = "node0", "node1"
ADDRESSES = {SURVIVOR: "10.77.0.1", VICTIM: "10.77.0.2"}
NIC = "/sys/bus/pci/devices/0000:01:00.0"
DRIVER = "/sys/bus/pci/drivers/mlx5_core"
RETRY_EXCEEDED = "status 12"


@pytest.fixture(scope="module")
def pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two stock guests, their ports active."""
    nodes = tuple(Node(name, (Nic(device="mlx5"),), ()) for name in (SURVIVOR, VICTIM))
    lab = Lab(nodes=nodes, name=f"life-{tmp_path_factory.getbasetemp().name}"[:24])
    with LabRunner(lab, installation, lab_directory(lab.name), capture=None) as running:
        running.start(180)
        for guest in running.guests:
            bring_up_rdma(guest, ADDRESSES[guest.name], mtu=1500)
        yield running


class Stream:
    """Writes from the survivor into the victim's memory, for a minute unless something ends them."""

    def __init__(self, pair: LabRunner, tool: str = "ib_write_bw -s 4096 -D 90") -> None:
        command = f"{tool} -F -x 1 -u 14"
        self.pair = pair
        self.server: Job = pair[VICTIM].spawn(command, 150)
        listening = f"for n in $(seq 300); do {tcp_listens()} && exit; sleep 0.1; done; exit 1"
        pair[VICTIM].run(listening, 60).check()
        start = counters(pair, f"{SURVIVOR}.nic0")["tx_packets"]
        self.client: Job = pair[SURVIVOR].spawn(f"{command} {ADDRESSES[VICTIM]}", 150)
        wait_until(lambda: counters(pair, f"{SURVIVOR}.nic0")["tx_packets"] > start + 200, "traffic", 60)

    def verdict(self) -> Result:
        """How the writing program ended; the other one is ended then."""
        result = self.client.wait()
        with contextlib.suppress(LabFailure):
            self.server.kill(signal.SIGKILL)
        self.server.wait()
        return result


def told(stream: Stream) -> None:
    """The writing program got the error completion of a peer that does not answer."""
    result = stream.verdict()
    text = "\n".join((*result.out, *result.err))
    assert result.status != 0
    assert RETRY_EXCEEDED in text, text


def objects(pair: LabRunner, node: str) -> dict[str, int]:
    """Objects of a NIC, without the owner that always is."""
    found = counters(pair, f"{node}.nic0", "objects")
    return {kind: number for kind, number in found.items() if kind != "contexts"}


def empty(pair: LabRunner, node: str) -> None:
    """The NIC comes to hold nothing."""
    wait_until(lambda: not any(objects(pair, node).values()), f"{node} holds nothing", 60)


def works(pair: LabRunner) -> None:
    """The victim's port is active again and messages of both kinds get through."""
    victim, survivor = pair[VICTIM], pair[SURVIVOR]
    address = f"ip addr show dev eth0 | grep -q {ADDRESSES[VICTIM]}"
    victim.run(f"{address} || ip addr add {ADDRESSES[VICTIM]}/24 dev eth0; ip link set eth0 up", 30).check()
    bring_up_rdma(victim, ADDRESSES[VICTIM], mtu=1500)
    tool = "ibv_rc_pingpong -g 1 -n 50"
    _, result = run_tool(
        (victim, tool), (survivor, f"{tool} {ADDRESSES[VICTIM]}"), ready=tcp_listens(), timeout=60
    )
    assert any(line.startswith("50 iters in") for line in result.out), result
    ping = survivor.run(f"ping -c 2 {ADDRESSES[VICTIM]}", 30).check()
    assert " 0% packet loss" in "\n".join(ping.out)
    for node in (SURVIVOR, VICTIM):
        wait_until(partial(_has_only_its_own, pair, node), f"{node} has no queue pair left", 30)
    with pair.server.control() as control:
        assert all(groups["endpoint"]["faults"] == 0 for groups in control.call("counters").values())


def _has_only_its_own(pair: LabRunner, node: str) -> bool:
    """Only the driver's queue pairs are left: of the connection manager, and of memory registration."""
    return objects(pair, node)["qps"] <= 2


def test_the_driver_unbound_under_traffic(pair: LabRunner) -> None:
    stream = Stream(pair)
    pair[VICTIM].run(f"echo 0000:01:00.0 > {DRIVER}/unbind", 60).check()
    empty(pair, VICTIM)
    told(stream)
    pair[VICTIM].run(f"echo 0000:01:00.0 > {DRIVER}/bind", 90).check()
    works(pair)


@full
def test_the_drivers_unloaded_under_traffic(pair: LabRunner) -> None:
    stream = Stream(pair)
    # A module that a process uses stays; the peer goes on writing to a queue pair that is no more.
    stream.server.kill(signal.SIGKILL)
    pair[VICTIM].run(
        "for n in $(seq 100); do rmmod mlx5_ib && break; sleep 0.1; done; rmmod mlx5_core", 90
    ).check()
    empty(pair, VICTIM)
    told(stream)
    pair[VICTIM].run("insmod /modules/stock/mlx5_core.ko && insmod /modules/stock/mlx5_ib.ko", 90).check()
    works(pair)


@full
def test_the_nic_removed_under_traffic_and_found_again(pair: LabRunner) -> None:
    stream = Stream(pair)
    pair[VICTIM].run(f"echo 1 > {NIC}/remove", 60).check()
    empty(pair, VICTIM)
    told(stream)
    pair[VICTIM].run("echo 1 > /sys/bus/pci/rescan", 90).check()
    works(pair)


def test_the_guest_reboots_under_traffic(pair: LabRunner) -> None:
    stream = Stream(pair)
    pid = pair[VICTIM].pid
    pair[VICTIM].reboot(180)
    assert pair[VICTIM].pid == pid and pair[VICTIM].alive
    told(stream)
    works(pair)


@full
def test_the_guest_killed_under_traffic_and_a_new_one(pair: LabRunner) -> None:
    stream = Stream(pair)
    victim = pair[VICTIM]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    told(stream)
    empty(pair, VICTIM)
    victim.shutdown()
    victim.start()
    victim.wait_ready(180)
    works(pair)


@full
def test_a_nic_plugged_into_a_running_guest(pair: LabRunner) -> None:
    victim = pair[VICTIM]
    victim.shutdown()
    (function,) = victim.command.functions
    victim.command = replace(victim.command, functions=(replace(function, present=False),))
    victim.start()
    victim.wait_ready(180)
    assert victim.run("ls /sys/class/infiniband", 20).out == ()
    victim.plug(function.name)
    there = "for n in $(seq 300); do test -d /sys/class/net/eth0 && exit; sleep 0.1; done; exit 1"
    assert victim.run(there, 90).status == 0, victim.run("dmesg | tail -30", 20).out
    works(pair)


def test_the_cable_pulled_under_traffic(pair: LabRunner) -> None:
    stream = Stream(pair)
    carrier = "cat /sys/class/net/eth0/carrier"
    with pair.server.control() as control:
        control.call("link", function=f"{VICTIM}.nic0", up=False)
        wait_until(lambda: pair[VICTIM].run(carrier, 20).out == ("0",), "the carrier goes", 60)
        told(stream)
        assert control.call("counters")[f"{VICTIM}.nic0"]["link"]["up"] == 0
        control.call("link", function=f"{VICTIM}.nic0", up=True)
    wait_until(lambda: pair[VICTIM].run(carrier, 20).out == ("1",), "the carrier comes back", 60)
    works(pair)


def test_no_kernel_complains(pair: LabRunner) -> None:
    for guest in pair.guests:
        assert complaints(guest) == [], guest.name


def test_a_function_level_reset_under_traffic(pair: LabRunner) -> None:
    """The driver is not asked: its health poll finds the interface disabled, complains, and starts anew."""
    stream = Stream(pair)
    pair[VICTIM].run(f"echo flr > {NIC}/reset_method; echo 1 > {NIC}/reset", 60).check()
    told(stream)
    recovered = "dmesg | grep -q 'health recovery succeeded'"
    wait = f"for n in $(seq 600); do {recovered} && exit; sleep 0.1; done; dmesg | tail -30; exit 1"
    assert pair[VICTIM].run(wait, 120).status == 0, pair[VICTIM].run("dmesg | tail -40", 20).out
    works(pair)
