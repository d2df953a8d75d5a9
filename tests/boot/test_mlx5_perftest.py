# SPDX-License-Identifier: Apache-2.0
"""The whole of perftest between two stock guests on mlx5-compatible NICs, with and without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from emu.lab.installation import Installation
from emu.lab.perftest import Latency, Throughput, latencies, throughputs
from emu.lab.runner import LabRunner
from emu.lab.tools import CM_LISTENS, RDMA_PORT, tcp_listens
from tests.boot.mlx5 import ADDRESSES, between, complaints, stock_guests

pytestmark = pytest.mark.timeout(600)
full = pytest.mark.full

QUIET = "-F -x 1"
"""No complaint about the processor's clock; the IPv4 address."""

Start = Callable[[float], LabRunner]


@pytest.fixture(scope="module")
def start(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Gives two stock guests with some loss on each link; one pair at a time."""
    current: list[tuple[float, Iterator[LabRunner], LabRunner]] = []

    def end() -> None:
        for _, generator, _ in current:
            next(generator, None)
        current.clear()

    def guests(loss: float) -> Iterator[LabRunner]:
        with stock_guests(installation, tmp_path_factory.mktemp("perftest"), "perf", loss=loss) as running:
            yield running

    def boot(loss: float) -> LabRunner:
        if not current or current[0][0] != loss:
            end()
            generator = guests(loss)
            current.append((loss, generator, next(generator)))
        return current[0][2]

    yield boot
    end()


@pytest.fixture
def pair(start: Start) -> LabRunner:
    """Two guests on links without loss."""
    return start(0.0)


def measure(pair: LabRunner, tool: str, *, ready: str = tcp_listens(RDMA_PORT)) -> list[Throughput | Latency]:
    """Run a tool; one result for each message size."""
    out = between(pair, tool, ready=ready)
    rows: list[Throughput | Latency] = []
    rows += throughputs(out) if "_bw" in tool else latencies(out)
    assert rows, "\n".join(out)
    # Bandwidths are printed with two digits: on a busy machine a few small messages make 0.00.
    for row in rows:
        assert isinstance(row, Throughput) or row.typical > 0, row
    return rows


def once(pair: LabRunner, tool: str, size: int, count: int, *, ready: str = tcp_listens(RDMA_PORT)) -> None:
    """Run ``tool``, which is for one message size, and check that it says so."""
    rows = measure(pair, tool, ready=ready)
    assert [(row.octets, row.iterations) for row in rows] == [(size, count)]


@pytest.mark.parametrize(
    ("tool", "size", "count"),
    [
        ("ib_write_bw", 65536, 100),
        ("ib_read_bw", 65536, 100),
        ("ib_send_bw", 65536, 100),
        ("ib_write_lat", 8, 200),
        ("ib_read_lat", 8, 200),
        ("ib_send_lat", 8, 200),
        pytest.param("ib_send_bw -c UC", 65536, 100, marks=full),
        pytest.param("ib_send_bw -c UD", 1024, 100, marks=full),
        pytest.param("ib_send_lat -c UC", 64, 100, marks=full),
        pytest.param("ib_send_lat -c UD", 64, 100, marks=full),
        pytest.param("ib_write_bw -c UC", 65536, 100, marks=full),
        pytest.param("ib_write_lat -c UC", 64, 100, marks=full),
        pytest.param("ib_send_bw -r 16", 4096, 100, marks=full),
        pytest.param("ib_write_bw -b", 65536, 50, marks=full),
        pytest.param("ib_send_bw -b", 65536, 50, marks=full),
        pytest.param("ib_write_bw -l 4", 4096, 100, marks=full),
    ],
)
def test_operations(pair: LabRunner, tool: str, size: int, count: int) -> None:
    once(pair, f"{tool} {QUIET} -s {size} -n {count}", size, count)


@pytest.mark.parametrize("kind", ["FETCH_AND_ADD", "CMP_AND_SWAP"])
@pytest.mark.parametrize("tool", ["ib_atomic_bw", "ib_atomic_lat"])
def test_atomics(pair: LabRunner, tool: str, kind: str) -> None:
    once(pair, f"{tool} {QUIET} -A {kind} -n 100", 8, 100)


SIZES = [1 << exponent for exponent in range(1, 24)]
"""What -a runs: 2 bytes to 8 MiB."""


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param("ib_write_bw", marks=full),
        pytest.param("ib_read_bw", marks=full),
        pytest.param("ib_send_bw", marks=full),
        pytest.param("ib_write_lat", marks=full),
        pytest.param("ib_read_lat", marks=full),
        pytest.param("ib_send_lat", marks=full),
    ],
)
def test_every_size(pair: LabRunner, tool: str) -> None:
    # Latency tools want more than a handful of samples; bandwidth tools as many messages as fit their queue.
    rows = measure(pair, f"{tool} {QUIET} -a -n {5 if '_bw' in tool else 10}")
    assert [row.octets for row in rows] == SIZES


@pytest.mark.parametrize("queue_pairs", [4, pytest.param(16, marks=full)])
@pytest.mark.parametrize(
    "tool", ["ib_write_bw", pytest.param("ib_send_bw", marks=full), pytest.param("ib_read_bw", marks=full)]
)
def test_several_queue_pairs(pair: LabRunner, tool: str, queue_pairs: int) -> None:
    once(pair, f"{tool} {QUIET} -q {queue_pairs} -s 8192 -n 25", 8192, 25 * queue_pairs)


@pytest.mark.parametrize("inline", [64, pytest.param(1, marks=full), pytest.param(236, marks=full)])
@pytest.mark.parametrize("tool", ["ib_write_lat", pytest.param("ib_send_lat", marks=full)])
def test_inline_data(pair: LabRunner, tool: str, inline: int) -> None:
    once(pair, f"{tool} {QUIET} -I {inline} -s {inline} -n 100", inline, 100)


@pytest.mark.parametrize(
    "tool",
    [
        "ib_send_lat",
        pytest.param("ib_read_lat", marks=full),
        pytest.param("ib_read_bw", marks=full),
        pytest.param("ib_send_bw", marks=full),
        pytest.param("ib_atomic_lat", marks=full),
    ],
)
def test_completions_by_event(pair: LabRunner, tool: str) -> None:
    """Of the tools that have it: ib_write_bw's passive end has no completion to wait for, and refuses."""
    size = "" if "atomic" in tool else " -s 8"
    once(pair, f"{tool} {QUIET} -e{size} -n 100", 8, 100)


@pytest.mark.parametrize("mtu", [256, *(pytest.param(mtu, marks=full) for mtu in (512, 1024, 2048, 4096))])
@pytest.mark.parametrize(
    "tool", ["ib_write_bw", pytest.param("ib_send_bw", marks=full), pytest.param("ib_read_bw", marks=full)]
)
def test_every_path_mtu(pair: LabRunner, tool: str, mtu: int) -> None:
    once(pair, f"{tool} {QUIET} -m {mtu} -s 20001 -n 20", 20001, 20)


@pytest.mark.parametrize(
    "tool",
    [
        "ib_send_bw",
        *(
            pytest.param(tool, marks=full)
            for tool in ("ib_send_lat", "ib_write_bw", "ib_read_lat", "ib_send_bw -c UD")
        ),
    ],
)
def test_connections_by_the_connection_manager(pair: LabRunner, tool: str) -> None:
    once(pair, f"{tool} -R {QUIET} -s 1024 -n 100", 1024, 100, ready=CM_LISTENS)


@pytest.mark.parametrize("node", list(ADDRESSES))
def test_nothing_of_this_made_a_driver_complain(pair: LabRunner, node: str) -> None:
    assert complaints(pair, node) == []


@full
@pytest.mark.parametrize(
    ("tool", "size", "count"),
    [
        ("ib_write_bw", 65536, 30),
        ("ib_read_bw", 65536, 30),
        ("ib_send_bw", 65536, 30),
        ("ib_write_bw -q 4", 16384, 20),
        ("ib_send_lat", 8, 100),
        ("ib_read_lat", 4096, 100),
    ],
)
def test_one_frame_in_a_hundred_lost(start: Start, tool: str, size: int, count: int) -> None:
    # -u 14: 67 ms until a repetition.
    pair = start(0.01)
    rows = measure(pair, f"{tool} {QUIET} -u 14 -s {size} -n {count}")
    assert [row.octets for row in rows] == [size]


@full
def test_atomics_happen_once_though_frames_are_lost(start: Start) -> None:
    pair = start(0.01)
    once(pair, f"ib_atomic_bw {QUIET} -u 14 -n 200", 8, 200)
    with pair.server.control() as control:
        counters = control.call("counters")
    # The link did lose frames, so somebody had to repeat.
    assert sum(counters[f"{node}.nic0"]["nic"]["retransmitted_packets"] for node in ADDRESSES) > 0
