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
        if self.function is HashFunction.NONE:
            return NO_HASH
        headers = parse_headers(frame)
        if not headers.version:
            return NO_HASH
        width, start = (4, headers.l3 + 12) if headers.version == 4 else (16, headers.l3 + 8)
        addresses = self._pair(frame[start : start + 2 * width], HashField.SOURCE, HashField.DESTINATION)
        ports = b""
        if headers.protocol in (TCP, UDP) and not headers.fragment and headers.end >= headers.l4 + 4:
            pair = frame[headers.l4 : headers.l4 + 4]
            ports = self._pair(pair, HashField.SOURCE_PORT, HashField.DESTINATION_PORT)
        if self.function is HashFunction.TOEPLITZ:
            value = toeplitz(self.key, addresses + ports)
        else:
            value = reduce(xor, addresses + ports, 0xFF)
        return FlowHash(value, headers.version if addresses else 0, headers.protocol if ports else 0)

    def _pair(self, both: bytes, first: HashField, second: HashField) -> bytes:
        half = len(both) // 2
        one, other = both[:half], both[half:]
        if self.fields & (first | second) != first | second:
            return (one if self.fields & first else b"") + (other if self.fields & second else b"")
        if not self.symmetric or self.function is HashFunction.XOR8:
            return both
        low, high = int.from_bytes(one, "big"), int.from_bytes(other, "big")
        return (low | high).to_bytes(half, "big") + (low ^ high).to_bytes(half, "big")


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
