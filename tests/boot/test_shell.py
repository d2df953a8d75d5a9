# SPDX-License-Identifier: Apache-2.0
"""`vrnic boot` as a driver developer uses it: a shell, a changed driver, a reload without a reboot."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.lab.installation import FLAVOUR, Installation, publish_modules
from emu.setup.cache import CHECKOUT
from emu.setup.modules import build_modules

pytestmark = pytest.mark.timeout(240)

MARK = "the changed driver is speaking"


class Terminal:
    """A command on a pseudo terminal."""

    def __init__(self, *arguments: str) -> None:
        self.text = ""
        primary, secondary = pty.openpty()
        program = "from emu.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
            start_new_session=True,
        )
        os.close(secondary)
        self._fd = primary

    def expect(self, wanted: str, timeout: float = 60.0) -> str:
        """Read until ``wanted`` appears; what came before it is consumed and returned."""
        deadline = time.monotonic() + timeout
        while wanted not in self.text:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {wanted!r} within {timeout:.0f} s; the terminal shows: {self.text[-2000:]}"
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            assert data, f"the command ended before {wanted!r}: {self.text[-2000:]}"
            self.text += data.decode(errors="replace")
        before, _, self.text = self.text.partition(wanted)
        return before

    def run(self, command: str, timeout: float = 30.0) -> str:
        """A shell command in the guest; what it printed. Fails when its status is not 0."""
        # The quotes keep the echo of the command line from looking like its end.
        os.write(self._fd, f"{command}; echo 'status'=$?.\n".encode())
        before = self.expect("status=", timeout)
        assert self.expect(".") == "0", before
        return before

    def type(self, octets: bytes) -> None:
        """Press keys."""
        os.write(self._fd, octets)

    def end(self) -> int:
        """Wait for the command to end by itself; its status."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self._fd], [], [], 0.1)
            try:
                if ready and not os.read(self._fd, 65536):
                    break
            except OSError:
                break
        return self.process.wait(10)

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        os.close(self._fd)


@pytest.fixture
def terminal(installation: Installation) -> Iterator[Terminal]:
    """A freshly booted guest's shell."""
    terminal = Terminal("boot", "--name", f"shell-{os.getpid()}", "--no-capture")
    try:
        terminal.expect("# ")
        yield terminal
    finally:
        terminal.close()


def changed_driver(folder: Path) -> Path:
    """A copy of the guest's sources whose driver says something else when it binds."""
    shutil.copytree(CHECKOUT / "guest", folder / "guest")
    source = folder / "guest/driver/main.c"
    text = source.read_text()
    assert "MODULE_LICENSE" in text
    source.write_text(text.replace("MODULE_LICENSE", f'MODULE_INFO(note, "{MARK}");\nMODULE_LICENSE', 1))
    return folder


def test_a_changed_driver_is_loaded_without_a_reboot(
    terminal: Terminal, installation: Installation, tmp_path: Path
) -> None:
    terminal.run("test -e /project/README.md && ! touch /project/x 2>/dev/null")
    terminal.run("test -c /dev/vrnic0 -a -c /dev/vgpu0")
    original = build_modules(installation.tree, FLAVOUR)
    try:
        publish_modules(build_modules(installation.tree, FLAVOUR, checkout=changed_driver(tmp_path)))
        assert MARK in terminal.run("strings /build/vrnic.ko")
        terminal.run("reload-driver")
    finally:
        publish_modules(original)
    assert "contract 1." in terminal.run("dmesg | tail -n 2")
    terminal.run("test -c /dev/vrnic0")
    terminal.type(b"poweroff\n")
    assert terminal.end() == 0


def test_ctrl_a_x_leaves(terminal: Terminal) -> None:
    terminal.type(b"\x01x")
    assert terminal.end() == 0


def test_dry_run_prints_a_qemu_line(installation: Installation) -> None:
    program = "from emu.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "boot", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "vfio-user-pci" in done.stdout
    assert "share=on" in done.stdout
