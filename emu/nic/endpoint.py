# SPDX-License-Identifier: Apache-2.0
"""The seam between the NIC core and a transport whose packets name no queue pair (``emu.uet``).

Such a transport keeps state that all queue pairs of a NIC share, in one :class:`Endpoint` per NIC. It makes
the engines of its queue pairs, and gets every frame that the queue-pair transports call foreign. Like an
engine it does no I/O; its clock is the scheduler of its :class:`EndpointHost`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emu.clock import Scheduler
from emu.nic.engine import Drop, Engine, EngineHost
from emu.nic.work import Transport

__all__ = ["ENDPOINT_TRANSPORTS", "Endpoint", "EndpointFactory", "EndpointHost"]

ENDPOINT_TRANSPORTS = frozenset({Transport.UET_ROD, Transport.UET_RUD, Transport.UET_RUDI, Transport.UET_UUD})
"""Services whose queue pairs belong to an endpoint."""


class EndpointHost(Protocol):
    """What the core offers an endpoint. ``qpn`` is the queue pair a report is about, None for none."""

    @property
    def scheduler(self) -> Scheduler:
        """The clock."""

    @property
    def backlog(self) -> int:
        """Frames that wait at the port."""

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Hand a whole Ethernet frame to the port."""

    def wake(self, qpn: int) -> None:
        """Have the engine of a queue pair called soon: it has news, or room for more work."""

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        """Report that ``packets`` packets (``octets`` payload bytes) from ``psn`` on are sent again."""

    def note_drop(self, counter: str, reason: str) -> None:
        """Report an inbound packet that was dropped; ``counter`` is the name of the counter to bump."""

    def note_timer(self, name: str) -> None:
        """Report that a protocol timer ran out."""

    def count(self, counter: str) -> None:
        """Bump a counter by name."""


class Endpoint(Protocol):
    """Transport state of one NIC beyond its queue pairs."""

    def create_engine(self, transport: Transport, host: EngineHost) -> Engine:
        """A queue pair's engine in state RESET. :raises ValueError: the transport is not offered."""

    def forget_engine(self, qpn: int) -> None:
        """A queue pair was destroyed, whatever its transport."""

    def receive(self, frame: bytes, now: int) -> Drop | None:
        """Take a frame; the reason when it is dropped. Never raises."""

    def reset(self) -> None:
        """The NIC was reset: forget every context and engine."""


EndpointFactory = Callable[[EndpointHost], Endpoint]
"""Makes a NIC's endpoint."""
