# SPDX-License-Identifier: Apache-2.0
"""UET packets in a capture: what each is called, and the two flows of a packet delivery context."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from emu.capture.summary import summarize
from emu.capture.uet_frame import UetFrame
from emu.nic.work import Opcode, Transport
from emu.uet.headers import control, nack
from emu.uet.path import PeerPath
from emu.wire.uet_names import CtlType, NackCode
from tests.capture.sample import Stage
from tests.uet.bench import Nic, losing, pair

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
