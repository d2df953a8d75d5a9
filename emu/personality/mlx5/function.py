# SPDX-License-Identifier: Apache-2.0
"""The NIC as a PCIe function with this personality, ready to be served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from emu.clock import Scheduler
from emu.events import EventBus
from emu.fabric.port import Port
from emu.nic.device import Nic
from emu.nic.endpoint import EndpointFactory
from emu.nic.engine import EngineFactory, PacketParser
from emu.nic.interference import NO_INTERFERENCE, Interference
from emu.nic.local import LocalEngine
from emu.nic.work import Transport
from emu.pcie.caps.serial import eui64
from emu.pcie.function import Function
from emu.pcie.hierarchy import Hierarchy
from emu.personality.mlx5.addresses import AddressTable
from emu.personality.mlx5.commandqueue import CommandQueue
from emu.personality.mlx5.device import Mlx5Device
from emu.personality.mlx5.formats import mlx5_formats
from emu.personality.mlx5.identity import (
    BAR_SIZE,
    IDENTITY,
    LIMITS,
    MSIX_BAR,
    MSIX_SIZE,
    REGISTER_BAR,
)
from emu.personality.mlx5.mkey import MkeyTable
from emu.personality.mlx5.registers import Registers, doorbell_queue

__all__ = ["Mlx5Function", "build_mlx5_function"]


@dataclass(frozen=True, slots=True)
class Mlx5Function:
    """A NIC's parts: the function to serve, the core, and what this interface adds."""

    function: Function
    nic: Nic
    registers: Registers
    device: Mlx5Device

    def ethernet_counters(self) -> dict[str, int]:
        """What its Ethernet queues counted since the function was reset."""
        return asdict(self.device.ethernet)


def build_mlx5_function(
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
) -> Mlx5Function:
    """An mlx5-compatible virtual function called ``name`` ("node0.nic0") on ``port``, with MAC ``mac``.

    Its driver fills the GID table, so ``gids`` only serve until then. ``interference`` may stand between it
    and everything else.

    :raises ValueError: an address of the wrong size.
    """
    function = Function(name, IDENTITY, hierarchy, serial=eui64(mac))
    msix = function.add_msix(MSIX_BAR, LIMITS.vectors, bar_size=MSIX_SIZE)
    addresses = AddressTable()
    mkeys = MkeyTable()
    bus, interrupts = interference.upstream(function.bus, msix)
    nic = Nic(
        name,
        bus=bus,
        interrupts=interrupts,
        port=port,
        scheduler=scheduler,
        events=events,
        formats=interference.formats(mlx5_formats(LIMITS, addresses, mkeys)),
        create_engine=lambda transport, host: (
            LocalEngine(host) if transport is Transport.LOCAL else create_engine(transport, host)
        ),
        parse=parse,
        create_endpoint=create_endpoint,
        mac=mac,
        gids=gids,
        limits=interference.limits(LIMITS),
    )
    device = Mlx5Device(nic, addresses, mkeys)
    commands = CommandQueue(device)
    registers = Registers(device, commands, scheduler)

    def reset(reason: str) -> None:
        interference.clear()
        commands.clear()
        registers.clear()
        device.reset(reason)

    front = interference.registers(registers, doorbell_queue)
    function.add_bar(REGISTER_BAR, BAR_SIZE, front, wide=True, prefetchable=True)
    function.on_reset(lambda kind: reset(kind.value))
    return Mlx5Function(function, nic, registers, device)
