# SPDX-License-Identifier: Apache-2.0
"""Pairs of stock guests on mlx5-compatible NICs, as the tests of this folder share them.

Nothing in these guests is ours but the agent that runs commands: kernel, drivers, libraries and tools are the
distribution's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.control.locate import lab_directory
from emu.lab.installation import Installation
from emu.lab.runner import LabRunner
from emu.lab.tools import RDMA_PORT, bring_up_rdma, run_tool, tcp_listens
from emu.lab.topology import Lab, Nic, Node

__all__ = ["ADDRESSES", "PATIENCE", "SERVER", "between", "complaints", "stock_guests"]

ADDRESSES = {"node0": "10.77.0.1", "node1": "10.77.0.2"}
SERVER = ADDRESSES["node1"]
PATIENCE = 120.0
"""Seconds for one tool. Far more than it takes: the machine may be busy."""

_COMPLAINT = re.compile(
    r"(?i:fail|error|warn|unable|invalid|abort|time.?out|not supported|hw csum|call trace)|BUG: "
)
_ABOUT_US = re.compile(r"(?i:mlx5|infiniband|eth0|rdma|ib_|cut here|call trace)|BUG: ")
_HARMLESS = ("PTM is not supported by PCIe",)
"""What a slot of this machine does not have."""


@contextmanager
def stock_guests(
    installation: Installation, folder: Path, name: str, *, loss: float = 0.0
) -> Iterator[LabRunner]:
    """Two running guests, node0 and node1, with an mlx5-compatible NIC each, on which RDMA is ready."""
    nodes = tuple(Node(each, (Nic(device="mlx5"),), ()) for each in ADDRESSES)
    lab = Lab(nodes=nodes, name=f"{name}-{folder.parent.name}"[:24], loss=loss)
    with LabRunner(lab, installation, lab_directory(lab.name), folder / f"{name}.pcapng") as running:
        running.start(PATIENCE)
        for guest in running.guests:
            bring_up_rdma(guest, ADDRESSES[guest.name])
        yield running


def between(
    pair: LabRunner,
    tool: str,
    *,
    client: str | None = None,
    ready: str = tcp_listens(RDMA_PORT),
    address: str = SERVER,
) -> tuple[str, ...]:
    """What ``tool`` prints as client on node0, run with ``address`` behind it, against itself on node1.

    ``client`` is the client's whole command where it is another one.
    """
    served = (pair["node1"], tool)
    asked = (pair["node0"], client or f"{tool} {address}")
    return run_tool(served, asked, ready=ready, timeout=PATIENCE)[1].out


def complaints(pair: LabRunner, node: str) -> list[str]:
    """Lines of a guest's kernel log about the NIC and what stands on it that report trouble."""
    log = pair[node].run("dmesg", 30).check().out
    return [
        line
        for line in log
        if _ABOUT_US.search(line) and _COMPLAINT.search(line) and not any(text in line for text in _HARMLESS)
    ]
