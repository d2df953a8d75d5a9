# SPDX-License-Identifier: Apache-2.0
"""The invariant CRC of RoCEv2.

CRC-32 of Ethernet (reflected polynomial 0xEDB88320, preset and final complement all ones) over eight bytes of
0xFF for a masked LRH, then the IP packet from its first byte to the last pad byte, with every field that a
router or switch may change forced to ones. On the wire its least significant byte comes first.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

from emu.wire.headers import BTH_SIZE, UDP_SIZE

__all__ = ["PRESET", "crc32", "icrc", "masked_header", "verify"]

PRESET = 0xDEBB20E3 ^ 0xFFFFFFFF
"""What ``crc32`` continues from so that the eight 0xFF bytes count as read. 0xDEBB20E3 is the register after
them;
zlib's interface wants it complemented."""

_HEADER_SIZE = {4: 20, 6: 40}
"""IP header bytes by version: options and extension headers do not occur in RoCE."""


def masked_header(packet: bytes | bytearray | memoryview) -> bytes:
    """IP, UDP and BTH headers of ``packet`` (which starts at the IP header) with their variant fields all
    ones.

    :raises ValueError: no IP version 4 or 6, or too short to hold a BTH.
    """
    version = packet[0] >> 4 if len(packet) else 0
    size = _HEADER_SIZE.get(version)
    if size is None:
        raise ValueError(f"IP version {version} carries no RoCEv2")
    end = size + UDP_SIZE + BTH_SIZE
    if len(packet) < end:
        raise ValueError(f"{len(packet)} bytes cannot hold IP, UDP and BTH ({end} bytes)")
    head = bytearray(packet[:end])
    if version == 4:
        head[1] = head[8] = head[10] = head[11] = 0xFF
    else:
        head[0] |= 0x0F
        head[1] = head[2] = head[3] = head[7] = 0xFF
    head[size + 6] = head[size + 7] = 0xFF
    head[size + UDP_SIZE + 4] = 0xFF
    return bytes(head)


def icrc(packet: bytes | bytearray | memoryview) -> bytes:
    """The four ICRC bytes, in wire order, of ``packet``: IP header to last pad byte, lengths already final.

    :raises ValueError: as :func:`masked_header`.
    """
    head = masked_header(packet)
    value = crc32(memoryview(packet)[len(head) :], crc32(head, PRESET))
    return value.to_bytes(4, "little")


def verify(packet: bytes | bytearray | memoryview) -> bool:
    """True when the last four bytes of ``packet`` (IP header to ICRC, no Ethernet padding) are its ICRC.

    :raises ValueError: as :func:`masked_header`.
    """
    return icrc(packet[:-4]) == bytes(packet[-4:])
