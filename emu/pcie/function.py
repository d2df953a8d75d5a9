# SPDX-License-Identifier: Apache-2.0
"""One PCI Express function: configuration space, BARs, interrupts, DMA and reset, put together.

A device is built by adding BARs and MSI-X to a :class:`Function` before it is served::

    function = Function("node0.nic0", identity, hierarchy, serial=eui64(mac))
    function.add_bar(0, 64 * 1024, registers)
    msix = function.add_msix(4, 32, bar_size=8 * 1024)
    function.on_reset(device.reset)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emu.pcie.bar import Bar, BarHandler, BarMemory, MemoryHandler
from emu.pcie.caps.aer import AdvancedErrors, Uncorrectable
from emu.pcie.caps.express import DeviceStatus, Express, LinkSpeed
from emu.pcie.caps.pm import PowerManagement, PowerState
from emu.pcie.caps.serial import SerialNumber
from emu.pcie.config import CONFIG_SIZE, ConfigSpace
from emu.pcie.header import BAR_COUNT, COMMAND, Command, Header, Identity, Status, bar_offset
from emu.pcie.hierarchy import Hierarchy, Window
from emu.pcie.msix import Msix
from emu.pcie.space import AddressSpace
from emu.transport.dma import DmaMap
from emu.transport.model import CONFIG_REGION, IrqSink, RegionSpec, ResetKind

__all__ = ["Function"]

ResetListener = Callable[[ResetKind], None]
UnmapListener = Callable[[int, int], None]


class Function:
    """A function; implements :class:`emu.transport.model.DeviceModel`.

    ``bus`` is its DMA, ``config`` its configuration space. ``unsupported`` counts accesses to BARs that do
    not answer (memory decoding off, or not in D0): reads give all ones, writes are dropped, as on a real bus.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        hierarchy: Hierarchy,
        *,
        serial: int,
        link_speed: LinkSpeed = LinkSpeed.GT32,
        link_width: int = 16,
    ) -> None:
        """``name`` as traces show it ("node0.nic0"), ``serial`` the 64-bit device serial number."""
        self.name = name
        self.unsupported = 0
        self.config = ConfigSpace()
        self.bus = AddressSpace(hierarchy, self._master_abort)
        self._hierarchy = hierarchy
        self._header = Header(self.config, identity)
        self._power = PowerManagement(self.config, self._access_changed)
        self._express = Express(
            self.config,
            speed=link_speed,
            width=link_width,
            initiate_flr=lambda: self.reset(ResetKind.FLR),
        )
        self._errors = AdvancedErrors(self.config)
        SerialNumber(self.config, serial)
        self._bars: dict[int, Bar] = {}
        self._answering: dict[int, BarHandler] = {}
        self._msix: Msix | None = None
        self._sink: IrqSink | None = None
        self._reset_listeners: list[ResetListener] = []
        self._unmap_listeners: list[UnmapListener] = []
        self.config.watch(COMMAND, 2, self._access_changed)
        self.config.watch(bar_offset(0), 4 * BAR_COUNT, hierarchy.invalidate)
        hierarchy.add(self._windows)

    def add_bar(
        self, index: int, size: int, handler: BarHandler, *, wide: bool = False, prefetchable: bool = False
    ) -> None:
        """Put registers behind BAR ``index``. :raises ValueError: as :meth:`Header.add_bar`."""
        self._add(Bar(index, size, handler), wide, prefetchable)

    def add_memory_bar(
        self, index: int, memory: BarMemory, *, wide: bool = True, prefetchable: bool = True
    ) -> None:
        """Put mappable memory behind BAR ``index``. :raises ValueError: as :meth:`add_bar`."""
        self._add(Bar(index, memory.size, MemoryHandler(memory), memory), wide, prefetchable)

    def add_msix(self, index: int, vectors: int, *, bar_size: int) -> Msix:
        """Give the function MSI-X, with table and pending bits in BAR ``index``.

        :raises ValueError: the table does not fit into half of the BAR, or it has MSI-X already.
        """
        if self._msix is not None:
            raise ValueError(f"{self.name} has MSI-X already")
        msix = Msix(self.config, vectors, index, bar_size, lambda: self.bus.mastering)
        self.add_bar(index, bar_size, msix)
        msix.connect(self._sink)
        self._msix = msix
        return msix

    def on_reset(self, listener: ResetListener) -> None:
        """Call ``listener`` on each reset, once configuration space and vectors are in reset state."""
        self._reset_listeners.append(listener)

    def on_unmap(self, listener: UnmapListener) -> None:
        """Call ``listener`` with address and size of a range of guest RAM that disappears."""
        self._unmap_listeners.append(listener)

    def connect(self, sink: IrqSink | None) -> None:
        """Where MSI-X messages go: the endpoint that serves this function."""
        self._sink = sink
        if self._msix is not None:
            self._msix.connect(sink)

    @property
    def regions(self) -> tuple[RegionSpec, ...]:
        """The BARs and the configuration space."""
        bars = tuple(
            RegionSpec(bar.index, bar.size, bar.memory.fd if bar.memory is not None else None)
            for bar in self._bars.values()
        )
        return (*bars, RegionSpec(CONFIG_REGION, CONFIG_SIZE))

    @property
    def msix_vectors(self) -> int:
        """MSI-X table size, 0 without."""
        return self._msix.vectors if self._msix is not None else 0

    @property
    def power_state(self) -> PowerState:
        """D0 or D3hot."""
        return self._power.state

    def bar_address(self, index: int) -> int | None:
        """Bus address at which BAR ``index`` answers, None when it does not."""
        address = self._header.bar_address(index)
        return address if self._answering and address else None

    def region_read(self, index: int, offset: int, size: int) -> bytes:
        """Read configuration space or a BAR; all ones where nothing answers."""
        handler = self._answering.get(index)
        if handler is not None:
            return handler.read(offset, size)
        if index == CONFIG_REGION:
            return self.config.read(offset, size)
        self._refuse()
        return b"\xff" * size

    def region_write(self, index: int, offset: int, data: bytes) -> None:
        """Write configuration space or a BAR; dropped where nothing answers."""
        handler = self._answering.get(index)
        if handler is not None:
            handler.write(offset, data)
        elif index == CONFIG_REGION:
            self.config.write(offset, data)
        else:
            self._refuse()

    def attached(self, dma: DmaMap) -> None:
        """A client is there, with its RAM."""
        self.bus.attach(dma)

    def dma_unmapping(self, address: int, size: int) -> None:
        """Tell the device that a range of RAM goes away."""
        for listener in self._unmap_listeners:
            listener(address, size)

    def reset(self, kind: ResetKind) -> None:
        """Reset configuration space (by ``kind``'s rules) and vectors, then tell the listeners."""
        if kind is ResetKind.LOST:
            self.bus.detach()
        self.config.reset(kind)
        self._power.reset()
        if self._msix is not None:
            self._msix.reset()
        self._access_changed()
        for listener in self._reset_listeners:
            listener(kind)

    def _add(self, bar: Bar, wide: bool, prefetchable: bool) -> None:
        self._header.add_bar(bar.index, bar.size, wide=wide, prefetchable=prefetchable)
        self._bars[bar.index] = bar
        self._hierarchy.invalidate()

    def _refuse(self) -> None:
        """Record a memory request that nothing answered."""
        self.unsupported += 1
        self._errors.record(Uncorrectable.UNSUPPORTED_REQUEST)
        self._express.note(DeviceStatus.NON_FATAL | DeviceStatus.UNSUPPORTED_REQUEST)

    def _windows(self) -> Iterator[Window]:
        for index, bar in self._bars.items():
            address = self.bar_address(index)
            if address is not None:
                yield Window(address, address + bar.size, self.name, bar)

    def _access_changed(self) -> None:
        """Command register or power state changed: what the function answers and may send."""
        command = self._header.command
        awake = self._power.state is PowerState.D0
        decoding = awake and Command.MEMORY in command
        self._answering = {bar.index: bar.handler for bar in self._bars.values()} if decoding else {}
        self.bus.mastering = awake and Command.MASTER in command
        self._hierarchy.invalidate()
        if self._msix is not None:
            self._msix.flush()

    def _master_abort(self) -> None:
        self._header.note(Status.RECEIVED_MASTER_ABORT)
