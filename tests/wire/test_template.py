# SPDX-License-Identifier: Apache-2.0
"""Templates give the bytes that the scapy layers give, for every opcode and any fields."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from emu.wire import headers, roce
from emu.wire.frame import FramePath
from emu.wire.opcodes import BY_OPCODE, CNP, RcOpcode, UdOpcode
from emu.wire.template import FrameTemplate
from tests.wire.icrc_reference import frame_icrc_ok
from tests.wire.vectors import FRAMES

_A, _B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_V4 = (bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
_V6 = (ipaddress.IPv6Address("2001:db8::1").packed, ipaddress.IPv6Address("2001:db8::2").packed)
_MACS = st.binary(min_size=6, max_size=6)


def _there(tos: int = 0, ident: int = 0) -> FramePath:
    return FramePath(_A, _B, *_V4, source_port=0xC011, traffic_class=tos, identification=ident)


def _back(ident: int) -> FramePath:
    return FramePath(_B, _A, _V4[1], _V4[0], source_port=0xC012, traffic_class=2, identification=ident)


def test_golden_frames() -> None:
    reth = headers.pack_reth(0x7F0012345000, 0x00010203, 16)
    built = {
        "T1": FrameTemplate(_there(2, 0x1234), RcOpcode.SEND_ONLY, dest_qpn=0x12, migrated=False).build(
            0x102, b"", b"hello", True
        ),
        "T2": FrameTemplate(_there(2, 0x1235), RcOpcode.WRITE_ONLY, dest_qpn=0x12).build(
            0x103, reth, bytes(range(16)), True
        ),
        "T3": FrameTemplate(_back(1), RcOpcode.ACKNOWLEDGE, dest_qpn=0x11, migrated=False).build(
            0x103, headers.pack_aeth(0x1F, 2)
        ),
        "T4": FrameTemplate(
            FramePath(_A, _B, *_V6, source_port=0xC011, traffic_class=2, flow_label=0x12345),
            RcOpcode.READ_REQUEST,
            dest_qpn=0x12,
            migrated=False,
        ).build(0x104, headers.pack_reth(0x7F0012345000, 0x00010203, 4096), b"", True),
        "T5": FrameTemplate(
            FramePath(
                bytes.fromhex("7cfe90643b32"),
                bytes.fromhex("e41d2dab2bc2"),
                bytes([10, 0, 17, 1]),
                bytes([10, 0, 18, 1]),
                source_port=0,
                traffic_class=0xC2,
                identification=0x718C,
            ),
            CNP,
            dest_qpn=0x118,
            migrated=False,
        ).build(0, b"", bytes(16)),
        "T6": FrameTemplate(_back(2), RcOpcode.ACKNOWLEDGE, dest_qpn=0x11, migrated=False).build(
            0x104, headers.pack_aeth(0x60, 2)
        ),
        "T7": FrameTemplate(_there(0, 0x1236), UdOpcode.SEND_ONLY, dest_qpn=0x13, migrated=False).build(
            7, bytes.fromhex("1111111100000011"), b"ping"
        ),
    }
    assert {name: frame.hex() for name, frame in built.items()} == {
        name: frame.hex() for name, frame in FRAMES.items()
    }


@st.composite
def _paths(draw: st.DrawFn) -> FramePath:
    size = draw(st.sampled_from([4, 16]))
    address = st.binary(min_size=size, max_size=size)
    return FramePath(
        source_mac=draw(_MACS),
        dest_mac=draw(_MACS),
        source_ip=draw(address),
        dest_ip=draw(address),
        source_port=draw(st.integers(0, 0xFFFF)),
        traffic_class=draw(st.integers(0, 0xFF)),
        hop_limit=draw(st.integers(1, 0xFF)),
        identification=draw(st.integers(0, 0xFFFF)),
        flow_label=draw(st.integers(0, 0xFFFFF)),
    )


def _scapy_base(path: FramePath) -> Packet:
    ether = Ether(src=path.source_mac.hex(":"), dst=path.dest_mac.hex(":"))
    source, dest = str(ipaddress.ip_address(path.source_ip)), str(ipaddress.ip_address(path.dest_ip))
    network: Packet
    if path.version == 4:
        network = IP(
            src=source,
            dst=dest,
            tos=path.traffic_class,
            ttl=path.hop_limit,
            id=path.identification,
            flags="DF",
        )
    else:
        network = IPv6(src=source, dst=dest, tc=path.traffic_class, hlim=path.hop_limit, fl=path.flow_label)
    return ether / network / UDP(sport=path.source_port, chksum=0)


@pytest.mark.parametrize("opcode", sorted(BY_OPCODE))
@settings(deadline=None)
@given(data=st.data())
def test_template_equals_scapy(opcode: int, data: st.DataObject) -> None:
    path = data.draw(_paths())
    info = BY_OPCODE[opcode]
    psn = data.draw(st.integers(0, 0xFFFFFF))
    qpn = data.draw(st.integers(0, 0xFFFFFF))
    pkey = data.draw(st.integers(0, 0xFFFF))
    extension = data.draw(st.binary(min_size=info.extension_size, max_size=info.extension_size))
    payload = data.draw(st.binary(max_size=70))
    ask, solicited, migrated = (data.draw(st.booleans()) for _ in range(3))

    frame = FrameTemplate(path, opcode, dest_qpn=qpn, pkey=pkey, migrated=migrated).build(
        psn, extension, payload, ask, solicited
    )

    expected = _scapy_base(path) / roce.BTH(
        opcode=opcode,
        solicited=int(solicited),
        migreq=int(migrated),
        pkey=pkey,
        becn=int(opcode == CNP),
        dqpn=qpn,
        ackreq=int(ask),
        psn=psn,
    )
    rest = extension
    for layer in roce.layers_of(opcode):
        header = layer(rest)
        rest = rest[len(layer()) :]
        header.remove_payload()
        expected /= header
    if payload:
        expected /= Raw(payload)
    assert frame.hex() == bytes(expected).hex()
    assert frame_icrc_ok(frame)


def test_one_template_serves_many_lengths_and_remembers_few() -> None:
    template = FrameTemplate(_there(), RcOpcode.SEND_ONLY, dest_qpn=1)
    for length in range(300):
        assert frame_icrc_ok(template.build(length, b"", bytes(length)))
    assert len(template._heads) <= 64


def test_packed_headers_are_the_layers_bytes() -> None:
    assert headers.pack_reth(1 << 63, 2, 3) == bytes(roce.RETH(va=1 << 63, rkey=2, dmalen=3))
    assert headers.pack_atomic_eth(8, 2, 3, 4) == bytes(roce.AtomicETH(va=8, rkey=2, swap=3, compare=4))
    assert headers.pack_aeth(0x60, 9) == bytes(roce.AETH(syndrome=0x60, msn=9))
    assert headers.pack_atomic_ack(0x1F, 9, 7) == bytes(
        roce.AETH(syndrome=0x1F, msn=9) / roce.AtomicAckETH(old=7)
    )
    assert headers.pack_immediate(0x01020304) == bytes(roce.ImmDt(imm=0x01020304))


def test_bad_paths_and_opcodes_are_refused() -> None:
    with pytest.raises(ValueError, match="MAC"):
        FramePath(b"", _B, *_V4, source_port=1)
    with pytest.raises(ValueError, match="both"):
        FramePath(_A, _B, _V4[0], _V6[0], source_port=1)
    with pytest.raises(ValueError, match="0x15"):
        FrameTemplate(_there(), 0x15, dest_qpn=1)
