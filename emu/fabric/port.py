# SPDX-License-Identifier: Apache-2.0
"""The seam between a NIC and the network: whole Ethernet frames without FCS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["LinkWatcher", "Port", "Receiver"]

Receiver = Callable[[bytes], None]
LinkWatcher = Callable[[bool], None]
"""Called with the new link state."""


class Port(Protocol):
    """One end of a link. Frames are complete Ethernet frames (header, no FCS)."""

    name: str

    def send(self, frame: bytes) -> None:
        """Put ``frame`` on the link. Never calls back into the sender before it returns."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver arriving frames to ``receiver``, one call per frame, from the owner loop."""

    def watch(self, watcher: LinkWatcher) -> None:
        """Call ``watcher`` whenever the link goes up or down."""

    @property
    def backlog(self) -> int:
        """Frames that wait for the link; a sender that holds back while there are many loses none."""

    @property
    def arriving(self) -> int:
        """Frames on their way here."""

    @property
    def up(self) -> bool:
        """Link state."""
