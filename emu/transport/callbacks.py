# SPDX-License-Identifier: Apache-2.0
"""The way back from C: each callback of native.h finds its endpoint and turns pointers into Python values."""

from __future__ import annotations

import functools
import logging
from typing import Any, Protocol

from emu.transport.library import Native

__all__ = ["Callbacks", "bind"]

log = logging.getLogger(__name__)

_PROT_WRITE = 2


class Callbacks(Protocol):
    """What the library calls on an endpoint. None may raise; offsets, addresses and sizes are bytes."""

    def on_writes(self, count: int) -> None:
        """``count`` small writes wait in the shared queue."""

    def on_write(self, region: int, offset: int, data: bytes) -> None:
        """A large write."""

    def on_read(self, region: int, offset: int, size: int) -> bytes:
        """A read of exactly ``size`` bytes."""

    def on_map(self, address: int, size: int, memory: memoryview | None) -> None:
        """A DMA range appeared."""

    def on_unmap(self, address: int, size: int) -> None:
        """A DMA range disappears."""

    def on_reset(self, lost: bool) -> None:
        """Device reset, or the connection ended."""

    def on_log(self, level: int, message: str) -> None:
        """A line of the library's log."""


@functools.cache
def bind(native: Native) -> Native:
    """Give the extension its Python half, once per process; returns ``native``."""
    ffi, lib = native.ffi, native.lib
    from_handle = ffi.from_handle
    buffer = ffi.buffer

    def failed(kind: object, value: object, trace: object) -> None:
        log.error("a transport callback failed: %r", value)

    def callback(function: Any) -> None:
        ffi.def_extern(onerror=failed)(function)

    @callback
    def vrnic_py_writes(handle: Any, count: int) -> None:
        from_handle(handle).on_writes(count)

    @callback
    def vrnic_py_write(handle: Any, region: int, offset: int, data: Any, size: int) -> None:
        from_handle(handle).on_write(region, offset, bytes(buffer(data, size)))

    @callback
    def vrnic_py_read(handle: Any, region: int, offset: int, data: Any, size: int) -> None:
        ffi.memmove(data, from_handle(handle).on_read(region, offset, size), size)

    @callback
    def vrnic_py_map(
        handle: Any, address: int, size: int, base: Any, length: int, skip: int, prot: int
    ) -> None:
        memory = None
        if base != ffi.NULL:
            # Unmapped when the last view is gone, however long after the client took the range back.
            owner = ffi.gc(ffi.cast("char *", base), lambda pointer: lib.vrnic_unmap(pointer, length))
            memory = memoryview(buffer(owner, length))[skip : skip + size]
            if not prot & _PROT_WRITE:
                memory = memory.toreadonly()
        from_handle(handle).on_map(address, size, memory)

    @callback
    def vrnic_py_unmap(handle: Any, address: int, size: int) -> None:
        from_handle(handle).on_unmap(address, size)

    @callback
    def vrnic_py_reset(handle: Any, lost: int) -> None:
        from_handle(handle).on_reset(bool(lost))

    @callback
    def vrnic_py_log(handle: Any, level: int, message: Any) -> None:
        from_handle(handle).on_log(level, ffi.string(message).decode("utf-8", "replace"))

    return native
