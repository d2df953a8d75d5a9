# SPDX-License-Identifier: Apache-2.0
"""Labs as values: numbering, addresses and what is refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.fabric.egress import UNLIMITED, Queueing
from emu.lab.topology import (
    MIB,
    Gpu,
    Lab,
    LabError,
    Nic,
    Node,
    default_lab,
    link_local_gid,
    parse_mac,
    parse_size,
)


def test_the_default_lab_is_two_nodes_with_a_nic_and_a_vgpu_each() -> None:
    lab = default_lab()
    assert [nic.name for nic in lab.nics] == ["node0.nic0", "node1.nic0"]
    assert [gpu.name for gpu in lab.gpus] == ["node0.gpu0", "node1.gpu0"]
    assert lab.functions("node1") == ("node1.nic0", "node1.gpu0")


def test_nics_are_numbered_over_the_whole_lab() -> None:
    lab = Lab((Node("a", (Nic(), Nic())), Node("b", (Nic(),))))
    assert [nic.mac.hex(":") for nic in lab.nics] == [f"02:76:72:00:00:0{k}" for k in (1, 2, 3)]
    assert [nic.gids[1] for nic in lab.nics] == [
        ipaddress.IPv6Address(f"::ffff:10.77.0.{k}").packed for k in (1, 2, 3)
    ]


def test_gid_0_is_the_modified_eui_64_of_the_mac() -> None:
    # The worked example of RFC 4291, appendix A: 34-56-78-9A-BC-DE becomes 36-56-78-FF-FE-9A-BC-DE.
    gid = link_local_gid(bytes.fromhex("3456789abcde"))
    assert gid == ipaddress.IPv6Address("fe80::3656:78ff:fe9a:bcde").packed


@given(st.binary(min_size=6, max_size=6))
def test_macs_survive_being_written(mac: bytes) -> None:
    if mac[0] & 1:
        with pytest.raises(LabError, match="multicast"):
            parse_mac(mac.hex(":"))
    else:
        assert parse_mac(mac.hex(":")) == mac


@pytest.mark.parametrize(
    ("text", "size"), [("64M", 64 * MIB), ("1G", 1 << 30), ("512K", 1 << 19), ("7", 7), (9, 9), ("0M", 0)]
)
def test_sizes_are_powers_of_1024(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "64MB", "-1M", "1.5G", "64 M", "1T", "9" * 13])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(LabError, match="is not a size"):
        parse_size(text)


def test_a_nic_inherits_the_labs_impairments_unless_it_has_its_own() -> None:
    own = Nic(loss=0.5, delay_us=1.5, trim=0, mark=0.25)
    lab = Lab((Node("a", (Nic(), own)),), loss=0.1, delay_us=2, trim=0.2, mark=0.3)
    assert [(nic.loss, nic.delay_ns) for nic in lab.nics] == [(0.1, 2000), (0.5, 1500)]
    assert [(nic.trim, nic.mark) for nic in lab.nics] == [(0.2, 0.3), (0, 0.25)]
    nics = (Nic(), Nic(llr=False, pfc=False, symbol_errors=0))
    lab = Lab((Node("a", nics),), llr=True, pfc=True, symbol_errors=0.1)
    assert [(nic.llr, nic.pfc, nic.symbol_errors) for nic in lab.nics] == [
        (True, True, 0.1),
        (False, False, 0),
    ]


@pytest.mark.parametrize(
    ("devices", "asked", "given_"),
    [
        (("vrnic",), None, False),
        (("vrnic",), True, True),
        (("mlx5",), None, True),
        (("vrnic", "virtio"), None, True),
        (("mlx5",), False, False),
        ((), None, False),
    ],
)
def test_guests_for_stock_drivers_have_the_tools_for_them(
    devices: tuple[str, ...], asked: bool | None, given_: bool
) -> None:
    node = Node("a", tuple(Nic(device=device) for device in devices), tools=asked)
    assert node.has_tools is given_


def test_every_nic_of_every_seed_draws_from_its_own_stream() -> None:
    seeds = [nic.seed for seed in range(4) for nic in default_lab(3, seed=seed).nics]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize(
    ("lab", "where", "message"),
    [
        (lambda: Lab(()), (), "at least one node"),
        (lambda: Lab((Node("A"),)), ("node", 0, "name"), "not a node name"),
        (lambda: Lab((Node("a"), Node("a"))), ("node", 1, "name"), "taken"),
        (lambda: Lab((Node("a", memory="64M"),)), ("node", 0, "memory"), "128M"),
        (lambda: Lab((Node("a", memory="lots"),)), ("node", 0, "memory"), "not a size"),
        (lambda: Lab((Node("a", cpus=0),)), ("node", 0, "cpus"), "1..64"),
        (lambda: Lab((Node("a", gpus=(Gpu(), Gpu("48M"))),)), ("node", 0, "gpu", 1, "vram"), "power of two"),
        (
            lambda: Lab((Node("a", nics=(Nic(mac="01:00:00:00:00:01"),)),)),
            ("node", 0, "nic", 0, "mac"),
            "multicast",
        ),
        (lambda: Lab((Node("a", nics=(Nic(address="10.0.0"),)),)), ("node", 0, "nic", 0, "address"), "IPv4"),
        (lambda: Lab((Node("a", nics=(Nic(loss=1.0),)),)), ("node", 0, "nic", 0, "loss"), "probability"),
        (lambda: Lab((Node("a", nics=(Nic(mark=1.0),)),)), ("node", 0, "nic", 0, "mark"), "mark 1.0 is not"),
        (lambda: Lab((Node("a"),), trim=-0.5), ("trim",), "trim -0.5 is not a probability"),
        (lambda: Lab((Node("a", nics=(Nic(delay_us=-1),)),)), ("node", 0, "nic", 0, "delay_us"), "10 s"),
        (
            lambda: Lab((Node("a", (Nic(), Nic(mac="02:76:72:00:00:01"))),)),
            ("node", 0, "nic", 1, "mac"),
            "already that of a.nic0",
        ),
        (
            lambda: Lab((Node("a", (Nic(), Nic(address="10.77.0.1"))),)),
            ("node", 0, "nic", 1, "address"),
            "already that of a.nic0",
        ),
        (lambda: Lab((Node("a", (Nic(),) * 17, ()),)), ("node", 0), "16 functions"),
        (lambda: Lab((Node("a"),), name="a/b"), ("name",), "no name for a lab"),
        (lambda: default_lab(loss=-0.1), ("loss",), "probability"),
        (lambda: default_lab(loss=float("nan")), ("loss",), "probability"),
        (lambda: default_lab(seed=-1), ("seed",), "seed"),
        (lambda: default_lab(transport="tcp"), ("transport",), "known: roce-rc"),
        (lambda: default_lab(251), ("node", 250, "nic", 0), "250 NICs"),
    ],
)
def test_contradictions_name_the_key(lab: object, where: tuple[str | int, ...], message: str) -> None:
    assert callable(lab)
    with pytest.raises(LabError, match=message) as caught:
        lab()
    assert caught.value.where == where


def test_a_link_has_a_speed_and_queues_where_the_lab_says_so() -> None:
    nodes = (Node("a", (Nic(), Nic(speed_mbps=8), Nic(speed_mbps=0))),)
    lab = Lab(nodes, speed_mbps=100, queue_kib=64, ecn_min_kib=4, ecn_max_kib=8, trim_kib=16)
    assert [nic.queueing for nic in lab.nics] == [
        Queueing(12_500_000, 65536, 4096, 8192, 16384),
        Queueing(1_000_000, 65536, 4096, 8192, 16384),
        UNLIMITED,
    ]
    assert Lab((Node("a"),)).nics[0].queueing == UNLIMITED
    assert Lab((Node("a"),), speed_mbps=1, pause=True).nics[0].queueing.pause
    with pytest.raises(LabError, match="speed_mbps nan") as caught:
        Lab((Node("a", (Nic(speed_mbps=float("nan")),)),))
    assert caught.value.where == ("node", 0, "nic", 0, "speed_mbps")
