# SPDX-License-Identifier: Apache-2.0
"""The summary counts what went over the wire, flow by flow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.capture.pcapng import LinkType, PcapngError
from emu.capture.roce_frame import RoceFrame, syndrome_name
from emu.capture.summary import Flow, PsnRange, summarize
from emu.capture.writer import PcapngWriter
from emu.events import Kind
from tests.capture.sample import ACK, CNP, READ_IPV6, SEND, WRITE, Stage, packet

SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST = 0x04, 0x06, 0x07, 0x08
READ_FIRST, READ_LAST, ACKNOWLEDGE = 0x0D, 0x0F, 0x11
RETH = bytes(8) + b"\0\0\1\0" + (3000).to_bytes(4)


def answer(opcode: int, psn: int, body: bytes) -> bytes:
    return packet(opcode, psn, body, qpn=0x11, source=2, destination=1)


def flow(stage: Stage, qpn: int) -> Flow:
    stage.capture.close()
    (found,) = [f for f in summarize(stage.path).flows if f.dest_qpn == qpn]
    return found


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (SEND, ("192.0.2.1", "192.0.2.2", "RC SEND ONLY", 0x12, 0x102, 5, None, None)),
        (WRITE, ("192.0.2.1", "192.0.2.2", "RC WRITE ONLY", 0x12, 0x103, 16, 16, None)),
        (ACK, ("192.0.2.2", "192.0.2.1", "RC ACKNOWLEDGE", 0x11, 0x103, 0, None, 0x1F)),
        (READ_IPV6, ("2001:db8::1", "2001:db8::2", "RC READ REQUEST", 0x12, 0x104, 0, 4096, None)),
        (CNP, ("10.0.17.1", "10.0.18.1", "CNP", 0x118, 0, 16, None, None)),
    ],
)
def test_reference_frames_are_understood(frame: bytes, expected: tuple[object, ...]) -> None:
    for seen in (frame, frame + bytes(6), frame[:12] + b"\x81\x00\x00\x07" + frame[12:]):
        p = RoceFrame.parse(seen)
        assert p is not None
        fields = (p.source, p.destination, p.name, p.dest_qpn, p.psn, p.payload, p.message, p.syndrome)
        assert fields == expected
        assert p.icrc_ok


@pytest.mark.parametrize("frame", [SEND, WRITE, ACK, READ_IPV6])
def test_any_flipped_byte_of_the_transport_spoils_the_icrc(frame: bytes) -> None:
    start = 42 if frame[12] == 8 else 62
    # Byte 4 of the BTH may change on the way and is not covered.
    for at in [i for i in range(start, len(frame)) if i != start + 4]:
        p = RoceFrame.parse(frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :])
        assert p is not None and not p.icrc_ok


@given(st.sampled_from([SEND, WRITE, ACK, READ_IPV6, CNP, b""]), st.integers(0, 110), st.binary(max_size=30))
def test_garbage_frames_never_raise(frame: bytes, at: int, junk: bytes) -> None:
    for data in (frame[:at], frame[:at] + junk, frame[:at] + junk + frame[at + len(junk) :]):
        p = RoceFrame.parse(data)
        assert p is None or p.describe()


@pytest.mark.parametrize(
    ("syndrome", "name"),
    [
        (0x00, "ACK"),
        (0x1F, "ACK"),
        (0x2E, "RNR NAK"),
        (0x60, "NAK PSN sequence error"),
        (0x63, "NAK remote operational error"),
        (0x45, "reserved syndrome 0x45"),
    ],
)
def test_syndromes_have_names(syndrome: int, name: str) -> None:
    assert syndrome_name(syndrome) == name


def test_a_clean_exchange(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.emit(Kind.DOORBELL, qpn=0x11, index=0)
    stage.carry(packet(WRITE_FIRST, 10, RETH + bytes(1024)))
    stage.carry(packet(WRITE_MIDDLE, 11, bytes(1024)))
    stage.carry(packet(WRITE_LAST, 12, bytes(952)))
    stage.carry(answer(ACKNOWLEDGE, 12, b"\x1f\0\0\1"), "node1.nic0", "node0.nic0")
    stage.emit(Kind.CQE, qpn=0x11, index=0)
    stage.emit(Kind.CQE, "node1.nic0", qpn=0x12, index=0)
    stage.capture.close()
    found = summarize(stage.path)
    forth, back = found.flows
    assert (forth.sender, forth.receiver, forth.dest_qpn) == ("node0.nic0", "node1.nic0", 0x12)
    assert (forth.source, forth.destination) == ("192.0.2.1", "192.0.2.2")
    assert forth.sent.opcodes == {"RC WRITE FIRST": 1, "RC WRITE MIDDLE": 1, "RC WRITE LAST": 1}
    assert (forth.sent.packets, forth.sent.payload, forth.received.payload) == (3, 3000, 3000)
    assert (forth.sent.requests.first, forth.sent.requests.last) == (10, 12)
    assert (forth.lost, forth.retransmitted, found.bad_icrc, found.retransmitted) == (0, 0, 0, 0)
    assert back.sent.acknowledgements == {"ACK": 1} and back.sent.naks == 0
    assert (forth.sent.last_time - forth.sent.first_time, found.duration) == (4_000, 10_000)
    assert found.events == {"node0.nic0": {"DOORBELL": 1, "CQE": 1}, "node1.nic0": {"CQE": 1}}
    assert found.interfaces == {"events": 3, "node0.nic0": 4, "node1.nic0": 4}
    assert found.application.startswith("vrnic ") and found.damage == ""


def test_the_sender_s_queue_pairs_are_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    for qpn in (0x11, 0x11, 0x13):
        stage.emit(Kind.FRAME_OUT, frame=SEND, qpn=qpn)
    assert flow(stage, 0x12).source_qpns == [0x11, 0x13]


def test_loss_nak_and_retransmission_show(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(packet(WRITE_FIRST, 10, RETH + bytes(1024)))
    stage.carry(packet(WRITE_MIDDLE, 11, bytes(1024)), lost=True)
    stage.carry(packet(WRITE_LAST, 12, bytes(952)))
    stage.carry(answer(ACKNOWLEDGE, 11, b"\x60\0\0\0"), "node1.nic0", "node0.nic0")
    stage.carry(packet(WRITE_MIDDLE, 11, bytes(1024)))
    stage.carry(packet(WRITE_LAST, 12, bytes(952)))
    stage.capture.close()
    found = summarize(stage.path)
    forth, back = found.flows
    assert (forth.sent.packets, forth.received.packets, forth.lost) == (5, 4, 1)
    assert forth.retransmitted == found.retransmitted == 2
    assert forth.received.requests.repeated == 2
    assert back.sent.acknowledgements == {"NAK PSN sequence error": 1} and back.sent.naks == 1
    assert found.events["node0.nic0"]["FRAME_DROP"] == 1


def test_repeated_acknowledgements_are_not_retransmissions(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    for _ in range(3):
        stage.carry(answer(ACKNOWLEDGE, 5, b"\x1f\0\0\1"), "node1.nic0", "node0.nic0")
    found = flow(stage, 0x11)
    assert (found.retransmitted, found.sent.responses.repeated, found.sent.responses.first) == (0, 0, None)


def test_read_responses_have_their_own_sequence(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    for opcode, psn in ((READ_FIRST, 7), (READ_LAST, 8), (READ_LAST, 8)):
        stage.carry(answer(opcode, psn, b"\x1f\0\0\1" + bytes(64)), "node1.nic0", "node0.nic0")
    stage.carry(answer(SEND_ONLY, 900, bytes(8)), "node1.nic0", "node0.nic0")
    found = flow(stage, 0x11)
    assert (found.sent.responses.first, found.sent.responses.last, found.sent.responses.repeated) == (7, 8, 1)
    assert (found.sent.requests.first, found.sent.requests.repeated, found.retransmitted) == (900, 0, 0)


def test_a_reused_queue_pair_starts_a_new_sequence(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(packet(SEND_ONLY, 500))
    stage.emit(Kind.STATE, "node1.nic0", qpn=0x12, value=1)
    stage.carry(packet(SEND_ONLY, 400))
    stage.emit(Kind.STATE, "node0.nic0", qpn=0x12, value=1)
    stage.carry(packet(SEND_ONLY, 300))
    assert flow(stage, 0x12).retransmitted == 1


def test_a_bad_icrc_counts_and_its_headers_do_not(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(SEND)
    stage.carry(SEND[:-1] + b"\0")
    found = flow(stage, 0x12)
    assert (found.sent.packets, found.sent.bad_icrc, found.sent.payload) == (2, 1, 5)
    assert found.sent.opcodes == {"RC SEND ONLY": 1}
    assert summarize(stage.path).bad_icrc == 1


def test_other_frames_and_bad_records_are_counted(tmp_path: Path) -> None:
    with PcapngWriter(tmp_path / "a.pcapng", application="t") as writer:
        events = writer.add_interface(LinkType.USER0, "events")
        port = writer.add_interface(LinkType.ETHERNET, "eth0")
        writer.add_packet(events, 1, b"not a record")
        writer.add_packet(port, 2, b"\xff" * 60)
        writer.add_packet(port, 3, SEND)
    found = summarize(tmp_path / "a.pcapng")
    assert (found.bad_records, found.other_frames, len(found.flows)) == (1, 1, 1)
    assert found.flows[0].sent.packets == 1
    assert found.flows[0].lost == 0


def test_a_cut_file_is_summarized_up_to_the_cut(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(SEND)
    stage.carry(WRITE)
    stage.capture.flush()
    stage.path.write_bytes(stage.path.read_bytes()[:-10])
    found = summarize(stage.path)
    assert found.flows[0].sent.packets == 2
    assert found.flows[0].received.packets == 1
    assert "the file ends inside the block" in found.damage


def test_the_summary_is_plain_data(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "a.pcapng")
    stage.carry(SEND)
    stage.emit(Kind.DOORBELL)
    stage.capture.close()
    data = json.loads(json.dumps(summarize(stage.path).to_json()))
    assert data["flows"][0]["sent"]["opcodes"] == {"RC SEND ONLY": 1}
    assert data["flows"][0]["sent"]["request_psn"] == [0x102, 0x102]
    assert data["events"] == {"node0.nic0": {"DOORBELL": 1}}


def test_files_that_are_no_captures_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(PcapngError):
        summarize(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError):
        summarize(tmp_path / "none")


@given(st.integers(0, 0xFFFFFF), st.lists(st.integers(1, 1000), max_size=50))
def test_psns_that_only_grow_are_never_repetitions(start: int, steps: list[int]) -> None:
    seen = PsnRange()
    psn = start
    assert not seen.add(psn)
    for step in steps:
        psn = (psn + step) & 0xFFFFFF
        assert not seen.add(psn)
    assert (seen.first, seen.last, seen.repeated) == (start, psn, 0)
    assert seen.add(psn)
