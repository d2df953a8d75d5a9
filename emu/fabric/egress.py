# SPDX-License-Identifier: Apache-2.0
"""The queues of a switch's port: frames that come faster than the link carries them wait, or feel it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from emu.clock import NS_PER_S, Scheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.lane import pause_ns
from emu.wire.congestion import dscp_of, mark, trim
from emu.wire.uet_profile import DEFAULT

__all__ = ["UNLIMITED", "Egress", "EgressCounters", "Queueing"]


@dataclass(frozen=True, slots=True)
class Queueing:
    """Speed of a port's link, and what the port does as its queue of data grows. Sizes are bytes.

    ``rate`` is in bytes a second; 0 is no limit, and then there is no queue. From ``mark_min`` bytes on a
    packet whose sender takes part in ECN is marked, with a probability that reaches 1 at ``mark_max`` (None:
    never). A UET data packet that would make it more than ``trim_at`` has its payload cut off (None: never).
    What would make it more than ``limit`` is dropped. ``pause`` has the switch hold all its senders back from
    half of ``limit`` on, as Ethernet with priority flow control does: then nothing is dropped.

    :raises ValueError: a negative value, or thresholds out of order.
    """

    rate: int = 0
    limit: int = 512 << 10
    mark_min: int | None = None
    mark_max: int | None = None
    trim_at: int | None = None
    pause: bool = False

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate {self.rate} is negative")
        if self.limit <= 0:
            raise ValueError(f"a queue of {self.limit} bytes holds nothing")
        if (self.mark_min is None) != (self.mark_max is None):
            raise ValueError("marking needs both thresholds, where it begins and where it is certain")
        if not 0 <= (self.mark_min or 0) <= (self.mark_max or 0):
            raise ValueError(f"marking from {self.mark_min} to {self.mark_max} bytes: out of order")
        if self.trim_at is not None and not 0 <= self.trim_at <= self.limit:
            raise ValueError(f"trimming from {self.trim_at} bytes on needs a queue that holds them")


UNLIMITED = Queueing()

_NETWORK_CONTROL = 48
"""DSCP of congestion notifications of RoCE, by common use."""
_FIRST = frozenset({DEFAULT.dscp_control, _NETWORK_CONTROL})
_SECOND = frozenset({DEFAULT.dscp_trimmed, DEFAULT.dscp_trimmed_last_hop})


@dataclass(slots=True)
class EgressCounters:
    """``queued`` frames came, ``sent`` left. ``marked`` and ``trimmed`` went on changed, ``dropped`` did not.
    ``trimmed_octets`` are the bytes that the trimmed ones had before.

    ``peak`` is the greatest depth of the data queue in bytes, ``waited_ns`` the time that the ``data`` frames
    of that queue waited, together.
    """

    queued: int = 0
    sent: int = 0
    marked: int = 0
    trimmed: int = 0
    trimmed_octets: int = 0
    dropped: int = 0
    peak: int = 0
    data: int = 0
    waited_ns: int = 0


class Egress:
    """Frames in at :meth:`send`, out at ``transmit`` no faster than the link takes them.

    Three queues in strict order, by DSCP: acknowledgements and other control, trimmed packets, data. Only
    data is marked or trimmed; each queue drops above the limit.

    :param name: under which events report
    :param last_hop: the link ends at a receiver, which a trimmed packet tells
    :param held: asked before a frame leaves: True when the far end wants a pause
    """

    def __init__(
        self,
        scheduler: Scheduler,
        events: EventBus,
        name: str,
        queueing: Queueing,
        transmit: Callable[[bytes], None],
        *,
        last_hop: bool = False,
        held: Callable[[], bool] | None = None,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.queueing = queueing
        self.counters = EgressCounters()
        self._scheduler = scheduler
        self._events = events
        self._transmit = transmit
        self._last_hop = last_hop
        self._held = held
        self._random = random.Random(f"{seed}/{name}/queue")
        self._queues: tuple[deque[tuple[int, bytes]], ...] = (deque(), deque(), deque())
        self._depths = [0, 0, 0]
        self._free_at = 0
        self._armed = False

    @property
    def depth(self) -> int:
        """Bytes of data that wait now."""
        return self._depths[2]

    @property
    def waiting(self) -> int:
        """Frames of all kinds that wait now."""
        return sum(len(queue) for queue in self._queues)

    @property
    def crowded(self) -> bool:
        """True when senders should pause."""
        return self.queueing.pause and 2 * self.depth >= self.queueing.limit

    def send(self, frame: bytes) -> None:
        """Queue ``frame``, changed if the queue is long, or drop it, count it and report it."""
        self.counters.queued += 1
        dscp = dscp_of(frame)
        rank = 0 if dscp in _FIRST else 1 if dscp in _SECOND else 2
        if rank == 2:
            queueing, depth, size = self.queueing, self._depths[2], len(frame)
            if queueing.trim_at is not None and depth + size > queueing.trim_at:
                trimmed = trim(frame, self._last_hop)
                if trimmed is not None:
                    self.counters.trimmed += 1
                    self.counters.trimmed_octets += size
                    self._report(Kind.QUEUE, frame, "trimmed")
                    frame, rank = trimmed, 1
            if rank == 2 and queueing.mark_min is not None and depth > queueing.mark_min:
                frame = self._mark(frame)
        size = len(frame)
        if self._depths[rank] + size > self.queueing.limit:
            self.counters.dropped += 1
            self._report(Kind.FRAME_DROP, frame, f"queue full ({self.queueing.limit} bytes)")
            return
        self._depths[rank] += size
        if rank == 2 and self._depths[2] > self.counters.peak:
            self.counters.peak = self._depths[2]
        self._queues[rank].append((self._scheduler.now(), frame))
        if not self._armed:
            self._armed = True
            self._scheduler.call_at(max(self._free_at, self._scheduler.now()), self._drain)

    def clear(self) -> None:
        """Drop all that waits: the link went down."""
        for rank, queue in enumerate(self._queues):
            while queue:
                _, frame = queue.popleft()
                self.counters.dropped += 1
                self._report(Kind.FRAME_DROP, frame, "link went down")
            self._depths[rank] = 0

    def snapshot(self) -> dict[str, int]:
        """The counters, and the ``depth`` of the data queue at this moment, by name."""
        return {**asdict(self.counters), "depth": self.depth}

    def _mark(self, frame: bytes) -> bytes:
        low, high = self.queueing.mark_min, self.queueing.mark_max
        assert low is not None and high is not None
        if self.depth < high and self._random.random() * (high - low) >= self.depth - low:
            return frame
        marked = mark(frame)
        if marked is None:
            return frame
        self.counters.marked += 1
        self._report(Kind.QUEUE, frame, "marked")
        return marked

    def _drain(self) -> None:
        """Send what the link has had time for. A call that comes late makes up for it."""
        now = self._scheduler.now()
        counters = self.counters
        while self._free_at <= now:
            rank = next((rank for rank, queue in enumerate(self._queues) if queue), None)
            if rank is None:
                break
            if self._held is not None and self._held():
                self._free_at = now + pause_ns(self.queueing.rate)
                break
            since, frame = self._queues[rank].popleft()
            size = len(frame)
            self._depths[rank] -= size
            if rank == 2:
                counters.data += 1
                counters.waited_ns += now - since
            counters.sent += 1
            self._free_at = max(self._free_at, since) + size * NS_PER_S // self.queueing.rate
            self._transmit(frame)
        self._armed = any(self._queues)
        if self._armed:
            self._scheduler.call_at(self._free_at, self._drain)

    def _report(self, kind: Kind, frame: bytes, what: str) -> None:
        if self._events.mask & kind.bit:
            self._events.emit(
                Event(
                    kind,
                    self._scheduler.now(),
                    self.name,
                    length=len(frame),
                    value=self.depth,
                    text=f"{len(frame)} bytes to {self.name}: {what}, {self.depth} bytes wait",
                    frame=frame if kind is Kind.FRAME_DROP else None,
                )
            )
