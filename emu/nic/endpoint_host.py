# SPDX-License-Identifier: Apache-2.0
"""What a transport's endpoint sees of the NIC: the port, the clock, and where things are counted."""

from __future__ import annotations

from collections.abc import Callable

from emu.clock import Scheduler
from emu.events import Kind
from emu.nic.platform import Platform

__all__ = ["NicEndpointHost"]

_FRAME_OUT = Kind.FRAME_OUT.bit
_FRAME_DROP = Kind.FRAME_DROP.bit
_RETRANSMIT = Kind.RETRANSMIT.bit
_TIMER = Kind.TIMER.bit


class NicEndpointHost:
    """Implements :class:`emu.nic.endpoint.EndpointHost`; ``wake`` has a queue pair served by its number."""

    def __init__(self, platform: Platform, wake: Callable[[int], None]) -> None:
        self._platform = platform
        self.scheduler: Scheduler = platform.scheduler
        self.wake = wake

    @property
    def backlog(self) -> int:
        """Frames that wait at the port."""
        return self._platform.port.backlog

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Hand a frame to the port."""
        platform = self._platform
        counters = platform.counters
        counters.tx_packets += 1
        counters.tx_bytes += len(frame)
        if platform.events.mask & _FRAME_OUT:
            platform.trace.emit(
                Kind.FRAME_OUT, f"{len(frame)} bytes", qpn=qpn, length=len(frame), frame=frame
            )
        platform.port.send(frame)

    def note_retransmit(self, qpn: int | None, psn: int, packets: int, octets: int, reason: str) -> None:
        """Count and trace packets sent again."""
        platform = self._platform
        platform.counters.retransmitted_packets += packets
        platform.counters.retransmitted_bytes += octets
        if platform.events.mask & _RETRANSMIT:
            text = f"{packets} packets again from PSN {psn} ({reason})"
            platform.trace.emit(Kind.RETRANSMIT, text, qpn=qpn, length=octets, value=psn)

    def note_drop(self, counter: str, reason: str) -> None:
        """Count and trace an inbound packet that was dropped."""
        platform = self._platform
        platform.counters.rx_dropped += 1
        if counter != "rx_dropped":
            platform.counters.bump(counter)
        if platform.events.mask & _FRAME_DROP:
            platform.trace.emit(Kind.FRAME_DROP, reason)

    def note_timer(self, name: str) -> None:
        """Trace a protocol timer that ran out."""
        platform = self._platform
        if platform.events.mask & _TIMER:
            platform.trace.emit(Kind.TIMER, name)

    def count(self, counter: str) -> None:
        """Bump a counter by name."""
        self._platform.counters.bump(counter)
