# SPDX-License-Identifier: Apache-2.0
"""One served PCIe function: a vfio-user socket in front of a :class:`~emu.transport.model.DeviceModel`."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emu.clock import MS, Timer
from emu.events import Event, EventBus, Kind
from emu.transport.callbacks import bind
from emu.transport.dma import DmaMap
from emu.transport.library import load
from emu.transport.loop import Loop
from emu.transport.model import DeviceModel, ResetKind

__all__ = ["Counters", "Endpoint", "EndpointError"]

log = logging.getLogger(__name__)
library_log = logging.getLogger("emu.transport.libvfio-user")

_BUDGET = 256
"""Messages taken from one client before the loop looks after the others."""
_PATH_MAX = 107
"""Bytes of a socket path (``sun_path`` less its final NUL)."""
_RETRY_NS = 20 * MS
"""How often a client that connected without a complete greeting is looked at again."""
_NO_SHARED_MEMORY = (
    "%s: QEMU shares no guest memory, so the device could reach none; start it with "
    "-object memory-backend-memfd,id=ram,size=SIZE,share=on -M memory-backend=ram (client refused)"
)
_WRITES = struct.Struct("<IIQ8s")


class EndpointError(Exception):
    """A socket or device that cannot be served; the message names it and says what to do."""


@dataclass(slots=True)
class Counters:
    """What an endpoint has seen since it was made."""

    attached: int = 0
    """Clients served."""
    lost: int = 0
    """Clients that closed or died."""
    refused: int = 0
    """Clients turned away: another one was attached, or the client spoke no vfio-user."""
    protocol_errors: int = 0
    """Times the library gave up on a client's byte stream."""
    unmapped_vectors: int = 0
    """Interrupts that had to wait for the client's eventfd."""
    faults: int = 0
    """Exceptions out of the device model, each logged; the access was answered with ones or ignored."""


class Endpoint:
    """Listens on a UNIX socket and drives ``model`` for one client after the other.

    The socket is made with mode 0600. One client at a time: a second one is turned away. When the client
    goes, the model gets ``reset(LOST)`` and the socket waits for the next, as long as the endpoint lives.

    :raises EndpointError: the path is too long, taken by something alive or by a file that is no socket, or a
        region is larger than the library can serve.
    :raises emu.transport.library.LibraryError: the extension is not built.
    """

    def __init__(self, model: DeviceModel, path: str, loop: Loop, events: EventBus | None = None) -> None:
        self.model = model
        self.path = path
        self.counters = Counters()
        self.dma: DmaMap | None = None
        """The attached client's memory; None while nobody is attached."""
        self._loop = loop
        self._events = events
        self._native = bind(load())
        self._lib: Any = self._native.lib
        self._drain: Any = self._lib.vrnic_drain
        self._pending: set[int] = set()
        self._retry: Timer | None = None
        self._poll_fd = -1
        self._busy = False
        self._closing = False
        self._handle = self._native.ffi.new_handle(self)
        _claim(path)
        self._context: Any = self._create()
        self._queue = self._native.ffi.buffer(
            self._lib.vrnic_queue(self._context), self._lib.VRNIC_QUEUE * _WRITES.size
        )
        self._listen_fd: int = self._lib.vrnic_poll_fd(self._context)
        loop.add_reader(self._listen_fd, self._on_listen)
        model.connect(self)

    @property
    def attached(self) -> bool:
        """True while a client is served."""
        return self.dma is not None

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._context is None

    def trigger(self, vector: int) -> bool:
        """Signal MSI-X ``vector``. False: no eventfd yet; it stays pending and is delivered when there is.

        Out of range, or with no client attached, it is ignored (False).
        """
        if self.dma is None or self._context is None or not 0 <= vector < self.model.msix_vectors:
            return False
        if self._lib.vrnic_trigger(self._context, vector) == 0:
            self._pending.discard(vector)
            return True
        if vector not in self._pending:
            self._pending.add(vector)
            self.counters.unmapped_vectors += 1
        return False

    def disconnect(self) -> None:
        """Drop the attached client; the model sees ``reset(LOST)`` on a later turn of the loop."""
        if self.attached and self._context is not None:
            self._lib.vrnic_disconnect(self._context)

    def close(self) -> None:
        """Drop the client, stop listening and remove the socket. Safe to repeat and inside a callback."""
        if self._context is None or self._closing:
            return
        self._closing = True
        if self._busy:
            # The library is on the stack: let it return first.
            self._loop.call_soon(self._finish)
        else:
            self._finish()

    # What the loop calls.

    def _on_listen(self) -> None:
        """Somebody connects, or a client that did not finish its greeting says more."""
        if self._closing:
            return
        if self.attached:
            # The old client may be gone already, its end of stream waiting behind this connection.
            self._on_readable()
            if self.attached:
                self._turn_away()
                return
        self._attach()

    def _attach(self) -> None:
        self._retry = None
        if self._closing or self.attached:
            return
        with self._calling():
            result = self._lib.vrnic_attach(self._context)
        if result == 0:
            self._on_attached()
            return
        waiting = self._lib.vrnic_poll_fd(self._context) != self._listen_fd
        if result == -errno.EAGAIN and waiting:
            # Nothing to wake us reliably (a partial message is readable for ever), so look again shortly.
            self._loop.remove_reader(self._listen_fd)
            self._retry = self._loop.call_at(self._loop.now() + _RETRY_NS, self._attach)
            return
        self._loop.add_reader(self._listen_fd, self._on_listen)
        if result != -errno.EAGAIN:
            self.counters.refused += 1
            log.warning("%s: a client was refused: %s", self.model.name, os.strerror(-result))

    def _on_attached(self) -> None:
        self.counters.attached += 1
        self.dma = DmaMap()
        self._poll_fd = self._lib.vrnic_poll_fd(self._context)
        self._loop.add_reader(self._listen_fd, self._on_listen)
        self._loop.add_reader(self._poll_fd, self._on_readable)
        log.info("%s: client attached", self.model.name)
        self._observe("client attached")
        with self._guarded("attach"):
            self.model.attached(self.dma)

    def _turn_away(self) -> None:
        if self._lib.vrnic_refuse(self._context) == 0:
            self.counters.refused += 1
            log.warning("%s: %s already has a client, a second one was refused", self.model.name, self.path)

    def _on_readable(self) -> None:
        if self._closing or self._busy:
            return
        # The hot path: no context manager here.
        self._busy = True
        result = self._drain(self._context, _BUDGET)
        self._busy = False
        if result >= 0:
            if self._pending:
                self._retry_pending()
        elif result != -errno.ENOTCONN and self.attached:
            self.counters.protocol_errors += 1
            log.error("%s: the client's stream broke (%s)", self.model.name, os.strerror(-result))
            self._lib.vrnic_disconnect(self._context)

    def _retry_pending(self) -> None:
        for vector in sorted(self._pending):
            if self._lib.vrnic_trigger(self._context, vector) == 0:
                self._pending.discard(vector)

    def _finish(self) -> None:
        context = self._context
        if context is None:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listen_fd)
        with self._calling():
            self._lib.vrnic_close(context)
        self._context = None
        self._remove_socket()

    # What the library calls, through emu.transport.callbacks; none may let an exception out.

    def on_writes(self, count: int) -> None:
        """``count`` small writes wait in the queue shared with C, oldest first."""
        write = self.model.region_write
        for region, size, offset, data in _WRITES.iter_unpack(self._queue[: count * _WRITES.size]):
            try:
                write(region, offset, data if size == 8 else data[:size])
            except Exception as error:
                self._fault(f"write of {size} bytes at {offset:#x} of region {region}", error)

    def on_write(self, region: int, offset: int, data: bytes) -> None:
        """A write of more than 8 bytes."""
        with self._guarded(f"write of {len(data)} bytes at {offset:#x} of region {region}"):
            self.model.region_write(region, offset, data)

    def on_read(self, region: int, offset: int, size: int) -> bytes:
        """A read; what goes wrong reads as ones, as on a bus that nobody answers."""
        try:
            data = self.model.region_read(region, offset, size)
            if len(data) == size:
                return data
            raise ValueError(f"the model returned {len(data)} bytes")
        except Exception as error:
            self._fault(f"read of {size} bytes at {offset:#x} of region {region}", error)
        return b"\xff" * size

    def on_map(self, address: int, size: int, memory: memoryview | None) -> None:
        """The client announced a range; ``memory`` is None when it gave no descriptor."""
        dma = self.dma
        if dma is None:
            return
        with self._guarded(f"DMA map of {address:#x}+{size:#x}"):
            dma.add(address, size, memory)
        if memory is None and address == 0:
            log.error(_NO_SHARED_MEMORY, self.model.name)
            self.counters.refused += 1
            # QEMU takes a refused mapping for a bug of its own and aborts; a lost connection it reports.
            self._loop.call_soon(self.disconnect)

    def on_unmap(self, address: int, size: int) -> None:
        """The client takes a range back: first out of the table, then the model lets go."""
        dma = self.dma
        if dma is None:
            return
        with self._guarded(f"DMA unmap of {address:#x}+{size:#x}"):
            dma.remove(address, size)
        with self._guarded(f"DMA unmap of {address:#x}+{size:#x}"):
            self.model.dma_unmapping(address, size)

    def on_reset(self, lost: bool) -> None:
        """Device reset, or the end of the connection."""
        if not lost:
            self._pending.clear()
            with self._guarded("device reset"):
                self.model.reset(ResetKind.DEVICE)
            return
        if self.dma is None:
            return
        # Before the library closes the descriptor: its number may be used again at once.
        self._loop.remove_reader(self._poll_fd)
        self._poll_fd = -1
        self.dma.clear()
        self.dma = None
        self._pending.clear()
        self.counters.lost += 1
        log.info("%s: client gone", self.model.name)
        self._observe("client lost")
        with self._guarded("reset"):
            self.model.reset(ResetKind.LOST)

    def on_log(self, level: int, message: str) -> None:
        """A line of the library; ``level`` as in syslog(3)."""
        library_log.log(_LEVELS.get(level, logging.ERROR), "%s: %s", self.model.name, message)

    # Internals.

    def _create(self) -> Any:
        ffi, lib = self._native.ffi, self._lib
        error = ffi.new("int *")
        with _private_umask():
            context = lib.vrnic_open(os.fsencode(self.path), self._handle, _syslog_level(), error)
        if context == ffi.NULL:
            raise EndpointError(f"cannot listen on {self.path}: {os.strerror(error[0])}")
        try:
            for region in self.model.regions:
                fd = -1 if region.fd is None else region.fd
                self._check(
                    lib.vrnic_region(context, region.index, region.size, fd), f"region {region.index}"
                )
            self._check(lib.vrnic_realize(context, self.model.msix_vectors), "device")
        except EndpointError:
            lib.vrnic_close(context)
            self._remove_socket()
            raise
        return context

    def _remove_socket(self) -> None:
        # Later generations of the library do it themselves.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise EndpointError(f"{self.model.name}: {what} cannot be served: {os.strerror(-result)}")

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """While the library is on the stack."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._fault(what, error)

    def _fault(self, what: str, error: Exception) -> None:
        self.counters.faults += 1
        log.error("%s: %s failed: %r", self.model.name, what, error, exc_info=log.isEnabledFor(logging.DEBUG))

    def _observe(self, text: str) -> None:
        events = self._events
        if events is not None and events.mask & Kind.STATE.bit:
            events.emit(Event(Kind.STATE, self._loop.now(), self.model.name, text=text))


_LEVELS = {
    3: logging.ERROR,
    4: logging.WARNING,
    5: logging.INFO,
    6: logging.INFO,
    7: logging.DEBUG,
}


def _syslog_level() -> int:
    """The library's level that matches what its logger lets through."""
    if library_log.isEnabledFor(logging.DEBUG):
        return 7
    return 4 if library_log.isEnabledFor(logging.WARNING) else 3


def _claim(path: str) -> None:
    """Make sure the socket can be made at ``path``: remove one that nobody listens on.

    :raises EndpointError: it cannot.
    """
    length = len(os.fsencode(path))
    if length > _PATH_MAX:
        raise EndpointError(
            f"socket path of {length} bytes, the system takes {_PATH_MAX}: choose a shorter one than {path}"
        )
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise EndpointError(f"cannot use {path} for a socket: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise EndpointError(f"{path} exists and is no socket: remove it or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass
    raise EndpointError(f"another server listens on {path}: stop it or choose another path")


@contextlib.contextmanager
def _private_umask() -> Iterator[None]:
    saved = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(saved)
