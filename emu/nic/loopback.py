# SPDX-License-Identifier: Apache-2.0
"""The port of a NIC as its queue pairs see it: what is addressed to the NIC itself does not leave it, and
what is addressed to a group comes back as well.
"""

from __future__ import annotations

from emu.clock import Scheduler
from emu.fabric.port import LinkWatcher, Port, Receiver
from emu.fabric.run import FrameRun, RunCarrier, RunReceiver

__all__ = ["LoopbackPort"]


class LoopbackPort:
    """Implements :class:`emu.fabric.port.Port` and :class:`emu.fabric.run.RunCarrier` in front of another
    port. A switch would not send a frame back.
    """

    def __init__(
        self, port: Port, mac: bytes, scheduler: Scheduler, group_receiver: Receiver | None = None
    ) -> None:
        """``group_receiver`` gets frames to group addresses that left, after the call that sent them."""
        self.name = port.name
        self.looped = 0
        """Frames that turned round here."""
        self._port = port
        self._mac = mac
        self._scheduler = scheduler
        self._receiver: Receiver | None = None
        self._carrier = port if isinstance(port, RunCarrier) else None
        self._run_receiver: RunReceiver | None = None
        self._group_receiver = group_receiver

    def send(self, frame: bytes) -> None:
        """To the link, or back to the receiver after the current call."""
        if frame[:6] == self._mac and self._receiver is not None:
            self.looped += 1
            receiver = self._receiver
            self._scheduler.call_soon(lambda: receiver(frame))
        else:
            self._port.send(frame)
            if frame[0] & 1 and self._group_receiver is not None:
                group_receiver = self._group_receiver
                self._scheduler.call_soon(lambda: group_receiver(frame))

    def send_run(self, run: FrameRun) -> bool:
        """As :meth:`send`; False when the link behind does not carry it whole."""
        if run.dest_mac == self._mac and self._run_receiver is not None:
            self.looped += run.count
            receiver = self._run_receiver
            self._scheduler.call_soon(lambda: receiver(run))
            return True
        return self._carrier is not None and self._carrier.send_run(run)

    def attach_runs(self, receiver: RunReceiver) -> None:
        """Deliver runs that arrive or turned round to ``receiver``."""
        self._run_receiver = receiver
        if self._carrier is not None:
            self._carrier.attach_runs(receiver)

    def attach(self, receiver: Receiver) -> None:
        """Deliver what arrives and what turned round to ``receiver``."""
        self._receiver = receiver
        self._port.attach(receiver)

    def watch(self, watcher: LinkWatcher) -> None:
        """As the port behind."""
        self._port.watch(watcher)

    @property
    def backlog(self) -> int:
        """As the port behind."""
        return self._port.backlog

    @property
    def arriving(self) -> int:
        """As the port behind."""
        return self._port.arriving

    @property
    def up(self) -> bool:
        """State of the link behind."""
        return self._port.up
