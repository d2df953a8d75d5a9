# SPDX-License-Identifier: Apache-2.0
"""What the parser lets through, and what it refuses and why."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from emu.nic.drops import DropReason
from emu.nic.engine import Drop
from emu.roce import RocePacket, parse
from emu.wire import roce
from emu.wire.headers import RETH
from tests.wire.vectors import FRAMES

_LAYERS = {4: IP(src="10.0.0.1", dst="10.0.0.2", flags="DF"), 6: IPv6(src="fe80::1", dst="fe80::2")}


def _build(ip: int = 4, udp: Packet | None = None, **bth: Any) -> Packet:
    fields: dict[str, Any] = {"opcode": 0x04, "dqpn": 0x12, "psn": 7, **bth}
    return (
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / _LAYERS[ip].copy()
        / (udp if udp is not None else UDP(sport=0xC000))
        / roce.BTH(**fields)
        / Raw(b"hello")
    )


def _accept(frame: bytes) -> RocePacket:
    packet = parse(frame)
    assert isinstance(packet, RocePacket), packet
    return packet


def _refuse(frame: bytes) -> Drop:
    drop = parse(frame)
    assert isinstance(drop, Drop), drop
    return drop


@pytest.mark.parametrize("name", FRAMES)
def test_golden_frames_are_accepted(name: str) -> None:
    expected = Ether(FRAMES[name])
    packet = _accept(FRAMES[name])
    assert packet.opcode == expected[roce.BTH].opcode
    assert packet.dest_qpn == expected[roce.BTH].dqpn
    assert packet.psn == expected[roce.BTH].psn
    assert packet.ack_request == bool(expected[roce.BTH].ackreq)


def test_fields_of_a_write() -> None:
    packet = _accept(FRAMES["T2"])
    assert packet.source_ip == bytes([192, 0, 2, 1])
    assert packet.dest_ip == bytes([192, 0, 2, 2])
    assert packet.ecn == 2
    assert RETH.unpack_from(packet.frame, packet.extension) == (0x7F0012345000, 0x00010203, 16)
    assert bytes(packet.payload) == bytes(range(16))
    assert (packet.pkey, packet.pad_count, packet.solicited) == (0xFFFF, 0, False)
    assert "RC WRITE ONLY" in repr(packet)


def test_fields_of_an_ipv6_packet() -> None:
    packet = _accept(FRAMES["T4"])
    assert packet.source_ip == bytes.fromhex("20010db8000000000000000000000001")
    assert (packet.ecn, packet.payload_length) == (2, 0)


def test_pad_is_no_payload() -> None:
    packet = _accept(FRAMES["T1"])
    assert (bytes(packet.payload), packet.payload_length, packet.pad_count) == (b"hello", 5, 3)


def test_ethernet_padding_is_ignored() -> None:
    assert bytes(_accept(FRAMES["T1"] + b"\xaa" * 9).payload) == b"hello"


def test_a_tagged_frame_is_accepted() -> None:
    tagged = FRAMES["T1"][:12] + b"\x81\x00\x60\x05" + FRAMES["T1"][12:]
    assert Ether(tagged)[Dot1Q].vlan == 5
    assert bytes(_accept(tagged).payload) == b"hello"


@pytest.mark.parametrize("version", [4, 6])
def test_a_right_udp_checksum_is_accepted_and_a_wrong_one_not(version: int) -> None:
    # The ICRC does not depend on the UDP checksum, so a finished datagram can be wrapped again with one.
    finished = bytes(_build(version))[14 + len(_LAYERS[version]) + 8 :]
    datagram = UDP(sport=0xC000, dport=4791, chksum=None) / Raw(finished)
    whole = bytes(
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / _LAYERS[version].copy() / datagram
    )
    at = 14 + len(_LAYERS[version]) + 6
    assert whole[at : at + 2] != b"\0\0"
    assert bytes(_accept(whole).payload) == b"hello"
    wrong = bytearray(whole)
    wrong[at] ^= 1
    assert "UDP checksum" in _refuse(bytes(wrong)).reason


@pytest.mark.parametrize(("version", "offset"), [(4, 1), (4, 8), (6, 1), (6, 3), (6, 7)])
def test_fields_changed_on_the_way_do_no_harm(version: int, offset: int) -> None:
    frame = bytearray(bytes(_build(version)))
    frame[14 + offset] ^= 0x15
    if version == 4:
        words = struct.unpack(">10H", bytes(frame[14:24]) + b"\0\0" + bytes(frame[26:34]))
        total = sum(words)
        total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = (~total & 0xFFFF).to_bytes(2, "big")
    assert _accept(bytes(frame)).psn == 7


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "neither IPv4 nor IPv6"),
        (bytes(60), "neither IPv4 nor IPv6"),
        (
            bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=53) / Raw(bytes(40))),
            "not UDP port",
        ),
        (bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2", proto=6) / Raw(bytes(40))), "not UDP port"),
        (bytes(Ether(type=0x0800) / Raw(b"\x45\0")), "too short for IP"),
        (FRAMES["T1"][:40], "too short for IP"),
        (FRAMES["T1"][:-1], "past the frame"),
        (FRAMES["T1"][:14] + b"\x65" + FRAMES["T1"][15:], "wrong version"),
        (FRAMES["T4"][:14] + b"\x45" + FRAMES["T4"][15:], "wrong version"),
        (FRAMES["T1"][:24] + b"\0\0" + FRAMES["T1"][26:], "header checksum"),
    ],
)
def test_what_is_no_roce_packet_is_refused(frame: bytes, words: str) -> None:
    assert words in _refuse(frame).reason


def _with(**network: object) -> bytes:
    packet = _build()
    for name, value in network.items():
        setattr(packet[IP], name, value)
    return bytes(packet)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (_with(flags="MF"), "fragment"),
        (_with(frag=3), "fragment"),
        (bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2", ihl=6) / Raw(bytes(60))), "options"),
        (bytes(_build(udp=UDP(sport=1, len=11))), "too short for BTH"),
        (bytes(_build(udp=UDP(sport=1, len=2000))), "exceeds the IP packet"),
    ],
)
def test_fragments_options_and_bad_lengths_are_refused(frame: bytes, words: str) -> None:
    assert words in _refuse(frame).reason


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"version": 1}, "transport version 1"), ({"dqpn": 0}, "destination QP 0")],
)
def test_bth_fields_that_no_queue_pair_may_see(fields: dict[str, Any], words: str) -> None:
    assert words in _refuse(bytes(_build(**fields))).reason


@pytest.mark.parametrize("opcode", [0x0A, 0x13, 0x12, 0x65])
def test_a_packet_too_short_for_its_opcode_is_refused(opcode: int) -> None:
    drop = _refuse(bytes(_build(opcode=opcode)))
    assert "is too short for" in drop.reason
    assert drop.counter == DropReason.LENGTH


def test_pad_longer_than_the_payload_is_refused() -> None:
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / _LAYERS[4].copy() / UDP(sport=1)
    frame /= roce.BTH(opcode=0x04, dqpn=1, padcount=3, pad=b"")
    assert "too short" in _refuse(bytes(frame)).reason


def test_a_reserved_opcode_is_left_to_the_engine() -> None:
    packet = _accept(bytes(_build(opcode=0x15)))
    assert packet.info is None
    assert "0x15" in repr(packet)


@pytest.mark.parametrize("offset", [18, 35, 50, 54, 56, -1])
def test_one_wrong_bit_is_an_icrc_error(offset: int) -> None:
    frame = bytearray(bytes(_build(ackreq=1)))
    frame[offset] ^= 4
    if offset == 18:
        # The IPv4 header checksum would catch it first.
        frame[24:26] = struct.pack(">H", struct.unpack(">H", frame[24:26])[0] - 0x0400 & 0xFFFF)
    assert _refuse(bytes(frame)).counter == "rx_icrc_encapsulated"


def test_swapped_icrc_bytes_are_an_icrc_error() -> None:
    frame = bytes(_build())
    assert _refuse(frame[:-4] + frame[:-5:-1]).counter == "rx_icrc_encapsulated"


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_without_an_exception(octets: bytes) -> None:
    assert isinstance(parse(octets), Drop)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(FRAMES)),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=6),
    st.integers(0, 120),
)
def test_damaged_frames_are_parsed_without_an_exception(
    name: str, changes: list[tuple[int, int]], length: int
) -> None:
    frame = bytearray(FRAMES[name])
    for position, value in changes:
        frame[position % len(frame)] = value
    assert isinstance(parse(bytes(frame)), RocePacket | Drop)
    assert isinstance(parse(bytes(frame[:length])), RocePacket | Drop)
