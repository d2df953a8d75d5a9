# SPDX-License-Identifier: Apache-2.0
"""Work that fails for no reason of its own."""

from __future__ import annotations

import random
from collections.abc import Callable

from emu.chaos.profile import Failure
from emu.checks.rule import Rule
from emu.nic.formats import WqeFault, WqeFormat
from emu.nic.qp import QueuePair
from emu.nic.work import SendRequest

__all__ = ["FailingWork"]


class FailingWork:
    """Reads send descriptors as ``inner`` does, but finds a fault in one of each queue pair.

    Implements :class:`emu.nic.formats.WqeFormat`.
    """

    def __init__(
        self, inner: WqeFormat, settings: Failure, rng: random.Random, note: Callable[[str], None]
    ) -> None:
        self.slot_size = inner.slot_size
        self._inner = inner
        self._settings = settings
        self._rng = rng
        self._note = note
        self._left: dict[int, int] = {}
        """By number of a queue pair: descriptors until the one that fails; negative once it has."""

    def decode(self, burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
        """As :meth:`emu.nic.formats.WqeFormat.decode`."""
        found = self._inner.decode(burst, first, count, qp)
        left = self._left.get(qp.number)
        if left is None:
            left = self._rng.randrange(self._settings.nth)
        self._left[qp.number] = max(left - len(found), -1)
        if not 0 <= left < len(found):
            return found
        victim = found[left]
        self._left[qp.number] = -1
        if isinstance(victim, WqeFault):
            return found
        settings = self._settings
        text = f"QP {qp.number:#x}: the descriptor at index {victim.index} fails with {settings.status.name}"
        self._note(text)
        found[left] = WqeFault(
            victim.index, Rule.NONE, settings.cause, f"chaos: {text}", victim.slots, settings.status
        )
        return found

    def clear(self) -> None:
        """Forget the queue pairs: the function was reset."""
        self._left.clear()
