# SPDX-License-Identifier: Apache-2.0
"""A NIC without PCIe and sockets: register blocks over a bytearray, virtual time, engines of the test."""

from __future__ import annotations

from emu.chaos import NicChaos, Profile
from emu.clock import VirtualScheduler
from emu.events import EventBus
from emu.fabric.port import Port
from emu.nic.device import Nic
from emu.nic.endpoint import EndpointFactory
from emu.nic.engine import EngineFactory, PacketParser
from emu.nic.interference import NO_INTERFERENCE, Interference
from emu.nic.limits import NicLimits
from emu.personality.vrnic.admin import AdminQueue
from emu.personality.vrnic.blocks import DoorbellBlocks
from emu.personality.vrnic.doorbells import Doorbells, doorbell_queue
from emu.personality.vrnic.formats import vrnic_formats
from emu.personality.vrnic.registers import NicRegisters
from tests.nic.fakes import CountingInterrupts, Engines, MemoryBus, Recorder, RecordingPort, fake_parse

__all__ = ["GID", "MAC", "BareMachine"]

MAC = bytes.fromhex("027672000001")
GID = bytes.fromhex("fe80000000000000007672fffe000001")
PAGES = 256


class BareMachine:
    """Implements :class:`tests.personality.driver.Machine`."""

    def __init__(
        self,
        *,
        limits: NicLimits | None = None,
        ram_base: int = 0x1000_0000,
        ram_size: int = 1 << 20,
        mac: bytes = MAC,
        gid: bytes = GID,
        clock: VirtualScheduler | None = None,
        port: Port | None = None,
        create_engine: EngineFactory | None = None,
        parse: PacketParser = fake_parse,
        create_endpoint: EndpointFactory | None = None,
        chaos: Profile | None = None,
        seed: int = 0,
    ) -> None:
        self.ram_base = ram_base
        self.ram_size = ram_size
        self.bus = MemoryBus()
        self.ram = self.bus.map(ram_base, ram_size)
        self.clock = clock or VirtualScheduler()
        self.interrupts = CountingInterrupts()
        self.port = RecordingPort()
        self.engines = Engines()
        self.event_bus = EventBus()
        self.events = Recorder(self.event_bus)
        limits = limits or NicLimits()
        self.chaos: NicChaos | None = None
        interference: Interference = NO_INTERFERENCE
        port = port or self.port
        if chaos is not None:
            interference = self.chaos = NicChaos(
                chaos, seed, f"node0.nic{mac.hex()}", self.clock, self.event_bus
            )
            port = self.chaos.port(port)
            self.chaos.reset_with(self.reset)
        bus, interrupts = interference.upstream(self.bus, self.interrupts)
        self.nic = Nic(
            "node0.nic0",
            bus=bus,
            interrupts=interrupts,
            port=port,
            scheduler=self.clock,
            events=self.event_bus,
            formats=interference.formats(vrnic_formats(limits)),
            create_engine=create_engine or self.engines.create,
            parse=parse,
            create_endpoint=create_endpoint,
            mac=mac,
            gids=(gid,),
            limits=interference.limits(limits),
        )
        self.blocks = DoorbellBlocks(self.nic)
        self.admin = AdminQueue(self.nic, interrupts, self.blocks)
        self.registers = NicRegisters(self.nic, self.admin, self.reset, PAGES)
        self.doorbells = interference.registers(Doorbells(self.nic, self.blocks), doorbell_queue)

    def reset(self) -> None:
        """What CONTROL.RESET does."""
        if self.chaos is not None:
            self.chaos.clear()
        self.admin.clear()
        self.nic.reset("CONTROL.RESET")
        self.blocks.clear()

    def read(self, bar: int, offset: int, size: int) -> int:
        """Read a register."""
        block = self.registers if bar == 0 else self.doorbells
        data = block.read(offset, size)
        assert len(data) == size
        return int.from_bytes(data, "little")

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """Write a register."""
        block = self.registers if bar == 0 else self.doorbells
        block.write(offset, data)

    def load(self, address: int, length: int) -> bytes:
        """Read memory."""
        return bytes(self.ram[address - self.ram_base : address - self.ram_base + length])

    def store(self, address: int, data: bytes) -> None:
        """Write memory."""
        self.ram[address - self.ram_base : address - self.ram_base + len(data)] = data

    def settle(self) -> None:
        """Run what is due now; a driver that waits for a command also reads a register."""
        self.clock.run(until=self.clock.now())
        if self.chaos is not None:
            self.chaos.push()
