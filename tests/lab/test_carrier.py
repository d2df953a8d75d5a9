# SPDX-License-Identifier: Apache-2.0
"""What carries the reliable connections of NICs that know only RoCE."""

from __future__ import annotations

import pytest

from emu.lab.carrier import Carrier
from emu.lab.file import parse_lab
from emu.lab.topology import CARRIES, Lab, LabError, Node
from emu.nic.work import Transport
from emu.roce import RcEngine, UcEngine
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
