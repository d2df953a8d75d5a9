# SPDX-License-Identifier: Apache-2.0
"""UET packets in a capture: what each is called, and the two flows of a packet delivery context."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.capture.summary import summarize
from emu.capture.uet_frame import UetFrame
from emu.nic.work import Opcode, Transport
from emu.uet import Parameters
from emu.uet.headers import control, nack
from emu.uet.path import PeerPath
from emu.uet.tss import Tss
from emu.uet.tss_keys import SecureDomain
from emu.wire.uet_names import CtlType, NackCode
from emu.wire.uet_profile import Profile
from tests.capture.sample import Stage
from tests.uet.bench import Nic, losing, pair
from tests.uet.test_uud import Rig

PATH = PeerPath(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", b"\x0a\0\0\1", b"\x0a\0\0\2")


def test_packets_have_names() -> None:
    net, a, b = pair(Transport.UET_RUD)
    a.post(Opcode.WRITE, 1500)
    a.post(Opcode.READ, 2000)
    net.scheduler.run(until=1_000_000)
    there = [UetFrame.parse(frame) for frame in a.nic.sent]
    back = [UetFrame.parse(frame) for frame in b.nic.sent]
    write = there[0]
    assert write is not None
    assert (write.source, write.destination) == ("10.77.0.1", "10.77.0.2")
    assert (write.name, write.payload, write.is_request, write.again) == ("RUD_REQ WRITE", 1024, True, False)
    names = {packet.name for packet in there if packet} | {packet.name for packet in back if packet}
    assert names == {"RUD_REQ WRITE", "RUD_REQ READ", "RUD_REQ READ_DATA", "ACK_CC"}
    assert sum(packet.payload for packet in back if packet) == 2000
    assert {packet.acknowledgement for packet in back if packet} == {"ACK", None}


def test_refusals_and_control_packets_have_names() -> None:
    refused = UetFrame.parse(PATH.frame(0, 1, nack(NackCode.ROD_OOO, 0, 5, 6, 7)))
    assert refused is not None and refused.name == refused.acknowledgement == "NACK ROD_OOO"
    for kind, takes in ((CtlType.CLOSE_CMD, True), (CtlType.CLEAR_CMD, False)):
        packet = UetFrame.parse(PATH.frame(0, 1, control(kind, 8, 5, 6, 7)))
        assert packet is not None
        assert (packet.name, packet.is_request, packet.number) == (f"CP {kind.name}", takes, 6)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("ssi", [None, 9])
def test_of_secured_packets_the_header_is_told(native: bool, ssi: int | None) -> None:
    wire = Profile(over_udp=not native)
    domain = SecureDomain((bytes(32),), ssi=ssi)
    tss = Tss(domain, wire)
    for ends in ((b"\x0a\0\0\1", b"\x0a\0\0\2"), (bytes(15) + b"\1", bytes(15) + b"\2")):
        path = PeerPath(bytes(6), bytes(6), *ends, wire)
        frame = path.frame(2, 1, control(CtlType.CLOSE_CMD, 8, 5, 6, 7))
        for number in range(2):
            packet = UetFrame.parse(tss.seal(frame))
            assert packet is not None
            assert (packet.name, packet.number) == ("TSS", 0)
            assert packet.psn == number + (2 if len(ends[0]) == 16 else 0)
            assert packet.source == str(ipaddress.ip_address(ends[0]))


def test_packets_directly_over_ip_are_uet_too() -> None:
    net, a, b = pair(Transport.UET_RUD, parameters=Parameters(wire=Profile(over_udp=False)))
    a.post(Opcode.WRITE, 100)
    net.scheduler.run(until=1_000_000)
    packets = [UetFrame.parse(frame) for frame in (*a.nic.sent, *b.nic.sent)]
    assert [packet.name for packet in packets if packet][:2] == ["RUD_REQ WRITE", "ACK_CC"]
    assert None not in packets


def test_packets_without_a_context_have_names_and_payload() -> None:
    net, a, b = pair(Transport.UET_RUDI)
    a.post(Opcode.WRITE, 100)
    a.post(Opcode.READ, 200)
    net.scheduler.run(until=1_000_000)
    found = [UetFrame.parse(frame) for frame in (*a.nic.sent, *b.nic.sent)]
    told = [(packet.name, packet.payload) for packet in found if packet]
    assert told == [
        ("RUDI_REQ WRITE", 100),
        ("RUDI_REQ READ", 0),
        ("RUDI_RESP", 0),
        ("RUDI_RESP READ_DATA", 200),
    ]
    rig = Rig()
    rig.send(16)
    datagram = UetFrame.parse(rig.a.nic.sent[0])
    assert datagram is not None
    assert (datagram.name, datagram.payload) == ("UUD_REQ DATAGRAM_SEND", 16)


@given(st.binary(max_size=120))
def test_other_frames_are_none_of_it(octets: bytes) -> None:
    frame = PATH.frame(0, 1, octets)
    UetFrame.parse(frame)
    assert UetFrame.parse(frame[:36] + b"\x12\xb7" + frame[38:]) is None
    assert UetFrame.parse(octets) is None


def test_the_summary_shows_both_ends_of_a_context(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "uet.pcapng", ports=["node0.nic0", "node1.nic0"])
    lossy = losing(("a", 2))

    def carry(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        arriving = lossy(sender, number, frame)
        names = ("node0.nic0", "node1.nic0") if sender.name == "a" else ("node1.nic0", "node0.nic0")
        stage.carry(frame, *names, lost=not arriving)
        return arriving

    net, a, _ = pair(Transport.UET_RUD, carry)
    a.post(Opcode.WRITE, 5000)
    net.scheduler.run(until=1_000_000_000)
    stage.capture.close()
    summary = summarize(stage.path)
    there, back = summary.flows
    assert (there.sender, there.receiver, there.pdc) == ("node0.nic0", "node1.nic0", 1)
    assert (back.sender, back.receiver, back.pdc) == ("node1.nic0", "node0.nic0", 1)
    assert (there.lost, there.retransmitted, back.lost) == (1, 1, 0)
    assert there.sent.opcodes["RUD_REQ WRITE"] == 6
    assert there.sent.payload == 5000 + 1024
    assert back.sent.acknowledgements["ACK"] >= 1 and summary.other_frames == 0
    shown = json.loads(json.dumps(summary.to_json()))
    assert shown["flows"][0]["pdc"] == 1
