# SPDX-License-Identifier: Apache-2.0
"""Doorbell pages as memory: the guest stores without leaving it, the device looks from time to time.

A store costs nothing then, but what the device sees is weaker: the last value of each word, late, in no
order between words. So only blocks of single queue pairs are looked at; what is stored at the start of
a page, where all queue pairs of a process meet, would overwrite itself. And QEMU makes every other access
to a function that has mapped memory synchronous, so that commands cost more.

While somebody rings, the device looks in every turn of its loop; a while after the last doorbell it
looks less and less often.
"""

from __future__ import annotations

from emu.clock import MS, US, Scheduler
from emu.pcie.bar import BarHandler
from emu.pcie.memory import SharedMemory
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.contract.descriptors import DoorbellOffset

__all__ = ["MappedDoorbells"]

_BUSY = 2 * MS
"""How long after a doorbell the next one is expected at once."""
_TURN = 1 * US
"""Time between two looks then: no more than a turn of the loop."""
_REST = 200 * US
"""Time between two looks when nobody rang for a while."""
_WORDS = tuple(int(offset) for offset in DoorbellOffset)


class MappedDoorbells:
    """The pages of one NIC.

    :param size: bytes of all pages together, a power of two
    :param handler: takes each new value as if it had been stored
    :raises OSError: the system has no memory for the pages
    """

    def __init__(
        self, name: str, size: int, blocks: DoorbellBlocks, handler: BarHandler, scheduler: Scheduler
    ) -> None:
        self.memory = SharedMemory(f"{name} doorbells", size)
        self._words = self.memory.view.cast("Q")
        self._blocks = blocks
        self._handler = handler
        self._scheduler = scheduler
        self._version = -1
        self._seen: dict[int, int] = {}
        """Last value of each word that is looked at, by its index in the pages."""
        self._watching = False
        self._busy_until = 0
        self._resting = False
        self.looks = 0
        blocks.on_take = self.wake

    def clear(self) -> None:
        """The NIC was reset: nobody has a block."""
        self.memory.clear()
        self._seen.clear()

    def wake(self) -> None:
        """A queue pair was made: somebody may ring from now on."""
        if not self._watching:
            self._watching = True
            self._scheduler.call_soon(self._look)

    def _look(self) -> None:
        self.looks += 1
        # Nobody tells when a queue pair goes, so that is looked for while there is time.
        if self._resting or self._version != self._blocks.version:
            self._choose()
            self._version = self._blocks.version
        if not self._seen:
            self._watching = False
            return
        words, now = self._words, self._scheduler.now()
        for word, last in self._seen.items():
            value = words[word]
            if value != last:
                self._seen[word] = value
                self._busy_until = now + _BUSY
                self._handler.write(8 * word, value.to_bytes(8, "little"))
        self._resting = now >= self._busy_until
        self._scheduler.call_at(now + (_REST if self._resting else _TURN), self._look)

    def _choose(self) -> None:
        """Look at the blocks in use. What a new one holds from before is nobody's doorbell."""
        live = [(block + offset) // 8 for block in self._blocks.live() for offset in _WORDS]
        for word in live:
            if word not in self._seen:
                self._words[word] = 0
        self._seen = {word: self._seen.get(word, 0) for word in live}
