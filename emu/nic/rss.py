# SPDX-License-Identifier: Apache-2.0
"""Receive side scaling: a number per flow, from the addresses and ports of its packets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache, reduce
from operator import xor

from emu.nic.frame import NO_HASH, TCP, UDP, FlowHash, parse_headers

__all__ = ["KEY_BYTES", "HashField", "HashFunction", "RssHash", "toeplitz"]

KEY_BYTES = 40
"""Enough for the longest input, two IPv6 addresses and two ports."""


class HashFunction(IntEnum):
    """How the number is made of the fields."""

    NONE = 0
    XOR8 = 1
    TOEPLITZ = 2


class HashField(IntFlag):
    """What goes in, in this order."""

    SOURCE = 1
    DESTINATION = 2
    SOURCE_PORT = 4
    DESTINATION_PORT = 8


NO_FIELDS = HashField(0)
_BOTH, _PORTS = 3, 2
"""Fields come in pairs: bits of one pair, and where those of the ports begin."""


@dataclass(frozen=True, slots=True)
class RssHash:
    """A hash as a driver chose it.

    ``symmetric``: both directions of a connection get one number; of each pair of fields their bitwise OR and
    XOR go into Toeplitz, as Linux describes it (``RXH_XFRM_SYM_OR_XOR``). XOR of all bytes is that anyway.
    ``key`` is for Toeplitz.
    """

    function: HashFunction = HashFunction.NONE
    key: bytes = bytes(KEY_BYTES)
    fields: HashField = NO_FIELDS
    symmetric: bool = False

    def of(self, frame: bytes) -> FlowHash:
        """The hash of a frame's flow. Fragments have no ports, and what is not IP has no flow."""
        if self.function == HashFunction.NONE:
            return NO_HASH
        headers = parse_headers(frame)
        if not headers.version:
            return NO_HASH
        fields = int(self.fields)
        width, start = (4, headers.l3 + 12) if headers.version == 4 else (16, headers.l3 + 8)
        addresses = self._pair(frame[start : start + 2 * width], fields & _BOTH)
        ports = b""
        if headers.protocol in (TCP, UDP) and not headers.fragment and headers.end >= headers.l4 + 4:
            ports = self._pair(frame[headers.l4 : headers.l4 + 4], fields >> _PORTS & _BOTH)
        if self.function == HashFunction.TOEPLITZ:
            value = toeplitz(self.key, addresses + ports)
        else:
            value = reduce(xor, addresses + ports, 0xFF)
        return FlowHash(value, headers.version if addresses else 0, headers.protocol if ports else 0)

    def _pair(self, both: bytes, chosen: int) -> bytes:
        half = len(both) // 2
        if chosen != _BOTH:
            return (both[:half] if chosen & 1 else b"") + (both[half:] if chosen & 2 else b"")
        if not self.symmetric or self.function == HashFunction.XOR8:
            return both
        one, other = int.from_bytes(both[:half], "big"), int.from_bytes(both[half:], "big")
        return ((one | other) << half * 8 | one ^ other).to_bytes(2 * half, "big")


@lru_cache(maxsize=4096)
def toeplitz(key: bytes, data: bytes) -> int:
    """Toeplitz hash of at most ``KEY_BYTES - 4`` bytes; remembered, as a flow has many packets."""
    window, bits = int.from_bytes(key, "big"), len(key) * 8
    value = int.from_bytes(data, "big")
    result = 0
    for at in range(len(data) * 8):
        if value >> (len(data) * 8 - 1 - at) & 1:
            result ^= window >> (bits - 32 - at) & 0xFFFFFFFF
    return result
