# SPDX-License-Identifier: Apache-2.0
"""What the programs of the set-up print on failure becomes one sentence and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.setup.error import SetupError
from emu.setup.process import explain, run


# Lines as apt 2.6, mmdebstrap 1.3, tar 1.34 and bubblewrap 0.8 print them.
@pytest.mark.parametrize(
    ("line", "cause", "hint"),
    [
        ("tar: usr/lib/x.so: Cannot write: No space left on device", "the disk is full", "VRNIC_CACHE"),
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.",
            "the disk is full",
            "VRNIC_CACHE",
        ),
        ("Err:1 x InRelease\n  Temporary failure resolving 'mirror'", "cannot be reached", "network"),
        ("  Could not connect to mirror:80 (10.0.0.1), connection timed out", "cannot be reached", "proxy"),
        ("W: GPG error: x InRelease: NO_PUBKEY 6ED0E7B82643E131", "signature", "debian-archive-keyring"),
        ("E: invalid /etc/subuid", "user namespaces", "uidmap"),
        ("bwrap: setting up uid map: Permission denied", "user namespaces", "bubblewrap"),
        ("E: Unable to locate package qemu-system-x86", "consistent state", "again"),
    ],
)
def test_known_causes_are_named(line: str, cause: str, hint: str) -> None:
    error = explain("the Debian tree", f"I: start\n{line}\nE: failed", Path("/log"))
    assert cause in error.message
    assert hint in error.hint
    assert "/log" in error.message


def test_unknown_cause_shows_the_last_lines() -> None:
    error = explain("the thing", "\n".join(f"line {number}" for number in range(20)))
    assert error.hint.splitlines() == [f"line {number}" for number in range(12, 20)]


def test_name_of_an_installed_package_is_not_taken_for_a_cause() -> None:
    error = explain("the Debian tree", "Setting up debian-archive-keyring (2025.1) ...\ndpkg: error: other")
    assert "signature" not in error.message


def test_output_is_returned_and_logged(tmp_path: Path) -> None:
    log = tmp_path / "logs/x.log"
    assert run(["sh", "-c", "echo out; echo err >&2"], what="a test", log=log) == "out\nerr\n"
    assert log.read_text().endswith("out\nerr\n")


def test_missing_program_is_named() -> None:
    with pytest.raises(SetupError, match="'no-such-program'"):
        run(["no-such-program"], what="a test")


def test_failure_raises_and_keeps_the_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with pytest.raises(SetupError, match="Making a test failed") as caught:
        run(["sh", "-c", "echo why; exit 3"], what="a test", log=log)
    assert caught.value.hint == "why"
    assert "why" in log.read_text()
