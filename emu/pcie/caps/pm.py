# SPDX-License-Identifier: Apache-2.0
"""Power management capability: D0 and D3hot.

::

     31        27 26 25 24  22 21 20 19 18  16 15            8 7            0
    +------------+--+--+------+--+--+--+------+---------------+--------------+
    | PME support|D2|D1| aux  |  DSI | clk| ver| next          | id 0x01      | +0
    +------------+--+--+------+--+--+--+------+---------------+--------------+
    | data       | reserved         | PME status..enable | 3: no soft reset | 1:0 state | +4
    +------------------------------------------------------------------------+

Source: PCI Express Base Specification, "Power Management Capability Structure"; PCI_PM_* in linux/pci_regs.h.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from emu.pcie.config import ConfigSpace

__all__ = ["PowerManagement", "PowerState"]

CAPABILITY = 0x01
SIZE = 8
VERSION_3 = 3
CONTROL = 4
STATE_MASK = 0x3
NO_SOFT_RESET = 1 << 3


class PowerState(enum.IntEnum):
    """The states this function has; D1 and D2 are optional and absent."""

    D0 = 0
    D3HOT = 3


class PowerManagement:
    """The capability. In D3hot the function answers configuration requests only.

    No_Soft_Reset is set: coming back to D0 keeps all state, so the way to a clean function is FLR.
    ``changed`` is called when the state changed.
    """

    def __init__(self, config: ConfigSpace, changed: Callable[[], None]) -> None:
        self._config = config
        self._changed = changed
        self._last = PowerState.D0
        self.offset = config.add_capability(CAPABILITY, SIZE)
        config.define(self.offset + 2, 2, VERSION_3)
        config.define(self.offset + CONTROL, 2, NO_SOFT_RESET, writable=STATE_MASK)
        config.watch(self.offset + CONTROL, 1, self._written)

    @property
    def state(self) -> PowerState:
        """Current power state."""
        return self._last

    def reset(self) -> None:
        """The configuration space went back to reset values: D0."""
        self._last = PowerState.D0

    def _written(self) -> None:
        """A write of a state the function does not have is discarded."""
        control = self._config.get(self.offset + CONTROL, 2)
        wanted = control & STATE_MASK
        if wanted not in (PowerState.D0, PowerState.D3HOT):
            self._config.put(self.offset + CONTROL, 2, control & ~STATE_MASK | self._last)
        elif wanted != self._last:
            self._last = PowerState(wanted)
            self._changed()
