# SPDX-License-Identifier: Apache-2.0
"""The oldest and the newest kernel of the set-up as guests on mlx5-compatible NICs, with the same tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.tools import CM_LISTENS, tcp_listens
from emu.setup.error import SetupError
from emu.setup.suite import DEFAULT_KERNEL, SERIES
from tests.boot.mlx5 import ADDRESSES, SERVER, between, complaints, stock_guests

pytestmark = [pytest.mark.timeout(300), pytest.mark.full]


@pytest.fixture(scope="module", params=[series for series in SERIES if series != DEFAULT_KERNEL])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, LabRunner]]:
    """The series of a kernel, and two guests that run it."""
    series = request.param
    try:
        installation = Installation.require(kernel=series)
    except SetupError as error:
        if "missing" not in error.message:
            raise
        pytest.skip(f"no kernel of series {series}: {error.hint}")
    with stock_guests(installation, tmp_path_factory.mktemp("kernels"), f"k{series[0]}") as running:
        yield series, running


def text(pair: tuple[str, LabRunner], command: str) -> str:
    """What a command on node0 prints."""
    return "\n".join(pair[1]["node0"].run(command, 60).check().out)


def test_it_is_that_kernel(pair: tuple[str, LabRunner]) -> None:
    assert text(pair, "uname -r").startswith(pair[0])


def test_the_tools_show_the_device(pair: tuple[str, LabRunner]) -> None:
    shown = text(pair, "ibv_devinfo -v")
    assert re.search(r"state:\s+PORT_ACTIVE", shown)
    assert re.search(r"GID\[\s*1\]:\s+::ffff:10\.77\.0\.1, RoCE v2", shown)
    link = json.loads(text(pair, "rdma -j link show mlx5_0/1"))[0]
    assert (link["state"], link["netdev"]) == ("ACTIVE", "eth0")
    assert "driver: mlx5_core" in text(pair, "ethtool -i eth0")
    assert "Link detected: yes" in text(pair, "ethtool eth0")
    assert "tx_packets:" in text(pair, "ethtool -S eth0")
    assert "pci/0000:01:00.0" in json.loads(text(pair, "devlink -j dev show"))["dev"]
    listed = text(pair, "lspci -vv -s 01:00.0")
    assert "MSI-X: Enable+" in listed and "Kernel driver in use: mlx5_core" in listed


@pytest.mark.parametrize(
    "tool",
    [
        "ibv_rc_pingpong -c -n 200",
        "ibv_rc_pingpong -c -e -n 100",
        "ibv_rc_pingpong -c -s 1 -n 50",
        "ibv_rc_pingpong -c -s 1048576 -n 5",
        "ibv_uc_pingpong -c -n 100",
        "ibv_ud_pingpong -c -n 100",
        "ibv_srq_pingpong -c -n 100",
    ],
)
def test_pingpongs(pair: tuple[str, LabRunner], tool: str) -> None:
    out = between(pair[1], f"{tool} -g 1")
    assert "invalid data" not in "\n".join(out)
    assert any(f"{tool.split()[-1]} iters in" in line for line in out), out


def test_messages_of_an_xrc_domain(pair: tuple[str, LabRunner]) -> None:
    assert "success" in between(pair[1], "ibv_xsrq_pingpong -g 1 -n 50")


def test_the_network_device_carries_ping_and_iperf3(pair: tuple[str, LabRunner]) -> None:
    assert "3 packets received" in text(pair, f"ping -c 3 -i 0.2 -s 1400 {SERVER}")
    out = between(pair[1], "iperf3 -s -1", client=f"iperf3 -c {SERVER} -J -n 4M", ready=tcp_listens(5201))
    assert json.loads("\n".join(out))["end"]["sum_sent"]["bytes"] >= 4 << 20


def test_the_connection_manager(pair: tuple[str, LabRunner]) -> None:
    out = between(pair[1], "rping -s -C 5 -V", client=f"rping -c -a {SERVER} -C 5 -v -V", ready=CM_LISTENS)
    assert "rdma-ping-4:" in "\n".join(out)
    out = between(pair[1], "ib_send_bw -R -F -s 4096 -n 100", ready=CM_LISTENS)
    assert any(line.split()[:2] == ["4096", "100"] for line in out), out


@pytest.mark.parametrize("node", list(ADDRESSES))
def test_no_driver_complains(pair: tuple[str, LabRunner], node: str) -> None:
    assert complaints(pair[1], node) == []
