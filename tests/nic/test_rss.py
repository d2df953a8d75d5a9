# SPDX-License-Identifier: Apache-2.0
"""Hashes of flows, against the published examples of Toeplitz hashing with its usual key."""

from __future__ import annotations

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether

from emu.nic.frame import NO_HASH, FlowHash
from emu.nic.rss import HashField, HashFunction, RssHash

KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
ADDRESSES = HashField.SOURCE | HashField.DESTINATION
PORTS = HashField.SOURCE_PORT | HashField.DESTINATION_PORT
V4 = IP(src="66.9.149.187", dst="161.142.100.80")
V6 = IPv6(src="3ffe:2501:200:1fff::7", dst="3ffe:2501:200:3::1")
TOEPLITZ = RssHash(HashFunction.TOEPLITZ, KEY, ADDRESSES | PORTS)


@pytest.mark.parametrize(
    ("packet", "alone", "with_ports"),
    [
        (V4 / TCP(sport=2794, dport=1766), 0x323E8FC2, 0x51CCC178),
        (IP(src="199.92.111.2", dst="65.69.140.83") / TCP(sport=14230, dport=4739), 0xD718262A, 0xC626B0EA),
        (V6 / UDP(sport=2794, dport=1766), 0x2CC18CD5, 0x40207D3D),
    ],
)
def test_the_published_examples(packet: IP, alone: int, with_ports: int) -> None:
    frame = bytes(Ether() / packet)
    version, protocol = packet.version, 17 if UDP in packet else 6
    assert TOEPLITZ.of(frame) == FlowHash(with_ports, version, protocol)
    assert RssHash(HashFunction.TOEPLITZ, KEY, ADDRESSES).of(frame) == FlowHash(alone, version)


@pytest.mark.parametrize("function", [HashFunction.TOEPLITZ, HashFunction.XOR8])
def test_a_symmetric_hash_is_that_of_the_other_direction(function: HashFunction) -> None:
    there = bytes(Ether() / V4 / TCP(sport=2794, dport=1766))
    back = bytes(Ether() / IP(src=V4.dst, dst=V4.src) / TCP(sport=1766, dport=2794))
    symmetric = RssHash(function, KEY, ADDRESSES | PORTS, symmetric=True)
    assert symmetric.of(there) == symmetric.of(back)
    other = bytes(Ether() / V4 / TCP(sport=2795, dport=1766))
    assert symmetric.of(there) != symmetric.of(other)
    assert TOEPLITZ.of(there) != TOEPLITZ.of(back)


def test_what_has_no_ports_is_hashed_without() -> None:
    assert TOEPLITZ.of(bytes(Ether() / V4 / ICMP())) == FlowHash(0x323E8FC2, 4)
    fragment = IP(src=V4.src, dst=V4.dst, flags="MF") / TCP(sport=2794, dport=1766)
    assert TOEPLITZ.of(bytes(Ether() / fragment)) == FlowHash(0x323E8FC2, 4)


def test_one_field_of_a_pair_may_be_chosen() -> None:
    frame = bytes(Ether() / V4 / TCP(sport=2794, dport=1766))
    other = bytes(Ether() / IP(src=V4.src, dst="1.2.3.4") / TCP(sport=1, dport=1766))
    chosen = RssHash(
        HashFunction.TOEPLITZ, KEY, HashField.SOURCE | HashField.DESTINATION_PORT, symmetric=True
    )
    assert chosen.of(frame) == chosen.of(other)
    assert chosen.of(frame).value


def test_no_function_no_fields_and_no_flow() -> None:
    frame = bytes(Ether() / V4 / TCP())
    assert RssHash().of(frame) == NO_HASH
    assert RssHash(HashFunction.TOEPLITZ, KEY).of(frame) == NO_HASH
    assert TOEPLITZ.of(bytes(Ether() / ARP())) == NO_HASH
