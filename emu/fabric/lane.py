# SPDX-License-Identifier: Apache-2.0
"""One direction of a link: it judges each frame, keeps it for its delay, and hands it to the far end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from emu.clock import NS_PER_S, Scheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.impairments import Impairments
from emu.fabric.port import Receiver
from emu.fabric.run import FrameRun, RunReceiver
from emu.wire.congestion import mark, trim

__all__ = [
    "BURST_FRAMES",
    "MAX_FRAME",
    "MIN_FRAME",
    "QUEUE_FRAMES",
    "REPLAYS_MAX",
    "REPLAY_NS",
    "Lane",
    "LaneCounters",
]

MIN_FRAME = 14
"""Shortest frame carried, in bytes: an Ethernet header. Padding is the physical layer's matter."""

MAX_FRAME = 9216
"""Longest frame carried, in bytes without FCS: the usual jumbo limit of data-centre switches."""

QUEUE_FRAMES = 16384
"""Frames a lane holds before it drops at the tail: 64 MiB of 4 KiB payloads, more than any window in use."""

CODE_WORD_BITS = 5140
"""Payload of a code word of RS(544,514), the error correction of 100 Gb/s lanes."""

REPLAYS_MAX = 7
"""Repetitions of a frame after which link-level retry gives it up for lost."""

REPLAY_NS = 1_000
"""What a repetition takes beyond the link's round trip: the far end must notice first."""

BURST_FRAMES = 64
"""Frames delivered in one go, so that a long queue does not keep doorbells and timers waiting."""


PAUSE_NS = 100_000
"""How long a receiver that cannot keep up is left alone, where the link has no speed."""

PAUSE_OCTETS = 32 << 10
"""How long it is where the link has one: as it would take to send this much."""


@dataclass(slots=True)
class LaneCounters:
    """Frames by fate.

    ``frames`` and ``octets`` count what was offered; the sum of the fates equals ``frames`` once nothing is
    queued. ``trimmed`` and ``marked`` count frames that went on changed, ``replayed`` repetitions by
    link-level retry, ``fec_corrected`` and ``fec_uncorrectable`` code words with errors.
    """

    frames: int = 0
    octets: int = 0
    delivered: int = 0
    lost: int = 0
    overflow: int = 0
    runt: int = 0
    giant: int = 0
    down: int = 0
    unattended: int = 0
    trimmed: int = 0
    marked: int = 0
    replayed: int = 0
    fec_corrected: int = 0
    fec_uncorrectable: int = 0


def pause_ns(rate: int) -> int:
    """How long a sender waits that was told to pause, on a link of ``rate`` bytes a second (0: no limit)."""
    return PAUSE_OCTETS * NS_PER_S // rate if rate else PAUSE_NS


class Lane:
    """Frames in at :meth:`send`, out at the receiver, later and never from inside :meth:`send`.

    ``function`` is the name under which drops are reported, ``direction`` a word for a person ("to switch").
    Order is kept: the delay is the same for every frame of a lane.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        events: EventBus,
        function: str,
        direction: str,
        impairments: Impairments,
        queue_frames: int = QUEUE_FRAMES,
    ) -> None:
        self.function = function
        self.direction = direction
        self.impairments = impairments
        self.counters = LaneCounters()
        self.receiver: Receiver | None = None
        self.run_receiver: RunReceiver | None = None
        """Takes runs of frames; without it they are delivered one by one."""
        self.paused: Callable[[], bool] | None = None
        """Asked before each burst: True keeps the frames here for now, as priority flow control does."""
        self.up = True
        self._scheduler = scheduler
        self._events = events
        # A string seed goes through SHA-512, so it gives the same draws in every process; hash() would not.
        self._flawed = bool(impairments.loss or impairments.symbol_errors)
        self._random = random.Random(f"{impairments.seed}/{function}/{direction}")
        self._looks = self._flawed or bool(
            impairments.trim or impairments.mark or impairments.rate or impairments.jitter_ns
        )
        self._queue: deque[tuple[int, bytes | FrameRun]] = deque()
        # Frames of runs in the queue, beyond one for each run.
        self._more = 0
        self._queue_frames = queue_frames
        self._free_at = 0
        self._armed = False

    def send(self, frame: bytes) -> None:
        """Accept ``frame`` for delivery, or drop it, count it and report a FRAME_DROP event."""
        counters = self.counters
        counters.frames += 1
        size = len(frame)
        counters.octets += size
        impairments = self.impairments
        if not MIN_FRAME <= size <= MAX_FRAME:
            if size < MIN_FRAME:
                counters.runt += 1
                self._report(frame, f"shorter than an Ethernet header ({MIN_FRAME})")
            else:
                counters.giant += 1
                self._report(frame, f"longer than the link carries ({MAX_FRAME})")
        elif not self.up:
            counters.down += 1
            self._report(frame, "link is down")
        elif (held := self._cross(size) if self._flawed else 0) is None:
            counters.lost += 1
            self._report(frame, f"lost, as the link's loss of {impairments.loss:g} asks")
        elif len(self._queue) + self._more >= self._queue_frames:
            counters.overflow += 1
            self._report(frame, f"queue full ({self._queue_frames} frames)")
        else:
            if impairments.trim or impairments.mark:
                frame = self._congest(frame)
            delay = impairments.delay_ns + held
            if impairments.jitter_ns:
                delay += self._random.randrange(impairments.jitter_ns + 1)
            if impairments.rate:
                start = max(self._free_at, self._scheduler.now())
                self._free_at = start + size * NS_PER_S // impairments.rate
                due = self._free_at + delay
            else:
                due = self._scheduler.now() + delay if delay else 0
            if self._queue and self._queue[-1][0] > due:
                # What the link repeats or delays holds up what comes after it.
                due = self._queue[-1][0]
            self._queue.append((due, frame))
            if not self._armed:
                self._arm()

    def send_run(self, run: FrameRun) -> bool:
        """Accept frames for delivery together. False, and nothing done, where each has its own fate."""
        count, octets = run.count, run.octets
        if self._looks or not self.up or self.queued + count > self._queue_frames:
            return False
        if octets > MAX_FRAME * count:
            return False
        self.counters.frames += count
        self.counters.octets += octets
        delay = self.impairments.delay_ns
        self._queue.append((self._scheduler.now() + delay if delay else 0, run))
        self._more += count - 1
        if not self._armed:
            self._arm()
        return True

    @property
    def queued(self) -> int:
        """Frames on the way."""
        return len(self._queue) + self._more

    def set_up(self, up: bool) -> None:
        """Set the link state; going down drops what is still on the way."""
        self.up = up
        if not up:
            while self._queue:
                for frame in _frames(self._queue.popleft()[1]):
                    self.counters.down += 1
                    self._report(frame, "link went down")
            self._more = 0

    def snapshot(self) -> dict[str, int]:
        """The counters, and ``queued`` frames at this moment, by name."""
        return {**asdict(self.counters), "queued": self.queued}

    def _cross(self, size: int) -> int | None:
        """How long the physical layer holds a frame of ``size`` bytes up, in ns; None when it loses it."""
        impairments, counters = self.impairments, self.counters
        if impairments.symbol_errors:
            words = -(-size * 8 // CODE_WORD_BITS)
            counters.fec_corrected += sum(
                self._random.random() < impairments.symbol_errors for _ in range(words)
            )
        tries = 0
        while impairments.loss and self._random.random() < impairments.loss:
            counters.fec_uncorrectable += 1
            if not impairments.llr or tries == REPLAYS_MAX:
                return None
            tries += 1
            counters.replayed += 1
        return tries * (2 * impairments.delay_ns + REPLAY_NS)

    def _congest(self, frame: bytes) -> bytes:
        """What a congested switch makes of ``frame``."""
        impairments = self.impairments
        if impairments.trim and self._random.random() < impairments.trim:
            trimmed = trim(frame, impairments.last_hop)
            if trimmed is not None:
                self.counters.trimmed += 1
                frame = trimmed
        if impairments.mark and self._random.random() < impairments.mark:
            marked = mark(frame)
            if marked is not None:
                self.counters.marked += 1
                frame = marked
        return frame

    def _arm(self) -> None:
        self._armed = True
        due = self._queue[0][0]
        if due:
            self._scheduler.call_at(due, self._deliver)
        else:
            self._scheduler.call_soon(self._deliver)

    def _deliver(self) -> None:
        queue = self._queue
        now = self._scheduler.now()
        if queue and self.paused is not None and self.paused():
            self._scheduler.call_at(now + pause_ns(self.impairments.rate), self._deliver)
            return
        try:
            left = min(self.queued, BURST_FRAMES)
            # A receiver may take the link down, which empties the queue under this loop.
            while left > 0 and queue and queue[0][0] <= now:
                _, item = queue.popleft()
                if isinstance(item, bytes):
                    left -= 1
                    if self.receiver is None:
                        self._leave_unattended(item)
                    else:
                        self.counters.delivered += 1
                        self.receiver(item)
                else:
                    left -= item.count
                    self._more -= item.count - 1
                    self._hand_over_run(item)
        finally:
            self._armed = False
            if queue:
                self._arm()

    def _hand_over_run(self, run: FrameRun) -> None:
        if self.run_receiver is not None and self.receiver is not None:
            self.counters.delivered += run.count
            self.run_receiver(run)
            return
        for frame in run.frames():
            if self.receiver is None:
                self._leave_unattended(frame)
            else:
                self.counters.delivered += 1
                self.receiver(frame)

    def _leave_unattended(self, frame: bytes) -> None:
        self.counters.unattended += 1
        self._report(frame, "nothing is attached at the far end")

    def _report(self, frame: bytes, reason: str) -> None:
        if self._events.mask & Kind.FRAME_DROP.bit:
            self._events.emit(
                Event(
                    Kind.FRAME_DROP,
                    self._scheduler.now(),
                    self.function,
                    length=len(frame),
                    text=f"{len(frame)} bytes {self.direction}: {reason}",
                    frame=frame,
                )
            )


def _frames(item: bytes | FrameRun) -> Iterable[bytes]:
    return (item,) if isinstance(item, bytes) else item.frames()
