# SPDX-License-Identifier: Apache-2.0
"""UCX and libfabric between two stock guests on mlx5-compatible NICs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.tools import tcp_listens
from tests.boot.mlx5 import ADDRESSES, SERVER, between, complaints, stock_guests

pytestmark = pytest.mark.timeout(300)
full = pytest.mark.full

UCX_PORT, FABRIC_PORT = 13337, 47592


@pytest.fixture(scope="module")
def pair(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabRunner]:
    """Two stock guests."""
    with stock_guests(installation, tmp_path_factory.mktemp("middleware"), "middle") as running:
        yield running


def ucx(pair: LabRunner, transport: str, arguments: str, environment: str = "") -> float:
    """Run ``ucx_perftest`` over one transport; messages a second, as the client prints last.

    The names: rc_v and ud_v use libibverbs, rc_x and ud_x write descriptors and doorbells themselves and make
    their queues through DevX.
    """
    # Without a terminal Debian's program looks for MPI.
    program = f"UCX_NET_DEVICES=mlx5_0:1 UCX_TLS={transport},self {environment} script -qec"
    out = between(
        pair,
        f"{program} ucx_perftest /dev/null",
        client=f'{program} "ucx_perftest {arguments} {SERVER}" /dev/null',
        ready=tcp_listens(UCX_PORT),
    )
    last = [line for line in out if line.startswith("Final:")]
    assert last, "\n".join(out)
    return float(last[0].split()[-1])


@pytest.mark.parametrize("transport", ["rc_v", "rc_x", "ud_v", "ud_x"])
def test_ucx_tagged_messages(pair: LabRunner, transport: str) -> None:
    assert ucx(pair, transport, "-t tag_lat -n 100 -w 10") > 0


@full
@pytest.mark.parametrize("transport", ["rc_v", "rc_x", "ud_v", "ud_x"])
@pytest.mark.parametrize(
    "arguments",
    ["-t tag_bw -s 20000 -n 30 -w 5", "-t tag_lat -s 300000 -n 10 -w 2", "-t ucp_am_lat -n 50 -w 5"],
)
def test_ucx_sizes_and_kinds(pair: LabRunner, transport: str, arguments: str) -> None:
    """The bigger sizes are sent by rendezvous: the receiver READs them."""
    assert ucx(pair, transport, arguments) > 0


@full
def test_ucx_without_devx(pair: LabRunner) -> None:
    assert ucx(pair, "rc_x", "-t tag_lat -n 100 -w 10", "UCX_IB_MLX5_DEVX_OBJECTS=") > 0


@pytest.mark.parametrize(
    ("provider", "endpoint"),
    [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")],
)
def test_libfabric_pingpong(pair: LabRunner, provider: str, endpoint: str) -> None:
    program = f"fi_pingpong -p '{provider}' -e {endpoint} -I 10 -c"
    out = between(pair, program, ready=tcp_listens(FABRIC_PORT))
    rows = [line.split() for line in out if re.match(r"\d+[km]?\s", line)]
    # Six sizes, and -c compares every byte.
    assert [row[0] for row in rows] == ["64", "256", "1k", "4k", "64k", "1m"]
    assert {row[1] for row in rows} == {"10"} and {row[2] for row in rows} == {"=10"}


@pytest.mark.parametrize("node", list(ADDRESSES))
def test_nothing_of_this_made_a_driver_complain(pair: LabRunner, node: str) -> None:
    assert complaints(pair, node) == []
