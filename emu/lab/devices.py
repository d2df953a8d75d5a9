# SPDX-License-Identifier: Apache-2.0
"""The kinds of NIC a lab can have: which personality stands behind each ``device`` name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from emu.clock import Scheduler
from emu.events import EventBus
from emu.fabric.port import Port
from emu.lab.topology import NicFunction
from emu.nic.device import Nic
from emu.nic.endpoint import EndpointFactory
from emu.nic.engine import EngineFactory, PacketParser
from emu.nic.interference import NO_INTERFERENCE, Interference
from emu.pcie.function import Function
from emu.pcie.hierarchy import Hierarchy
from emu.personality.mlx5.function import build_mlx5_function
from emu.personality.vrnic.function import build_nic_function

__all__ = ["BUILDERS", "NicBuilder", "NicDevice", "RegisterBlock", "builder_of"]


class RegisterBlock(Protocol):
    """Registers that can be looked at."""

    def snapshot(self) -> list[dict[str, object]]:
        """One row a register: ``name``, ``offset``, ``value``."""


class NicDevice(Protocol):
    """A NIC whatever its personality."""

    @property
    def function(self) -> Function:
        """The PCI function to serve."""

    @property
    def nic(self) -> Nic:
        """The core."""

    @property
    def registers(self) -> RegisterBlock:
        """Its registers."""

    def ethernet_counters(self) -> dict[str, int]:
        """What its Ethernet queues counted; empty when it has none."""


class NicBuilder(Protocol):
    """Makes a NIC; arguments as of :func:`emu.personality.vrnic.function.build_nic_function`."""

    def __call__(
        self,
        name: str,
        hierarchy: Hierarchy,
        *,
        port: Port,
        scheduler: Scheduler,
        events: EventBus,
        create_engine: EngineFactory,
        parse: PacketParser,
        mac: bytes,
        gids: Sequence[bytes],
        create_endpoint: EndpointFactory | None = None,
        interference: Interference = NO_INTERFERENCE,
    ) -> NicDevice:
        """The NIC. :raises ValueError: an address of the wrong size."""


BUILDERS: dict[str, NicBuilder] = {"vrnic": build_nic_function, "mlx5": build_mlx5_function}
"""By the names of :data:`emu.lab.topology.DEVICES`."""


def builder_of(nic: NicFunction) -> NicBuilder:
    """What makes ``nic``."""
    if nic.doorbells == "mapped":
        return partial(build_nic_function, mapped_doorbells=True)
    return BUILDERS[nic.device]
