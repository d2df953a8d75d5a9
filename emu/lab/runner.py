# SPDX-License-Identifier: Apache-2.0
"""Runs a lab: one server process and one QEMU per node, all ended together."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from emu.control.client import ControlClient
from emu.control.locate import CONTROL_SOCKET
from emu.control.server import ControlError
from emu.lab.failure import LabFailure
from emu.lab.file import format_lab
from emu.lab.guest import Guest, tail
from emu.lab.installation import Installation
from emu.lab.qemu import JoinedNetwork, PluggedFunction, QemuCommand, Share
from emu.lab.topology import Lab, parse_size

__all__ = ["LabRunner", "ServerProcess", "network_paths", "qemu_command", "socket_path"]


def socket_path(directory: Path, function: str) -> Path:
    """Where the server of a lab in ``directory`` listens for ``function`` ("node0.nic0")."""
    return directory / f"{function}.sock"


def network_paths(directory: Path, name: str) -> tuple[Path, Path]:
    """Sockets of a virtio network device: the server's, and QEMU's."""
    return directory / f"{name}.net", directory / f"{name}.qemu"


def qemu_command(
    lab: Lab,
    node: str,
    installation: Installation,
    directory: Path,
    *,
    shares: Sequence[Share] = (),
    interactive: bool = False,
) -> QemuCommand:
    """The QEMU line of one node of a lab whose server keeps its sockets in ``directory``.

    :raises LabFailure: the guest image cannot be built.
    """
    described = lab.node(node)
    if interactive or described.has_tools:
        shares = (*shares, Share("tree", installation.tree.path, "/tree", steady=True))
    return QemuCommand(
        executable=installation.qemu,
        kernel=installation.kernel.image,
        image=installation.image(stock={nic.device for nic in described.nics}, shares=bool(shares)),
        directory=directory / node,
        node=node,
        functions=tuple(PluggedFunction(name, socket_path(directory, name)) for name in lab.functions(node)),
        shares=tuple(shares),
        memory=parse_size(described.memory),
        cpus=described.cpus,
        accelerator=installation.accelerator,
        interactive=interactive,
        addresses=tuple(
            (nic.mac.hex(":"), str(ipaddress.IPv4Address(nic.gids[1][12:])))
            for nic in lab.nics
            if nic.node == node and nic.device != "vrnic"
        ),
        networks=tuple(
            JoinedNetwork(nic.name, nic.mac.hex(":"), *network_paths(directory, nic.name))
            for nic in lab.nics
            if nic.node == node and nic.device == "virtio"
        ),
    )


class ServerProcess:
    """``vrnic serve`` as a child process; its log is ``server.log`` in ``directory``."""

    def __init__(self, lab: Lab, directory: Path, capture: Path | None) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        self._lab = lab
        self._capture = capture
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def control_socket(self) -> Path:
        """The server's control socket."""
        return self.directory / CONTROL_SOCKET

    @property
    def pid(self) -> int | None:
        """The server's process id; None before the start and after the end."""
        return None if self._process is None else self._process.pid

    def argv(self) -> list[str]:
        """The command line."""
        program = "from emu.cli.main import main; main()"
        # setpriv is part of every Debian system; the server ends with its runner, however that ends.
        argv = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-c", program]
        argv += ["serve", str(self.directory / "lab.toml"), "--directory", str(self.directory)]
        return [*argv, "--capture", str(self._capture)] if self._capture else [*argv, "--no-capture"]

    def start(self, timeout: float = 20.0) -> None:
        """Start it and wait (seconds) until it answers on its control socket.

        :raises LabFailure: it ends or stays silent (the hint is the end of its log), or one runs here
        already.
        """
        with contextlib.suppress(ControlError):
            self.control().close()
            raise LabFailure(
                f"a lab already runs in {self.directory}", "end it, or give this one another name"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "lab.toml").write_text(format_lab(self._lab))
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            raise LabFailure(f"the server does not start: {error}") from error
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.control().close()
                return
            except ControlError:
                pass
            self.check()
            if time.monotonic() > deadline:
                raise LabFailure(f"the server did not answer within {timeout:.0f} s", tail(self.log))
            time.sleep(0.02)

    def check(self) -> None:
        """Make sure that it runs. :raises LabFailure: it ended by itself; the hint is the end of its log."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise LabFailure(f"the server ended with status {status}", tail(self.log))

    def control(self, timeout: float = 10.0) -> ControlClient:
        """A connection to the control socket.

        :raises ControlError: the server does not answer.
        """
        return ControlClient(self.control_socket, timeout)

    def processor_seconds(self) -> float:
        """Processor time it has taken so far, user and system.

        :raises LabFailure: it does not run.
        """
        self.check()
        if self._process is None:
            raise LabFailure("the server is not started")
        # The fields after the command in parentheses: utime and stime are the 14th and 15th of proc(5).
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, patience: float = 10.0) -> int | None:
        """End it with SIGTERM, after ``patience`` seconds with SIGKILL; return its status. Safe to repeat."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        if process.poll() is None:
            process.kill()
        return process.wait()


class LabRunner:
    """A lab from start to end::

        with LabRunner(lab, Installation.require(), lab_directory(lab.name), capture) as running:
            running.start()
            running["node0"].run("dmesg")

    ``capture`` is the file that records it (None: no capture). Every guest mounts ``shares``. Guests boot in
    parallel.
    """

    def __init__(
        self,
        lab: Lab,
        installation: Installation,
        directory: Path,
        capture: Path | None,
        *,
        shares: Sequence[Share] = (),
    ) -> None:
        self.lab = lab
        self._shares = tuple(shares)
        self.server = ServerProcess(lab, directory, capture)
        self._installation = installation
        self._guests: dict[str, Guest] = {}

    def start(self, boot_timeout: float = 60.0) -> None:
        """Start the server and every guest, and wait (seconds) until all guests answer.

        :raises LabFailure: one of them does not come up; what was started stays until :meth:`stop`.
        """
        self.start_server()
        self.start_guests()
        self.wait_guests(boot_timeout)

    def start_server(self) -> None:
        """Start the server only.

        :raises LabFailure: it does not come up.
        """
        self.server.start()

    def start_guests(self) -> None:
        """Start every guest's QEMU; returns before they have booted.

        :raises LabFailure: QEMU or the image is missing.
        """
        for node in self.lab.nodes:
            command = qemu_command(
                self.lab, node.name, self._installation, self.server.directory, shares=self._shares
            )
            guest = Guest(command, evidence=(self.server.log,))
            self._guests[node.name] = guest
            guest.start()

    def wait_guests(self, timeout: float = 60.0) -> None:
        """Wait (seconds from their start) until every guest answers.

        :raises LabFailure: one does not.
        """
        for guest in self._guests.values():
            guest.wait_ready(timeout)

    @property
    def guests(self) -> tuple[Guest, ...]:
        """Every guest, in the lab's order."""
        return tuple(self._guests.values())

    def __getitem__(self, node: str) -> Guest:
        return self._guests[node]

    def stop(self) -> None:
        """End guests, then the server. Safe to repeat."""
        for guest in self._guests.values():
            guest.shutdown()
        self._guests.clear()
        self.server.stop()

    def __enter__(self) -> LabRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
