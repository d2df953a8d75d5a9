# SPDX-License-Identifier: Apache-2.0
"""Doorbell records: two big-endian words in guest memory.

::

    queue pair, work queue:  receive counter, send counter      (16 bits each count)
    completion queue:        consumer index, arm state          (24 bits of the index count)
"""

from __future__ import annotations

__all__ = ["Record", "extend"]

COUNTER_BITS = 16
CONSUMER_BITS = 24


def extend(value: int, bits: int, last: int) -> int:
    """The first 32-bit running index from ``last`` on whose low ``bits`` are those of ``value``."""
    return (last + ((value - last) & ((1 << bits) - 1))) & 0xFFFFFFFF


class Record:
    """Implements :class:`emu.nic.formats.RecordFormat`."""

    size = 8

    def send(self, record: bytes, last: int) -> int:
        """The send counter."""
        return extend(record[6] << 8 | record[7], COUNTER_BITS, last)

    def receive(self, record: bytes, last: int) -> int:
        """The receive counter."""
        return extend(record[2] << 8 | record[3], COUNTER_BITS, last)

    def consumer(self, record: bytes, last: int) -> int:
        """The consumer index."""
        return extend(int.from_bytes(record[1:4], "big"), CONSUMER_BITS, last)
