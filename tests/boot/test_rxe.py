# SPDX-License-Identifier: Apache-2.0
"""Our RoCEv2 against the Linux kernel's own: a guest with an mlx5-compatible NIC and one whose virtio network
device carries ``rdma_rxe``, both with the distribution's tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emu.capture.summary import summarize
from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.perftest import Latency, Throughput, latencies, throughputs
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.tools import CM_LISTENS, RDMA_PORT, bring_up_rdma, run_tool, tcp_listens
from emu.lab.topology import Lab, Nic, Node
from tests.boot.traffic import counters

pytestmark = pytest.mark.timeout(600)
full = pytest.mark.full

ADDRESSES = {"ours": "10.77.0.1", "rxe": "10.77.0.2"}
DIRECTIONS = ("ours", "rxe")
"""Who is the client, and with that the requester of a one-sided tool."""
PERFTEST = "-F -x 1 -u 17"
"""No complaint about the processor's clock, the IPv4 address, and half a second for an answer: an emulated
guest needs more than the 67 ms the tool would grant.
"""
PATIENCE = 120.0
RPING_PORT = 7174
LAST_PSN = 0xFFFFFF

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
        pair.start(PATIENCE)
        for guest in pair.guests:
            bring_up_rdma(guest, ADDRESSES[guest.name], software=guest.name == "rxe")
        return pair

    yield boot
    for pair in running:
        pair.stop()


@pytest.fixture
def pair(start: Start) -> LabRunner:
    """The two guests on links without loss."""
    return start(0.0)


def between(
    pair: LabRunner,
    client: str,
    tool: str,
    *,
    serve: str = "",
    ask: str = "",
    ready: str = tcp_listens(RDMA_PORT),
) -> tuple[str, ...]:
    """Run ``tool`` as client at ``client`` against the same tool at the other end; the client's output.

    ``serve`` and ``ask`` are the two commands where they differ by more than the address.
    """
    server = "rxe" if client == "ours" else "ours"
    there = (pair[server], serve or tool)
    here = (pair[client], ask or f"{tool} {ADDRESSES[server]}")
    return run_tool(there, here, ready=ready, timeout=PATIENCE)[1].out


def measured(pair: LabRunner, client: str, tool: str, *, ready: str = tcp_listens(RDMA_PORT)) -> None:
    """Run one of perftest's tools and find the one line that it prints once everything went through."""
    words = tool.split()
    size = int(words[words.index("-s") + 1]) if "-s" in words else 8
    count = int(words[words.index("-n") + 1])
    rows: list[Throughput | Latency] = []
    out = between(pair, client, tool, ready=ready)
    rows += throughputs(out) if "_bw" in words[0] else latencies(out)
    assert [(row.octets, row.iterations) for row in rows] == [(size, count)], out


def pinged(pair: LabRunner, client: str, tool: str, count: int) -> None:
    """Run one of the ibv examples, which with ``-c`` compare what they receive."""
    out = between(pair, client, f"{tool} -n {count}")
    assert any(re.match(rf"{count} iters in .* usec/iter", line) for line in out), out
    assert not any("invalid data" in line for line in out), out


@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize(
    "tool",
    [
        "ibv_rc_pingpong -g 1 -c",
        "ibv_uc_pingpong -g 1 -c -s 9000",
        "ibv_ud_pingpong -g 1 -c -s 1000",
        pytest.param("ibv_rc_pingpong -g 0 -c -s 65536", marks=full),
        pytest.param("ibv_rc_pingpong -g 1 -c -e -s 1", marks=full),
        pytest.param("ibv_srq_pingpong -g 1 -c", marks=full),
    ],
)
def test_sends_arrive_as_they_left(pair: LabRunner, client: str, tool: str) -> None:
    pinged(pair, client, tool, 50)


@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize(
    ("tool", "size"),
    [
        ("ib_write_bw", 1 << 20),
        ("ib_read_bw", 1 << 20),
        ("ib_read_lat", 4097),
        *(
            pytest.param(tool, size, marks=full)
            for tool in (
                "ib_write_bw",
                "ib_read_bw",
                "ib_send_bw",
                "ib_write_lat",
                "ib_read_lat",
                "ib_send_lat",
            )
            for size in (1, 4097, 65536, 1 << 20)
        ),
    ],
)
def test_every_operation_from_both_ends(pair: LabRunner, client: str, tool: str, size: int) -> None:
    # The ends must agree on READs in flight: rxe would offer 128, a NIC answers 16.
    outstanding = " -o 4" if "read" in tool else ""
    depth = " -t 4" if "_bw" in tool else ""
    count = 20 if size < 1 << 20 else 5
    measured(pair, client, f"{tool} {PERFTEST}{outstanding}{depth} -s {size} -n {count}")


@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("kind", ["FETCH_AND_ADD", "CMP_AND_SWAP"])
def test_atomics_from_both_ends(pair: LabRunner, client: str, kind: str) -> None:
    measured(pair, client, f"ib_atomic_bw {PERFTEST} -o 4 -n 50 -A {kind}")


@pytest.mark.parametrize("client", DIRECTIONS)
def test_the_connection_manager_sets_up_queue_pairs(pair: LabRunner, client: str) -> None:
    measured(pair, client, f"ib_send_bw -R {PERFTEST} -s 4096 -n 20", ready=CM_LISTENS)


@pytest.mark.parametrize("client", DIRECTIONS)
def test_rping_validates_what_comes_back(pair: LabRunner, client: str) -> None:
    server = "rxe" if client == "ours" else "ours"
    out = between(
        pair,
        client,
        "rping",
        serve=f"rping -s -a {ADDRESSES[server]} -p {RPING_PORT} -C 20 -V",
        ask=f"rping -c -a {ADDRESSES[server]} -p {RPING_PORT} -C 20 -V -v",
        ready=CM_LISTENS,
    )
    assert sum("ping data:" in line for line in out) == 20, out


@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize("mtu", [*(pytest.param(mtu, marks=full) for mtu in (256, 512, 1024, 2048)), 4096])
def test_every_path_mtu(pair: LabRunner, client: str, mtu: int) -> None:
    before = counters(pair, "ours.nic0")
    pinged(pair, client, f"ibv_rc_pingpong -g 1 -c -m {mtu} -s 20001", 20)
    measured(pair, client, f"ib_read_bw {PERFTEST} -o 4 -m {mtu} -s 20001 -n 10")
    after = counters(pair, "ours.nic0")
    # 20 SENDs each way and 10 READs one way, each in as many packets as the path takes for 20,001 bytes; the
    # client is who is answered.
    packets = -(-20001 // mtu)
    direction = "rx_packets" if client == "ours" else "tx_packets"
    assert after[direction] - before[direction] >= 30 * packets


@pytest.mark.parametrize("before_the_end", [15, 35, 55], ids=["send", "write", "read"])
def test_packet_numbers_that_wrap_in_each_operation(pair: LabRunner, before_the_end: int) -> None:
    # 20,000 bytes are 20 packets of 1,024: the numbers of one operation after the other pass zero.
    psn = LAST_PSN - before_the_end
    command = f"vrnic-wrap --psn {psn} --size 20000 --timeout 60 --role "
    sides = run_pair((pair["ours"], command + "a"), (pair["rxe"], command + "b"), PATIENCE)
    for side, role in zip(sides, "ab", strict=True):
        record = side.record("program", "vrnic-wrap")
        assert record is not None
        assert (record["ok"], record["role"], record["psn"], record["rounds"]) == (True, role, psn, 4)


def test_no_frame_of_it_is_wrong(pair: LabRunner) -> None:
    with pair.server.control() as control:
        control.call("flush")
        capture = Path(str(control.call("info")["capture"]))
    summary = summarize(capture)
    assert summary.bad_icrc == 0
    assert summary.flows
    ours = counters(pair, "ours.nic0")
    assert ours["rx_packets"] > 0
    assert ours["rx_icrc_encapsulated"] == ours["protection_errors"] == 0


@full
@pytest.mark.parametrize("client", DIRECTIONS)
@pytest.mark.parametrize(
    "tool",
    [
        "ibv_rc_pingpong -g 1 -c -s 20000",
        f"ib_write_bw {PERFTEST} -s 65536 -n 20",
        f"ib_read_bw {PERFTEST} -o 4 -s 65536 -n 20",
        # Two frames each, of which one in a hundred must really be lost.
        f"ib_atomic_bw {PERFTEST} -o 4 -n 400",
    ],
)
def test_one_frame_in_a_hundred_lost(start: Start, client: str, tool: str) -> None:
    pair = start(0.01)
    before = lost(pair)
    if tool.startswith("ibv"):
        pinged(pair, client, tool, 100)
    else:
        measured(pair, client, tool)
    assert lost(pair) > before, "the link lost nothing, so nothing was tried"


def lost(pair: LabRunner) -> int:
    """Frames that our NIC's link has lost so far; the other's are not counted here."""
    link = counters(pair, "ours.nic0", "link")
    return link["out.lost"] + link["in.lost"]
