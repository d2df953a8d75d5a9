# SPDX-License-Identifier: Apache-2.0
"""The device of the MMIO benchmark on our own stack: a PCIe function whose BAR2 counts what is written to it.

``python -m emu.bench.mmio_server SOCKET`` says "ready" on standard output and serves until SIGTERM.
``tests/bench/mmio_server.c`` is the same device in C.
"""

from __future__ import annotations

import sys

from emu.pcie.function import Function
from emu.pcie.header import Identity
from emu.pcie.hierarchy import Hierarchy
from emu.personality.vrnic.contract.identity import VENDOR_ID
from emu.transport.context import Endpoint, EndpointError
from emu.transport.library import LibraryError
from emu.transport.loop import Loop

__all__ = ["BAR_SIZE", "C_DEVICE_ID", "DEVICE_ID", "Doorbells", "build_function"]

DEVICE_ID = 0x6EB0
C_DEVICE_ID = 0x6EB1
BAR_SIZE = 64 * 1024
_CLASS = 0xFF0000
"""Unassigned class: no driver takes it."""


class Doorbells:
    """A BAR that counts writes; a read at any offset gives the count, little endian."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, offset: int, size: int) -> bytes:
        """The count, cut to ``size`` bytes."""
        return self.count.to_bytes(8, "little")[:size].ljust(size, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Count one."""
        self.count += 1


def build_function() -> Function:
    """The function with its counting BAR2."""
    identity = Identity(VENDOR_ID, DEVICE_ID, _CLASS, VENDOR_ID, 1)
    function = Function("bench.python", identity, Hierarchy(), serial=DEVICE_ID)
    function.add_bar(2, BAR_SIZE, Doorbells())
    return function


def main(arguments: list[str]) -> int:
    """Serve until a signal."""
    if len(arguments) != 1:
        print("usage: python -m emu.bench.mmio_server SOCKET", file=sys.stderr)
        return 2
    loop = Loop()
    try:
        endpoint = Endpoint(build_function(), arguments[0], loop)
    except (EndpointError, LibraryError) as error:
        print(f"mmio_server: {error}", file=sys.stderr)
        return 1
    with loop.signals():
        print("ready", flush=True)
        loop.run()
    endpoint.close()
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
