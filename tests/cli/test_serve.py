# SPDX-License-Identifier: Apache-2.0
"""What `vrnic serve` says when it cannot serve: the thing, the reason, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from emu.cli.main import app


def serve(*arguments: str | Path) -> Result:
    """Run the command; it must end at once."""
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), "a sentence, not a traceback"
    return result


@pytest.mark.parametrize("place", ["", "below"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    output = serve("--directory", tmp_path / "file" / place).output
    assert "cannot make the folder" in output and "--directory" in output


def test_a_capture_that_cannot_be_written(tmp_path: Path) -> None:
    output = serve("--directory", tmp_path / "lab", "--capture", tmp_path).output
    assert "cannot write the capture" in output and "Is a directory" in output and "--capture" in output
    assert not list((tmp_path / "lab").iterdir())


def test_a_name_that_is_none(tmp_path: Path) -> None:
    assert "is no name for a lab" in serve("--name", "../evil").output


def test_a_lab_file_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text("seed = 1\nlos = 0.5\n")
    output = serve(file).output.replace("\n", "")
    assert "lab.toml:2" in output and "los" in output
