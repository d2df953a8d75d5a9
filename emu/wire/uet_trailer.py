# SPDX-License-Identifier: Apache-2.0
"""The CRC trailer of UET: the last four bytes of the IP payload, where configured.

Unless the profile says otherwise it covers both IP addresses and all that follows them up to the trailer, the
UDP checksum counted as 0, and goes out least significant byte first.
"""

from __future__ import annotations

from emu.wire.crc32c import crc32c
from emu.wire.uet_profile import DEFAULT, Profile

__all__ = ["CRC_SIZE", "packet_crc", "packet_crc_ok"]

CRC_SIZE = 4
_UDP = 17


def packet_crc(packet: bytes | bytearray | memoryview, profile: Profile = DEFAULT) -> bytes:
    """Trailer bytes for ``packet``: IP header to last payload byte, with the lengths of the whole packet.

    :raises ValueError: neither IPv4 nor IPv6, or too short to be one.
    """
    version = packet[0] >> 4 if len(packet) else 0
    if version not in (4, 6):
        raise ValueError(f"IP version {version} carries no UET")
    # No options or extension headers: UET packets have none.
    addresses, payload, protocol = (12, 20, 9) if version == 4 else (8, 40, 6)
    if len(packet) < payload + CRC_SIZE:
        raise ValueError(f"{len(packet)} bytes cannot hold IPv{version} and UET")
    covered = bytearray(packet)
    if packet[protocol] == _UDP:
        covered[payload + 6 : payload + 8] = bytes(2)
    start = addresses if profile.crc_covers_addresses else payload
    return crc32c(memoryview(covered)[start:]).to_bytes(CRC_SIZE, profile.crc_order)


def packet_crc_ok(packet: bytes | bytearray | memoryview, profile: Profile = DEFAULT) -> bool:
    """True when the last four bytes of ``packet`` (IP header to trailer, no Ethernet padding) are its CRC.

    :raises ValueError: as :func:`packet_crc`.
    """
    whole = memoryview(packet)
    return packet_crc(whole[:-CRC_SIZE], profile) == bytes(whole[-CRC_SIZE:])
