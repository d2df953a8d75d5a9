# SPDX-License-Identifier: Apache-2.0
"""A network device of QEMU on a link: ``-netdev dgram`` over UNIX sockets, one datagram a frame.

So a guest with an ordinary network device, and a software RDMA stack on top of it, shares a switch with the
NICs of a lab.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emu.clock import US, Timer
from emu.fabric.port import Port

__all__ = ["DatagramCounters", "DatagramDevice", "ReadyLoop"]

RETRY = 200 * US
"""Wait before frames are offered again that QEMU had no room for; its socket holds about ten."""
QUEUE_FRAMES = 4096
"""Frames that may wait for QEMU before further ones are dropped."""
LARGEST = 65536
BURST = 64
"""Frames taken from the socket in one turn of the loop."""


class ReadyLoop(Protocol):
    """The part of the owner loop that a socket needs."""

    def now(self) -> int:
        """Nanoseconds."""

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` at ``when``."""

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever ``fd`` is readable."""

    def remove_reader(self, fd: int) -> None:
        """Forget ``fd``."""


@dataclass(slots=True)
class DatagramCounters:
    """Frames by direction; ``absent`` found nobody at the other end, ``overflow`` no room to wait."""

    to_guest: int = 0
    from_guest: int = 0
    absent: int = 0
    overflow: int = 0


class DatagramDevice:
    """Carries frames between ``port`` and the QEMU that has its socket at ``remote``.

    ``local`` is the path of this end's socket; an old one there is replaced.

    :raises OSError: the socket cannot be made.
    """

    def __init__(self, port: Port, loop: ReadyLoop, local: Path, remote: Path) -> None:
        self.local = local
        self.counters = DatagramCounters()
        self._port = port
        self._loop = loop
        self._remote = str(remote)
        self._waiting: deque[bytes] = deque()
        self._retry: Timer | None = None
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            local.unlink(missing_ok=True)
            self._socket.bind(str(local))
            loop.add_reader(self._socket.fileno(), self._readable)
        except BaseException:
            self._socket.close()
            raise
        port.attach(self._arrived)

    def close(self) -> None:
        """Remove the socket. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._waiting.clear()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.local)

    def _readable(self) -> None:
        for _ in range(BURST):
            try:
                frame = self._socket.recv(LARGEST)
            except OSError:
                # Empty by now; any other trouble is QEMU's, and a frame lost on the way.
                return
            self.counters.from_guest += 1
            self._port.send(frame)

    def _arrived(self, frame: bytes) -> None:
        if self._closed:
            return
        if len(self._waiting) >= QUEUE_FRAMES:
            self.counters.overflow += 1
            return
        self._waiting.append(frame)
        if self._retry is None:
            self._offer()

    def _offer(self) -> None:
        """Hand over what QEMU takes, and come back for the rest."""
        self._retry = None
        waiting = self._waiting
        while waiting:
            try:
                self._socket.sendto(waiting[0], self._remote)
            except BlockingIOError:
                self._retry = self._loop.call_at(self._loop.now() + RETRY, self._offer)
                return
            except OSError:
                self.counters.absent += 1
            else:
                self.counters.to_guest += 1
            waiting.popleft()
