# SPDX-License-Identifier: Apache-2.0
"""What all objects of one NIC share."""

from __future__ import annotations

from dataclasses import dataclass

from emu.checks.checks import Checks
from emu.clock import Scheduler
from emu.events import EventBus
from emu.fabric.port import Port
from emu.nic.counters import Counters
from emu.nic.dma import Dma
from emu.nic.formats import Formats
from emu.nic.gid import GidTable
from emu.nic.limits import NicLimits
from emu.nic.routes import EventRoutes
from emu.nic.trace import Trace
from emu.pcie.bus import Bus, Interrupts

__all__ = ["Platform"]


@dataclass(frozen=True, slots=True)
class Platform:
    """The surroundings of a NIC: its function's bus and interrupts, its port, the clock, and where things are
    counted.
    """

    name: str
    dma: Dma
    interrupts: Interrupts
    port: Port
    scheduler: Scheduler
    events: EventBus
    counters: Counters
    checks: Checks
    trace: Trace
    formats: Formats
    limits: NicLimits
    routes: EventRoutes
    gids: GidTable

    @classmethod
    def build(
        cls,
        name: str,
        *,
        bus: Bus,
        interrupts: Interrupts,
        port: Port,
        scheduler: Scheduler,
        events: EventBus,
        formats: Formats,
        limits: NicLimits,
        gids: GidTable,
    ) -> Platform:
        """Join what the surroundings give with fresh counters."""
        counters = Counters()
        trace = Trace(events, scheduler, name)
        return cls(
            name=name,
            dma=Dma(bus, counters, trace),
            interrupts=interrupts,
            port=port,
            scheduler=scheduler,
            events=events,
            counters=counters,
            checks=Checks(counters, trace),
            trace=trace,
            formats=formats,
            limits=limits,
            routes=EventRoutes(),
            gids=gids,
        )
