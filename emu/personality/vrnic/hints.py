# SPDX-License-Identifier: Apache-2.0
"""The contract's hint ring for the checks: bytes in, hints out."""

from __future__ import annotations

from emu.checks.hint import Hint
from emu.checks.hintring import BadHint
from emu.nic.serial import MASK
from emu.personality.vrnic.codec import packer
from emu.personality.vrnic.contract.hints import HINT_HEADER_SIZE, HINT_SIZE, HintEntry

__all__ = ["HintRingFormat"]

PRODUCER, CONSUMER = 0, 32


class HintRingFormat:
    """Implements :class:`emu.checks.hintring.HintFormat`."""

    header_size = HINT_HEADER_SIZE
    slot_size = HINT_SIZE
    consumer_offset = CONSUMER

    def __init__(self) -> None:
        self._unpack = packer(HintEntry, 0, HINT_SIZE).iter_unpack

    def producer(self, header: bytes) -> int:
        """The index in the header."""
        return int.from_bytes(header[PRODUCER : PRODUCER + 4], "little")

    def consumer(self, index: int) -> bytes:
        """The index as 4 bytes."""
        return index.to_bytes(4, "little")

    def decode(self, burst: bytes, first: int) -> list[Hint | BadHint]:
        """One result an entry."""
        results: list[Hint | BadHint] = []
        index = first
        for kind, detail, cta, sequence, *rest in self._unpack(burst):
            if sequence != index:
                results.append(BadHint(f"entry {index} carries sequence {sequence}"))
            else:
                results.append(Hint(kind, detail, cta, *rest))
            index = (index + 1) & MASK
        return results
