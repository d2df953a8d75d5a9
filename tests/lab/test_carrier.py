# SPDX-License-Identifier: Apache-2.0
"""What carries the reliable connections of NICs that know only RoCE."""

from __future__ import annotations

import pytest

from emu.lab.carrier import Carrier, uet_parameters
from emu.lab.file import parse_lab
from emu.lab.topology import CARRIES, Lab, LabError, Nic, Node
from emu.nic.work import Transport
from emu.roce import RcEngine, UcEngine
from emu.uet import Parameters
from emu.uet.engine import UetEngine
from tests.roce.bench import Host
from tests.uet.bench import Net


@pytest.mark.parametrize("carry", CARRIES)
def test_only_reliable_connections_are_carried(carry: str) -> None:
    carrier = Carrier(carry, 1)
    carrier.create_endpoint(Net().nic("a"))
    engine = carrier.create_engine(Transport.ROCE_RC, Host("a", 0x100))
    if carry == "roce":
        assert isinstance(engine, RcEngine)
    else:
        assert isinstance(engine, UetEngine)
        assert engine.rod is (carry == "uet-rod")
    assert isinstance(carrier.create_engine(Transport.ROCE_UC, Host("a", 0x101)), UcEngine)


def test_the_lab_file_names_it() -> None:
    lab = parse_lab('carry = "uet-rud"\n[[node]]\nname = "a"\n')
    assert lab.carry == "uet-rud"
    assert Lab((Node("a"),)).carry == "roce"
    with pytest.raises(LabError, match="known: roce, uet-rod, uet-rud"):
        Lab((Node("a"),), carry="tcp")


def test_endpoints_know_the_slowest_link_and_the_secret() -> None:
    nodes = (Node("a", (Nic(), Nic(speed_mbps=80, secret="0f" * 32))),)
    lab = Lab(nodes, speed_mbps=100, trim_kib=64)
    first, second = (uet_parameters(lab, nic) for nic in lab.nics)
    assert first.nscc.bytes_per_second == second.nscc.bytes_per_second == 10_000_000
    assert first.nscc.trimming
    assert first.security is None
    assert second.security is not None
    assert second.security.secrets == (b"\x0f" * 32,)
    plain = Lab((Node("a"),))
    assert uet_parameters(plain, plain.nics[0]) == Parameters()
