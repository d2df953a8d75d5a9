# SPDX-License-Identifier: Apache-2.0
"""What the writer writes is pcapng to us, to scapy and to tshark; what the reader reads may be anything."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import PcapNgReader

from emu.capture.pcapng import (
    Direction,
    LinkType,
    PcapngError,
    encode_interface,
    encode_options,
    encode_section,
)
from emu.capture.reader import MAX_BLOCK, PcapngReader
from emu.capture.writer import FLUSH_OCTETS, PcapngWriter
from tests.capture.sample import ACK, CNP, READ_IPV6, SEND, WRITE
from tests.capture.tshark_program import run_tshark

TIME = 1_700_000_000_123_456_789


def write_sample(path: Path, frames: list[bytes]) -> None:
    with PcapngWriter(path, application="test 1", comment="about") as writer:
        port = writer.add_interface(LinkType.ETHERNET, "node0.nic0", "a port")
        for number, frame in enumerate(frames):
            writer.add_packet(port, TIME + number, frame, Direction.OUTBOUND)


@settings(max_examples=50)
@given(
    packets=st.lists(
        st.tuples(
            st.binary(max_size=70),
            st.integers(0, 2**63),
            st.sampled_from(Direction),
            st.none() | st.integers(0, 2**32 - 1),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
        ),
        max_size=8,
    )
)
def test_packets_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, packets: list[tuple[bytes, int, Direction, int | None, str]]
) -> None:
    path = tmp_path_factory.mktemp("pcapng") / "a.pcapng"
    with PcapngWriter(path, application="test 1") as writer:
        number = writer.add_interface(LinkType.USER0, "ports", "words")
        for data, time, direction, queue, comment in packets:
            writer.add_packet(number, time, data, direction, queue, comment)
    with PcapngReader(path) as reader:
        records = list(reader)
    assert reader.damage == ""
    assert reader.application == "test 1"
    (interface,) = reader.interfaces
    assert (interface.link_type, interface.name, interface.description) == (147, "ports", "words")
    assert [(r.data, r.time, r.direction, r.queue, r.comment) for r in records] == packets
    assert [r.length for r in records] == [len(data) for data, *_ in packets]


def test_scapy_reads_frames_and_nanoseconds(tmp_path: Path) -> None:
    write_sample(tmp_path / "a.pcapng", [SEND, WRITE, ACK])
    reader = PcapNgReader(str(tmp_path / "a.pcapng"))
    packets = list(reader)
    assert [bytes(p) for p in packets] == [SEND, WRITE, ACK]
    assert [int(p.time * 1_000_000_000) for p in packets] == [TIME, TIME + 1, TIME + 2]
    assert {p.sniffed_on for p in packets} == {"node0.nic0"}


def test_tshark_reads_frames_interfaces_directions_and_nanoseconds(tmp_path: Path) -> None:
    write_sample(tmp_path / "a.pcapng", [SEND, READ_IPV6, ACK, CNP])
    lines = run_tshark(
        tmp_path / "a.pcapng",
        *(
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.interface_name",
            "-e",
            "frame.packet_flags_direction",
        ),
        *("-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn"),
        plain=True,
    )
    columns = [line.split("\t") for line in lines]
    assert [c[0] for c in columns] == [f"1700000000.1234567{last}" for last in (89, 90, 91, 92)]
    assert {c[1] for c in columns} == {"node0.nic0"}
    assert {int(c[2], 16) for c in columns} == {2}
    assert [(int(c[3]), int(c[4])) for c in columns] == [(4, 0x102), (0x0C, 0x104), (0x11, 0x103), (0x81, 0)]


def test_comments_reach_tshark(tmp_path: Path) -> None:
    with PcapngWriter(tmp_path / "a.pcapng", application="t") as writer:
        port = writer.add_interface(LinkType.ETHERNET, "p")
        writer.add_packet(port, TIME, ACK, Direction.INBOUND, comment="dropped: bad ICRC")
    assert run_tshark(tmp_path / "a.pcapng", "-T", "fields", "-e", "frame.comment", plain=True) == [
        "dropped: bad ICRC"
    ]


def test_blocks_wait_until_flushed_or_many(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, application="t") as writer:
        port = writer.add_interface(LinkType.ETHERNET, "p")
        assert path.stat().st_size == 0 and writer.pending
        writer.flush()
        header = path.stat().st_size
        assert header == writer.octets and not writer.pending
        writer.add_packet(port, TIME, ACK)
        assert path.stat().st_size == header
        for _ in range(FLUSH_OCTETS // 1000):
            writer.add_packet(port, TIME, bytes(1000))
        assert path.stat().st_size > FLUSH_OCTETS


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="needs a file"):
        PcapngWriter(fifo, application="t")
    os.close(keep)


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PcapngWriter(tmp_path / "no" / "a.pcapng", application="t")


def test_a_closed_writer_counts_and_writes_nothing(tmp_path: Path) -> None:
    writer = PcapngWriter(tmp_path / "a.pcapng", application="t")
    port = writer.add_interface(LinkType.ETHERNET, "p")
    writer.close()
    writer.close()
    size = (tmp_path / "a.pcapng").stat().st_size
    writer.add_packet(port, TIME, ACK)
    writer.flush()
    assert writer.lost == 1
    assert (tmp_path / "a.pcapng").stat().st_size == size


def test_every_truncation_reads_up_to_the_last_whole_block(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    write_sample(path, [SEND, WRITE, ACK])
    whole = path.read_bytes()
    with PcapngReader(path) as reader:
        expected = [record.data for record in reader]
    counts = set()
    for size in range(4, len(whole)):
        path.write_bytes(whole[:size])
        with PcapngReader(path) as reader:
            got = [record.data for record in reader]
        assert got == expected[: len(got)]
        counts.add((len(got), bool(reader.damage)))
    assert counts == {(0, True), (0, False), (1, True), (1, False), (2, True), (2, False)}


@pytest.mark.parametrize("data", [b"", b"abc", b"\xd4\xc3\xb2\xa1" + bytes(20)])
def test_other_files_are_refused_with_a_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(data)
    with pytest.raises(PcapngError, match="not a pcapng file"):
        PcapngReader(path)


@settings(max_examples=300)
@given(data=st.binary(max_size=200), at=st.integers(0, 400), value=st.integers(0, 255))
def test_garbage_never_raises(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.pcapng"
    write_sample(path, [SEND, ACK])
    base = bytearray(path.read_bytes())
    base[at % (len(base) - 4) + 4] = value
    for content in (bytes(base), bytes(base)[:at] + data, base[:28] + data, b"\x0a\x0d\x0d\x0a" + data):
        path.write_bytes(content)
        try:
            with PcapngReader(path) as reader:
                for record in reader:
                    assert len(record.data) <= len(content)
        except PcapngError as error:
            assert "not a pcapng file" in str(error)


def damaged(tmp_path: Path, *blocks: bytes) -> str:
    path = tmp_path / "a.pcapng"
    path.write_bytes(encode_section("t") + b"".join(blocks))
    with PcapngReader(path) as reader:
        assert list(reader) == []
    return reader.damage


def block(kind: int, body: bytes) -> bytes:
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (struct.pack("<III", 6, 13, 0), "impossible block length 13"),
        (struct.pack("<II", 6, MAX_BLOCK + 4) + bytes(8), "impossible block length"),
        (struct.pack("<III", 99, 12, 16), "differ (12 and 16)"),
        (block(6, bytes(20)), "interface 0, which is not described"),
        (
            encode_interface(LinkType.ETHERNET, "p") + block(6, struct.pack("<5I", 0, 0, 0, 99, 99)),
            "longer than its block",
        ),
        (block(1, bytes(8) + struct.pack("<HH", 2, 40)), "an option is longer"),
        (block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 7, 0, -1)), "version 7"),
        (block(0x0A0D0D0A, bytes(16)), "byte-order magic"),
        (block(3, bytes(8)), "before any interface"),
        (block(1, b""), "byte 40: too short for its type"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, bad: bytes, reason: str) -> None:
    damage = damaged(tmp_path, bad)
    assert damage.startswith("block at byte ")
    assert reason in damage


def test_unknown_blocks_are_passed_over(tmp_path: Path) -> None:
    assert damaged(tmp_path, block(0x0BAD, b"abcd"), block(5, bytes(12))) == ""


def test_big_endian_files_and_coarse_clocks_are_read(tmp_path: Path) -> None:
    def big(kind: int, body: bytes) -> bytes:
        return struct.pack(">II", kind, len(body) + 12) + body + struct.pack(">I", len(body) + 12)

    path = tmp_path / "a.pcapng"
    name = struct.pack(">HH4sHH", 2, 3, b"eth\0", 0, 0)
    binary = struct.pack(">HHB3xHH", 9, 1, 0x80 | 10, 0, 0)
    path.write_bytes(
        big(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
        + big(1, struct.pack(">HHI", 1, 0, 0) + name)
        + big(1, struct.pack(">HHI", 1, 0, 0) + binary)
        + big(6, struct.pack(">5I", 0, 0, 3_000_000, 4, 60) + b"abcd")
        + big(6, struct.pack(">5I", 1, 0, 2048, 4, 60) + b"efgh")
    )
    with PcapngReader(path) as reader:
        first, second = reader
    assert (first.interface.name, first.time, first.data, first.length) == ("eth", 3_000_000_000, b"abcd", 60)
    assert second.time == 2_000_000_000


def test_option_values_are_padded_and_cut(tmp_path: Path) -> None:
    assert encode_options([]) == b""
    assert encode_options([(1, b"abcde")]) == b"\x01\x00\x05\x00abcde\0\0\0" + bytes(4)
    assert len(encode_options([(1, bytes(70_000))])) == 4 + 65536 + 4


def test_a_file_that_another_writer_has_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shared.pcapng"
    with PcapngWriter(path, application="first") as first:
        first.flush()
        before = path.read_bytes()
        with pytest.raises(OSError, match="another lab is writing this capture") as caught:
            PcapngWriter(path, application="second")
        assert caught.value.filename == str(path)
        assert path.read_bytes() == before
    with PcapngWriter(path, application="third") as third:
        third.flush()
    assert b"third" in path.read_bytes() and b"first" not in path.read_bytes()
