# SPDX-License-Identifier: Apache-2.0
"""A running guest: QEMU as a process, its agent, its console."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from emu.lab.agent import Agent, Job, JobEvent, Result
from emu.lab.failure import LabFailure
from emu.lab.qemu import PluggedFunction, QemuCommand
from emu.lab.qmp import QmpClient

__all__ = ["Guest", "tail"]

_QMP_PATIENCE = 60.0
"""Seconds QEMU may take to answer while guests boot on a busy machine."""


def tail(path: Path, lines: int = 15) -> str:
    """The last ``lines`` lines of a log; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64 * 1024))
            data = file.read()
    except OSError:
        return ""
    return "\n".join(data.decode(errors="replace").replace("\r", "").splitlines()[-lines:])


class Guest:
    """One guest, from :meth:`start` to :meth:`shutdown`.

    Start it from the main thread: QEMU ends with the thread that started it. ``evidence`` are further logs
    (the server's) whose ends an error shows.
    """

    def __init__(self, command: QemuCommand, evidence: Sequence[Path] = ()) -> None:
        self.command = command
        self.boot_seconds = 0.0
        """Time from start to the agent's first word; 0 until it came."""
        self._evidence = (command.console_log, command.qemu_log, *evidence)
        self._process: subprocess.Popen[bytes] | None = None
        self._agent: Agent | None = None
        self._started = 0.0

    @property
    def name(self) -> str:
        """The node's name."""
        return self.command.node

    @property
    def pid(self) -> int | None:
        """QEMU's process id; None before the start and after the end."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def agent(self) -> Agent:
        """The guest's agent.

        :raises LabFailure: the guest is not up.
        """
        if self._agent is None:
            raise LabFailure(f"guest {self.name} is not up")
        return self._agent

    def start(self) -> None:
        """Start QEMU; returns at once.

        :raises LabFailure: it cannot be started.
        """
        argv = self.command.argv()
        self.command.directory.mkdir(parents=True, exist_ok=True)
        for path in (self.command.qmp_socket, self.command.agent_socket, self.command.console_log):
            path.unlink(missing_ok=True)
        self._started = time.monotonic()
        self.boot_seconds = 0.0
        try:
            with self.command.qemu_log.open("wb") as log:
                # A session of its own: Ctrl-C in the terminal is for the runner, which ends guests in order.
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            message = f"QEMU does not start: {argv[0]}: {error.strerror}"
            raise LabFailure(message, "run scripts/setup") from error

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait (seconds, counted from the start) until the agent answers.

        :raises LabFailure: it does not, or QEMU ended; the hint holds the ends of the logs.
        """
        deadline = self._started + timeout
        while True:
            self._check_alive()
            if self._agent is None:
                with contextlib.suppress(OSError):
                    self._agent = Agent.connect(self.command.agent_socket)
            if self._agent is not None and self._agent.wait_ready(0.1):
                break
            if time.monotonic() > deadline:
                raise self.failure(f"guest {self.name} did not come up within {timeout:.0f} s")
            if self._agent is None or self._agent.gone:
                # QEMU makes the socket a few milliseconds after it starts, and nothing announces it.
                time.sleep(0.02)
        # Until here a kernel that panics ends QEMU instead of booting again and again.
        with QmpClient(self.command.qmp_socket, _QMP_PATIENCE) as qmp:
            qmp.execute("set-action", reboot="reset")
        self.boot_seconds = time.monotonic() - self._started

    def reboot(self, timeout: float = 120.0) -> None:
        """Have the guest reboot itself and wait (seconds) until its agent answers again; QEMU stays.

        Commands that run end with status 255.

        :raises LabFailure: it does not come up again, or QEMU ended.
        """
        agent = self.agent
        starts = agent.starts
        agent.start("reboot", 30)
        deadline = time.monotonic() + timeout
        while not agent.wait_restart(starts, 0.2):
            self._check_alive()
            if time.monotonic() > deadline:
                raise self.failure(f"guest {self.name} did not come up again within {timeout:.0f} s")

    def run(self, command: str, timeout: float = 10.0) -> Result:
        """Run a shell command in the guest to its end.

        :raises LabFailure: the guest is gone or silent.
        """
        try:
            return self.agent.run(command, timeout)
        except LabFailure as error:
            raise self.failure(f"guest {self.name}: {error}") from error

    def spawn(self, command: str, timeout: float = 30.0, events: queue.Queue[JobEvent] | None = None) -> Job:
        """Start a shell command in the guest; see :meth:`emu.lab.agent.Agent.start`."""
        return self.agent.start(command, timeout, events)

    def qmp(self) -> QmpClient:
        """A session with QEMU. QEMU serves one at a time: close it.

        :raises LabFailure: QEMU does not answer.
        """
        return QmpClient(self.command.qmp_socket)

    def unplug(self, function: str) -> None:
        """Take the function ``function`` ("node0.gpu0") out and wait until the guest has let go of it.

        QEMU 11.1 aborts when the function has MSI-X, whatever way the guest is asked (ACPI, or the port's
        own hot-plug registers): all of them end in the finalizer of ``vfio-user-pci``, which takes the
        pending-bit array's memory region out of its BAR (``vfio_user_msix_teardown``) after QOM has removed
        both as child objects, so that the assertion in ``memory_region_del_subregion`` fails. It does so
        whenever there is an MSI-X capability, wherever table and array lie, and no option turns it off. NICs
        have MSI-X: take one away by ``remove`` and ``rescan`` in the guest's sysfs, by unbinding its driver,
        or with the guest. :meth:`plug` works for every function.

        :raises LabFailure: there is no such function, the guest does not let go, or QEMU aborted.
        """
        device = self._function(function).device_id
        try:
            with self.qmp() as qmp:
                qmp.device_del(device)
        except LabFailure:
            process = self._process
            if process is not None:
                _wait(process, 2)
            self._check_alive()
            raise

    def plug(self, function: str) -> None:
        """Put a function that was taken out back in, with a fresh connection to its server.

        :raises LabFailure: there is no such function, or its server does not answer.
        """
        with self.qmp() as qmp:
            qmp.device_add(self._function(function).device())

    def shutdown(self, patience: float = 5.0) -> None:
        """End the guest: power off, else quit QEMU, else kill it. Safe to repeat, and for a dead guest."""
        process = self._process
        if process is not None and process.poll() is None:
            # A guest that has not come up would not listen.
            if self._agent is not None and self.boot_seconds:
                with contextlib.suppress(LabFailure):
                    self._agent.power_off()
                _wait(process, patience)
            if process.poll() is None:
                with contextlib.suppress(LabFailure), self.qmp() as qmp:
                    qmp.execute("quit")
                _wait(process, patience)
            if process.poll() is None:
                process.kill()
                process.wait()
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        self._process = None

    def kill(self) -> None:
        """End QEMU with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def failure(self, message: str) -> LabFailure:
        """An error about this guest whose hint shows the ends of its logs."""
        parts = []
        for path in self._evidence:
            text = tail(path)
            if text:
                parts.append(f"--- end of {path}\n{text}")
        return LabFailure(message, "\n".join(parts))

    def _check_alive(self) -> None:
        if self._process is None:
            raise LabFailure(f"guest {self.name} is not started")
        status = self._process.poll()
        if status is not None:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise self.failure(f"QEMU of guest {self.name} ended with {how}")

    def _function(self, name: str) -> PluggedFunction:
        for function in self.command.functions:
            if function.name == name:
                return function
        raise LabFailure(f"guest {self.name} has no function {name!r}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
