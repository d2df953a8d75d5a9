# SPDX-License-Identifier: Apache-2.0
"""The ring in guest memory through which the submitter's side tells what the device cannot see.

Hints reach the device in their place: whatever stands in the ring when a doorbell arrives was put there
before that doorbell was stored. Their meaning never depends on when the device looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emu.checks.check import Check, Found
from emu.checks.hint import Hint
from emu.checks.rule import Rule
from emu.nic.serial import MASK
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.nic.dma import Dma
    from emu.nic.ring import RingMemory

__all__ = ["CHECKS", "BadHint", "HintFormat", "HintRing"]

CHECKS = (
    Check(
        Rule.C34_HINT,
        "Hints are well formed and speak of queue pairs of their own process.",
        "running index of the hint, field",
        "The hint is ignored.",
        "Write entries and their sequence first, then the producer index.",
        found=Found.HINTS,
        personalities=("vrnic",),
    ),
)


class BadHint(Exception):
    """A hint that says nothing: why, for a person."""


class HintFormat(Protocol):
    """What the bytes of a hint ring mean."""

    header_size: int
    slot_size: int
    consumer_offset: int
    """Where in the header the device writes its index, 4 bytes."""

    def producer(self, header: bytes) -> int:
        """Running index of the next entry software will write."""

    def consumer(self, index: int) -> bytes:
        """The consumer index as 4 bytes."""

    def decode(self, burst: bytes, first: int) -> list[Hint | BadHint]:
        """The entries in ``burst``, the first of which has running index ``first``. Never raises."""


class HintRing:
    """One context's ring: a header with both indices, and ``1 << log_size`` entries behind it.

    ``consumer`` is the running index of the next entry the device will read.
    """

    def __init__(self, memory: RingMemory, log_size: int, form: HintFormat, dma: Dma) -> None:
        self.consumer = 0
        self.size = 1 << log_size
        self._memory = memory
        self._form = form
        self._dma = dma
        self._quiet = dma.quiet()
        if memory.region is not None:
            memory.region.pins += 1

    def release(self) -> None:
        """Unpin the memory."""
        if self._memory.region is not None:
            self._memory.region.pins -= 1

    def drain(self) -> list[Hint | BadHint]:
        """What was written since the last time. A ring that overran starts again behind what was lost."""
        memory, form = self._memory, self._form
        try:
            header = memory.pages.read(self._quiet, memory.offset, form.header_size)
            producer = form.producer(header)
            count = (producer - self.consumer) & MASK
            if not count:
                return []
            if count > self.size:
                lost, self.consumer = self.consumer, producer
                self._tell()
                return [
                    BadHint(
                        f"the producer index went from {lost} to {producer}, more than {self.size} entries"
                    )
                ]
            first = self.consumer
            slot = first & (self.size - 1)
            head = min(count, self.size - slot)
            start = memory.offset + form.header_size
            burst = memory.pages.read(self._quiet, start + slot * form.slot_size, head * form.slot_size)
            if head < count:
                burst += memory.pages.read(self._quiet, start, (count - head) * form.slot_size)
            self.consumer = producer
            self._tell()
        except BusError as error:
            return [BadHint(f"the ring cannot be reached: {error}")]
        return form.decode(burst, first)

    def _tell(self) -> None:
        memory = self._memory
        memory.pages.write(
            self._dma, memory.offset + self._form.consumer_offset, self._form.consumer(self.consumer)
        )
