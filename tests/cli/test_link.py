# SPDX-License-Identifier: Apache-2.0
"""`vrnic link` against a server that serves a lab."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from emu.cli.main import app
from emu.control.client import ControlClient
from emu.control.locate import CONTROL_SOCKET
from emu.lab.server import LabServer
from emu.lab.topology import Lab, Nic, Node


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Sockets of a lab with a NIC of each kind."""
    nics = (Nic(), Nic(device="mlx5", speed_mbps=100), Nic(device="virtio"))
    server = LabServer(Lab(nodes=(Node("left", nics, ()),)), tmp_path)
    thread = threading.Thread(target=server.loop.run)
    thread.start()
    yield tmp_path
    with ControlClient(tmp_path / CONTROL_SOCKET) as last:
        last.call("stop")
    thread.join(10)
    server.close()
    assert server.loop.faults == 0


def link(folder: Path, *arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["link", *arguments, "--socket", str(folder / CONTROL_SOCKET)])


def states(folder: Path) -> dict[str, bool]:
    """Link state by NIC, as the command tells programs."""
    found = json.loads(link(folder, "show", "--json").output)
    return {name: row["up"] for name, row in found.items()}


def test_links_of_every_kind_of_nic_go_down_and_up(folder: Path) -> None:
    names = ["left.nic0", "left.nic1", "left.nic2"]
    assert states(folder) == dict.fromkeys(names, True)
    result = link(folder, "down", names[0], names[2])
    assert result.exit_code == 0
    assert "left.nic0: link is now down" in result.output
    assert states(folder) == {names[0]: False, names[1]: True, names[2]: False}
    assert "left.nic2: link was already down" in link(folder, "down", names[2]).output
    assert "DOWN" in link(folder, "show", names[0]).output
    answer = json.loads(link(folder, "up", names[0], "--json").output)
    assert [(row["function"], row["up"], row["changed"]) for row in answer] == [(names[0], True, True)]
    assert states(folder)[names[0]]


def test_one_wrong_name_leaves_every_link_alone(folder: Path) -> None:
    result = link(folder, "down", "left.nic0", "left.nic9")
    assert result.exit_code == 1
    assert "left.nic9" in result.output and "left.nic1" in result.output
    assert all(states(folder).values())
    assert link(folder, "show", "right.nic0").exit_code == 1


def test_queues_are_shown_where_a_link_has_a_speed(folder: Path) -> None:
    shown = link(folder, "show").output
    _, queues = shown.split("the switch's queues")
    assert "left.nic1" in queues and "left.nic0" not in queues
    assert all(name in queues for name in ("depth", "peak", "marked", "trimmed", "dropped"))
    assert "queues" not in link(folder, "show", "left.nic0").output
    assert json.loads(link(folder, "show", "--json").output)["left.nic1"]["counters"]["queue.depth"] == 0
