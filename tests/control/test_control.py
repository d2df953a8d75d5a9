# SPDX-License-Identifier: Apache-2.0
"""The control socket answers requests, refuses bad ones by name, and survives rude clients."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emu.control.client import ControlClient
from emu.control.server import ControlError, ControlServer, Stream
from emu.transport.loop import Loop


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server on its own loop thread, with an echo, a refusal, a bug and a counting stream."""
    loop = Loop()
    path = str(tmp_path / "control.sock")
    control = ControlServer(path, loop)

    def refuse(_: dict[str, object]) -> object:
        raise ControlError("no such queue pair", "list them with qps")

    def bug(_: dict[str, object]) -> object:
        raise ZeroDivisionError("boom")

    def count(params: dict[str, object], stream: Stream) -> object:
        for number in range(int(str(params["upto"]))):
            stream.push(number)
        return "started"

    control.method("echo", lambda params: params)
    control.method("refuse", refuse)
    control.method("bug", bug)
    control.method("stop", lambda _: loop.stop())
    control.stream("count", count)
    thread = threading.Thread(target=loop.run)
    thread.start()
    yield path
    with ControlClient(path) as client:
        client.call("stop")
    thread.join(10)
    assert not thread.is_alive()
    control.close()
    assert not Path(path).exists()


def raw(path: str, data: bytes) -> dict[str, object]:
    """Send bytes as they are and return the first reply line."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(path)
        peer.sendall(data)
        reply = json.loads(peer.makefile().readline())
        assert isinstance(reply, dict)
        return reply


def test_a_call_returns_the_result(server: str) -> None:
    with ControlClient(server) as client:
        assert client.call("echo", a=1, b="two") == {"a": 1, "b": "two"}
        assert client.call("echo") == {}


def test_a_refusal_carries_message_and_hint(server: str) -> None:
    with ControlClient(server) as client, pytest.raises(ControlError) as caught:
        client.call("refuse")
    assert (caught.value.message, caught.value.hint) == ("no such queue pair", "list them with qps")


def test_a_bug_in_a_handler_is_an_error_reply_not_the_end(server: str) -> None:
    with ControlClient(server) as client:
        with pytest.raises(ControlError, match="boom"):
            client.call("bug")
        assert client.call("echo", still="here") == {"still": "here"}


def test_an_unknown_method_lists_the_known_ones(server: str) -> None:
    with ControlClient(server) as client, pytest.raises(ControlError) as caught:
        client.call("nothing")
    assert "echo" in caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[1,2]\n",
        b'{"id":1}\n',
        b'{"method":3}\n',
        b'{"method":"echo","params":[1]}\n',
        b"\xff\xfe\n",
    ],
)
def test_garbage_gets_an_error_reply(server: str, line: bytes) -> None:
    assert "error" in raw(server, line)


def test_an_endless_line_is_cut_off(server: str) -> None:
    reply = raw(server, b"x" * (200 * 1024))
    assert "longer than" in str(reply["error"])


def test_a_stream_delivers_items_in_order(server: str) -> None:
    with ControlClient(server) as client:
        items = client.stream("count", upto=500)
        assert [next(items) for _ in range(500)] == list(range(500))


def test_a_client_that_leaves_in_the_middle_of_a_stream_harms_nobody(server: str) -> None:
    with ControlClient(server) as client:
        next(client.stream("count", upto=100_000))
    with ControlClient(server) as client:
        assert client.call("echo", ok=1) == {"ok": 1}


def test_a_client_that_asks_and_never_reads_is_disconnected(server: str) -> None:
    question = json.dumps({"method": "echo", "params": {"text": "x" * 60_000}}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(server)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1000):
                peer.sendall(question)
    with ControlClient(server) as client:
        assert client.call("echo", ok=1) == {"ok": 1}


def test_a_second_server_on_a_live_socket_is_refused(server: str) -> None:
    with pytest.raises(OSError, match="another server"):
        ControlServer(server, Loop())


def test_no_server_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no server answers"):
        ControlClient(tmp_path / "missing.sock")
