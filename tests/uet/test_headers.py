# SPDX-License-Identifier: Apache-2.0
"""The data path's headers are those of the scapy layers, bit by bit, in both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from emu.nic.engine import Drop
from emu.nic.work import Opcode, Status, Transport
from emu.uet import Parameters
from emu.uet.headers import (
    ack_cc,
    control,
    data_response,
    nack,
    parse_request,
    parse_response,
    response,
    standard_request,
)
from emu.uet.packet import Parser, UetPacket
from emu.uet.path import PeerPath
from emu.wire import uet
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType, ReturnCode
from emu.wire.uet_profile import DEFAULT, Trailer
from tests.uet.bench import Nic, pair, perfect

U8, U16, U24 = st.integers(0, 0xFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFF)
U32, U64 = st.integers(0, 0xFFFFFFFF), st.integers(0, (1 << 64) - 1)
S16 = st.integers(-0x8000, 0x7FFF)
U12, U14 = st.integers(0, 0xFFF), st.integers(0, 0x3FFF)
FLAGS = st.integers(0, 0x7F)

A, B = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
PATHS = {
    4: PeerPath(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", A, B),
    6: PeerPath(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", bytes(12) + A, bytes(12) + B),
}


def framed(header: bytes, body: bytes = b"", version: int = 4) -> UetPacket:
    """A frame with these bytes, parsed by the data path."""
    packet = Parser().parse(PATHS[version].frame(2, 0xC123, header, body))
    assert isinstance(packet, UetPacket)
    return packet


@given(FLAGS, S16, U32, U16, U16, U8, S16, U64, U16, U24, U16)
def test_an_ack_says_what_the_layer_says(
    flags: int,
    offset: int,
    cack: int,
    source: int,
    dest: int,
    mpr: int,
    sack: int,
    bitmap: int,
    service: int,
    received: int,
    behind: int,
) -> None:
    octets = ack_cc(
        next_header=NextHeader.NONE,
        flags=flags,
        word=offset,
        cack=cack,
        source=source,
        dest=dest,
        mpr=mpr,
        sack_offset=sack,
        sack_bitmap=bitmap,
        service_time=service,
        received=received,
        out_of_order=behind,
    )
    layer = uet.Ack(octets)
    assert layer.type == PdsType.ACK_CC
    assert (layer.cack_psn, layer.spdcid, layer.dpdcid) == (cack, source, dest)
    assert (layer.mpr, layer.sack_psn_offset, layer.sack_bitmap) == (mpr, sack, bitmap)
    assert (layer.service_time, layer.rcvd_bytes, layer.ooo_count) == (service, received, behind)
    packet = framed(octets)
    assert packet.is_ack and packet.flags == flags
    assert (packet.psn, packet.offset, packet.word) == (cack, offset, offset & 0xFFFF)
    assert (packet.mpr, packet.sack_offset, packet.sack_bitmap) == (mpr, sack, bitmap)
    assert (packet.received, packet.service_time) == (received, service)


@given(st.sampled_from(NackCode), FLAGS, U32, U16, U16, U32)
def test_a_nack_says_what_the_layer_says(
    code: NackCode, flags: int, psn: int, source: int, dest: int, payload: int
) -> None:
    octets = nack(code, flags & ~8, psn, source, dest, payload)
    layer = uet.Nack(octets)
    assert (layer.nack_code, layer.vendor_code, layer.nack_psn) == (code, 0, psn)
    assert (layer.spdcid, layer.dpdcid) == (source, dest)
    packet = framed(octets)
    assert packet.is_nack and packet.word >> 8 == code
    assert (packet.psn, packet.spdcid, packet.dpdcid, packet.payload) == (psn, source, dest, payload)


@given(st.sampled_from([kind for kind in CtlType if kind is not CtlType.NEGOTIATION]), U32, U16, U16, U32)
def test_a_control_packet_says_what_the_layer_says(
    kind: CtlType, psn: int, source: int, dest: int, payload: int
) -> None:
    octets = control(kind, 8, psn, source, dest, payload)
    layer = uet.Control(octets)
    assert (layer.ctl_type, layer.psn, layer.spdcid, layer.dpdcid) == (kind, psn, source, dest)
    packet = framed(octets)
    assert (packet.kind, packet.following, packet.psn, packet.payload) == (PdsType.CP, kind, psn, payload)


@given(st.integers(0, 0x3F), U16, U24, U12, U12, U64, U32, U64, U64, U14, U32, U32)
def test_a_standard_request_says_what_the_layer_says(
    flags: int,
    message_id: int,
    job: int,
    pid: int,
    index: int,
    offset: int,
    initiator: int,
    key: int,
    data: int,
    length: int,
    at: int,
    total: int,
) -> None:
    octets = standard_request(
        1,
        flags,
        message_id=message_id,
        job_id=job,
        pid=pid,
        resource_index=index,
        buffer_offset=offset,
        initiator=initiator,
        key=key,
        header_data=data,
        payload_length=length,
        message_offset=at,
        request_length=total,
    )
    layer = uet.StdRequest(octets)
    assert (layer.opcode, layer.message_id, layer.job_id) == (1, message_id, job)
    assert (layer.pid_on_fep, layer.resource_index, layer.buffer_offset) == (pid, index, offset)
    assert (layer.initiator, layer.memory_key, layer.request_length) == (initiator, key, total)
    found = parse_request(octets, 0, len(octets), NextHeader.REQUEST_STD)
    assert found is not None
    assert (found.message_id, found.job_id, found.qpn) == (message_id, job, pid << 12 | index)
    assert (found.buffer_offset, found.initiator, found.key) == (offset, initiator, key)
    if flags & 1:
        assert layer.header_data == found.header_data == data
        assert found.message_offset == found.payload_length == 0
    else:
        assert layer.message_offset == found.message_offset == at
        assert layer.payload_length == found.payload_length == length
        assert found.header_data == 0


def test_worked_examples_are_understood() -> None:
    """Vectors U1, U2, U4, U6 and E6's header of the wire reference."""
    small = bytes.fromhex("68880000000100101234432103000100010b00040000abcd0005000a0000000000002000aabbccdd")
    packet = framed(small)
    assert (packet.kind, packet.psn, packet.spdcid, packet.dpdcid) == (
        PdsType.RUD_CC_REQ,
        0x10010,
        0x1234,
        0x4321,
    )
    request = parse_request(packet.frame, packet.ses, packet.end, packet.following)
    assert request is not None and request.whole
    assert (request.request_length, request.buffer_offset, request.job_id) == (4, 0x2000, 0xABCD)
    assert packet.frame[request.start : request.end] == bytes.fromhex("aabbccdd")
    medium = framed(
        bytes.fromhex(
            "1108ffff0001001112344321090f00040000abcd0005000a0123456789abcdef0000000700000000cafe000101020304"
        )
    )
    request = parse_request(medium.frame, medium.ses, medium.end, medium.following)
    assert request is not None
    assert (request.header_data, request.initiator, request.key) == (0x0123456789ABCDEF, 7, 0xCAFE0001)
    back = framed(
        bytes.fromhex("1288ffff0001000143211234020100090000abcd000102000000020000000000"), bytes(512)
    )
    data = parse_response(back.frame, back.ses, back.end, back.following)
    assert data is not None
    assert (data.message_id, data.modified_length, data.end - data.start) == (1, 512, 512)
    inside = framed(bytes.fromhex("3b0200010001001243211234020100080000abcd000100130000000000000000"))
    data = parse_response(inside.frame, inside.ses, inside.end, inside.following)
    assert inside.is_ack and data is not None
    assert (data.request_psn, data.end - data.start) == (0x10013, 8)


def test_responses_are_those_of_the_layers() -> None:
    layer = uet.Response(response(1, ReturnCode.BAD_MKEY, 9, 5, 77))
    assert (layer.opcode, layer.return_code, layer.message_id) == (1, ReturnCode.BAD_MKEY, 9)
    assert (layer.job_id, layer.modified_length) == (5, 77)
    data = uet.ResponseData(data_response(ReturnCode.OK, 9, 5, 100, 200, 300))
    assert (data.read_request_message_id, data.payload_length) == (9, 100)
    assert (data.modified_length, data.message_offset) == (200, 300)


@pytest.mark.parametrize("version", [4, 6])
def test_frames_are_whole_packets(version: int) -> None:
    frame = PATHS[version].frame(0xB8, 0xC001, control(CtlType.NOOP, 0, 1, 2, 3))
    layer = Ether(frame)
    assert layer[uet.Control].psn == 1
    assert layer["UDP"].sport == 0xC001 and layer["UDP"].dport == 4793 and layer["UDP"].chksum == 0
    built = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    if version == 4:
        built /= IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB8, id=0, flags="DF", ttl=64)
    else:
        built /= IPv6(src="::10.0.0.1", dst="::10.0.0.2", tc=0xB8, hlim=64)
    built /= UDP(sport=0xC001, dport=4793, chksum=0) / uet.Control(ctl_type="NOOP", psn=1, spdcid=2, dpdcid=3)
    assert bytes(built) == frame


def test_a_trailer_protects_every_packet() -> None:
    parameters = Parameters(wire=replace(DEFAULT, trailer=Trailer.CRC))

    def corrupt(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if number % 3 == 1:
            frame = frame[:60] + bytes((frame[60] ^ 0x10,)) + frame[61:]
        return perfect(sender, number, frame)

    net, a, b = pair(Transport.UET_RUD, corrupt, parameters)
    a.host.regions[0x11].data[:6000] = bytes(range(250)) * 24
    a.post(Opcode.WRITE, 6000)
    net.scheduler.run(until=5_000_000_000)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert b.host.regions[0x22].data[:6000] == bytes(range(250)) * 24
    assert {drop.counter for drop in b.nic.drops} == {"rx_icrc_encapsulated"}


@given(st.binary(max_size=200), st.sampled_from([0, 42, 62]))
def test_no_bytes_make_the_parser_raise(octets: bytes, kept: int) -> None:
    frame = PATHS[4].frame(2, 0xC123, octets[kept:] or b"\0")
    found = Parser().parse(frame[:kept] + octets)
    assert isinstance(found, (Drop, UetPacket))
