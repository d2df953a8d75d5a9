# SPDX-License-Identifier: Apache-2.0
"""A full-duplex link: two lanes and the two ends that see them as ports."""

from __future__ import annotations

from emu.clock import Scheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.impairments import Impairments
from emu.fabric.lane import QUEUE_FRAMES, Lane
from emu.fabric.port import LinkWatcher, Receiver
from emu.fabric.run import FrameRun, RunReceiver

__all__ = ["Link", "LinkEnd"]


class LinkEnd:
    """One end of a :class:`Link`; a :class:`emu.fabric.port.Port` that carries runs."""

    def __init__(self, name: str, outbound: Lane, inbound: Lane) -> None:
        self.name = name
        self._outbound = outbound
        self._inbound = inbound
        self._watchers: list[LinkWatcher] = []

    def send(self, frame: bytes) -> None:
        """Put ``frame`` on the link; it arrives (or not) after this call has returned."""
        self._outbound.send(frame)

    def attach(self, receiver: Receiver) -> None:
        """Deliver arriving frames to ``receiver``; a second call replaces the first."""
        self._inbound.receiver = receiver

    def send_run(self, run: FrameRun) -> bool:
        """Put ``run`` on the link as a whole. False when its frames must go one by one."""
        return self._outbound.send_run(run)

    def attach_runs(self, receiver: RunReceiver) -> None:
        """Deliver arriving runs to ``receiver``; without one their frames come one by one."""
        self._inbound.run_receiver = receiver

    def detach(self) -> None:
        """Drop arriving frames from now on (counted as ``unattended``)."""
        self._inbound.receiver = None

    def watch(self, watcher: LinkWatcher) -> None:
        """Call ``watcher`` whenever the link goes up or down."""
        self._watchers.append(watcher)

    @property
    def backlog(self) -> int:
        """Frames sent that have not arrived."""
        return self._outbound.queued

    @property
    def arriving(self) -> int:
        """Frames sent to this end that have not arrived."""
        return self._inbound.queued

    @property
    def up(self) -> bool:
        """Link state."""
        return self._outbound.up

    def notify(self, up: bool) -> None:
        """Tell the watchers that the state is now ``up``."""
        for watcher in tuple(self._watchers):
            watcher(up)


class Link:
    """A cable between ``near`` and ``far``, named after the near end ("node0.nic0").

    :param forward: impairments from near to far.
    :param backward: impairments from far to near; the same as forward when omitted (with draws of their own).
    :param far_name: what the far end is called in reports.
    :param queue_frames: frames each lane holds before it drops at the tail.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        events: EventBus,
        name: str,
        forward: Impairments | None = None,
        backward: Impairments | None = None,
        *,
        far_name: str = "far end",
        queue_frames: int = QUEUE_FRAMES,
    ) -> None:
        forward = forward or Impairments()
        backward = backward or forward
        self.name = name
        self.forward = Lane(scheduler, events, name, f"to {far_name}", forward, queue_frames)
        self.backward = Lane(scheduler, events, name, f"from {far_name}", backward, queue_frames)
        self.near = LinkEnd(name, self.forward, self.backward)
        self.far = LinkEnd(far_name, self.backward, self.forward)
        self._scheduler = scheduler
        self._events = events

    @property
    def up(self) -> bool:
        """Link state."""
        return self.forward.up

    def set_up(self, up: bool) -> None:
        """Bring the link up or down, drop what is on the way, tell both ends and report a LINK event."""
        if up == self.up:
            return
        self.forward.set_up(up)
        self.backward.set_up(up)
        if self._events.mask & Kind.LINK.bit:
            state = "up" if up else "down"
            self._events.emit(
                Event(Kind.LINK, self._scheduler.now(), self.name, value=int(up), text=f"link {state}")
            )
        self.near.notify(up)
        self.far.notify(up)

    def counters(self) -> dict[str, int]:
        """Counters of both lanes: ``out.*`` leaves the near end, ``in.*`` arrives at it."""
        out = {f"out.{name}": value for name, value in self.forward.snapshot().items()}
        return out | {f"in.{name}": value for name, value in self.backward.snapshot().items()}
