# SPDX-License-Identifier: Apache-2.0
"""The seam between a NIC and the network: whole Ethernet frames without FCS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Port", "Receiver"]

Receiver = Callable[[bytes], None]


class Port(Protocol):
    """One end of a link. Frames are complete Ethernet frames (header, no FCS)."""

    name: str

    def send(self, frame: bytes) -> None:
        """Put ``frame`` on the link. Never calls back into the sender before it returns."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver arriving frames to ``receiver``, one call per frame, from the owner loop."""

    @property
    def up(self) -> bool:
        """Link state."""
