# SPDX-License-Identifier: Apache-2.0
"""A lab's capture file: what the NICs sent and received, with the device events in between, in order.

A frame appears on the interface of the NIC that sent it (outbound) and of the one that received it (inbound),
as seen at that NIC, with the QP it belongs to (where the event names one) as its queue number; a frame lost
between them shows once, followed by a "frame dropped" event. All device events of the lab are on one
interface of their own, so that reading the file from top to bottom tells the story.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType

import emu
from emu.capture.events_format import encode
from emu.capture.pcapng import Direction, LinkType, encode_statistics
from emu.capture.roce_frame import RoceFrame
from emu.capture.writer import PcapngWriter
from emu.clock import MS, Scheduler, Timer
from emu.events import Event, EventBus, Kind

__all__ = ["EVENTS_INTERFACE", "FLUSH_NS", "Capture"]

log = logging.getLogger(__name__)

EVENTS_INTERFACE = "events"
"""Name of the interface that carries the device events."""

FLUSH_NS = 5 * MS
"""Longest time a packet waits in memory: what a killed server can lose."""

# Bound here, as each lookup of an enum member costs as much as a comparison.
_FRAME_OUT, _FRAME_DROP = Kind.FRAME_OUT, Kind.FRAME_DROP
_INBOUND, _OUTBOUND = Direction.INBOUND, Direction.OUTBOUND

_WAITING_EVENTS = 1024
"""Events that wait at most; a burst beyond it is written at once."""

_COMMENT = "Device events are on interface 'events' (USER0); vrnic-events.lua shows them as lines."


class Capture:
    """Writes the frames and events of a bus to ``path`` until :meth:`close`.

    :param wall_clock_offset: nanoseconds to add to the scheduler's clock to get time since 1970; by default
    what makes
        the two agree now.
    :param ports: NIC functions whose interfaces come first, in this order; others are added when they first
    appear.
    :param kinds: event kinds to record.
    :param notes: sentences about the run, put into the file's comment.
    :param max_octets: stop once the file has this many bytes (it may be a few hundred KiB longer).
    :raises OSError: the file cannot be created; the message is the operating system's.

    When the file cannot be written any more (disk full, size limit) the capture logs one line and counts what
    it misses in :attr:`lost`; the device goes on undisturbed. Stamps never go backwards.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scheduler: Scheduler,
        events: EventBus,
        wall_clock_offset: int | None = None,
        *,
        ports: Iterable[str] = (),
        kinds: Iterable[Kind] = tuple(Kind),
        flush_ns: int = FLUSH_NS,
        max_octets: int | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self.path = os.fspath(path)
        self.stopped = ""
        self._scheduler = scheduler
        self._offset = time.time_ns() - scheduler.now() if wall_clock_offset is None else wall_clock_offset
        self._flush_ns = flush_ns
        self._max_octets = max_octets
        self._last = 0
        self._waiting: list[Event] = []
        self._closed = False
        self._timer: Timer | None = None
        self._lost = 0
        self._writer = PcapngWriter(
            path, application=f"vrnic {emu.__version__}", comment=" ".join((_COMMENT, *notes))
        )
        self._events = self._writer.add_interface(
            LinkType.USER0,
            EVENTS_INTERFACE,
            "device events: doorbells, fetches, DMA, completions, interrupts",
        )
        self._ports: dict[str, int] = {}
        self._counts: dict[int, int] = {self._events: 0}
        for name in ports:
            self._port(name)
        self._unsubscribe = events.subscribe(self._record, kinds)
        self.flush()

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Packets and events that the file could not take."""
        return self._lost + self._writer.lost

    def snapshot(self) -> dict[str, int]:
        """Counters: ``frames`` and ``events`` taken, ``octets`` written, ``lost``, ``stopped`` (0 or 1)."""
        self._encode()
        return {
            "frames": sum(self._counts[interface] for interface in self._ports.values()),
            "events": self._counts[self._events],
            "octets": self._writer.octets,
            "lost": self.lost,
            "stopped": int(bool(self.stopped)),
        }

    def flush(self) -> None:
        """Write everything taken so far."""
        self._encode()
        self._writer.flush()
        self._check()

    def close(self) -> None:
        """Write the rest with closing statistics, and stop. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        self._encode()
        for interface, count in self._counts.items():
            self._writer.add_block(encode_statistics(interface, self._last, count, 0))
        self.flush()
        self._writer.close()

    def _record(self, event: Event) -> None:
        # Encoding waits for the flush: the device is busy now, and then it usually is not.
        if self.stopped:
            self._lost += 1
            return
        self._waiting.append(event)
        if self._timer is None:
            self._timer = self._scheduler.call_at(self._scheduler.now() + self._flush_ns, self._flush_due)
        elif len(self._waiting) >= _WAITING_EVENTS:
            self.flush()

    def _encode(self) -> None:
        waiting, self._waiting = self._waiting, []
        writer, counts, offset, last = self._writer, self._counts, self._offset, self._last
        for event in waiting:
            stamp = event.time + offset
            if stamp > last:
                last = stamp
            frame = event.frame
            if frame is not None and event.kind is not _FRAME_DROP:
                interface = self._ports.get(event.function)
                if interface is None:
                    interface = self._port(event.function)
                direction = _OUTBOUND if event.kind is _FRAME_OUT else _INBOUND
                queue = None if event.qpn is None else event.qpn & 0xFFFF_FFFF
                writer.add_packet(interface, last, frame, direction, queue)
            else:
                interface = self._events
                writer.add_packet(
                    interface, last, encode(event if frame is None else _with_packet(event, frame))
                )
            counts[interface] += 1
        self._last = last

    def _port(self, name: str) -> int:
        interface = self._writer.add_interface(LinkType.ETHERNET, name, f"port of {name}")
        self._ports[name] = interface
        self._counts[interface] = 0
        return interface

    def _flush_due(self) -> None:
        self._timer = None
        self.flush()

    def _check(self) -> None:
        if self.stopped:
            return
        if self._writer.failure is not None:
            reason = self._writer.failure.strerror or str(self._writer.failure)
        elif self._max_octets is not None and self._writer.octets >= self._max_octets:
            reason = f"it has reached its limit of {self._max_octets} bytes"
        else:
            return
        self.stopped = f"capture {self.path} stopped: {reason}; the device goes on without it"
        log.warning("%s", self.stopped)


def _with_packet(event: Event, frame: bytes) -> Event:
    """A dropped frame's event, saying which packet it was: the frame itself may never reach an interface."""
    packet = RoceFrame.parse(frame)
    return event if packet is None else replace(event, text=f"{packet.describe()}; {event.text}")
