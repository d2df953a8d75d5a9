# SPDX-License-Identifier: Apache-2.0
"""Our RoCEv2 against the Linux kernel's own: a guest with an mlx5-compatible NIC and one whose virtio network
device carries ``rdma_rxe``, both with the distribution's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emu.capture.summary import summarize
from emu.control.locate import lab_directory
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node

pytestmark = pytest.mark.timeout(300)

ADDRESSES = {"ours": "10.77.0.1", "rxe": "10.77.0.2"}
PORT = 18515
LINK_LOCAL = "ip -6 addr show dev eth0"
INTERFACE_MTU = 4200
"""Room for a path MTU of 4096 and its headers."""
DIRECTIONS = ("ours", "rxe")
"""Who is the client, and with that the requester of a one-sided tool."""
SIZES = (1, 4097, 1 << 20)
PERFTEST = "-F -x 1 -u 17"
"""No complaint about the processor's clock, the IPv4 address, and half a second for an answer: an emulated
guest needs more than the 67 ms the tool would grant.
"""

Start = Callable[[float], LabRunner]


@pytest.fixture(scope="module")
def start(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Boots the two guests with some loss on each link; one pair at a time."""
    running: list[LabRunner] = []

    def boot(loss: float) -> LabRunner:
        for old in running:
            if old.lab.loss == loss:
                return old
            old.stop()
        running.clear()
        nodes = (Node("ours", (Nic(device="mlx5"),), ()), Node("rxe", (Nic(device="virtio"),), ()))
        lab = Lab(nodes=nodes, name=f"rxe-{tmp_path_factory.getbasetemp().name}"[:24], loss=loss)
        capture = tmp_path_factory.mktemp("rxe") / "rxe.pcapng"
        pair = LabRunner(lab, installation, lab_directory(lab.name), capture)
        running.append(pair)
        pair.start()
        for guest in pair.guests:
            guest.run(f"ip link set eth0 mtu {INTERFACE_MTU}").check()
            # An address still checked for duplicates is no source: the kernel refuses a QP that names it.
            _wait_for(guest, f"{LINK_LOCAL} | grep -q fe80 && ! {LINK_LOCAL} | grep -q tentative")
        pair["rxe"].run("rdma link add rxe0 type rxe netdev eth0").check()
        return pair

    yield boot
    for pair in running:
        pair.stop()


@pytest.fixture
def pair(start: Start) -> LabRunner:
    """The two guests on links without loss."""
    return start(0.0)


def between(pair: LabRunner, client: str, tool: str, seconds: float = 60) -> tuple[str, ...]:
    """Run ``tool`` as server at one end and as client at ``client``; the client's output."""
    server = "rxe" if client == "ours" else "ours"
    job = pair[server].spawn(tool, seconds)
    listening = (
        "rdma res show cm_id | grep -q LISTEN" if " -R " in tool else f"netstat -ltn | grep -q :{PORT}"
    )
    _wait_for(pair[server], listening)
    ran = pair[client].run(f"{tool} {ADDRESSES[server]}", seconds)
    answer = job.wait()
    assert ran.status == 0, (ran, answer)
    assert answer.status == 0, answer
    return ran.out


def _wait_for(server: Guest, condition: str) -> None:
    server.run(f"for n in $(seq 100); do {condition} && exit; sleep 0.1; done; exit 1", 20).check()


@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize(
    "options",
    [
        "-g 1 -c -n 50",
        pytest.param("-g 0 -c -s 65536 -n 20", marks=pytest.mark.full),
        pytest.param("-g 1 -c -e -s 1 -n 50", marks=pytest.mark.full),
    ],
)
def test_sends_arrive_as_they_left(pair: LabRunner, client: str, options: str) -> None:
    out = between(pair, client, f"ibv_rc_pingpong {options}")
    assert any(line.startswith(f"{options.split()[-1]} iters in") for line in out), out


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("tool", ["ibv_uc_pingpong -c -s 9000", "ibv_ud_pingpong -c -s 1000"])
def test_services_without_acknowledgement(pair: LabRunner, client: str, tool: str) -> None:
    out = between(pair, client, f"{tool} -g 1 -n 20")
    assert any(line.startswith("20 iters in") for line in out), out


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("tool", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
@pytest.mark.parametrize("size", SIZES)
def test_every_operation_from_both_ends(pair: LabRunner, client: str, tool: str, size: int) -> None:
    # The ends must agree on READs in flight: rxe would offer 128, a NIC answers 16.
    outstanding = "-o 4 " if tool == "ib_read_bw" else ""
    count = 20 if size < 1 << 20 else 5
    out = between(pair, client, f"{tool} {PERFTEST} {outstanding}-s {size} -n {count} -t 4")
    assert any(line.split()[:2] == [str(size), str(count)] for line in out), out


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
def test_the_connection_manager_sets_up_queue_pairs(pair: LabRunner, client: str) -> None:
    out = between(pair, client, f"ib_send_bw -R {PERFTEST} -s 4096 -n 20")
    assert any(line.split()[:2] == ["4096", "20"] for line in out), out


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("kind", ["FETCH_AND_ADD", "CMP_AND_SWAP"])
def test_atomics_from_both_ends(pair: LabRunner, client: str, kind: str) -> None:
    out = between(pair, client, f"ib_atomic_bw {PERFTEST} -o 4 -n 50 -A {kind}")
    assert any(line.split()[:2] == ["8", "50"] for line in out), out


@pytest.mark.full
def test_no_frame_of_it_is_wrong(pair: LabRunner) -> None:
    with pair.server.control() as control:
        control.call("flush")
        capture = control.call("info")["capture"]
        ours = control.call("counters")["ours.nic0"]["nic"]
    summary = summarize(Path(capture))
    assert summary.bad_icrc == 0
    assert summary.flows
    assert ours["rx_icrc_encapsulated"] == 0
    assert ours["protection_errors"] == 0


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_every_path_mtu(pair: LabRunner, client: str, mtu: int) -> None:
    between(pair, client, f"ibv_rc_pingpong -g 1 -c -m {mtu} -s 20001 -n 20")
    between(pair, client, f"ib_read_bw {PERFTEST} -o 4 -m {mtu} -s 20001 -n 10")
    between(pair, client, f"ib_write_bw {PERFTEST} -m {mtu} -s 20001 -n 10")


@pytest.mark.full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize(
    "tool",
    [
        "ibv_rc_pingpong -g 1 -c -s 20000 -n 100",
        f"ib_write_bw {PERFTEST} -s 65536 -n 20",
        f"ib_read_bw {PERFTEST} -o 4 -s 65536 -n 20",
        f"ib_atomic_bw {PERFTEST} -o 4 -n 100",
    ],
)
def test_one_frame_in_a_hundred_lost(start: Start, client: str, tool: str) -> None:
    between(start(0.01), client, tool, 120)
