# SPDX-License-Identifier: Apache-2.0
"""What carries the reliable connections of NICs that know only RoCE."""

from __future__ import annotations

from typing import Any

import pytest

from emu.lab import topology
from emu.lab.carrier import Carrier, uet_parameters
from emu.lab.datagrams import CarriedDatagrams
from emu.lab.file import parse_lab
from emu.lab.topology import CARRIES, Lab, LabError, Node
from emu.nic.work import (
    AddressHandle,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    ReceiveRequest,
    SendRequest,
    Sge,
    Transport,
)
from emu.roce import RcEngine, RocePacket, UcEngine, UdEngine, parse
from emu.uet import Parameters
from emu.uet.engine import UetEngine
from emu.wire.uet_names import PdsType
from tests.roce.bench import BASE, LKEY, RKEY, Host
from tests.uet.bench import Net, Nic, decode


@pytest.mark.parametrize("carry", CARRIES)
def test_reliable_connections_and_datagrams_are_carried(carry: str) -> None:
    carrier = Carrier(carry, 1)
    carrier.create_endpoint(Net().nic("a"))
    engine = carrier.create_engine(Transport.ROCE_RC, Host("a", 0x100))
    if carry == "roce":
        assert isinstance(engine, RcEngine)
        assert isinstance(carrier.create_engine(Transport.ROCE_UD, Host("a", 0x102)), UdEngine)
    else:
        assert isinstance(engine, UetEngine)
        assert engine.rod is (carry == "uet-rod")
        assert isinstance(carrier.create_engine(Transport.ROCE_UD, Host("a", 0x102)), CarriedDatagrams)
    assert isinstance(carrier.create_engine(Transport.ROCE_UC, Host("a", 0x101)), UcEngine)


class Datagrams:
    """A carried datagram queue pair of one of two NICs, with a receive element of 200 bytes."""

    def __init__(self, nic: Nic, qpn: int, **changes: Any) -> None:
        self.host = Host(nic.name, qpn)
        self.host.memory(LKEY)
        self.host.memory(RKEY)
        self.host.receives.append(ReceiveRequest(0, [Sge(BASE, 200, RKEY)]))
        self.engine = CarriedDatagrams(nic.fep, self.host)
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            attributes = QpAttributes(state=state, path_mtu=1024, qkey=7, **changes)
            self.engine.modify(attributes, QpState(state - 1))

    def send(self, handle: AddressHandle, qpn: int) -> None:
        """One datagram of 16 bytes."""
        sges = [Sge(BASE, 16, LKEY)]
        request = SendRequest(
            0, Opcode.SEND, length=16, sges=sges, handle=handle, dest_qpn=qpn, qkey=7, signaled=True
        )
        self.engine.post(request)
        self.engine.transmit(0, 8)


def test_datagrams_go_by_uud_and_those_of_qp_1_by_roce() -> None:
    net = Net()
    a, b = net.nic("a"), net.nic("b")
    left, right = Datagrams(a, 0x111), Datagrams(b, 0x222)
    handle = AddressHandle(a.mac, b.mac, a.gid, b.gid)
    left.send(handle, 0x222)
    net.scheduler.run()
    assert decode(a.sent[0]).kind == PdsType.UUD_REQ
    (completion,) = right.host.completions
    assert (completion.opcode, completion.length, completion.source_qpn) == (CompletionOpcode.RECV, 56, 0x111)
    assert left.engine.idle() and left.engine.deadline() is None

    general = Datagrams(a, 0x112, source_qpn=1)
    general.send(handle, 1)
    assert len(a.sent) == 1
    (frame,) = general.host.sent
    packet = parse(frame)
    assert isinstance(packet, RocePacket)
    assert packet.dest_qpn == 1

    right.engine.modify(QpAttributes(), QpState.RTS)
    left.send(handle, 0x222)
    net.scheduler.run()
    assert len(right.host.completions) == 1


def test_the_lab_file_names_it() -> None:
    lab = parse_lab('carry = "uet-rud"\n[[node]]\nname = "a"\n')
    assert lab.carry == "uet-rud"
    assert Lab((Node("a"),)).carry == "roce"
    with pytest.raises(LabError, match="known: roce, uet-rod, uet-rud"):
        Lab((Node("a"),), carry="tcp")


def test_endpoints_know_the_slowest_link_and_the_secret() -> None:
    nodes = (Node("a", (topology.Nic(), topology.Nic(speed_mbps=80, secret="0f" * 32))),)
    lab = Lab(nodes, speed_mbps=100, trim_kib=64)
    first, second = (uet_parameters(lab, nic) for nic in lab.nics)
    assert first.nscc.bytes_per_second == second.nscc.bytes_per_second == 10_000_000
    assert first.nscc.trimming
    assert first.security is None
    assert second.security is not None
    assert second.security.secrets == (b"\x0f" * 32,)
    plain = Lab((Node("a"),))
    assert uet_parameters(plain, plain.nics[0]) == Parameters()
