# SPDX-License-Identifier: Apache-2.0
"""The NIC as a PCIe function with this personality, ready to be served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.clock import Scheduler
from emu.events import EventBus
from emu.fabric.port import Port
from emu.nic.device import Nic
from emu.nic.endpoint import EndpointFactory
from emu.nic.engine import EngineFactory, PacketParser
from emu.nic.interference import NO_INTERFERENCE, Interference
from emu.nic.limits import NicLimits
from emu.pcie.caps.serial import eui64
from emu.pcie.function import Function
from emu.pcie.header import Identity
from emu.pcie.hierarchy import Hierarchy
from emu.personality.vrnic.admin import AdminQueue
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.contract import identity
from emu.personality.vrnic.contract.commands import GID_TABLE_SIZE
from emu.personality.vrnic.contract.descriptors import MAX_INLINE
from emu.personality.vrnic.doorbells import Doorbells, doorbell_queue
from emu.personality.vrnic.formats import vrnic_formats
from emu.personality.vrnic.mapped import MappedDoorbells
from emu.personality.vrnic.registers import NicRegisters

__all__ = ["VrnicFunction", "build_nic_function"]

IDENTITY = Identity(
    vendor=identity.VENDOR_ID,
    device=identity.NIC_DEVICE_ID,
    class_code=identity.NIC_CLASS,
    subsystem_vendor=identity.VENDOR_ID,
    subsystem=identity.SUBSYSTEM_ID,
)
LIMITS = NicLimits(
    contexts=identity.DOORBELL_PAGES - 1,
    vectors=identity.NIC_VECTORS,
    eqs=identity.NIC_VECTORS - 1,
    max_inline=MAX_INLINE,
    gid_table_size=GID_TABLE_SIZE,
)


@dataclass(frozen=True, slots=True)
class VrnicFunction:
    """A NIC's parts: the function to serve, the core behind it, and its register and doorbell blocks."""

    function: Function
    nic: Nic
    registers: NicRegisters
    doorbells: Doorbells
    admin: AdminQueue

    def ethernet_counters(self) -> dict[str, int]:
        """This contract has no Ethernet queues."""
        return {}


def build_nic_function(
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
    mapped_doorbells: bool = False,
) -> VrnicFunction:
    """A NIC called ``name`` ("node0.nic0") on ``port``, with MAC ``mac`` (6 bytes) and initial ``gids`` (16
    bytes each). ``interference`` may stand between it and everything else.

    With ``mapped_doorbells`` doorbell pages are memory that is looked at, not stores that are told: cheaper
    for the guest, but register accesses of a function with mapped memory are slower (see
    :mod:`emu.personality.vrnic.mapped`).

    Its serial number is the EUI-64 of the MAC. Every reset of the function, and CONTROL.RESET, empties it.

    :raises ValueError: an address of the wrong size.
    """
    function = Function(name, IDENTITY, hierarchy, serial=eui64(mac))
    msix = function.add_msix(identity.NIC_MSIX_BAR, identity.NIC_VECTORS, bar_size=identity.NIC_MSIX_SIZE)
    bus, interrupts = interference.upstream(function.bus, msix)
    nic = Nic(
        name,
        bus=bus,
        interrupts=interrupts,
        port=port,
        scheduler=scheduler,
        events=events,
        formats=interference.formats(vrnic_formats(LIMITS)),
        create_engine=create_engine,
        parse=parse,
        create_endpoint=create_endpoint,
        mac=mac,
        gids=gids,
        limits=interference.limits(LIMITS),
    )
    blocks = DoorbellBlocks(nic, mapped=mapped_doorbells)
    admin = AdminQueue(nic, interrupts, blocks)

    def reset(reason: str) -> None:
        interference.clear()
        admin.clear()
        nic.reset(reason)
        blocks.clear()
        if pages is not None:
            pages.clear()

    registers = NicRegisters(
        nic,
        admin,
        lambda: reset("CONTROL.RESET"),
        identity.DOORBELL_PAGES,
        mapped_doorbells=mapped_doorbells,
    )
    doorbells = Doorbells(nic, blocks)
    size = identity.DOORBELL_PAGES * identity.DOORBELL_PAGE_SIZE
    front = interference.registers(doorbells, doorbell_queue)
    pages: MappedDoorbells | None = None
    function.add_bar(
        identity.NIC_REGISTER_BAR,
        identity.NIC_REGISTER_SIZE,
        interference.registers(registers, lambda offset, data: None),
    )
    if mapped_doorbells:
        pages = MappedDoorbells(name, size, blocks, front, scheduler)
        function.add_memory_bar(identity.NIC_DOORBELL_BAR, pages.memory, wide=False, prefetchable=False)
    else:
        function.add_bar(identity.NIC_DOORBELL_BAR, size, front)
    function.on_reset(lambda kind: reset(kind.value))
    return VrnicFunction(function, nic, registers, doorbells, admin)
