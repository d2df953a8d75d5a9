# SPDX-License-Identifier: Apache-2.0
"""A process, a driver, a function or a guest ends under traffic: nothing leaks and the peer is told.

The tests share one pair of guests and leave it usable, each for the next.
"""

from __future__ import annotations

import os
import signal

import pytest

from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from tests.boot.traffic import Traffic, counters, wait_until

EMPTY = {"contexts": 0, "pds": 0, "mrs": 0, "eqs": 0, "cqs": 0, "qps": 0, "ahs": 0}
IDLE = {"node0.nic0": {**EMPTY, "eqs": 1}, "node1.nic0": {**EMPTY, "eqs": 2}}
"""What a NIC holds when only its driver uses it: an event queue for each processor of the guest."""

NIC = "/sys/bus/pci/devices/0000:01:00.0"

pytestmark = pytest.mark.timeout(240)


def works(pair: LabRunner) -> None:
    """A put from one guest to the other comes out right."""
    left, right = pair.guests
    command = "vrnic-kernels put --messages 2 --role "
    sides = run_pair((left, command + "a"), (right, command + "b"), 30)
    assert all(side.status == 0 for side in sides)


def holds(pair: LabRunner, function: str, objects: dict[str, int]) -> None:
    """The NIC comes to hold exactly ``objects``."""
    wait_until(lambda: counters(pair, function, "objects") == objects, f"{function} holds {objects}")


def test_a_killed_process_leaves_nothing_and_its_peer_gets_a_retry_error(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    traffic.jobs[1].kill(signal.SIGKILL)
    assert "RETRY_EXC" in traffic.verdict()
    for function in IDLE:
        holds(pair, function, IDLE[function])
    works(pair)


def test_the_driver_unbound_under_traffic_leaves_nothing(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    pair.guests[1].run(f"echo 0000:01:00.0 > {NIC}/driver/unbind", 20).check()
    holds(pair, "node1.nic0", EMPTY)
    assert "RETRY_EXC" in traffic.verdict()
    pair.guests[1].run("echo 0000:01:00.0 > /sys/bus/pci/drivers/vrnic/bind", 20).check()
    holds(pair, "node1.nic0", IDLE["node1.nic0"])
    works(pair)


def test_a_function_level_reset_under_traffic_is_survived(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    pair.guests[1].run(f"echo flr > {NIC}/reset_method; echo 1 > {NIC}/reset", 20).check()
    assert "RETRY_EXC" in traffic.verdict()
    holds(pair, "node1.nic0", IDLE["node1.nic0"])
    works(pair)


def test_the_nic_removed_under_traffic_and_found_again(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    pair.guests[1].run(f"echo 1 > {NIC}/remove", 20).check()
    holds(pair, "node1.nic0", EMPTY)
    assert "RETRY_EXC" in traffic.verdict()
    pair.guests[1].run("echo 1 > /sys/bus/pci/rescan", 20).check()
    holds(pair, "node1.nic0", IDLE["node1.nic0"])
    works(pair)


@pytest.mark.full
def test_a_guest_that_reboots_leaves_nothing_and_comes_back(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    victim = pair.guests[1]
    pid = victim.pid
    victim.reboot()
    assert victim.pid == pid and victim.alive
    assert "RETRY_EXC" in traffic.verdict()
    victim.run("reload-driver", 30).check()
    holds(pair, "node1.nic0", IDLE["node1.nic0"])
    works(pair)


def test_a_killed_guest_leaves_nothing_and_a_new_one_takes_its_place(pair: LabRunner) -> None:
    traffic = Traffic(pair)
    traffic.wait_flowing()
    victim = pair.guests[1]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    assert "RETRY_EXC" in traffic.verdict()
    holds(pair, "node1.nic0", EMPTY)
    holds(pair, "node0.nic0", IDLE["node0.nic0"])
    victim.shutdown()
    victim.start()
    victim.wait_ready()
    victim.run("reload-driver", 30).check()
    works(pair)
    assert counters(pair, "node1.nic0", "endpoint")["faults"] == 0


def test_the_kernel_complains_of_nothing(pair: LabRunner) -> None:
    for guest in pair.guests:
        log = guest.run("dmesg", 20).check()
        bad = [line for line in log.out if any(word in line for word in ("WARNING:", "BUG:", "Oops", "leak"))]
        assert bad == [], guest.name
