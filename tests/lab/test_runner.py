# SPDX-License-Identifier: Apache-2.0
"""How a lab becomes processes, short of starting a guest."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from emu.control.locate import CONTROL_SOCKET
from emu.lab.failure import LabFailure
from emu.lab.file import load_lab
from emu.lab.runner import ServerProcess, socket_path
from emu.lab.topology import default_lab
from emu.transport.loop import Loop


class Impostor(ServerProcess):
    """A server whose program is a shell script."""

    script = ""

    def argv(self) -> list[str]:
        return ["sh", "-c", self.script]


def test_the_server_gets_the_lab_as_a_file_and_where_to_listen(tmp_path: Path) -> None:
    server = ServerProcess(default_lab(), tmp_path, tmp_path / "x.pcapng")
    words = server.argv()
    assert sys.executable in words
    assert words[words.index("serve") + 1] == str(tmp_path / "lab.toml")
    assert words[words.index("--directory") + 1] == str(tmp_path)
    assert words[words.index("--capture") + 1] == str(tmp_path / "x.pcapng")
    assert "--no-capture" in ServerProcess(default_lab(), tmp_path, None).argv()


def test_a_server_that_fails_is_reported_with_its_log(tmp_path: Path) -> None:
    server = Impostor(default_lab(loss=0.25), tmp_path, None)
    server.script = "echo the disk is on fire >&2; exit 4"
    with pytest.raises(LabFailure, match="the server ended with status 4") as caught:
        server.start()
    assert "the disk is on fire" in caught.value.hint
    assert load_lab(tmp_path / "lab.toml").loss == 0.25


def test_a_server_that_ends_later_is_noticed(tmp_path: Path) -> None:
    server = Impostor(default_lab(), tmp_path, None)
    server.script = "exec sleep 600"
    server.check()  # not started: nothing to say
    with pytest.raises(LabFailure, match="did not answer"):
        server.start(timeout=0.1)
    server.check()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LabFailure, match="the server ended with status -9"):
        server.check()
    server.stop()


def test_a_server_that_stays_silent_is_given_up(tmp_path: Path) -> None:
    server = Impostor(default_lab(), tmp_path, None)
    server.script = "exec sleep 600"
    with pytest.raises(LabFailure, match="did not answer"):
        server.start(timeout=0.1)
    assert server.stop() == -15
    assert server.stop() is None


def test_a_server_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    server = Impostor(default_lab(), tmp_path, None)
    server.script = "exec sleep 600"
    # A signal that is ignored here is ignored by the child from its first instruction on.
    ours = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(LabFailure, match="did not answer"):
            server.start(timeout=0.1)
    finally:
        signal.signal(signal.SIGTERM, ours)
    assert server.stop(patience=0.1) == -9


def test_two_labs_do_not_share_a_folder(tmp_path: Path) -> None:
    from emu.control.server import ControlServer

    loop = Loop()
    control = ControlServer(str(tmp_path / CONTROL_SOCKET), loop)
    try:
        with pytest.raises(LabFailure, match="a lab already runs in"):
            ServerProcess(default_lab(), tmp_path, None).start()
        assert not (tmp_path / "lab.toml").exists()
    finally:
        control.close()
        loop.close()


def test_sockets_are_named_after_functions(tmp_path: Path) -> None:
    assert socket_path(tmp_path, "node0.nic0") == tmp_path / "node0.nic0.sock"
