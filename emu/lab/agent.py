# SPDX-License-Identifier: Apache-2.0
"""The host's end of a guest's control channel; ``guest/init/agent.c`` is the other and describes the
protocol."""

from __future__ import annotations

import contextlib
import enum
import queue
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from emu.lab.failure import LabFailure

__all__ = ["Agent", "Job", "JobEvent", "Result", "Stream"]

_LINE_MAX = 8000
"""The agent's line buffer (8192 bytes) less the words in front of the text."""

TIMED_OUT = 124
"""Exit status of a command whose time ran out."""


class Stream(enum.Enum):
    """What a :class:`JobEvent` is."""

    OUT = "out"
    ERR = "err"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One line a command printed, or its end (``text`` is then empty and ``status`` the exit status)."""

    job: Job
    stream: Stream
    text: str = ""
    status: int = 0


@dataclass(frozen=True)
class Result:
    """How a command ended: ``status`` as a shell gives it (124: its time ran out), and the lines it
    printed."""

    command: str
    status: int
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()

    def check(self) -> Result:
        """Itself.

        :raises LabFailure: the status is not 0.
        """
        if self.status:
            reason = "ran out of time" if self.status == TIMED_OUT else f"ended with status {self.status}"
            raise LabFailure(
                f"`{self.command}` in the guest {reason}", "\n".join((*self.out, *self.err)[-12:])
            )
        return self


@dataclass(eq=False)
class Job:
    """A command running in the guest. ``events`` receives its lines and, last, its end."""

    agent: Agent = field(repr=False)
    number: int
    command: str
    deadline: float
    events: queue.Queue[JobEvent] = field(repr=False)

    def send(self, line: str) -> None:
        """Write a line to its standard input.

        :raises LabFailure: the line is too long or holds a line break, or the guest is gone.
        """
        self.agent.request(f"IN {self.number} {line}")

    def close_input(self) -> None:
        """End its standard input."""
        self.agent.request(f"EOF {self.number}")

    def kill(self, signal: int = 15) -> None:
        """Send ``signal`` to its process group."""
        self.agent.request(f"KILL {self.number} {signal}")

    def wait(self) -> Result:
        """Collect its lines until it ends. Only for a job with a queue of its own.

        :raises LabFailure: the guest is gone, or silent beyond the command's own timeout.
        """
        lines: dict[Stream, list[str]] = {Stream.OUT: [], Stream.ERR: []}
        while True:
            event = next_event(self.events, self.deadline, self.command)
            if event.stream is Stream.EXIT:
                return Result(self.command, event.status, tuple(lines[Stream.OUT]), tuple(lines[Stream.ERR]))
            lines[event.stream].append(event.text)


def next_event(events: queue.Queue[JobEvent], deadline: float, what: str) -> JobEvent:
    """The next event, waiting until ``deadline`` (``time.monotonic()``).

    :raises LabFailure: none came.
    """
    try:
        return events.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise LabFailure(f"the guest says nothing more about `{what}`") from None


class Agent:
    """A connection to the agent of one guest; safe to use from several threads.

    It owns ``connection``, a connected stream socket, and reads it in a thread, since the agent would
    otherwise stall on its output.
    """

    GRACE = 15.0
    """Seconds the host waits beyond a command's own timeout, which the guest enforces."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._number = 0
        self._ready = threading.Event()
        self._started = threading.Condition()
        self._gone = False
        self.starts = 0
        """How often an agent has come up in the guest: more than once when the guest restarted."""
        self.release = ""
        """The guest kernel's release, known once the agent is ready."""
        self._reader = threading.Thread(target=self._read, name="guest-agent", daemon=True)
        self._reader.start()

    @classmethod
    def connect(cls, path: Path) -> Agent:
        """Connect to the control port's socket.

        :raises OSError: nobody listens there yet.
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    @property
    def gone(self) -> bool:
        """Whether the connection has ended."""
        return self._gone

    def wait_ready(self, timeout: float) -> bool:
        """Wait (seconds) for the agent's first word; False when it did not come."""
        return self._ready.wait(timeout) and not self._gone

    def wait_restart(self, starts: int, timeout: float) -> bool:
        """Wait (seconds) until an agent has come up more than ``starts`` times; False when none did."""
        with self._started:
            self._started.wait_for(lambda: self.starts > starts or self._gone, timeout)
            return self.starts > starts

    def start(self, command: str, timeout: float, events: queue.Queue[JobEvent] | None = None) -> Job:
        """Start a shell command that the guest kills after ``timeout`` seconds (rounded up).

        ``events`` lets several jobs share one queue.

        :raises LabFailure: the guest is gone, or the command too long.
        """
        seconds = max(1, int(timeout + 0.999))
        deadline = time.monotonic() + seconds + self.GRACE
        with self._lock:
            self._number += 1
            number = self._number
            job = Job(self, number, command, deadline, queue.Queue() if events is None else events)
            self._jobs[number] = job
        try:
            self.request(f"RUN {number} {seconds} {command}")
        except LabFailure:
            self._jobs.pop(number, None)
            raise
        return job

    def run(self, command: str, timeout: float = 10.0) -> Result:
        """Run a shell command to its end, its standard input empty.

        :raises LabFailure: the guest is gone or silent.
        """
        job = self.start(command, timeout)
        job.close_input()
        return job.wait()

    def power_off(self) -> None:
        """Ask the guest to switch itself off; returns at once.

        :raises LabFailure: the guest is gone.
        """
        self.request("POWEROFF")

    def request(self, line: str) -> None:
        """Send one line of the protocol.

        :raises LabFailure: it is too long or holds a line break, or the guest is gone.
        """
        if "\n" in line:
            raise LabFailure(f"a line for the guest holds a line break: {line[:60]!r}")
        data = line.encode() + b"\n"
        if len(data) > _LINE_MAX:
            raise LabFailure(
                f"a line for the guest has {len(data)} bytes (limit {_LINE_MAX}): {line[:60]!r}..."
            )
        with self._lock:
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise LabFailure(f"the guest is gone: {error.strerror or error}") from None

    def close(self) -> None:
        """End the connection; running jobs see status 255."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._handle(line.decode(errors="replace"))
        self._gone = True
        with self._started:
            self._started.notify_all()
        self._ready.set()
        for number in tuple(self._jobs):
            self._finish(number, 255, "the guest is gone")

    def _handle(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "READY":
            # An agent that has just come up knows of no command that was running before.
            for number in tuple(self._jobs) if self.starts else ():
                self._finish(number, 255, "the guest restarted")
            self.release = rest.partition(" ")[2]
            with self._started:
                self.starts += 1
                self._started.notify_all()
            self._ready.set()
            return
        digits, _, text = rest.partition(" ")
        number = int(digits) if digits.isdecimal() else 0
        job = self._jobs.get(number)
        if job is None:
            return
        if word == "OUT":
            job.events.put(JobEvent(job, Stream.OUT, text))
        elif word == "ERR":
            job.events.put(JobEvent(job, Stream.ERR, text))
        elif word == "EXIT":
            self._finish(number, int(text) if text.isdecimal() else 255)
        elif word == "REFUSED":
            self._finish(number, 126, f"agent: {text}")

    def _finish(self, number: int, status: int, reason: str = "") -> None:
        job = self._jobs.pop(number, None)
        if job is None:
            return
        if reason:
            job.events.put(JobEvent(job, Stream.ERR, reason))
        job.events.put(JobEvent(job, Stream.EXIT, status=status))
