# SPDX-License-Identifier: Apache-2.0
"""Who of an endpoint's PDCs is served when: turns, no faster than the link, and one timer each."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from emu.clock import MS, US
from emu.nic.endpoint import EndpointHost

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc

__all__ = ["Turns"]

_TURN = 32
"""PDCs served before the loop looks at its other work."""
_BACKLOG = 256
"""Frames at the port from which on nobody is served: a NIC sends at the speed of its link."""
_HOLD = 200 * US
"""How long to wait for the port then."""
_POSTPONE = 1 * MS
"""How much later a deadline is looked at again while the link is behind."""


class Turns:
    """Runs PDCs that have something to send, or to wait for."""

    def __init__(self, host: EndpointHost) -> None:
        self._host = host
        self._ready: deque[Pdc] = deque()
        self._scheduled = False

    def clear(self) -> None:
        """Serve nobody who asked before."""
        self._ready.clear()

    def kick(self, pdc: Pdc) -> None:
        """Serve ``pdc`` soon."""
        if pdc.queued or pdc.closed:
            return
        pdc.queued = True
        self._ready.append(pdc)
        if not self._scheduled:
            self._scheduled = True
            self._host.scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        ready = self._ready
        now = self._host.scheduler.now()
        if ready and self._host.backlog >= _BACKLOG:
            self._scheduled = True
            self._host.scheduler.call_at(now + _HOLD, self._run)
            return
        for _ in range(min(len(ready), _TURN)):
            pdc = ready.popleft()
            pdc.queued = False
            if pdc.closed:
                continue
            if pdc.transmit(now):
                self.kick(pdc)
            if not pdc.closed:
                self.arm(pdc)
        if ready and not self._scheduled:
            self._scheduled = True
            self._host.scheduler.call_soon(self._run)

    def arm(self, pdc: Pdc) -> None:
        """Have a timer that runs no later than the PDC's deadline; an early one is kept."""
        deadline = pdc.deadline()
        if deadline is None:
            return
        timer = pdc.timer
        if timer is not None:
            if timer.pending and timer.when <= deadline:
                return
            timer.cancel()
        pdc.timer = self._host.scheduler.call_at(deadline, partial(self._expire, pdc))

    def _expire(self, pdc: Pdc) -> None:
        pdc.timer = None
        if pdc.closed:
            return
        deadline = pdc.deadline()
        if deadline is None:
            return
        now = self._host.scheduler.now()
        if now >= deadline and self._host.backlog >= _BACKLOG // 2:
            # No answer can be late yet: what it answers may still wait for the link.
            pdc.timer = self._host.scheduler.call_at(now + _POSTPONE, partial(self._expire, pdc))
            return
        if now >= deadline:
            pdc.expire(now)
            self.kick(pdc)
        if not pdc.closed:
            self.arm(pdc)
