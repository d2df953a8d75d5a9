# SPDX-License-Identifier: Apache-2.0
"""The QMP client against a QEMU of our own making and, when it is installed, against the real one."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emu.lab.failure import LabFailure
from emu.lab.qmp import QmpClient
from emu.setup.tree import Tree

GREETING: dict[str, object] = {"QMP": {"version": {}, "capabilities": []}}

Answer = Callable[[dict[str, object]], list[object]]


class FakeQemu:
    """Greets, accepts the capabilities, then answers each command with the messages of ``answer``.

    A ``bytes`` message is sent as it is; ``None`` closes the connection.
    """

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = path
        self.requests: list[dict[str, object]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(json.dumps(GREETING).encode() + b"\r\n")
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                setup = request["execute"] == "qmp_capabilities"
                for message in [{"return": {}}] if setup else self._answer(request):
                    if message is None:
                        return
                    data = message if isinstance(message, bytes) else json.dumps(message).encode()
                    connection.sendall(data + b"\r\n")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Callable[[Answer], FakeQemu]]:
    made: list[FakeQemu] = []

    def make(answer: Answer) -> FakeQemu:
        made.append(FakeQemu(tmp_path / "qmp.sock", answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_command_returns_its_result_and_takes_arguments(fake: Callable[[Answer], FakeQemu]) -> None:
    qemu = fake(lambda request: [{"return": {"status": "running"}}])
    with QmpClient(qemu.path) as client:
        assert client.execute("query", some_name=1) == {"status": "running"}
    assert qemu.requests[-1] == {"execute": "query", "arguments": {"some-name": 1}}


def test_events_between_a_command_and_its_result_are_kept(fake: Callable[[Answer], FakeQemu]) -> None:
    event = {"event": "DEVICE_DELETED", "data": {"device": "nic0"}}
    other = {"event": "DEVICE_DELETED", "data": {"path": "/port"}}
    qemu = fake(lambda request: [other, event, {"return": {}}])
    with QmpClient(qemu.path) as client:
        client.device_del("nic0")
        assert client.wait_event("DEVICE_DELETED", path="/port") == other


def test_events_after_the_result_are_awaited(fake: Callable[[Answer], FakeQemu]) -> None:
    qemu = fake(lambda request: [{"return": {}}, {"event": "DEVICE_DELETED", "data": {"device": "nic0"}}])
    with QmpClient(qemu.path) as client:
        client.device_del("nic0")
    assert qemu.requests[-1] == {"execute": "device_del", "arguments": {"id": "nic0"}}


def test_an_event_that_does_not_come_is_named(fake: Callable[[Answer], FakeQemu]) -> None:
    qemu = fake(lambda request: [{"return": {}}])
    with (
        QmpClient(qemu.path, timeout=0.05) as client,
        pytest.raises(LabFailure, match="does not answer"),
    ):
        client.device_del("nic0")


def test_the_session_goes_on_after_an_event_that_did_not_come(fake: Callable[[Answer], FakeQemu]) -> None:
    qemu = fake(lambda request: [{"return": request["execute"]}])
    with QmpClient(qemu.path) as client:
        with pytest.raises(LabFailure):
            client.wait_event("NEVER", timeout=0.01)
        assert client.execute("query") == "query"


def test_qemus_refusal_is_passed_on(fake: Callable[[Answer], FakeQemu]) -> None:
    qemu = fake(lambda request: [{"error": {"class": "GenericError", "desc": "Bus 'x' not found"}}])
    with (
        QmpClient(qemu.path) as client,
        pytest.raises(LabFailure, match="refused device_add: Bus 'x' not found"),
    ):
        client.device_add({"driver": "vfio-user-pci"})


@pytest.mark.parametrize(
    ("answer", "message"),
    [(None, "closed its control connection"), (b"\xff{", "sent no JSON"), ([], "sent no JSON object")],
)
def test_a_qemu_that_misbehaves_is_a_named_failure(
    fake: Callable[[Answer], FakeQemu], answer: object, message: str
) -> None:
    qemu = fake(lambda request: [answer])
    with QmpClient(qemu.path) as client, pytest.raises(LabFailure, match=message):
        client.execute("query")


def test_nobody_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabFailure, match="no QEMU answers"):
        QmpClient(tmp_path / "nothing.sock")


@pytest.mark.guest
def test_the_real_qemu_speaks_it(tmp_path: Path) -> None:
    tree = Tree.find()
    if tree is None:
        pytest.skip("the set-up's Debian tree is not here; run scripts/setup")
    path = tmp_path / "qmp.sock"
    machine = ["-machine", "none", "-nodefaults", "-display", "none", "-daemonize"]
    argv = [*tree.qemu_command(), *machine, "-qmp", f"unix:{path},server=on,wait=off"]
    # -daemonize returns once the monitor listens.
    subprocess.run(argv, check=True, timeout=30, stdout=subprocess.DEVNULL)
    with QmpClient(path) as client:
        assert client.execute("query-status") == {"status": "running", "running": True}
        with pytest.raises(LabFailure, match="refused device_del"):
            client.device_del("nothing")
        client.execute("quit")
