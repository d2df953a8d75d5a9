# SPDX-License-Identifier: Apache-2.0
"""Client of the control socket, used by the CLI, the demo and the tests."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emu.control.server import ControlError

__all__ = ["ControlClient"]


class ControlClient:
    """A connection to a running server.

    :raises ControlError: nobody listens on ``path``, or the reply is an error.
    """

    def __init__(self, path: str | Path, timeout: float = 10.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ControlError(
                f"no server answers on {path}: {error.strerror or error}",
                "start one with `vrnic serve` or `vrnic boot`, or name its socket with --socket",
            ) from None
        self._file = self._socket.makefile("rb")
        self._next = 0

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and any stream on it."""
        self._file.close()
        self._socket.close()

    def call(self, method: str, **params: object) -> Any:
        """The result of one method. :raises ControlError: as the server says, or the connection broke."""
        self._send(method, params)
        return self._result(self._receive())

    def stream(self, method: str, **params: object) -> Iterator[Any]:
        """Items of a streaming method, until the server goes away."""
        self._send(method, params)
        self._result(self._receive())
        self._socket.settimeout(None)
        while True:
            try:
                reply = self._receive()
            except ControlError:
                return
            if "item" in reply:
                yield reply["item"]

    def _send(self, method: str, params: dict[str, object]) -> None:
        self._next += 1
        request = {"id": self._next, "method": method, "params": params}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise ControlError(f"the server went away: {error}") from None

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
        except TimeoutError:
            raise ControlError("the server does not answer", "is it stopped in a debugger?") from None
        except OSError as error:
            raise ControlError(f"the server went away: {error}") from None
        if not line:
            raise ControlError("the server closed the connection")
        reply = json.loads(line)
        assert isinstance(reply, dict)
        return reply

    @staticmethod
    def _result(reply: dict[str, Any]) -> Any:
        if "error" in reply:
            error = reply["error"]
            raise ControlError(str(error.get("message")), str(error.get("hint") or ""))
        return reply.get("result")
