# SPDX-License-Identifier: Apache-2.0
"""The owner of objects: one process of the guest, seen by the device as one doorbell page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.checks.hintring import HintRing
    from emu.nic.cq import CompletionQueue
    from emu.nic.handles import NumberedHandle
    from emu.nic.mr import MemoryRegion
    from emu.nic.qp import QueuePair

__all__ = ["Context", "ProtectionDomain"]


@dataclass(slots=True, eq=False)
class Context:
    """``number`` is the doorbell page whose writes count as this context's. Holds what the context owns.

    ``hints`` is where its submitters tell the checks of themselves, if they do.
    """

    number: int
    pds: dict[int, ProtectionDomain] = field(default_factory=dict)
    cqs: dict[int, CompletionQueue] = field(default_factory=dict)
    hints: HintRing | None = None

    @property
    def empty(self) -> bool:
        """True when it owns nothing (queue pairs and regions hang on its protection domains)."""
        return not self.pds and not self.cqs


@dataclass(slots=True, eq=False)
class ProtectionDomain:
    """Keys and queue pairs of one domain work together; those of different domains never do."""

    number: int
    context: Context
    regions: dict[int, MemoryRegion] = field(default_factory=dict)
    qps: dict[int, QueuePair] = field(default_factory=dict)
    handles: dict[int, NumberedHandle] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True when it holds nothing."""
        return not self.regions and not self.qps and not self.handles
