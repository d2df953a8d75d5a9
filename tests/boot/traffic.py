# SPDX-License-Identifier: Apache-2.0
"""Long-running traffic between two guests, for tests that break something under it."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable

from emu.lab.agent import Job, JobEvent, next_event
from emu.lab.failure import LabFailure
from emu.lab.relay import Side, route
from emu.lab.runner import LabRunner

__all__ = ["Traffic", "counters", "wait_until"]


def counters(running: LabRunner, function: str, group: str = "nic") -> dict[str, int]:
    """One group of a function's counters, as the server has them now."""
    with running.server.control() as client:
        found = client.call("counters")[function][group]
    assert isinstance(found, dict)
    return found


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Look at ``condition`` until it holds: nothing announces what a guest does inside."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.05)


class Traffic:
    """The first guest puts into the second's memory, bootstrapped by a thread, until something ends it."""

    def __init__(self, running: LabRunner, arguments: str = "", timeout: float = 60.0) -> None:
        left, right = running.guests
        command = f"vrnic-kernels put --messages 200000 --size 64 --timeout 40 {arguments} --role "
        self.running = running
        self.sides = (Side(left.name, command + "a"), Side(right.name, command + "b"))
        self._events: queue.Queue[JobEvent] = queue.Queue()
        self.jobs: list[Job] = [
            guest.spawn(side.command, timeout, self._events)
            for guest, side in zip((left, right), self.sides, strict=True)
        ]
        self._thread = threading.Thread(target=self._relay, name="traffic", daemon=True)
        self._thread.start()

    def wait_flowing(self, packets: int = 20) -> None:
        """Until this traffic has put ``packets`` more packets on the wire."""
        start = counters(self.running, "node0.nic0")["tx_packets"]
        wait_until(
            lambda: (
                counters(self.running, "node0.nic0")["tx_packets"] > start + packets
                or any(side.status is not None for side in self.sides)
            ),
            "traffic flows",
        )
        assert all(side.status is None for side in self.sides), self.sides

    def verdict(self) -> str:
        """What the writing program said when it ended; the other one is ended then."""
        wait_until(lambda: self.sides[0].status is not None, "the writing program ends", 50)
        with contextlib.suppress(LabFailure):
            self.jobs[1].kill(signal.SIGKILL)
        assert self.sides[0].status != 0
        return "\n".join(self.sides[0].lines)

    def _relay(self) -> None:
        deadline = max(job.deadline for job in self.jobs)
        while any(side.status is None for side in self.sides):
            try:
                event = next_event(self._events, deadline, "traffic")
            except LabFailure:
                return
            index = self.jobs.index(event.job)
            route(self.sides[index], event, self.jobs[1 - index].send)
