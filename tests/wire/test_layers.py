# SPDX-License-Identifier: Apache-2.0
"""The scapy layers build and take apart RoCEv2 as the golden frames have it."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.main import load_contrib
from scapy.packet import Packet, Raw

from emu.wire import roce
from emu.wire.opcodes import BY_OPCODE, RcOpcode, UdOpcode
from tests.wire.icrc_reference import frame_icrc_ok
from tests.wire.vectors import FRAMES

_A, _B = "02:00:00:00:00:01", "02:00:00:00:00:02"


def _ipv4(there: bool, tos: int = 0, ident: int = 0x1234, ttl: int = 64) -> Packet:
    ether = Ether(src=_A, dst=_B) if there else Ether(src=_B, dst=_A)
    source, dest = ("192.0.2.1", "192.0.2.2") if there else ("192.0.2.2", "192.0.2.1")
    port = 0xC011 if there else 0xC012
    return ether / IP(src=source, dst=dest, tos=tos, id=ident, flags="DF", ttl=ttl) / UDP(sport=port)


BUILT = {
    "T1": _ipv4(True, tos=2) / roce.BTH(opcode=0x04, dqpn=0x12, ackreq=1, psn=0x102) / b"hello",
    "T2": _ipv4(True, tos=2, ident=0x1235)
    / roce.BTH(migreq=1, dqpn=0x12, ackreq=1, psn=0x103)
    / roce.RETH(va=0x7F0012345000, rkey=0x00010203, dmalen=16)
    / bytes(range(16)),
    "T3": _ipv4(False, tos=2, ident=1) / roce.BTH(dqpn=0x11, psn=0x103) / roce.AETH(syndrome=0x1F, msn=2),
    "T4": Ether(src=_A, dst=_B)
    / IPv6(src="2001:db8::1", dst="2001:db8::2", tc=2, fl=0x12345)
    / UDP(sport=0xC011)
    / roce.BTH(opcode=RcOpcode.READ_REQUEST, dqpn=0x12, ackreq=1, psn=0x104)
    / roce.RETH(va=0x7F0012345000, rkey=0x00010203, dmalen=4096),
    "T5": Ether(src="7c:fe:90:64:3b:32", dst="e4:1d:2d:ab:2b:c2")
    / IP(src="10.0.17.1", dst="10.0.18.1", tos=0xC2, id=0x718C, flags="DF")
    / UDP(sport=0)
    / roce.cnp(0x118),
    "T6": _ipv4(False, tos=2, ident=2) / roce.BTH(dqpn=0x11, psn=0x104) / roce.AETH(syndrome=0x60, msn=2),
    "T7": _ipv4(True, ident=0x1236)
    / roce.BTH(opcode=UdOpcode.SEND_ONLY, dqpn=0x13, psn=7)
    / roce.DETH(qkey=0x11111111, sqpn=0x11)
    / b"ping",
}


@pytest.mark.parametrize("name", FRAMES)
def test_building_gives_the_golden_bytes(name: str) -> None:
    assert bytes(BUILT[name]).hex() == FRAMES[name].hex()


@pytest.mark.parametrize("name", FRAMES)
def test_dissecting_and_building_again_keeps_the_bytes(name: str) -> None:
    packet = Ether(FRAMES[name])
    assert bytes(packet) == FRAMES[name]
    assert roce.icrc_ok(packet)
    del packet[roce.BTH].icrc
    del packet[roce.BTH].padcount
    assert bytes(packet) == FRAMES[name]


def test_a_corrupt_frame_dissects_and_is_told_apart() -> None:
    damaged = bytearray(FRAMES["T2"])
    damaged[-6] ^= 1
    assert not roce.icrc_ok(Ether(bytes(damaged)))
    assert not roce.icrc_ok(bytes(damaged[14:]))


_TAG = bytes.fromhex("8100a005")


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("tags", [0, 1, 2])
def test_the_icrc_is_judged_on_dissection(name: str, tags: int) -> None:
    frame = FRAMES[name][:12] + _TAG * tags + FRAMES[name][12:]
    good = Ether(frame)
    assert good[roce.BTH].icrc_right is True
    assert "wrong ICRC" not in good.summary()
    # A bit of the PSN, of the payload or a header, and of the ICRC itself; one that may change on the way.
    bth = len(frame) - len(bytes(good[UDP].payload))
    for at, right in ((bth + 11, False), (len(frame) - 5, False), (len(frame) - 1, False), (bth + 4, True)):
        changed = bytearray(frame)
        changed[at] ^= 0x40
        judged = Ether(bytes(changed))
        assert judged[roce.BTH].icrc_right is right
        assert ("wrong ICRC" in judged.summary()) is not right
    assert Ether(frame + bytes(8))[roce.BTH].icrc_right is True, "padding is no part of it"


def test_what_was_built_or_lies_on_nothing_is_not_judged() -> None:
    assert BUILT["T1"][roce.BTH].icrc_right is None
    assert roce.BTH(bytes(Ether(FRAMES["T1"])[roce.BTH])).icrc_right is None
    assert Ether(FRAMES["T1"][:44])[UDP].summary() != ""


def test_trailing_ethernet_padding_is_no_part_of_the_packet() -> None:
    packet = Ether(FRAMES["T1"] + bytes(6))
    assert packet[Raw].load == b"hello"
    assert roce.icrc_ok(packet)


def test_icrc_ok_refuses_other_packets() -> None:
    with pytest.raises(ValueError):
        roce.icrc_ok(Ether() / IP())


def test_pad_is_kept_apart_from_the_payload() -> None:
    packet = Ether(FRAMES["T1"])
    assert (packet[roce.BTH].padcount, packet[roce.BTH].pad, packet[Raw].load) == (3, b"\0\0\0", b"hello")


def test_an_explicit_icrc_is_kept() -> None:
    frame = bytes(_ipv4(True) / roce.BTH(opcode=0x04, icrc=0x12345678) / b"abcd")
    assert frame[-4:] == b"\x12\x34\x56\x78"


@pytest.mark.parametrize("opcode", sorted(BY_OPCODE))
def test_every_opcode_dissects_into_its_headers(opcode: int) -> None:
    layers = roce.layers_of(opcode)
    packet = _ipv4(True) / roce.BTH(opcode=opcode, dqpn=0x12, psn=5)
    for layer in layers:
        packet /= layer()
    packet /= Raw(bytes(16))
    again = Ether(bytes(packet))
    assert frame_icrc_ok(bytes(packet))
    chain = again[roce.BTH].payload.layers()
    assert chain == [*layers, Raw]
    assert again[Raw].load == bytes(16)


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x36, 0xFF])
def test_reserved_opcodes_dissect_as_raw(opcode: int) -> None:
    packet = Ether(bytes(_ipv4(True) / roce.BTH(opcode=opcode) / Raw(b"abcd")))
    assert packet[Raw].load == b"abcd"
    assert f"opcode {opcode:#04x}" in packet.summary()


def test_summaries_are_readable() -> None:
    assert "RC SEND ONLY qpn=0x12 psn=258 A" in Ether(FRAMES["T1"]).summary()
    assert "RETH va=0x7f0012345000 rkey=0x10203 len=16" in Ether(FRAMES["T2"]).summary()
    assert "ACK msn=2" in Ether(FRAMES["T3"]).summary()
    assert "CNP qpn=0x118 psn=0 BECN" in Ether(FRAMES["T5"]).summary()
    assert "NAK PSN sequence error msn=2" in Ether(FRAMES["T6"]).summary()
    rnr = roce.AETH(syndrome=0x2C, msn=1).mysummary()[0]
    assert rnr == "RNR NAK timer=12 msn=1"


def _request(opcode: int, psn: int) -> Packet:
    packet = roce.BTH(opcode=opcode, psn=psn)
    for layer in roce.layers_of(opcode):
        packet /= layer(dmalen=3000) if layer is roce.RETH else layer()
    return packet


def _response(opcode: int, psn: int, syndrome: int = 0x1F) -> Packet:
    packet = roce.BTH(opcode=opcode, psn=psn)
    for layer in roce.layers_of(opcode):
        packet /= layer(syndrome=syndrome) if layer is roce.AETH else layer()
    return packet


@pytest.mark.parametrize(
    ("request_op", "response_op", "distance", "syndrome", "expected"),
    [
        (RcOpcode.SEND_ONLY, RcOpcode.ACKNOWLEDGE, 0, 0x1F, 1),
        (RcOpcode.SEND_ONLY, RcOpcode.ACKNOWLEDGE, 1, 0x1F, 0),
        (RcOpcode.SEND_ONLY, RcOpcode.ATOMIC_ACKNOWLEDGE, 0, 0x1F, 0),
        (RcOpcode.READ_REQUEST, RcOpcode.READ_RESPONSE_FIRST, 0, 0x1F, 1),
        (RcOpcode.READ_REQUEST, RcOpcode.READ_RESPONSE_LAST, 2, 0x1F, 1),
        (RcOpcode.READ_REQUEST, RcOpcode.READ_RESPONSE_LAST, 12, 0x1F, 0),
        (RcOpcode.READ_REQUEST, RcOpcode.ACKNOWLEDGE, 0, 0x1F, 0),
        (RcOpcode.READ_REQUEST, RcOpcode.ACKNOWLEDGE, 0, 0x62, 1),
        (RcOpcode.FETCH_ADD, RcOpcode.ATOMIC_ACKNOWLEDGE, 0, 0x1F, 1),
        (RcOpcode.ATOMIC_WRITE, RcOpcode.READ_RESPONSE_ONLY, 0, 0x1F, 1),
        (RcOpcode.WRITE_ONLY, RcOpcode.READ_RESPONSE_ONLY, 0, 0x1F, 0),
        (RcOpcode.ACKNOWLEDGE, RcOpcode.ACKNOWLEDGE, 0, 0x1F, 0),
        (RcOpcode.SEND_ONLY, RcOpcode.SEND_ONLY, 0, 0x1F, 0),
    ],
)
def test_answers_pairs_requests_with_their_responses(
    request_op: RcOpcode, response_op: RcOpcode, distance: int, syndrome: int, expected: int
) -> None:
    psn = 0xFFFFFF
    response = _response(response_op, (psn + distance) & 0xFFFFFF, syndrome)
    assert response.answers(_request(request_op, psn)) == expected


def test_our_binding_holds_when_scapy_loads_its_own() -> None:
    load_contrib("roce")
    assert isinstance(Ether(FRAMES["T2"])[UDP].payload, roce.BTH)
    assert Ether(FRAMES["T2"])[roce.RETH].dmalen == 16
