# SPDX-License-Identifier: Apache-2.0
"""A second ICRC, bit by bit and straight from the rules, to hold ours against. It shares nothing with
emu.wire.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["crc32_bitwise", "frame_icrc_ok", "icrc_of_frame"]


def crc32_bitwise(octets: bytes) -> int:
    """CRC-32 of Ethernet, one bit at a time."""
    register = 0xFFFFFFFF
    for octet in octets:
        for position in range(8):
            feedback = (register ^ (octet >> position)) & 1
            register >>= 1
            if feedback:
                register ^= 0xEDB88320
    return register ^ 0xFFFFFFFF


def _ones(octets: bytearray, first: int, count: int = 1) -> None:
    for position in range(first, first + count):
        octets[position] = 0xFF


def icrc_of_frame(frame: bytes, crc32: Callable[[bytes], int] = crc32_bitwise) -> tuple[bytes, bytes]:
    """(ICRC computed, ICRC carried) of an untagged Ethernet frame with RoCEv2; its end follows from the UDP
    length. Thousands of frames want zlib's ``crc32``, which is not the one the NIC uses either.
    """
    udp_at = {0x0800: 20, 0x86DD: 40}[int.from_bytes(frame[12:14], "big")]
    packet = bytearray(frame[14:])
    del packet[udp_at + int.from_bytes(packet[udp_at + 4 : udp_at + 6], "big") :]
    carried = bytes(packet[-4:])
    del packet[-4:]
    if udp_at == 20:
        _ones(packet, 1)  # ToS
        _ones(packet, 8)  # TTL
        _ones(packet, 10, 2)  # header checksum
    else:
        packet[0] |= 0x0F  # traffic class, upper half
        _ones(packet, 1, 3)  # traffic class, lower half, and flow label
        _ones(packet, 7)  # hop limit
    _ones(packet, udp_at + 6, 2)  # UDP checksum
    _ones(packet, udp_at + 8 + 4)  # FECN, BECN, reserved
    return crc32(b"\xff" * 8 + bytes(packet)).to_bytes(4, "little"), carried


def frame_icrc_ok(frame: bytes) -> bool:
    """True when the frame carries the ICRC it should."""
    computed, carried = icrc_of_frame(frame)
    return computed == carried
