# SPDX-License-Identifier: Apache-2.0
"""`vrnic pcap summary`: a damaged file is shown as far as it goes, and the exit code says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli.main import app
from emu.events import Kind
from tests.capture.sample import SEND, Stage


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A file with one frame."""
    stage = Stage(tmp_path / "x.pcapng")
    stage.emit(Kind.FRAME_OUT, frame=SEND, length=len(SEND))
    stage.capture.close()
    return Path(stage.path)


def test_a_whole_file_is_fine(capture: Path) -> None:
    result = CliRunner().invoke(app, ["pcap", "summary", str(capture)])
    assert result.exit_code == 0
    assert "ended early" not in result.output


def test_a_cut_file_is_printed_and_fails(capture: Path) -> None:
    data = capture.read_bytes()
    capture.write_bytes(data[:-9])
    result = CliRunner().invoke(app, ["pcap", "summary", str(capture)])
    assert result.exit_code == 1
    assert "packets by opcode" in result.output and "reading ended early" in result.output
    told = CliRunner().invoke(app, ["pcap", "summary", str(capture), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.output)["damage"]
