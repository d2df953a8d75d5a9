# SPDX-License-Identifier: Apache-2.0
"""A port whose frames are lost, repeated, late, or kept waiting on their way to the NIC."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from emu.chaos.profile import Path
from emu.clock import Scheduler
from emu.fabric.port import LinkWatcher, Port, Receiver
from emu.wire.headers import ROCE_PORT
from emu.wire.uet_names import UET_PORT, PdsType

__all__ = ["UnrulyPort", "is_acknowledgement"]

_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_ROCE_ACKNOWLEDGE = 0x11
"""Low five bits of a BTH opcode, whatever the transport."""
_UET_ACKNOWLEDGE = (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)


class UnrulyPort:
    """A :class:`emu.fabric.port.Port` between a NIC and its own."""

    def __init__(
        self,
        port: Port,
        settings: Path,
        scheduler: Scheduler,
        rng: random.Random,
        *,
        note: Callable[[str], None],
    ) -> None:
        self.name = port.name
        self._port = port
        self._settings = settings
        self._scheduler = scheduler
        self._rng = rng
        self._note = note
        self._receiver: Receiver | None = None
        self._paused: deque[bytes] = deque()
        self._resuming = False

    def send(self, frame: bytes) -> None:
        """Put ``frame`` on the link."""
        self._port.send(frame)

    def attach(self, receiver: Receiver) -> None:
        """Deliver frames to ``receiver``, those that get there."""
        self._receiver = receiver
        self._port.attach(self._arrived)

    def watch(self, watcher: LinkWatcher) -> None:
        """As :meth:`Port.watch`."""
        self._port.watch(watcher)

    @property
    def backlog(self) -> int:
        """As :attr:`Port.backlog`."""
        return self._port.backlog

    @property
    def arriving(self) -> int:
        """As :attr:`Port.arriving`; what is kept waiting here is not told, as little as a slow peer would."""
        return self._port.arriving

    @property
    def up(self) -> bool:
        """Link state."""
        return self._port.up

    def _arrived(self, frame: bytes) -> None:
        settings, rng = self._settings, self._rng
        if rng.random() < settings.lose:
            self._note(f"frame of {len(frame)} bytes is lost")
            return
        if (
            settings.lose_acknowledgement
            and is_acknowledgement(frame)
            and rng.random() < settings.lose_acknowledgement
        ):
            self._note("acknowledgement is lost")
            return
        if rng.random() < settings.repeat:
            self._note(f"frame of {len(frame)} bytes comes twice")
            self._later(frame, rng.randint(0, max(1, settings.late_ns)))
        if rng.random() < settings.reorder:
            late = rng.randint(0, settings.late_ns)
            self._note(f"frame of {len(frame)} bytes is {late // 1000} us late")
            self._later(frame, late)
            return
        self._deliver(frame)

    def _later(self, frame: bytes, delay: int) -> None:
        self._scheduler.call_at(self._scheduler.now() + delay, lambda: self._deliver(frame))

    def _deliver(self, frame: bytes) -> None:
        wait = self._until_resumed()
        if self._paused or wait:
            self._paused.append(frame)
            if not self._resuming:
                self._resuming = True
                self._note("takes no frames for a while")
                self._scheduler.call_at(self._scheduler.now() + wait, self._resume)
        elif self._receiver is not None:
            self._receiver(frame)

    def _until_resumed(self) -> int:
        """Nanoseconds until the pause ends, 0 when there is none."""
        every = self._settings.pause_every_ns
        if not every:
            return 0
        return max(0, self._settings.pause_ns - self._scheduler.now() % every)

    def _resume(self) -> None:
        self._resuming = False
        while self._paused:
            frame = self._paused.popleft()
            if self._receiver is not None:
                self._receiver(frame)


def is_acknowledgement(frame: bytes) -> bool:
    """Whether an untagged Ethernet frame is a RoCEv2 ACK or NAK, or a UET ACK, over UDP."""
    if frame[12:14] == _IPV4:
        udp = 14 + 4 * (frame[14] & 15) if len(frame) > 14 else 0
    elif frame[12:14] == _IPV6:
        udp = 54
    else:
        return False
    if len(frame) <= udp + 8:
        return False
    port = int.from_bytes(frame[udp + 2 : udp + 4], "big")
    first = frame[udp + 8]
    if port == ROCE_PORT:
        return first & 0x1F == _ROCE_ACKNOWLEDGE
    return port == UET_PORT and first >> 3 in _UET_ACKNOWLEDGE
