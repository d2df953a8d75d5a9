# SPDX-License-Identifier: Apache-2.0
"""A device model that stores what is written and remembers what happened, in order."""

from __future__ import annotations

import os

from emu.transport.dma import DmaMap
from emu.transport.model import CONFIG_REGION, IrqSink, RegionSpec, ResetKind

BAR = 0
VRAM = 2
BAR_SIZE = 0x10000
VRAM_SIZE = 0x4000


class Recorder:
    """Memory behind every region; ``log`` holds ``(what, ...)`` tuples."""

    def __init__(self, name: str = "node0.fake0", vectors: int = 12) -> None:
        self.name = name
        self.msix_vectors = vectors
        self.vram = os.memfd_create("vram", os.MFD_CLOEXEC)
        os.ftruncate(self.vram, VRAM_SIZE)
        self.memory = {BAR: bytearray(BAR_SIZE), VRAM: bytearray(VRAM_SIZE), CONFIG_REGION: bytearray(4096)}
        self.log: list[tuple[object, ...]] = []
        self.dma: DmaMap | None = None
        self.sink: IrqSink | None = None

    @property
    def regions(self) -> tuple[RegionSpec, ...]:
        return (
            RegionSpec(BAR, BAR_SIZE),
            RegionSpec(VRAM, VRAM_SIZE, self.vram),
            RegionSpec(CONFIG_REGION, 4096),
        )

    def region_read(self, index: int, offset: int, size: int) -> bytes:
        self.log.append(("read", index, offset, size))
        return bytes(self.memory[index][offset : offset + size])

    def region_write(self, index: int, offset: int, data: bytes) -> None:
        self.log.append(("write", index, offset, data))
        self.memory[index][offset : offset + len(data)] = data

    def connect(self, sink: IrqSink) -> None:
        self.sink = sink

    def attached(self, dma: DmaMap) -> None:
        self.log.append(("attached",))
        self.dma = dma

    def dma_unmapping(self, address: int, size: int) -> None:
        self.log.append(("unmapping", address, size))

    def reset(self, kind: ResetKind) -> None:
        self.log.append(("reset", kind))

    def happened(self, what: str) -> list[tuple[object, ...]]:
        """The entries of the log that begin with ``what``."""
        return [entry for entry in self.log if entry[0] == what]

    @property
    def memory_map(self) -> DmaMap:
        """The attached client's memory."""
        assert self.dma is not None
        return self.dma

    def interrupt(self, vector: int) -> bool:
        """Trigger a vector of the attached client."""
        assert self.sink is not None
        return self.sink.trigger(vector)
