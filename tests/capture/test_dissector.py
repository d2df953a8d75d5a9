# SPDX-License-Identifier: Apache-2.0
"""tshark shows our captures as they should be seen, with the script and without."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from emu.capture import generate
from emu.capture.events_format import describe
from emu.capture.pcapng import LinkType
from emu.capture.tshark import tshark_command
from emu.capture.writer import PcapngWriter
from emu.events import Event, Kind
from tests.capture.sample import ACK, CNP, READ_IPV6, SEND, WRITE, Stage, packet
from tests.capture.tshark_program import require_scripts, run_tshark

EVENTS = [
    Event(Kind.DOORBELL, 0, "node0.nic0", qpn=0x101, index=7),
    Event(Kind.DMA_READ, 0, "node0.nic0", qpn=0x101, address=0xFFFF_FFFF_FFFF_F000, length=64),
    Event(Kind.MSIX, 0, "node1.nic0", value=3, text="vector 3 for EQ 1"),
    Event(Kind.CHECK, 0, "node1.nic0", qpn=5, value=3, text="C03: stale slot"),
    Event(Kind.CQE, 0, "node1.nic0", qpn=0xFFFFFF, value=0, text="QP 0xffffff SUCCESS"),
    Event(Kind.CQE, 0, "node1.nic0", index=2**64 - 1, address=0, value=0),
    Event(Kind.STATE, 0, "nœud", text="prêt"),
    Event(Kind.LINK, 0, ""),
]


def event_capture(path: Path) -> Path:
    stage = Stage(path)
    for event in EVENTS:
        stage.bus.emit(event)
    stage.capture.close()
    return path


def test_the_dissector_is_current() -> None:
    assert generate.main(["--check"]) == 0


def test_a_stale_dissector_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "LUA_SCRIPT", tmp_path / "lua" / "x.lua")
    monkeypatch.setattr(generate, "UET_SCRIPT", tmp_path / "lua" / "y.lua")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err.count(" is stale;") == 2
    assert generate.main([]) == 0
    for name in ("x.lua", "y.lua"):
        assert generate.main(["--check"]) == 0
        text = (tmp_path / "lua" / name).read_text()
        (tmp_path / "lua" / name).write_text("old")
        assert generate.main(["--check"]) == 1
        assert f"{name} is stale" in capsys.readouterr().err
        (tmp_path / "lua" / name).write_text(text)


def test_tshark_shows_each_event_in_the_words_of_the_trace(tmp_path: Path) -> None:
    require_scripts()
    path = event_capture(tmp_path / "a.pcapng")
    shown = run_tshark(path, "-T", "fields", "-e", "_ws.col.Info", "-e", "_ws.col.Protocol")
    assert shown == [f"{describe(event)}\tVRNIC" for event in EVENTS]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("vrnic", len(EVENTS)),
        ("vrnic.qpn == 0x101", 2),
        ("vrnic.index == 7", 1),
        ("vrnic.kind == 12", 2),
        ('vrnic.kind == "doorbell"', 1),
        ("vrnic.address == 0xfffffffffffff000 && vrnic.length == 64", 1),
        ("vrnic.address == 0", 1),
        ('vrnic.function == "node1.nic0"', 4),
        ('vrnic.text contains "stale"', 1),
        ("vrnic.value == 3", 2),
        ("vrnic.warning", 1),
        ("vrnic.malformed || _ws.malformed", 0),
    ],
)
def test_filters_work(tmp_path: Path, query: str, count: int) -> None:
    require_scripts()
    path = event_capture(tmp_path / "a.pcapng")
    assert len(run_tshark(path, "-Y", query)) == count


def test_a_bad_record_is_called_one(tmp_path: Path) -> None:
    require_scripts()
    with PcapngWriter(tmp_path / "a.pcapng", application="t") as writer:
        port = writer.add_interface(LinkType.USER0, "events")
        for data in (b"x", bytes(44), b"\x01" + bytes(39) + b"\x00\x09\x00\x09", b"\x01\xfa" + bytes(42)):
            writer.add_packet(port, 1, data)
    shown = run_tshark(tmp_path / "a.pcapng", "-T", "fields", "-e", "_ws.col.Info")
    assert shown == [
        "not an event record: too short",
        "not an event record: version 0",
        "not an event record: texts longer than the record",
        ": kind 250",
    ]


def test_without_the_script_frames_decode_and_events_are_data(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.emit(Kind.DOORBELL, qpn=1)
    stage.carry(WRITE)
    stage.capture.close()
    shown = run_tshark(stage.path, "-T", "fields", "-e", "frame.protocols", plain=True)
    assert shown[0].startswith("user_dlt")
    assert shown[1].startswith("eth:ethertype:ip:udp:infiniband")


def test_ordinary_payloads_are_not_called_malformed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    payloads = [
        *(bytes([value]) * size for value in (0, 1, 2, 4, 8, 0xFF) for size in (4, 28, 64, 256)),
        bytes(range(256)),
        bytes.fromhex("0000000100000001000000200000000000000000"),
        bytes.fromhex("0800450000300000"),
        b"hello, world",
    ]
    reth = bytes(8) + b"\0\0\1\0" + (256).to_bytes(4)
    for psn, payload in enumerate(payloads):
        stage.carry(packet(0x04, 2 * psn, payload))
        stage.carry(packet(0x0A, 2 * psn + 1, reth + payload))
    for frame in (SEND, WRITE, ACK, READ_IPV6, CNP):
        stage.carry(frame)
    stage.capture.close()
    shown = run_tshark(stage.path, "-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed")
    assert len(shown) == 2 * (2 * len(payloads) + 5)
    stacks = {line.split("\t")[0] for line in shown}
    assert all(stack.removesuffix(":data").endswith("udp:infiniband") for stack in stacks), stacks
    assert all(line.endswith("\t") for line in shown)


def test_a_line_says_where_a_frame_was_seen_and_its_psn(tmp_path: Path) -> None:
    require_scripts()
    stage = Stage(tmp_path / "a.pcapng")
    stage.emit(Kind.DOORBELL, qpn=0x11, index=0)
    stage.carry(WRITE)
    stage.capture.close()
    shown = [line.split() for line in run_tshark(stage.path)]
    assert shown[0][2:4] == ["events", "VRNIC"]
    assert shown[0][4:] == describe(Event(Kind.DOORBELL, 0, "node0.nic0", qpn=0x11, index=0)).split()
    assert shown[1][2:6] == ["node0.nic0", "Outbound", "RRoCE", "259"]
    assert shown[2][2:6] == ["node1.nic0", "Inbound", "RRoCE", "259"]


def test_the_command_line_is_one_a_shell_takes(tmp_path: Path) -> None:
    words = shlex.split(tshark_command(tmp_path / "my file.pcapng", ("env", "A=b", "tshark")))
    assert words[:5] == ["env", "A=b", "tshark", "-r", str(tmp_path / "my file.pcapng")]
    assert f"lua_script:{generate.LUA_SCRIPT}" in words
