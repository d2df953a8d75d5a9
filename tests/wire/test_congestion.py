# SPDX-License-Identifier: Apache-2.0
"""A frame that a switch marked or trimmed is what the specification of UET says is left of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from emu.wire import roce, uet
from emu.wire.congestion import mark, trim
from emu.wire.uet_profile import DEFAULT, Profile

_ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
_V4 = IP(src="10.0.0.1", dst="10.0.0.2", flags="DF", tos=2)
_V6 = IPv6(src="2001:db8::1", dst="2001:db8::2", tc=2, fl=0x12345)
_WRITE = (
    uet.Request(type="RUD_CC_REQ", psn=9, spdcid=3, dpdcid=4, ccc_id=1, credit_target=5)
    / uet.StdRequest(opcode="WRITE", request_length=500)
    / bytes(500)
)
CARRIERS = {
    "IPv4": _ETHER / _V4 / UDP(sport=0xC001),
    "IPv6": _ETHER / _V6 / UDP(sport=0xC001),
    "VLAN": _ETHER / Dot1Q(vlan=7) / _V4 / UDP(sport=0xC001),
    "two tags": _ETHER / Dot1Q(vlan=7) / Dot1Q(vlan=8) / _V6 / UDP(sport=0xC001),
    "native": _ETHER / _V4 / uet.Entropy(entropy=0xC001),
    "native IPv6": _ETHER / _V6 / uet.Entropy(entropy=0xC001),
}


def network(packet: Packet) -> Packet:
    found: Packet = packet[IP] if IP in packet else packet[IPv6]
    return found


def traffic_class(packet: Packet) -> int:
    found = network(packet)
    return int(found.tos if isinstance(found, IP) else found.tc)


def checksum_is_right(packet: Packet) -> bool:
    if IP not in packet:
        return True
    again = packet.copy()
    del again[IP].chksum
    return bytes(again) == bytes(packet)


@pytest.mark.parametrize("name", CARRIERS)
@pytest.mark.parametrize("last_hop", [False, True])
def test_trimming_keeps_the_delivery_header(name: str, last_hop: bool) -> None:
    whole = Ether(bytes(CARRIERS[name] / _WRITE))
    cut = trim(bytes(whole), last_hop)
    assert cut is not None
    packet = Ether(cut)
    assert traffic_class(packet) == (18 if last_hop else 16) << 2 | 2
    assert checksum_is_right(packet)
    found = network(packet)
    length = found.len - 20 if isinstance(found, IP) else found.plen
    assert length == DEFAULT.trim_size == len(bytes(found)) - (20 if isinstance(found, IP) else 40)
    assert packet[uet.Request].values() == whole[uet.Request].values()
    if UDP in packet:
        assert (packet[UDP].len, packet[UDP].chksum) == (whole[UDP].len, whole[UDP].chksum)
    assert packet[Ether].dst == whole[Ether].dst


def test_what_must_not_be_trimmed_is_not() -> None:
    data = CARRIERS["IPv4"] / _WRITE
    control = data.copy()
    control[IP].tos = DEFAULT.dscp_control << 2
    short = CARRIERS["IPv4"] / uet.Request() / uet.Response() / b""
    short[uet.Request].remove_payload()
    other = _ETHER / _V4 / UDP(sport=4793, dport=53) / Raw(bytes(500))
    assert [trim(bytes(packet)) for packet in (control, short, other)] == [None] * 3
    once = trim(bytes(data))
    assert once is not None
    assert trim(once) is None
    rdma = _ETHER / _V4 / UDP(sport=1) / roce.BTH(opcode=4) / bytes(500)
    assert trim(bytes(rdma)) is None


def test_sizes_and_classes_come_from_the_profile() -> None:
    cut = trim(bytes(CARRIERS["IPv4"] / _WRITE), profile=Profile(trim_size=70, dscp_trimmed=33))
    assert cut is not None
    assert len(cut) == 14 + 20 + 70
    assert traffic_class(Ether(cut)) >> 2 == 33
    assert trim(bytes(CARRIERS["IPv4"] / _WRITE), profile=Profile(dscp_data=8)) is None


@pytest.mark.parametrize("name", CARRIERS)
def test_a_mark_changes_the_ecn_field_alone(name: str) -> None:
    whole = Ether(bytes(CARRIERS[name] / _WRITE))
    octets = mark(bytes(whole))
    assert octets is not None
    packet = Ether(octets)
    assert traffic_class(packet) == 3
    assert checksum_is_right(packet)
    assert bytes(network(packet).payload) == bytes(network(whole).payload)
    assert mark(octets) == octets


def test_a_sender_without_ecn_is_not_marked() -> None:
    assert mark(bytes(_ETHER / IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB8) / UDP() / b"")) is None
    assert mark(bytes(_ETHER / IPv6(tc=0) / UDP() / b"")) is None
    assert mark(bytes(_ETHER / ARP())) is None


@given(st.binary(max_size=80), st.sampled_from([b"", b"\x08\x00", b"\x86\xdd", b"\x81\x00", b"\x08\x00\x45"]))
def test_any_bytes_are_marked_trimmed_or_left(octets: bytes, ethertype: bytes) -> None:
    frame = bytes(12) + ethertype + octets
    for changed in (mark(frame), trim(frame)):
        assert changed is None or changed[:12] == frame[:12]
