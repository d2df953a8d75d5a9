# SPDX-License-Identifier: Apache-2.0
"""The ICRC agrees with golden frames, with a bitwise computation, and with what may change on the way."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.wire import icrc
from tests.wire.icrc_reference import crc32_bitwise, frame_icrc_ok, icrc_of_frame
from tests.wire.vectors import CRC_INPUTS, FRAMES


def _packet(name: str) -> bytes:
    return FRAMES[name][14:]


def test_the_reference_knows_the_check_value_of_crc32() -> None:
    assert crc32_bitwise(b"123456789") == 0xCBF43926


def test_the_preset_stands_for_eight_bytes_of_ones() -> None:
    assert zlib.crc32(b"\xff" * 8) == icrc.PRESET
    assert icrc.crc32(b"abc", icrc.PRESET) == zlib.crc32(b"\xff" * 8 + b"abc")


@pytest.mark.parametrize("name", FRAMES)
def test_golden_frames_verify(name: str) -> None:
    assert frame_icrc_ok(FRAMES[name])
    assert icrc.verify(_packet(name))
    assert icrc.icrc(_packet(name)[:-4]) == FRAMES[name][-4:]


@pytest.mark.parametrize("name", CRC_INPUTS)
def test_masked_header_gives_the_documented_crc_input(name: str) -> None:
    packet = _packet(name)
    head = icrc.masked_header(packet)
    assert b"\xff" * 8 + head + packet[len(head) : -4] == CRC_INPUTS[name]


@given(st.sampled_from(sorted(FRAMES)), st.binary(max_size=64), st.integers(0, 255), st.integers(0, 255))
def test_ours_equals_the_bitwise_one(name: str, tail: bytes, tos: int, ttl: int) -> None:
    frame = bytearray(FRAMES[name])
    udp = 14 + (20 if frame[12:14] == b"\x08\x00" else 40)
    frame[15], frame[14 + 8] = tos, ttl
    frame += tail
    frame[udp + 4 : udp + 6] = (len(frame) - udp).to_bytes(2, "big")
    computed, _ = icrc_of_frame(bytes(frame))
    assert icrc.icrc(bytes(frame[14:-4])) == computed


@pytest.mark.parametrize(
    ("name", "offset"),
    [("T1", offset) for offset in (1, 8, 10, 11, 26, 27, 32)]
    + [("T4", offset) for offset in (1, 2, 3, 7, 46, 47, 52)],
)
def test_fields_that_routers_change_do_not_matter(name: str, offset: int) -> None:
    packet = bytearray(_packet(name))
    packet[offset] ^= 0xFF
    assert icrc.verify(bytes(packet))


@pytest.mark.parametrize("name", ["T1", "T4"])
def test_every_other_bit_matters(name: str) -> None:
    packet = _packet(name)
    udp = 20 if name == "T1" else 40
    free = {1, 8, 10, 11} if name == "T1" else {1, 2, 3, 7}
    free |= {udp + 6, udp + 7, udp + 12}
    # The version nibble and, in IPv6, the traffic class bits beside it say which packet this is at all.
    for offset in range(1, len(packet)):
        if offset in free:
            continue
        for bit in range(8):
            changed = bytearray(packet)
            changed[offset] ^= 1 << bit
            assert not icrc.verify(bytes(changed)), f"byte {offset} bit {bit}"


@pytest.mark.parametrize("packet", [b"", b"\x45" + bytes(38), b"\x60" + bytes(58), b"\x50" + bytes(80)])
def test_what_cannot_be_roce_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError):
        icrc.icrc(packet)
