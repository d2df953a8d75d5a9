# SPDX-License-Identifier: Apache-2.0
"""The dissectors get into Wireshark's own folder, and out of it, without touching what is not ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.capture.generate import LUA_SCRIPT, UET_SCRIPT
from emu.capture.plugins import plan, plugin_folder
from emu.cli.main import app
from tests.capture.test_uet_dissector import capture
from tests.capture.tshark_program import require_scripts, require_tshark
from tests.wire.uet_vectors import FRAMES

NAMES = [LUA_SCRIPT.name, UET_SCRIPT.name]


def vrnic(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["wireshark", *words])
    return done.exit_code, done.output


def test_installing_copies_both_scripts_once(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "plugins"
    code, text = vrnic("install", "--folder", str(folder))
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("wrote")] == [
        f"wrote {folder / name}" for name in NAMES
    ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert (folder / UET_SCRIPT.name).read_bytes() == UET_SCRIPT.read_bytes()
    assert f"nothing to write in {folder}" in vrnic("install", "--folder", str(folder))[1]


def test_an_older_copy_is_replaced(tmp_path: Path) -> None:
    old = LUA_SCRIPT.read_text() + "-- a line more\n"
    (tmp_path / LUA_SCRIPT.name).write_text(old)
    assert [plugin.state for plugin in plan(tmp_path)] == ["old", "absent"]
    code, text = vrnic("install", "--folder", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(text) == {
        "folder": str(tmp_path),
        "write": [str(tmp_path / name) for name in NAMES],
        "done": True,
    }
    assert [plugin.state for plugin in plan(tmp_path)] == ["current", "current"]


@pytest.mark.parametrize("option", ["--dry-run", "--print"])
def test_a_dry_run_changes_nothing(tmp_path: Path, option: str) -> None:
    folder = tmp_path / "plugins"
    code, text = vrnic("install", "--folder", str(folder), option)
    assert code == 0
    assert f"would write {folder / UET_SCRIPT.name}" in text
    assert not folder.exists()
    vrnic("install", "--folder", str(folder))
    assert (
        f"would remove {folder / UET_SCRIPT.name}" in vrnic("uninstall", "--folder", str(folder), option)[1]
    )
    assert len(list(folder.iterdir())) == 2


def test_uninstalling_leaves_other_plugins(tmp_path: Path) -> None:
    vrnic("install", "--folder", str(tmp_path))
    (tmp_path / "mine.lua").write_text("-- mine")
    code, text = vrnic("uninstall", "--folder", str(tmp_path))
    assert code == 0
    assert text.splitlines() == [f"removed {tmp_path / name}" for name in NAMES]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.lua"]
    assert f"nothing to remove in {tmp_path}" in vrnic("uninstall", "--folder", str(tmp_path))[1]


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_file_of_somebody_else_stays_and_is_named(tmp_path: Path, command: str) -> None:
    vrnic("install", "--folder", str(tmp_path))
    foreign = tmp_path / UET_SCRIPT.name
    foreign.write_text("-- a dissector of my own\n")
    code, text = vrnic(command, "--folder", str(tmp_path))
    assert code == 1
    assert f"{foreign} was not written by vrnic" in text
    assert foreign.read_text() == "-- a dissector of my own\n"
    assert (tmp_path / LUA_SCRIPT.name).exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, text = vrnic("install", "--folder", str(tmp_path / "file" / "plugins"))
    assert code == 1
    assert text.startswith("error:")
    assert "Traceback" not in text


def test_the_folder_is_the_one_wireshark_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/somebody")
    assert plugin_folder() == Path("/home/somebody/.local/lib/wireshark/plugins")
    program = tmp_path / "tshark"
    program.write_text("#!/bin/sh\nprintf 'Temp:\\t/tmp\\nPersonal Lua Plugins:\\t/where/it is\\n'\n")
    program.chmod(0o755)
    assert plugin_folder() == Path("/where/it is")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert plugin_folder() == Path("/home/somebody/.local/lib/wireshark/plugins")
    program.write_text("no program at all")
    assert plugin_folder() == Path("/home/somebody/.local/lib/wireshark/plugins")


def test_an_installed_script_is_loaded_by_tshark_without_options(tmp_path: Path) -> None:
    require_scripts()
    path = capture(tmp_path / "a.pcapng", [FRAMES["E1"]])
    plugins = tmp_path / "home/.local/lib/wireshark/plugins"
    vrnic("install", "--folder", str(plugins))
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    # Wireshark 4.4 finds the scripts of a user's folder but, started by root, does not search it for them.
    environment["LUA_PATH_5_4"] = f"{plugins}/?.lua;;"
    words = [*require_tshark(), "-r", str(path), "-T", "fields", "-e", "uet.pds.psn"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "65536\n"
    # Named on the command line as well, as `vrnic pcap show` does, it does no harm.
    both = [*words, "-X", f"lua_script:{UET_SCRIPT}", "-X", f"lua_script:{LUA_SCRIPT}"]
    done = subprocess.run(both, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "65536\n"
    assert "Lua" not in done.stderr
