# SPDX-License-Identifier: Apache-2.0
"""A client of QEMU's machine protocol (QMP): JSON lines over a UNIX socket.

Protocol: docs/interop/qmp-spec.rst in QEMU. The server greets, ``qmp_capabilities`` opens the session, each
command gets one ``return`` or ``error``; events arrive in between.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import TracebackType

from emu.lab.failure import LabFailure

__all__ = ["QmpClient"]


class QmpClient:
    """A session. Not safe for use by several threads.

    ``timeout`` (seconds) bounds each wait for QEMU.

    :raises LabFailure: from every method, when QEMU does not answer, answers with an error, or is gone.
    """

    def __init__(self, path: Path, timeout: float = 10.0) -> None:
        self._path = path
        self._timeout = timeout
        self._events: list[dict[str, object]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise LabFailure(f"no QEMU answers on {path}: {error.strerror or error}") from None
        self._input = b""
        self._receive()
        self.execute("qmp_capabilities")

    def __enter__(self) -> QmpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; QEMU goes on."""
        self._socket.close()

    def execute(self, command: str, **arguments: object) -> object:
        """Run ``command`` and return its result. Underscores in argument names become dashes."""
        request: dict[str, object] = {"execute": command}
        if arguments:
            request["arguments"] = {name.replace("_", "-"): value for name, value in arguments.items()}
        return self._request(command, request)

    def device_add(self, properties: dict[str, object]) -> None:
        """Plug a device in; ``properties`` as in ``-device``."""
        self._request("device_add", {"execute": "device_add", "arguments": properties})

    def device_del(self, device: str) -> None:
        """Ask the guest to let go of ``device`` and wait until it is gone."""
        self.execute("device_del", id=device)
        self.wait_event("DEVICE_DELETED", device=device)

    def wait_event(self, name: str, timeout: float | None = None, **data: object) -> dict[str, object]:
        """The next event ``name`` whose data holds ``data``, also one that has already arrived."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            for position, event in enumerate(self._events):
                details = event.get("data")
                details = details if isinstance(details, dict) else {}
                if event["event"] == name and all(details.get(key) == value for key, value in data.items()):
                    return self._events.pop(position)
            left = deadline - time.monotonic()
            if left <= 0:
                raise LabFailure(f"QEMU ({self._path}) did not report {name} in time")
            self._socket.settimeout(left)
            try:
                self._collect(self._receive())
            finally:
                self._socket.settimeout(self._timeout)

    def _request(self, command: str, request: dict[str, object]) -> object:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise LabFailure(f"QEMU ({self._path}) is gone: {error.strerror or error}") from None
        while True:
            reply = self._receive()
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                error_reply = reply["error"]
                text = error_reply.get("desc") if isinstance(error_reply, dict) else error_reply
                raise LabFailure(f"QEMU refused {command}: {text}")
            self._collect(reply)

    def _collect(self, message: dict[str, object]) -> None:
        if "event" in message:
            self._events.append(message)

    def _receive(self) -> dict[str, object]:
        try:
            while b"\n" not in self._input:
                data = self._socket.recv(65536)
                if not data:
                    raise LabFailure(f"QEMU ({self._path}) closed its control connection")
                self._input += data
        except TimeoutError:
            raise LabFailure(f"QEMU ({self._path}) does not answer") from None
        except OSError as error:
            raise LabFailure(f"QEMU ({self._path}) is gone: {error.strerror or error}") from None
        line, self._input = self._input.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError:
            raise LabFailure(f"QEMU ({self._path}) sent no JSON: {line[:80]!r}") from None
        if not isinstance(message, dict):
            raise LabFailure(f"QEMU ({self._path}) sent no JSON object: {line[:80]!r}")
        return message
