# SPDX-License-Identifier: Apache-2.0
"""Only folders of labs that are certainly over are removed."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from emu.control.locate import CONTROL_SOCKET
from emu.control.remains import KEEP_SECONDS, sweep


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory."""
    monkeypatch.setenv("VRNIC_RUN", str(tmp_path))
    return tmp_path


def old(folder: Path, *files: str) -> Path:
    """A folder with files, untouched for longer than they are kept."""
    (folder / "node0").mkdir(parents=True)
    for name in files:
        (folder / name).write_text("x")
    before = time.time() - KEEP_SECONDS - 60
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (before, before))
    return folder


def test_an_old_lab_goes_and_a_recent_one_stays(run: Path) -> None:
    ended = old(run / "ended", "server.log", "lab.toml", "capture.pcapng")
    recent = old(run / "recent", "server.log")
    (recent / "node0" / "console.log").write_text("still of interest")
    assert sweep() == [ended]
    assert not ended.exists() and recent.exists()


def test_a_lab_whose_server_answers_stays(run: Path) -> None:
    folder = run / "alive"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / CONTROL_SOCKET))
        listener.listen()
        assert sweep(keep_seconds=-1) == []
    assert sweep(keep_seconds=-1) == [folder]


def test_what_is_no_lab_stays(run: Path) -> None:
    other = old(run / "other", "notes.txt")
    (run / "file").write_text("x")
    outside = old(run.parent / f"{run.name}-outside", "server.log")
    (run / "link").symlink_to(outside)
    assert sweep(keep_seconds=-1) == []
    assert other.exists() and outside.exists() and (run / "link").exists()
