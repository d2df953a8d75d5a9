# SPDX-License-Identifier: Apache-2.0
"""Checksums, header parsing and large sends, against scapy as the judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from emu.nic.frame import inspect, parse_headers, segment, with_checksums

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
V4 = IP(src="10.0.0.1", dst="10.0.0.2", id=7)
V6 = IPv6(src="fe80::1", dst="fe80::2")
TRANSPORTS = [
    V4 / TCP(sport=1000, dport=2000, seq=5, flags="PA"),
    V6 / TCP(sport=1000, dport=2000, seq=5, flags="PA"),
    V4 / UDP(sport=53, dport=5353),
    V6 / UDP(sport=53, dport=5353),
]


def built(packet: Packet) -> bytes:
    return bytes(ETHERNET / packet)


def without_checksums(frame: bytes) -> bytes:
    """The frame as a driver hands it over that leaves checksums to the adapter."""
    packet = Ether(frame)
    out = bytearray(frame)
    headers = parse_headers(frame)
    if headers.version == 4:
        out[headers.l3 + 10 : headers.l3 + 12] = b"\xaa\xaa"
    at = headers.l4 + (16 if TCP in packet else 6)
    out[at : at + 2] = b"\x55\x55"
    return bytes(out)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda packet: packet.summary()[:20])
@pytest.mark.parametrize("size", [0, 1, 2, 1459])
def test_checksums_are_those_scapy_computes(transport: Packet, size: int) -> None:
    right = built(transport / Raw((bytes(range(256)) * 6)[:size]) if size else transport)
    assert with_checksums(without_checksums(right), l3=True, l4=True) == right


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda packet: packet.summary()[:20])
def test_a_frame_without_offload_is_left_alone(transport: Packet) -> None:
    frame = without_checksums(built(transport))
    assert with_checksums(frame, l3=False, l4=False) == frame


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda packet: packet.summary()[:20])
def test_good_and_bad_checksums_are_told_apart(transport: Packet) -> None:
    frame = built(transport / Raw(b"payload"))
    good = inspect(frame)
    assert (good.l3_ok, good.l4_ok) == (True, True)
    bad = inspect(frame[:-1] + bytes([frame[-1] ^ 1]))
    assert (bad.l3_ok, bad.l4_ok) == (True, False)


def test_a_wrong_ip_header_is_noticed() -> None:
    frame = bytearray(built(TRANSPORTS[0]))
    frame[14 + 8] ^= 1
    assert not inspect(bytes(frame)).l3_ok


def test_the_sum_of_a_right_packet_without_pseudo_header_is_all_ones() -> None:
    """ICMP over IPv4: both parts sum to 0xFFFF, and 0 would make Linux report a checksum failure."""
    assert inspect(built(V4 / ICMP(id=1, seq=2) / Raw(b"x" * 57))).sum == 0xFFFF


def test_padding_does_not_count() -> None:
    frame = built(TRANSPORTS[2])
    assert inspect(frame + b"\xff" * 10).sum == inspect(frame).sum


def test_what_is_not_ip_has_no_headers() -> None:
    assert parse_headers(built(ARP())).version == 0
    assert not inspect(built(ARP())).l4_ok


def test_a_tag_moves_the_headers() -> None:
    headers = parse_headers(built(Dot1Q(vlan=5) / TRANSPORTS[0]))
    assert (headers.version, headers.l3, headers.l4) == (4, 18, 38)


@given(st.binary(max_size=120))
def test_any_bytes_can_be_looked_at(frame: bytes) -> None:
    info = inspect(frame)
    assert info.length == len(frame)
    assert len(with_checksums(frame, l3=True, l4=True)) == len(frame)


@pytest.mark.parametrize("base", TRANSPORTS[:2], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("length", [1, 1448, 1449, 5000])
def test_a_large_send_is_cut_into_a_stream_of_right_frames(base: Packet, length: int) -> None:
    payload = bytes(index * 7 & 0xFF for index in range(length))
    header = built(base)
    frames = [with_checksums(frame, l3=True, l4=True) for frame in segment(header, payload, 1448)]
    assert len(frames) == -(-length // 1448)
    expected, position = b"", 5
    for number, frame in enumerate(frames):
        info = inspect(frame)
        assert info.l3_ok and info.l4_ok
        tcp = Ether(frame)[TCP]
        assert tcp.seq == position
        assert ("P" in tcp.flags) == (number == len(frames) - 1)
        part = bytes(tcp.payload)
        expected, position = expected + part, position + len(part)
        if IP in Ether(frame):
            assert Ether(frame)[IP].id == 7 + number
    assert expected == payload


@pytest.mark.parametrize("header", [b"", built(ARP()), built(TRANSPORTS[2])], ids=["empty", "ARP", "UDP"])
def test_only_tcp_can_be_cut(header: bytes) -> None:
    with pytest.raises(ValueError, match="TCP header"):
        segment(header, b"payload", 1000)


def test_a_segment_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="segment size"):
        segment(built(TRANSPORTS[0]), b"payload", 0)
