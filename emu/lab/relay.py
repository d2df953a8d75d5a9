# SPDX-License-Identifier: Apache-2.0
"""Bootstraps two programs that run in two guests: the out-of-band channel every RDMA job has.

A program prints ``ENDPOINT <text>`` (its queue pair, key, address, GID, MAC) and waits for ``PEER <text>``;
it prints ``SYNC <word>`` and waits for the other's ``SYNC <word>``. Lines that hold a JSON object are its
results, everything else is for people.
"""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from emu.lab.agent import Job, JobEvent, Stream, next_event
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest

__all__ = ["Side", "route", "run_pair"]

ABANDONED_AFTER = 3.0
"""Seconds one program may go on after the other failed: it may be about to say why."""


@dataclass
class Side:
    """One of the two programs and what became of it. ``status`` is None while it runs."""

    name: str
    command: str
    status: int | None = None
    records: list[dict[str, object]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def record(self, key: str, value: object) -> dict[str, object] | None:
        """The last result whose ``key`` is ``value``; None when there is none."""
        for record in reversed(self.records):
            if record.get(key) == value:
                return record
        return None


def route(side: Side, event: JobEvent, send: Callable[[str], None]) -> None:
    """Take one event of ``side``; lines for the other program go to ``send``.

    An error of ``send`` is not ours to report: the other program ended, and its status says why.
    """
    if event.stream is Stream.EXIT:
        side.status = event.status
        return
    word, _, rest = event.text.partition(" ")
    if event.stream is Stream.OUT and word in ("ENDPOINT", "SYNC"):
        with contextlib.suppress(LabFailure):
            send(f"{'PEER' if word == 'ENDPOINT' else word} {rest}")
        return
    if event.stream is Stream.OUT and event.text.startswith("{"):
        with contextlib.suppress(ValueError):
            record = json.loads(event.text)
            if isinstance(record, dict):
                side.records.append(record)
                return
    side.lines.append(event.text)


def run_pair(left: tuple[Guest, str], right: tuple[Guest, str], timeout: float) -> tuple[Side, Side]:
    """Run one program in each of two guests and carry their lines until both have ended.

    ``timeout`` (seconds) is each program's.

    :raises LabFailure: a program failed or ran out of time; the hint holds what both printed last.
    """
    events: queue.Queue[JobEvent] = queue.Queue()
    sides = (Side(left[0].name, left[1]), Side(right[0].name, right[1]))
    jobs: list[Job] = []
    try:
        for guest, command in (left, right):
            jobs.append(guest.spawn(command, timeout, events))
        deadline = max(job.deadline for job in jobs)
        while any(side.status is None for side in sides):
            event = next_event(events, deadline, left[1])
            index = jobs.index(event.job)
            route(sides[index], event, jobs[1 - index].send)
            if sides[index].status:
                deadline = min(deadline, time.monotonic() + ABANDONED_AFTER)
    except LabFailure as error:
        failed = [side for side in sides if side.status]
        if not failed:
            raise LabFailure(error.message, _transcript(sides)) from error
    finally:
        for job, side in zip(jobs, sides, strict=False):
            if side.status is None:
                with contextlib.suppress(LabFailure):
                    job.kill(9)
    for side in sides:
        if side.status:
            reason = "ran out of time" if side.status == 124 else f"ended with status {side.status}"
            raise LabFailure(f"`{side.command}` on {side.name} {reason}", _transcript(sides))
    return sides


def _transcript(sides: tuple[Side, Side]) -> str:
    lines = []
    for side in sides:
        lines.append(f"--- {side.name}: {side.command}")
        lines += [json.dumps(record) for record in side.records[-4:]]
        lines += side.lines[-12:]
    return "\n".join(lines)
