# SPDX-License-Identifier: Apache-2.0
"""Guests as processes: how programs that only pretend to be QEMU fail, and that a real one works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emu.lab.failure import LabFailure
from emu.lab.guest import Guest, tail
from emu.lab.installation import Installation
from emu.lab.qemu import PluggedFunction, QemuCommand
from emu.lab.runner import qemu_command
from emu.lab.topology import Lab, Node
from emu.setup.error import SetupError


def pretender(directory: Path, script: str) -> Guest:
    command = QemuCommand(("sh", "-c", script), Path("kernel"), Path("image"), directory, "node0")
    server_log = directory / "server.log"
    server_log.write_text("the server's last word\n")
    return Guest(command, evidence=(server_log,))


def test_a_qemu_that_ends_is_reported_with_what_everybody_said(tmp_path: Path) -> None:
    with pretender(tmp_path, "echo no such machine >&2; exit 3") as guest:
        guest.start()
        with pytest.raises(LabFailure, match="QEMU of guest node0 ended with status 3") as caught:
            guest.wait_ready(20)
    assert "no such machine" in caught.value.hint
    assert "the server's last word" in caught.value.hint


def test_a_qemu_that_crashes_is_reported_with_its_signal(tmp_path: Path) -> None:
    with pretender(tmp_path, "kill -ABRT $$") as guest:
        guest.start()
        with pytest.raises(LabFailure, match="ended with signal 6"):
            guest.wait_ready(20)


def test_a_guest_that_stays_silent_is_given_up_and_ended(tmp_path: Path) -> None:
    guest = pretender(tmp_path, "exec sleep 600")
    guest.start()
    pid = guest.pid
    assert pid is not None and guest.alive
    with pytest.raises(LabFailure, match="did not come up within 0 s"):
        guest.wait_ready(0.1)
    guest.shutdown(patience=0.05)
    assert guest.pid is None and not guest.alive
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_missing_qemu_is_named(tmp_path: Path) -> None:
    guest = Guest(QemuCommand((str(tmp_path / "qemu"),), Path("k"), Path("i"), tmp_path / "run", "node0"))
    with pytest.raises(LabFailure, match="QEMU does not start") as caught:
        guest.start()
    assert caught.value.hint == "run scripts/setup"
    guest.shutdown()


def test_a_guest_that_is_not_up_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(LabFailure, match="guest node0 is not up"):
        pretender(tmp_path, "true").spawn("true")


def test_the_end_of_a_log_is_short_and_never_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_bytes(b"\xff\r\n" + b"".join(b"line %d\r\n" % number for number in range(50_000)))
    assert tail(log, 2) == "line 49998\nline 49999"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A real guest without any function."""
    try:
        installation = Installation.require()
    except SetupError as error:
        pytest.skip(f"{error.message} {error.hint}")
    lab = Lab((Node("node0", nics=(), gpus=()),))
    with Guest(qemu_command(lab, "node0", installation, tmp_path_factory.mktemp("lab"))) as guest:
        guest.start()
        guest.wait_ready(90)
        yield guest


@pytest.mark.guest
def test_a_real_guest_boots_and_runs_commands(guest: Guest) -> None:
    assert guest.boot_seconds > 0
    assert guest.run("uname -r").check().out == (guest.agent.release,)
    assert guest.run("hostname").out == ("node0",)


@pytest.mark.guest
def test_its_init_mounted_what_tests_need(guest: Guest) -> None:
    mounted = guest.run("cut -d' ' -f2 /proc/mounts").check().out
    assert {"/dev", "/proc", "/sys", "/sys/kernel/debug", "/dev/shm"} <= set(mounted)
    assert guest.run("ulimit -l").out == ("unlimited",)


@pytest.mark.guest
def test_its_drivers_load_reload_and_unload(guest: Guest) -> None:
    for _ in range(2):
        result = guest.run("reload-driver", 30).check()
        assert result.out == (
            "reload-driver: /modules/vgpu.ko loaded",
            "reload-driver: /modules/vrnic.ko loaded",
        )
    guest.run("rmmod vrnic && rmmod vgpu", 30).check()


@pytest.mark.guest
def test_a_module_that_does_not_load_is_told(guest: Guest) -> None:
    broken = "mkdir /build && echo broken > /build/vrnic.ko"
    result = guest.run(f"{broken} && reload-driver; status=$?; rm -r /build; rmmod vgpu; exit $status", 30)
    assert result.status == 1
    assert any("/build/vrnic.ko did not load" in line for line in result.err)


@pytest.mark.guest
def test_qemu_answers_while_the_guest_runs(guest: Guest) -> None:
    with guest.qmp() as qmp:
        assert qmp.execute("query-status") == {"status": "running", "running": True}
    with pytest.raises(LabFailure, match=r"no function 'node0\.nic0'"):
        guest.unplug("node0.nic0")


@pytest.mark.guest
def test_a_function_without_server_ends_qemu_with_its_sentence(guest: Guest, tmp_path: Path) -> None:
    function = PluggedFunction("node0.nic0", tmp_path / "nobody.sock")
    command = replace(guest.command, directory=tmp_path / "run", functions=(function,))
    with Guest(command) as broken:
        broken.start()
        with pytest.raises(LabFailure, match="ended with status 1") as caught:
            broken.wait_ready(60)
    assert "nobody.sock" in caught.value.hint


@pytest.mark.guest
def test_it_powers_itself_off(guest: Guest) -> None:
    # The last test of this guest.
    guest.shutdown()
    assert not guest.alive
    assert "Power down" in tail(guest.command.console_log)
