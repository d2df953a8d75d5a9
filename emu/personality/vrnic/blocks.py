# SPDX-License-Identifier: Apache-2.0
"""Doorbell blocks: the part of a doorbell page that belongs to one queue pair alone."""

from __future__ import annotations

from collections.abc import Callable

from emu.nic.device import Nic
from emu.nic.qp import QueuePair
from emu.personality.vrnic.contract.identity import (
    DOORBELL_BLOCK_BASE,
    DOORBELL_BLOCK_SIZE,
    DOORBELL_PAGE_SIZE,
)

__all__ = ["BLOCKS", "DoorbellBlocks"]

BLOCKS = (DOORBELL_PAGE_SIZE - DOORBELL_BLOCK_BASE) // DOORBELL_BLOCK_SIZE
"""In each page."""


class DoorbellBlocks:
    """Who has which block, by page. A block is free again once its queue pair is gone.

    ``mapped`` says that doorbell pages are memory (DOORBELL_MODE 1): a queue pair without a block cannot be
    rung. ``on_take`` is called whenever one is given away.
    """

    def __init__(self, nic: Nic, *, mapped: bool = False) -> None:
        self.mapped = mapped
        self._qps = nic.qps.items
        self._pages: dict[int, dict[int, int]] = {}
        self.version = 0
        """Changes with every block that is taken or becomes free."""
        self.on_take: Callable[[], None] = lambda: None

    def take(self, qp: QueuePair) -> int:
        """A block for ``qp``: its byte offset in the context's page, 0 when all are taken."""
        self._prune()
        taken = self._pages.setdefault(qp.pd.context.number, {})
        for place in range(BLOCKS):
            offset = DOORBELL_BLOCK_BASE + place * DOORBELL_BLOCK_SIZE
            if offset not in taken:
                taken[offset] = qp.number
                self.version += 1
                self.on_take()
                return offset
        return 0

    def free(self, context: int) -> bool:
        """Whether page ``context`` has a block left."""
        self._prune()
        return len(self._pages.get(context, ())) < BLOCKS

    def owner(self, page: int, offset: int) -> int | None:
        """The queue pair that has the block at byte ``offset`` of ``page``; None for a free one."""
        number = self._pages.get(page, {}).get(offset)
        return number if number in self._qps else None

    def live(self) -> list[int]:
        """Byte offsets, from the start of the doorbell BAR, of the blocks in use."""
        self._prune()
        return [page * DOORBELL_PAGE_SIZE + offset for page, taken in self._pages.items() for offset in taken]

    def clear(self) -> None:
        """Every queue pair is gone."""
        self._pages.clear()
        self.version += 1

    def _prune(self) -> None:
        # Queue pairs are destroyed in several ways; numbers are not used again before a reset.
        for page, taken in list(self._pages.items()):
            gone = [offset for offset, number in taken.items() if number not in self._qps]
            for offset in gone:
                del taken[offset]
                self.version += 1
            if not taken:
                del self._pages[page]
