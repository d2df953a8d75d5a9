# SPDX-License-Identifier: Apache-2.0
"""A NIC's kind: from the lab's description to the function that is served and the guest it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.clock import VirtualScheduler
from emu.events import EventBus
from emu.fabric.switch import Switch
from emu.lab.devices import BUILDERS
from emu.lab.file import LabFileError, format_lab, parse_lab
from emu.lab.qemu import QemuCommand
from emu.lab.topology import Lab, LabError, Nic, Node, link_local_gid
from emu.pcie.hierarchy import Hierarchy
from emu.roce import create_engine, parse
from emu.transport.model import CONFIG_REGION

LAB = """
[[node]]
name = "a"
[[node.nic]]
device = "mlx5"
"""


def test_a_lab_names_the_kind_of_each_nic() -> None:
    lab = parse_lab(LAB)
    assert lab.nics[0].device == "mlx5"
    assert parse_lab(format_lab(lab)) == parse_lab(format_lab(parse_lab(format_lab(lab))))
    assert parse_lab(format_lab(lab)).nics[0].device == "mlx5"


def test_an_unknown_kind_is_reported_at_its_line() -> None:
    with pytest.raises(LabFileError, match=r"lab\.toml:5: .*unknown device 'mlx6'"):
        parse_lab(LAB.replace("mlx5", "mlx6"))
    with pytest.raises(LabError) as caught:
        Lab((Node("a", (Nic(device="mlx6"),)),))
    assert caught.value.where == ("node", 0, "nic", 0, "device")


@pytest.mark.parametrize("device", ["vrnic", "mlx5"])
def test_every_kind_can_be_built(device: str) -> None:
    clock, events = VirtualScheduler(), EventBus()
    mac = bytes.fromhex("027672000001")
    built = BUILDERS[device](
        "node0.nic0",
        Hierarchy(),
        port=Switch(clock, events).port("node0.nic0"),
        scheduler=clock,
        events=events,
        create_engine=create_engine,
        parse=parse,
        mac=mac,
        gids=(link_local_gid(mac),),
    )
    is_mlx5 = built.function.region_read(CONFIG_REGION, 0, 2) == b"\xb3\x15"
    assert is_mlx5 == (device == "mlx5")
    rows = built.registers.snapshot()
    assert {"name", "offset", "value"} <= set(rows[0])


def test_the_guest_is_told_which_address_its_device_gets() -> None:
    command = QemuCommand(
        executable=("qemu",),
        kernel=Path("/k"),
        image=Path("/i"),
        directory=Path("/d"),
        node="a",
        addresses=(("02:76:72:00:00:01", "10.77.0.1"),),
    )
    assert "vrnic.net=02:76:72:00:00:01/10.77.0.1" in command.kernel_arguments().split()
