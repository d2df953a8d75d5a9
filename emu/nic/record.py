# SPDX-License-Identifier: Apache-2.0
"""The doorbell record: a queue pair's producer indices in guest memory."""

from __future__ import annotations

import enum

from emu.nic.dma import Dma
from emu.nic.formats import RecordFormat
from emu.nic.ring import RingMemory
from emu.nic.serial import MASK

__all__ = ["DbrPolicy", "DoorbellRecord"]

HALF = 1 << 15
"""Half of what the narrowest record can count."""


class DbrPolicy(enum.IntEnum):
    """What the doorbell record means."""

    NONE = 0
    """Not read."""
    RECOVERY = 1
    """Read after a stall; it may be ahead of lost doorbells."""
    AUTHORITATIVE = 2
    """Read at each doorbell; the doorbell is only a hint."""
    STRICT = 3
    """A doorbell ahead of the record is a violation and is ignored."""
    LATEST = 16
    """Read at each doorbell; whichever of the two is later counts. No policy of the `vrnic` contract."""


class DoorbellRecord:
    """The record of one queue pair and what it counts for.

    ``outrun`` is the index of the last doorbell while the record told of more than it, else None: doorbells
    from there on are late, as they were on their way when the record was read. ``rung`` is the latest index
    that a doorbell named by itself (LATEST), None before the first.
    """

    __slots__ = ("_dma", "_format", "_memory", "outrun", "policy", "rung")

    def __init__(self, memory: RingMemory, policy: DbrPolicy, form: RecordFormat, dma: Dma) -> None:
        self.policy = policy
        self.outrun: int | None = None
        self.rung: int | None = None
        self._memory = memory
        self._format = form
        self._dma = dma
        if memory.region is not None:
            memory.region.pins += 1

    def release(self) -> None:
        """Unpin the memory."""
        if self._memory.region is not None:
            self._memory.region.pins -= 1
        self.policy = DbrPolicy.NONE

    def send(self, last: int) -> int:
        """Running index of the next free send slot; ``last`` is the one known so far.

        :raises BusError: the record is unreachable.
        """
        return self._format.send(self._read(), last)

    def peek(self, dma: Dma, last: int) -> tuple[int, int]:
        """Receive and send index, by way of ``dma``; ``last`` is the send index known so far.

        :raises BusError: the record is unreachable.
        """
        data = self._memory.pages.read(dma, self._memory.offset, self._format.size)
        near = (last - HALF) & MASK if self.policy is DbrPolicy.LATEST else last
        return self._format.receive(data, last), self._format.send(data, near)

    def send_near(self, last: int) -> int:
        """As :meth:`send`, but the index closest to ``last``: the record may also be behind it.

        :raises BusError: the record is unreachable.
        """
        return self._format.send(self._read(), (last - HALF) & MASK)

    def receive(self, last: int) -> int:
        """Running index of the next free receive slot; ``last`` is the one known so far.

        :raises BusError: the record is unreachable.
        """
        return self._format.receive(self._read(), last)

    def _read(self) -> bytes:
        return self._memory.pages.read(self._dma, self._memory.offset, self._format.size)
