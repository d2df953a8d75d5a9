# SPDX-License-Identifier: Apache-2.0
"""Serves the control socket from the owner loop."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from typing import Protocol

from emu.clock import MS, Scheduler

__all__ = ["ControlError", "ControlServer", "Json", "Stream"]

Json = object
"""Anything ``json.dumps`` takes."""

log = logging.getLogger(__name__)

MAX_REQUEST = 64 * 1024
MAX_BACKLOG = 4 * 1024 * 1024
"""Bytes kept for a client that does not read. Stream items beyond it are dropped and counted; one that asks
on is disconnected."""


class ControlError(Exception):
    """A request that cannot be carried out: what is wrong and, in ``hint``, what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SocketLoop(Scheduler, Protocol):
    """The part of the owner loop the control socket needs."""

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever ``fd`` is readable."""

    def remove_reader(self, fd: int) -> None:
        """Forget ``fd``."""


class Stream:
    """The sending end of a streaming reply."""

    def __init__(self, connection: _Connection, request_id: Json) -> None:
        self._connection = connection
        self._id = request_id
        self._held: list[Json] | None = []
        self.lost = 0
        self.on_close: Callable[[], None] | None = None

    def push(self, item: Json) -> None:
        """Send one item; when the client does not keep up it is dropped and counted in ``lost``."""
        if self._held is not None:
            self._held.append(item)
            return
        if self._connection.backlog > MAX_BACKLOG:
            self.lost += 1
            return
        self._connection.send({"id": self._id, "item": item})

    def start(self) -> None:
        """The reply is out: send what was pushed before it."""
        held, self._held = self._held or [], None
        for item in held:
            self.push(item)


Method = Callable[[dict[str, object]], Json]
StreamMethod = Callable[[dict[str, object], Stream], Json]


class ControlServer:
    """Listens on a UNIX socket (mode 0600) and answers requests.

    :raises OSError: the socket cannot be made; a stale one that nobody listens on is replaced.
    """

    def __init__(self, path: str, loop: SocketLoop) -> None:
        self.path = path
        self._loop = loop
        self._methods: dict[str, Method] = {}
        self._streams: dict[str, StreamMethod] = {}
        self._connections: set[_Connection] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        _remove_stale(path)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(16)
        loop.add_reader(self._listener.fileno(), self._accept)

    def method(self, name: str, handler: Method) -> None:
        """Answer ``name`` with ``handler(params)``; its :class:`ControlError` becomes the error reply."""
        self._methods[name] = handler

    def stream(self, name: str, handler: StreamMethod) -> None:
        """Like :meth:`method`, with a :class:`Stream` the handler may push to until the client leaves."""
        self._streams[name] = handler

    def close(self) -> None:
        """Drop every client and remove the socket."""
        for connection in tuple(self._connections):
            connection.close()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        peer.setblocking(False)
        self._connections.add(_Connection(self, peer, self._loop))

    def _dispatch(self, connection: _Connection, line: bytes) -> None:
        request_id: Json = None
        try:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ControlError(f"not JSON: {error}") from None
            if not isinstance(request, dict):
                raise ControlError("a request is a JSON object")
            request_id = request.get("id")
            name = request.get("method")
            params = request.get("params") or {}
            if not isinstance(name, str) or not isinstance(params, dict):
                raise ControlError('a request has "method" (text) and "params" (object)')
            if name in self._methods:
                connection.send({"id": request_id, "result": self._methods[name](params)})
            elif name in self._streams:
                stream = Stream(connection, request_id)
                result = self._streams[name](params, stream)
                connection.streams.append(stream)
                connection.send({"id": request_id, "result": result})
                stream.start()
            else:
                known = ", ".join(sorted([*self._methods, *self._streams]))
                raise ControlError(f"no method {name!r}", f"methods: {known}")
        except ControlError as error:
            connection.send({"id": request_id, "error": {"message": error.message, "hint": error.hint}})
        except Exception as error:  # a bug in a handler must not end the device
            log.exception("control method failed")
            connection.send({"id": request_id, "error": {"message": f"internal error: {error}", "hint": ""}})


class _Connection:
    def __init__(self, server: ControlServer, peer: socket.socket, loop: SocketLoop) -> None:
        self._server = server
        self._socket = peer
        self._loop = loop
        self._input = b""
        self._output = bytearray()
        self._closed = False
        self._retrying = False
        self.streams: list[Stream] = []
        loop.add_reader(peer.fileno(), self._readable)

    @property
    def backlog(self) -> int:
        return len(self._output)

    def send(self, message: Json) -> None:
        if self._closed:
            return
        self._output += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if not self._retrying:
            self._flush()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._server._connections.discard(self)
        for stream in self.streams:
            if stream.on_close is not None:
                stream.on_close()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._input += data
        if self.backlog > MAX_BACKLOG and not self.streams:
            log.warning("%s: a client that asks and does not read is disconnected", self._server.path)
            self.close()
        while not self._closed and b"\n" in self._input:
            line, self._input = self._input.split(b"\n", 1)
            if line.strip():
                self._server._dispatch(self, line)
        if len(self._input) > MAX_REQUEST:
            self.send(
                {"id": None, "error": {"message": f"request longer than {MAX_REQUEST} bytes", "hint": ""}}
            )
            self.close()

    def _flush(self) -> None:
        self._retrying = False
        while self._output and not self._closed:
            try:
                sent = self._socket.send(self._output)
            except BlockingIOError:
                # The loop has no write readiness: a reader this slow can wait a few milliseconds.
                self._retrying = True
                self._loop.call_at(self._loop.now() + 2 * MS, self._flush)
                return
            except OSError:
                self.close()
                return
            del self._output[:sent]


def _remove_stale(path: str) -> None:
    if not os.path.exists(path):
        return
    probe = socket.socket(socket.AF_UNIX)
    try:
        probe.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        raise OSError(f"another server already listens on {path}")
    finally:
        probe.close()
