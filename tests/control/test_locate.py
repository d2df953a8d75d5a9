# SPDX-License-Identifier: Apache-2.0
"""Where labs keep their sockets: names that stay inside the folder, and which lab a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.control.locate import CONTROL_SOCKET, find_socket, lab_directory, runtime_directory
from emu.control.server import ControlError, ControlServer
from emu.transport.loop import Loop


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of running labs."""
    folder = tmp_path / "run"
    monkeypatch.setenv("VRNIC_RUN", str(folder))
    return folder


def test_a_lab_gets_a_folder_only_its_user_may_enter(run: Path) -> None:
    folder = lab_directory("pair-1.a")
    assert folder == run / "pair-1.a"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert lab_directory("pair-1.a") == folder


@pytest.mark.parametrize("name", ["", ".", "..", "../evil", "a/b", "/tmp", "-x", "a" * 33, "a\n", "a\0"])
def test_a_name_that_would_leave_the_folder_is_refused(run: Path, name: str) -> None:
    with pytest.raises(ControlError, match="is no name for a lab"):
        lab_directory(name)
    with pytest.raises(ControlError, match="is no name for a lab"):
        find_socket(lab=name)


def test_a_folder_that_cannot_be_made_is_one_sentence(run: Path) -> None:
    run.write_text("a file")
    with pytest.raises(ControlError, match="cannot make the folder"):
        runtime_directory()


def test_the_only_lab_is_meant_and_one_of_several_has_to_be_named(run: Path) -> None:
    with pytest.raises(ControlError, match="no lab is running"):
        find_socket()
    loop = Loop()
    servers = []
    try:
        servers.append(ControlServer(str(lab_directory("one") / CONTROL_SOCKET), loop))
        (lab_directory("dead") / CONTROL_SOCKET).touch()
        assert find_socket() == run / "one" / CONTROL_SOCKET
        servers.append(ControlServer(str(lab_directory("two") / CONTROL_SOCKET), loop))
        with pytest.raises(ControlError, match="several labs are running: one, two"):
            find_socket()
        assert find_socket(lab="two") == run / "two" / CONTROL_SOCKET
    finally:
        for server in servers:
            server.close()
        loop.close()
