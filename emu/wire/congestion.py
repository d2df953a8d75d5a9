# SPDX-License-Identifier: Apache-2.0
"""What a congested switch does to a frame instead of dropping it: an ECN mark, or cutting the payload off.

Both leave UDP length, UDP checksum and whatever protects the payload as they were.
"""

from __future__ import annotations

import struct

from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN
from emu.wire.uet_names import UET_PORT
from emu.wire.uet_profile import DEFAULT, Profile

__all__ = ["dscp_of", "locate_network", "mark", "trim"]

_HALF = struct.Struct(">H")
_CE = 3
_UDP = 17
_TAGS_MAX = 2


def locate_network(frame: bytes) -> tuple[int, int]:
    """Where the IP header starts and its version; version 0 for a frame without a whole one."""
    start = ETHERNET_SIZE
    for _ in range(_TAGS_MAX + 1):
        if len(frame) < start:
            break
        (ethertype,) = _HALF.unpack_from(frame, start - 2)
        if ethertype == ETHERTYPE_IPV4 and len(frame) >= start + 20 and frame[start] == 0x45:
            return start, 4
        if ethertype == ETHERTYPE_IPV6 and len(frame) >= start + 40:
            return start, 6
        if ethertype != ETHERTYPE_VLAN:
            break
        start += 4
    return start, 0


def dscp_of(frame: bytes) -> int:
    """DSCP of an IP packet, 0 of any other frame."""
    start, version = locate_network(frame)
    return _traffic_class(frame, start, version) >> 2 if version else 0


def mark(frame: bytes) -> bytes | None:
    """``frame`` with its ECN field set to CE; None unless it is IP and its sender takes part in ECN."""
    start, version = locate_network(frame)
    traffic = _traffic_class(frame, start, version) if version else 0
    if traffic & _CE == 0:
        return None
    return _with_traffic_class(frame, start, version, traffic | _CE)


def trim(frame: bytes, last_hop: bool = False, profile: Profile = DEFAULT) -> bytes | None:
    """``frame`` with ``profile.trim_size`` bytes of IP payload and the DSCP of a trimmed packet.

    IP length and header checksum are right, ECN bits stay. ``last_hop`` says that the receiver's own link is
    the congested one. None unless it is UET data, whose DSCP allows trimming, and longer than what is kept.
    """
    start, version = locate_network(frame)
    if not version or not _is_uet(frame, start, version, profile):
        return None
    traffic = _traffic_class(frame, start, version)
    size = 20 if version == 4 else 40
    end = start + size + profile.trim_size
    if traffic >> 2 != profile.dscp_data or len(frame) <= end:
        return None
    dscp = profile.dscp_trimmed_last_hop if last_hop else profile.dscp_trimmed
    kept = bytearray(frame[:end])
    length = profile.trim_size + (20 if version == 4 else 0)
    _HALF.pack_into(kept, start + (2 if version == 4 else 4), length)
    return _with_traffic_class(bytes(kept), start, version, dscp << 2 | traffic & _CE)


def _is_uet(frame: bytes, start: int, version: int, profile: Profile) -> bool:
    protocol = frame[start + (9 if version == 4 else 6)]
    port = start + (20 if version == 4 else 40) + 2
    if protocol == _UDP:
        return frame[port : port + 2] == _HALF.pack(UET_PORT)
    return protocol == profile.native_protocol


def _traffic_class(frame: bytes, start: int, version: int) -> int:
    if version == 4:
        return frame[start + 1]
    word: int = _HALF.unpack_from(frame, start)[0]
    return word >> 4 & 0xFF


def _with_traffic_class(frame: bytes, start: int, version: int, value: int) -> bytes:
    changed = bytearray(frame)
    if version == 6:
        (word,) = _HALF.unpack_from(changed, start)
        _HALF.pack_into(changed, start, word & 0xF00F | value << 4)
        return bytes(changed)
    changed[start + 1] = value
    _HALF.pack_into(changed, start + 10, 0)
    total: int = sum(word for (word,) in _HALF.iter_unpack(changed[start : start + 20]))
    total = (total & 0xFFFF) + (total >> 16)
    _HALF.pack_into(changed, start + 10, ~(total + (total >> 16)) & 0xFFFF)
    return bytes(changed)
