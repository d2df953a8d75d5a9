# SPDX-License-Identifier: Apache-2.0
"""The scapy layers build and take apart UET as the worked examples have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw

from emu.wire import uet
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from emu.wire.uet_trailer import packet_crc_ok
from tests.wire.uet_vectors import FRAMES, HEADERS

_A, _B = "02:00:00:00:00:01", "02:00:00:00:00:02"
KEY = 0x1122334455667788
JOB: dict[str, Any] = {"job_id": 0xABCD, "pid_on_fep": 5, "resource_index": 10, "rel": 1}
THERE: dict[str, Any] = {"spdcid": 0x1234, "dpdcid": 0x4321}
BACK: dict[str, Any] = {"spdcid": 0x4321, "dpdcid": 0x1234}


@pytest.fixture
def with_crc() -> Iterator[None]:
    uet.use(Profile(trailer=Trailer.CRC))
    yield
    uet.use(DEFAULT)


def ipv4(there: bool, port: int | None, tos: int) -> Packet:
    ether = Ether(src=_A, dst=_B) if there else Ether(src=_B, dst=_A)
    source, dest = ("10.0.0.1", "10.0.0.2") if there else ("10.0.0.2", "10.0.0.1")
    network = ether / IP(src=source, dst=dest, tos=tos, id=0, flags="DF")
    return network / (UDP(sport=port) if port is not None else uet.Entropy(entropy=0xC001))


def first_write() -> Packet:
    return (
        uet.Request(type="RUD_REQ", syn=1, ar=1, clear_psn_offset=-1, psn=0x10000, spdcid=0x1234)
        / uet.StdRequest(
            opcode="WRITE",
            message_id=1,
            buffer_offset=0x1000,
            initiator=7,
            memory_key=KEY,
            request_length=16,
            **JOB,
        )
        / bytes(range(16))
    )


def acknowledgement(**fields: Any) -> Packet:
    return uet.Ack(**(BACK | fields))


BUILT = {
    "E1": ipv4(True, 0xC001, 2) / first_write(),
    "E1N": ipv4(True, None, 2) / first_write(),
    "E2": ipv4(False, 0xC001, 0xB8)
    / acknowledgement(cack_psn=0x10000)
    / uet.Response(message_id=1, job_id=0xABCD, modified_length=16),
    "E3": ipv4(False, 0xC008, 0xB8)
    / acknowledgement(
        type="ACK_CC",
        m=1,
        ack_psn_offset=6,
        cack_psn=0x10001,
        sack_psn_offset=1,
        sack_bitmap=0x26,
        service_time=5,
        rcvd_bytes=0x13,
        ooo_count=3,
    )
    / uet.Response(opcode="DEFAULT_RESPONSE", return_code="NULL", job_id=0xABCD),
    "E4": ipv4(False, 0xC003, 0xB8) / uet.Nack(nack_code="TRIMMED", nack_psn=0x10002, **BACK),
    "E5": ipv4(False, 0xD0D0, 0xB8)
    / uet.Nack(nack_code="ROD_OOO", nack_psn=0x20007, spdcid=0x42, dpdcid=0x21, nack_payload=0x20006),
    "E6": ipv4(True, 0xD0D0, 2)
    / uet.Request(type="ROD_REQ", ar=1, clear_psn_offset=-2, psn=0x20005, spdcid=0x21, dpdcid=0x42)
    / uet.StdRequest(
        opcode="SEND",
        hd=1,
        message_id=0x102,
        initiator=7,
        header_data=0xDEADBEEF00C0FFEE,
        request_length=8,
        **JOB,
    )
    / b"UET-ROD!",
    "E7": ipv4(True, 0xC009, 0xB8) / uet.Control(ctl_type="CLOSE_CMD", ar=1, psn=0x10008, **THERE),
    "E8": ipv4(False, 0xC009, 0xB8) / acknowledgement(cack_psn=0x10008) / Padding(bytes(2)),
}

SHORT = {
    "U1": uet.Request(ar=1, psn=0x10010, **THERE, type="RUD_CC_REQ", ccc_id=3, credit_target=0x100)
    / uet.SmallRequest(opcode="WRITE", request_length=4, buffer_offset=0x2000, **JOB)
    / bytes.fromhex("aabbccdd"),
    "U2": uet.Request(ar=1, clear_psn_offset=-1, psn=0x10011, **THERE)
    / uet.MediumRequest(
        opcode="TAGGED_SEND",
        hd=1,
        request_length=4,
        header_data=0x0123456789ABCDEF,
        initiator=7,
        memory_key=0xCAFE0001,
        **JOB,
    )
    / bytes.fromhex("01020304"),
    "U3": uet.Request(clear_psn_offset=-3, psn=0x10012, **THERE)
    / uet.StdRequest(
        opcode="WRITE",
        som=0,
        eom=0,
        message_id=5,
        buffer_offset=0x1000,
        initiator=7,
        memory_key=KEY,
        payload_length=1024,
        message_offset=2048,
        request_length=8192,
        **JOB,
    ),
    "U4": uet.Request(ar=1, clear_psn_offset=-1, psn=0x10001, **BACK)
    / uet.ResponseData(
        message_id=9, job_id=0xABCD, read_request_message_id=1, payload_length=512, modified_length=512
    ),
    "U5": uet.Request(ar=1, clear_psn_offset=-1, psn=0x10001, **BACK)
    / uet.ResponseDataSmall(payload_length=512, job_id=0xABCD, original_request_psn=0x10005),
    "U6": acknowledgement(req=1, ack_psn_offset=1, cack_psn=0x10012)
    / uet.ResponseDataSmall(payload_length=8, job_id=0xABCD, original_request_psn=0x10013)
    / bytes(8),
    "U7": uet.Control(ctl_type="CLEAR_CMD", ctl_payload=0x10013, **THERE),
    "U8": uet.Control(ctl_type="ACK_REQUEST", ar=1, psn=0x10012, **THERE),
    "U9": uet.Control(ctl_type="PROBE", ar=1, probe_opaque=0xBEEF, ctl_payload=0x10014, **THERE),
    "U10": acknowledgement(
        type="ACK_CC", p=1, probe_opaque=0xBEEF, cack_psn=0x10013, sack_psn_offset=1, rcvd_bytes=0x40
    ),
    "U11": acknowledgement(type="ACK_CC", cc_type="CREDIT", cack_psn=0x10013, sack_psn_offset=1, credit=0x200)
    / uet.Response(opcode="DEFAULT_RESPONSE", return_code="NULL"),
    "U12": uet.Control(ctl_type="CREDIT", ctl_payload=0x200, **BACK),
    "U13": uet.Rudi(pkt_id=0xA1B2C3D4)
    / uet.SmallRequest(opcode="WRITE", request_length=4, buffer_offset=0x3000, **JOB)
    / bytes.fromhex("11223344"),
    "U14": uet.Rudi(type="RUDI_RESP", pkt_id=0xA1B2C3D4) / uet.Response(job_id=0xABCD, modified_length=4),
    "U15": uet.Nack(nt=1, nack_code="TRIMMED_LASTHOP", nack_pkt_id=0xA1B2C3D4),
    "U16": uet.Uud()
    / uet.StdRequest(opcode="DATAGRAM_SEND", initiator=7, request_length=4, **JOB)
    / bytes.fromhex("55667788"),
    "U17": uet.Request(
        type="ROD_CC_REQ", syn=1, ar=1, clear_psn_offset=-4, psn=0x30003, spdcid=0xAA, psn_offset=3
    )
    / uet.SmallRequest(opcode="WRITE", **JOB),
}


@pytest.mark.parametrize("name", FRAMES)
def test_building_gives_the_worked_frames(name: str, with_crc: None) -> None:
    assert bytes(BUILT[name]).hex() == FRAMES[name].hex()


@pytest.mark.parametrize("name", HEADERS)
def test_building_gives_the_worked_headers(name: str) -> None:
    assert bytes(SHORT[name]).hex() == HEADERS[name].hex()


@pytest.mark.parametrize("name", FRAMES)
def test_dissecting_and_building_again_keeps_the_bytes(name: str) -> None:
    packet = Ether(FRAMES[name])
    assert packet[uet.UET].crc is not None
    assert bytes(packet) == FRAMES[name]
    assert all(layer.complaints() == [] for layer in packet.iterpayloads() if hasattr(layer, "complaints"))


@pytest.mark.parametrize("name", HEADERS)
def test_headers_alone_dissect_and_build(name: str) -> None:
    packet = uet.UET(HEADERS[name])
    assert type(packet) is type(SHORT[name])
    assert packet.crc is None
    assert bytes(packet) == HEADERS[name]


def test_a_crc_is_taken_for_one_only_when_right_or_configured(with_crc: None) -> None:
    damaged = FRAMES["E1"][:-1] + b"\0"
    assert Ether(damaged)[uet.UET].crc == 0x0017AAD7
    assert not packet_crc_ok(damaged[14:])
    uet.use(DEFAULT)
    packet = Ether(damaged)
    assert packet[uet.UET].crc is None
    assert packet[Raw].load == bytes(range(16)) + bytes.fromhex("d7aa1700")
    assert bytes(packet) == damaged


def test_a_trimmed_packet_has_no_crc(with_crc: None) -> None:
    packet = ipv4(True, 1, DEFAULT.dscp_trimmed << 2) / Raw(HEADERS["U3"][:16])
    packet[UDP].dport = 4793
    found = Ether(bytes(packet))
    assert found[uet.Request].psn == 0x10012
    assert found[uet.Request].crc is None
    assert found[Raw].load == HEADERS["U3"][12:16]


def test_profiles_move_the_crc() -> None:
    frame = BUILT["E6"]
    uet.use(Profile(trailer=Trailer.CRC, crc_order="big"))
    big = bytes(frame)
    uet.use(Profile(trailer=Trailer.CRC, crc_covers_addresses=False))
    narrow = bytes(frame)
    dissected = Ether(narrow)
    uet.use(DEFAULT)
    assert big[:-4] == narrow[:-4] == FRAMES["E6"][:-4]
    assert big[-4:] == FRAMES["E6"][:-5:-1]
    assert narrow[-4:] not in (big[-4:], FRAMES["E6"][-4:])
    assert dissected[uet.UET].crc == int.from_bytes(narrow[-4:], "little")
    with pytest.raises(ValueError, match="carries no UET"):
        packet_crc_ok(bytes(60))
    with pytest.raises(ValueError, match="cannot hold"):
        packet_crc_ok(b"\x45" + bytes(20))


def test_a_crc_without_ip_below_is_zero_and_said_so(with_crc: None) -> None:
    assert bytes(uet.Uud()) == bytes.fromhex("30000000") + bytes(4)


def test_ipv6_gets_a_udp_checksum_and_native_ip_an_entropy_header(with_crc: None) -> None:
    over = IPv6(src="2001:db8::1", dst="2001:db8::2")
    silent = bytes(Ether(src=_A, dst=_B) / over / UDP(sport=7) / first_write())
    assert Ether(silent)[UDP].chksum == 0
    assert packet_crc_ok(silent[14:])
    uet.use(Profile(trailer=Trailer.CRC, udp_checksum_ipv6=True))
    octets = bytes(Ether(src=_A, dst=_B) / over / UDP(sport=7) / first_write())
    packet = Ether(octets)
    assert packet[UDP].dport == 4793
    assert packet[UDP].chksum != 0
    claimed = packet[UDP].chksum
    del packet[UDP].chksum
    assert Ether(bytes(packet))[UDP].chksum == claimed
    assert packet_crc_ok(octets[14:])
    native = Ether(bytes(Ether(src=_A, dst=_B) / over / uet.Entropy(entropy=9) / first_write()))
    assert native[IPv6].nh == 253
    assert native[uet.Entropy].entropy == 9
    assert native[uet.StdRequest].memory_key == KEY
    assert packet_crc_ok(bytes(native)[14:])


def test_a_vlan_tag_changes_nothing() -> None:
    frame = FRAMES["E1"][:12] + bytes(Dot1Q(vlan=5, type=0x0800)).join((b"\x81\x00", FRAMES["E1"][14:]))
    assert Ether(frame)[uet.Request].psn == 0x10000


EXTENDED = [
    (
        uet.StdRequest(opcode="RENDEZVOUS_TSEND", request_length=100, memory_key=3)
        / uet.Rendezvous(eager_length=4, read_pid_on_fep=0xABC, read_resource_index=0xDEF, read_offset=8)
        / b"1234",
        44 + 24 + 4,
    ),
    (uet.StdRequest(opcode="ATOMIC") / uet.Atomic(amo_opcode="SUM", amo_datatype="UINT64") / bytes(8), 56),
    (
        uet.StdRequest(opcode="FETCHING_ATOMIC")
        / uet.CompareSwap(amo_opcode="CSWAP_NE", amo_datatype="UINT64", compare_value=1, swap_value=2**127),
        80,
    ),
    (uet.SmallRequest(opcode="TSEND_ATOMIC") / uet.Atomic(semantic_control=3) / b"", 24),
]


@pytest.mark.parametrize(("header", "size"), EXTENDED)
def test_extensions_follow_the_opcode(header: Packet, size: int) -> None:
    octets = bytes(uet.Request() / header)
    assert len(octets) == 12 + size
    found = uet.UET(octets)
    assert [type(layer) for layer in found.iterpayloads()][1:] == [
        type(layer) for layer in header.iterpayloads() if layer.original or bytes(layer)
    ]
    assert bytes(found) == octets


def test_opcode_and_next_header_follow_what_is_stacked() -> None:
    packet = uet.Request() / uet.MediumRequest() / uet.CompareSwap()
    assert (packet.next_hdr, packet[uet.MediumRequest].opcode) == (2, 4)
    answer = uet.Ack() / uet.ResponseData()
    assert answer.next_hdr == 5


def test_deferrable_sends_carry_restart_tokens() -> None:
    send = uet.StdRequest(opcode="DEFERRABLE_SEND", initiator_token=1, target_token=2, memory_key=3)
    assert bytes(send)[12:32].hex() == "0000000100000002" + "00000000" + "0000000000000003"
    ready = uet.StdRequest(
        opcode="DEFERRABLE_RTR", buffer_offset=9, rtr_initiator_token=1, rtr_target_token=2
    )
    assert bytes(ready)[12:32].hex() == "0000000000000009" + "00000000" + "0000000100000002"
    assert uet.StdRequest(bytes(ready)).rtr_target_token == 2


def test_rare_delivery_headers() -> None:
    closing = uet.Ack(epsn=1, expected_psn=77, spdcid=1, dpdcid=2)
    assert len(bytes(closing)) == 16
    assert uet.UET(bytes(closing)).expected_psn == 77
    extended = uet.Ack(type="ACK_CCX", cc_type=14, ccx_state=5, spdcid=1, dpdcid=2)
    assert len(bytes(extended)) == 40
    assert uet.UET(bytes(extended)).ccx_state == 5
    refused = uet.Nack(type="NACK_CCX", nccx_type=3, nccx_state2=9)
    assert len(bytes(refused)) == 32
    assert uet.UET(bytes(refused)).nccx_state2 == 9
    offer = uet.Control(ctl_type="NEGOTIATION", negotiation_type=1, negotiation_length=2, features=1)
    assert len(bytes(offer)) == 20
    opening = uet.Control(ctl_type="NOOP", syn=1, isrod=1, psn=10, psn_offset=4, spdcid=1)
    assert uet.UET(bytes(opening)).start_psn == 6
    unknown = uet.UET(bytes([31 << 3, 0x55, 1, 2]))
    assert (type(unknown), unknown.type, unknown[Raw].load) == (uet.UET, 31, b"\1\2")


def test_security_header_keeps_what_it_protects_closed() -> None:
    sealed = uet.Security(sdi=5, sp=1, ssi=6, tsc_epoch=7, tsc_counter=8, icv=b"t" * 16) / Raw(b"secret")
    octets = bytes(ipv4(True, 5, 2) / sealed)
    found = Ether(octets)[uet.Security]
    assert (found.sdi, found.ssi, found.tsc_counter, found.icv) == (5, 6, 8, b"t" * 16)
    assert found[Raw].load == b"secret"
    assert bytes(Ether(octets)) == octets


@pytest.mark.parametrize("name", ["E1", "E3", "U2", "U9", "U14"])
def test_a_packet_cut_anywhere_dissects_and_keeps_its_bytes(name: str) -> None:
    octets = FRAMES[name][42:-4] if name in FRAMES else HEADERS[name]
    for length in range(1, len(octets)):
        assert bytes(uet.UET(octets[:length])) == octets[:length]


REQUEST = uet.Request(psn=0x10005, **THERE)
PAIRS = [
    (acknowledgement(cack_psn=0x10005), REQUEST, True),
    (acknowledgement(cack_psn=0x10009), REQUEST, True),
    (acknowledgement(cack_psn=0x10004), REQUEST, False),
    (acknowledgement(cack_psn=0x10001, ack_psn_offset=4), REQUEST, True),
    (acknowledgement(cack_psn=0x10005, dpdcid=1), REQUEST, False),
    (acknowledgement(cack_psn=0x10005, spdcid=1), REQUEST, False),
    (acknowledgement(cack_psn=0x10005, spdcid=9), uet.Request(syn=1, psn=0x10005, spdcid=0x1234), True),
    (acknowledgement(p=1, probe_opaque=7, cack_psn=0x10005), REQUEST, False),
    (acknowledgement(p=1, probe_opaque=7), uet.Control(ctl_type="PROBE", probe_opaque=7, **THERE), True),
    (acknowledgement(p=1, probe_opaque=7), uet.Control(ctl_type="PROBE", probe_opaque=8, **THERE), False),
    (acknowledgement(cack_psn=0x10005), uet.Control(ctl_type="PROBE", probe_opaque=7, **THERE), False),
    (acknowledgement(cack_psn=3), uet.Control(ctl_type="CLOSE_CMD", psn=3, **THERE), True),
    (acknowledgement(cack_psn=3), uet.Uud(), False),
    (uet.Nack(nack_psn=0x10005, **BACK), REQUEST, True),
    (uet.Nack(nack_psn=0x10006, **BACK), REQUEST, False),
    (
        uet.Nack(nack_psn=0x10005, spdcid=0, dpdcid=0x1234),
        uet.Request(syn=1, psn=0x10005, spdcid=0x1234),
        True,
    ),
    (uet.Nack(nt=1, nack_pkt_id=4), uet.Rudi(pkt_id=4), True),
    (uet.Nack(nt=1, nack_pkt_id=4), uet.Rudi(pkt_id=5), False),
    (uet.Rudi(type="RUDI_RESP", pkt_id=4), uet.Rudi(pkt_id=4), True),
    (uet.Rudi(pkt_id=4), uet.Rudi(pkt_id=4), False),
    (SHORT["U4"], uet.Request(**THERE) / uet.StdRequest(opcode="READ", message_id=1), True),
    (SHORT["U4"], uet.Request(**THERE) / uet.StdRequest(opcode="READ", message_id=2), False),
    (SHORT["U5"], uet.Request(psn=0x10005, **THERE) / uet.SmallRequest(opcode="READ"), True),
    (SHORT["U5"], uet.Request(psn=0x10006, **THERE) / uet.SmallRequest(opcode="READ"), False),
    (REQUEST, REQUEST, False),
]


@pytest.mark.parametrize(("answer", "question", "fits"), PAIRS)
def test_answers_pair_with_what_they_answer(answer: Packet, question: Packet, fits: bool) -> None:
    assert bool(answer.answers(question)) is fits
    over = [IP() / UDP(sport=1), IP() / UDP(sport=1)]
    whole = [network / packet for network, packet in zip(over, (answer, question), strict=True)]
    assert bool(whole[0][UDP].payload.answers(whole[1][UDP].payload)) is fits


SUMMARIES = {
    "E1": "RUD_REQ psn=0x10000 spdc=0x1234 start=0x10000 SYN AR"
    " / WRITE len=16 job=0xabcd pid=5 ri=10 msg=1 SOM EOM REL",
    "E2": "ACK cack=0x10000 ack=0x10000 spdc=0x4321 dpdc=0x1234 / RESPONSE OK",
    "E3": "ACK_CC cack=0x10001 ack=0x10007 spdc=0x4321 dpdc=0x1234 M / DEFAULT_RESPONSE NULL",
    "E5": "NACK ROD_OOO psn=0x20007 spdc=0x42 dpdc=0x21",
    "E7": "CP CLOSE_CMD psn=0x10008 spdc=0x1234 AR",
    "U3": "RUD_REQ psn=0x10012 spdc=0x1234 dpdc=0x4321"
    " / WRITE len=8192 job=0xabcd pid=5 ri=10 msg=5 offset=2048 REL",
    "U6": "ACK cack=0x10012 ack=0x10013 spdc=0x4321 dpdc=0x1234 REQ_CLEAR / RESPONSE_W_DATA OK",
    "U10": "ACK_CC cack=0x10013 probe=0xbeef spdc=0x4321 dpdc=0x1234",
    "U13": "RUDI_REQ id=0xa1b2c3d4 / WRITE len=4 job=0xabcd pid=5 ri=10 SOM EOM REL",
    "U15": "NACK TRIMMED_LASTHOP id=0xa1b2c3d4 spdc=0x0 dpdc=0x0",
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_tells_the_packet(name: str) -> None:
    packet = Ether(FRAMES[name]) if name in FRAMES else uet.UET(HEADERS[name])
    assert SUMMARIES[name] in packet.summary()


def test_summaries_of_the_rest() -> None:
    cas = uet.Request() / uet.StdRequest() / uet.CompareSwap(compare_value=1, swap_value=2)
    assert "FETCHING_ATOMIC" in cas.summary()
    assert cas.summary().endswith("atomic CSWAP compare=0x1 swap=0x2")
    assert uet.UET(b"\xf8\x00").summary() == "UET reserved type 31"
    assert uet.Security(sdi=5).summary() == "TSS sdi=5 an=0 tsc=0/0"
    assert (uet.Uud() / uet.Rendezvous()).summary().startswith("UUD_REQ")
    assert "entropy=0xc001" in (IP() / uet.Entropy(entropy=0xC001)).summary()
    assert (uet.Request() / uet.SmallRequest() / uet.Atomic()).summary().endswith("atomic SUM")
