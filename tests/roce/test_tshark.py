# SPDX-License-Identifier: Apache-2.0
"""Every kind of frame the engines make, as stock tshark sees it and as a CRC of its own counts it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emu.nic.work import AddressHandle, Opcode, Sge, Transport
from emu.wire.opcodes import BY_OPCODE, CNP, RcOpcode, TransportClass
from tests.capture.sample import Stage
from tests.capture.tshark_program import require_tshark, run_tshark
from tests.roce.bench import BASE, LKEY, Pair, losing, pattern
from tests.roce.test_dcqcn import marking

_OPTIONAL = {RcOpcode.FLUSH, RcOpcode.ATOMIC_WRITE}
_NOT_SENT = _OPTIONAL | {TransportClass.XRC | opcode for opcode in _OPTIONAL}
"""Optional operations that no queue pair here sends."""
_TAG = bytes.fromhex("8100a005")
"""IEEE 802.1Q, priority 5, VLAN 5."""


def _reliable(ipv6: bool, transport: Transport = Transport.ROCE_RC) -> Iterator[bytes]:
    pair = Pair(losing(("a", 3)), ipv6=ipv6, psn=0xFFFFFA, traffic_class=2, transport=transport)
    pair.local(pair.a)[:] = pattern(1 << 16)
    for index in range(12):
        pair.b.post_receive(index, 8192)
    for size in (5, 3000):
        for opcode in (Opcode.SEND, Opcode.SEND_IMM, Opcode.WRITE, Opcode.WRITE_IMM, Opcode.READ):
            pair.a.post(opcode, size, immediate=7)
        pair.b.host.memory(0x500 + size)
        pair.a.post(Opcode.SEND_INV, size, rkey=0x500 + size)
    pair.a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)
    pair.a.post(Opcode.ATOMIC_CAS, 8, swap_add=1)
    pair.run()
    pair.a.post(Opcode.ATOMIC_ADD, 4, swap_add=1)
    pair.a.post(Opcode.ATOMIC_CAS, 4, swap_add=1)
    pair.run()
    # A fatal NAK and an RNR NAK, too.
    pair.b.host.receives.clear()
    pair.a.post(Opcode.SEND, 4)
    pair.scheduler.run(until=pair.scheduler.now() + 100_000)
    pair.b.post_receive(20, 4)
    pair.run()
    pair.a.post(Opcode.WRITE, 4, rkey=0x999)
    pair.run()
    yield from pair.a.host.sent
    yield from pair.b.host.sent


def _unreliable() -> Iterator[bytes]:
    pair = Pair(marking("a"), transport=Transport.ROCE_UC, traffic_class=2)
    for index in range(8):
        pair.b.post_receive(index, 8192)
    for size in (6, 3000):
        for opcode in (Opcode.SEND, Opcode.SEND_IMM, Opcode.WRITE, Opcode.WRITE_IMM):
            pair.a.post(opcode, size, immediate=7)
    pair.run()
    yield from pair.a.host.sent
    yield from pair.b.host.sent


def _datagrams(ipv6: bool) -> Iterator[bytes]:
    pair = Pair(transport=Transport.ROCE_UD, ipv6=ipv6, qkey=5)
    own = pair.a.attributes
    fields: dict[str, Any] = {
        "handle": AddressHandle(own.source_mac, own.dest_mac, own.source_gid, own.dest_gid),
        "dest_qpn": 0x12,
        "qkey": 5,
        "sges": [Sge(BASE, 7, LKEY)],
    }
    pair.a.post(Opcode.SEND, 7, **fields)
    pair.a.post(Opcode.SEND_IMM, 7, **fields)
    yield from pair.a.host.sent


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """A mixed capture's frames, and each once more with a VLAN tag."""
    made = [
        *_reliable(False),
        *_reliable(True),
        *_reliable(False, Transport.ROCE_XRC),
        *_unreliable(),
        *_datagrams(False),
        *_datagrams(True),
    ]
    opcodes = {_opcode(frame) for frame in made}
    assert opcodes == {int(opcode) for opcode in BY_OPCODE} - {int(opcode) for opcode in _NOT_SENT}
    assert CNP in opcodes and TransportClass.UC | RcOpcode.SEND_MIDDLE in opcodes
    return made + [frame[:12] + _TAG + frame[12:] for frame in made]


def _ip(frame: bytes) -> int:
    return 14 + (4 if frame[12:14] == _TAG[:2] else 0)


def _bth(frame: bytes) -> int:
    return _ip(frame) + (20 if frame[_ip(frame)] >> 4 == 4 else 40) + 8


def _opcode(frame: bytes) -> int:
    return frame[_bth(frame)]


def test_every_icrc_is_right_by_another_count(frames: list[bytes]) -> None:
    for frame in frames:
        packet = bytearray(frame[_ip(frame) :])
        size = _bth(frame) - 8 - _ip(frame)
        masked = (1, 8, 10, 11) if size == 20 else (1, 2, 3, 7)
        if size == 40:
            packet[0] |= 0x0F
        for at in (*masked, size + 6, size + 7, size + 8 + 4):
            packet[at] = 0xFF
        crc = zlib.crc32(b"\xff" * 8 + bytes(packet[:-4]))
        assert frame[-4:] == crc.to_bytes(4, "little"), frame.hex()


def test_tshark_finds_nothing_malformed(frames: list[bytes], tmp_path: Path) -> None:
    require_tshark()
    stage = Stage(tmp_path / "mixed.pcapng")
    for frame in frames:
        stage.carry(frame)
    stage.capture.close()
    fields = ("infiniband.bth.opcode", "infiniband.bth.destqp", "_ws.malformed", "_ws.expert.severity")
    wanted = [word for field in fields for word in ("-e", field)]
    lines = run_tshark(stage.path, "-Y", "infiniband", "-T", "fields", *wanted)
    seen = [line.split("\t") for line in lines]
    # Each frame is there twice, where it left and where it arrived.
    assert [int(row[0]) for row in seen] == [_opcode(frame) for frame in frames for _ in range(2)]
    assert [int(row[1], 16) for row in seen] == [
        int.from_bytes(frame[_bth(frame) + 5 : _bth(frame) + 8], "big") for frame in frames for _ in range(2)
    ]
    assert {(*row[2:], "", "")[:2] for row in seen} == {("", "")}
