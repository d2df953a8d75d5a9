# SPDX-License-Identifier: Apache-2.0
"""Priority flow control (IEEE 802.1Qbb): the frame by which a receiver holds single priorities back.

::

    destination 01:80:C2:00:00:01 | source | EtherType 0x8808 | opcode 0x0101
    | class-enable vector (16 bits, bit n for priority n) | eight times of 16 bits, priority 0 first | pad

A time is a number of quanta, each as long as 512 bits take on the link; 0 ends a pause. The frame has the
least length of Ethernet, 60 bytes without FCS. All fields are big-endian.

The priority of other frames is that of their VLAN tag (PCP), else the upper three bits of the DSCP, which is
how adapters map it before anybody configures them: DSCP 26 is priority 3, DSCP 48 priority 6.
"""

from __future__ import annotations

import struct

from emu.wire.congestion import dscp_of
from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_VLAN

__all__ = ["PRIORITIES", "QUANTA_MAX", "QUANTUM_BITS", "is_pause", "pack_pause", "parse_pause", "priority_of"]

PRIORITIES = 8
QUANTUM_BITS = 512
QUANTA_MAX = 0xFFFF

_GROUP = bytes.fromhex("0180c2000001")
_MAC_CONTROL = b"\x88\x08"
_PRIORITY_PAUSE = 0x0101
_BODY = struct.Struct(">HH8H")
_LEAST = 60
_VLAN = ETHERTYPE_VLAN.to_bytes(2, "big")


def pack_pause(source_mac: bytes, quanta: dict[int, int]) -> bytes:
    """A frame from ``source_mac`` that sets the pause of each priority (0 to 7) in ``quanta``."""
    times = [quanta.get(priority, 0) for priority in range(PRIORITIES)]
    enabled = sum(1 << priority for priority in quanta)
    frame = b"".join((_GROUP, source_mac, _MAC_CONTROL, _BODY.pack(_PRIORITY_PAUSE, enabled, *times)))
    return frame.ljust(_LEAST, b"\0")


def is_pause(frame: bytes) -> bool:
    """True for a frame of MAC control, which never leaves its link."""
    return frame[12:14] == _MAC_CONTROL


def parse_pause(frame: bytes) -> dict[int, int] | None:
    """Quanta of each priority that the frame names; None when it is no whole frame of this kind."""
    if not is_pause(frame) or frame[:6] != _GROUP or len(frame) < ETHERNET_SIZE + _BODY.size:
        return None
    opcode, enabled, *times = _BODY.unpack_from(frame, ETHERNET_SIZE)
    if opcode != _PRIORITY_PAUSE:
        return None
    return {priority: times[priority] for priority in range(PRIORITIES) if enabled >> priority & 1}


def priority_of(frame: bytes) -> int:
    """The priority, 0 to 7, in which a frame travels."""
    if frame[12:14] == _VLAN and len(frame) > ETHERNET_SIZE:
        return frame[14] >> 5
    return dscp_of(frame) >> 3
