# SPDX-License-Identifier: Apache-2.0
"""The seam at which somebody may stand between a NIC and its surroundings, to make trouble on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emu.nic.formats import Formats
from emu.nic.limits import NicLimits
from emu.pcie.bar import BarHandler
from emu.pcie.bus import Bus, Interrupts

__all__ = ["NO_INTERFERENCE", "Interference", "QueueOf"]

QueueOf = Callable[[int, bytes], int | None]
"""From offset and bytes of a register write: a number for the queue that it rings, or None for none."""


class Interference(Protocol):
    """What a function's builder offers to have replaced; each call returns its argument or a stand-in."""

    def upstream(self, bus: Bus, interrupts: Interrupts) -> tuple[Bus, Interrupts]:
        """The way to memory."""

    def registers(self, handler: BarHandler, queue_of: QueueOf) -> BarHandler:
        """The way from the guest to the registers of one BAR."""

    def formats(self, formats: Formats) -> Formats:
        """How descriptors are read."""

    def limits(self, limits: NicLimits) -> NicLimits:
        """What the NIC offers."""

    def clear(self) -> None:
        """The function was reset: nothing is on its way any more."""


class _None:
    """Leaves everything as it is."""

    def upstream(self, bus: Bus, interrupts: Interrupts) -> tuple[Bus, Interrupts]:
        return bus, interrupts

    def registers(self, handler: BarHandler, queue_of: QueueOf) -> BarHandler:
        return handler

    def formats(self, formats: Formats) -> Formats:
        return formats

    def limits(self, limits: NicLimits) -> NicLimits:
        return limits

    def clear(self) -> None:
        pass


NO_INTERFERENCE: Interference = _None()
