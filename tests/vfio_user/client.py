# SPDX-License-Identifier: Apache-2.0
"""The client: one call sends a message and turns the server's loop until the reply is there."""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from emu.transport.context import Endpoint
from emu.transport.loop import Loop
from tests.vfio_user import protocol
from tests.vfio_user.protocol import Command, Flags, Irq, IrqAction

__all__ = ["Client", "ClientError", "Disconnected", "Ram", "RegionInfo"]

CONFIG = 7
_FDS_A_MESSAGE = 8


class ClientError(OSError):
    """The server answered with an error; ``errno`` is the one it sent."""


class Disconnected(Exception):
    """The server closed the connection."""


@dataclass
class Ram:
    """Guest memory: a memfd mapped here and announced to the server at bus address ``address``.

    ``memory`` is what the guest's CPU sees: index it with offsets from ``address``.
    """

    address: int
    size: int
    fd: int
    mapping: mmap.mmap
    memory: memoryview

    def read(self, address: int, length: int) -> bytes:
        """Bytes at bus address ``address``."""
        return bytes(self.memory[address - self.address : address - self.address + length])

    def write(self, address: int, data: bytes) -> None:
        """Put ``data`` at bus address ``address``."""
        self.memory[address - self.address : address - self.address + len(data)] = data

    def close(self) -> None:
        """Release this side's mapping and descriptor."""
        self.memory.release()
        self.mapping.close()
        os.close(self.fd)


@dataclass
class RegionInfo:
    """What the server says of a region; ``fds`` are the caller's to close."""

    index: int
    size: int
    flags: int
    offset: int
    areas: list[tuple[int, int]] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)

    @property
    def mappable(self) -> bool:
        """True when the client may map the region."""
        return bool(self.flags & protocol.REGION_FLAG_MMAP)


class Client:
    """A vfio-user client as QEMU is one, in the thread of the server's loop.

    The constructor connects and negotiates the version. Values of registers are little endian.

    :param path: the server's socket.
    :param loop: the server's loop, turned while a reply is awaited.
    :param patience: seconds to wait for one reply.
    :raises Disconnected: the server closed the connection, in any call.
    :raises ClientError: the server answered with an error, in any call.
    :raises TimeoutError: no reply came, in any call.
    """

    def __init__(self, path: str, loop: Loop, *, patience: float = 10.0, greet: bool = True) -> None:
        self.loop = loop
        self.patience = patience
        self.capabilities: dict[str, object] = {}
        self.ram: list[Ram] = []
        self._id = 0
        self._buffer = bytearray()
        self._fds: list[int] = []
        self._eventfds: dict[int, int] = {}
        self._fired: dict[int, int] = {}
        self._mappings: list[mmap.mmap] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.setblocking(False)
        self._connect(path)
        if greet:
            self.negotiate()

    def _connect(self, path: str) -> None:
        """Connect, turning the loop while an earlier connection still waits to be accepted."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return self.socket.connect(path)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"nobody accepts on {path}") from None
                self.loop.step(0.01)

    # Messages.

    def negotiate(self) -> None:
        """Agree on the version; the server's capabilities are kept in :attr:`capabilities`."""
        wanted = {"capabilities": {"max_msg_fds": _FDS_A_MESSAGE, "max_data_xfer_size": 1 << 20}}
        payload = protocol.VERSION.pack(0, 1) + json.dumps(wanted).encode() + b"\0"
        reply = self.request(Command.VERSION, payload)
        document = json.loads(reply[protocol.VERSION.size :].rstrip(b"\0"))
        self.capabilities = document["capabilities"]

    def send(self, command: int, payload: bytes = b"", fds: Sequence[int] = (), *, flags: int = 0) -> int:
        """Send one message and return its id; the loop is not turned."""
        self._id = (self._id + 1) & 0xFFFF
        size = protocol.HEADER.size + len(payload)
        self.send_raw(protocol.HEADER.pack(self._id, command, size, flags, 0) + payload, fds)
        return self._id

    def send_raw(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Put bytes on the socket as they are, turning the loop while the server's buffer is full."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        deadline = time.monotonic() + self.patience
        while data:
            try:
                sent = self.socket.sendmsg([data], ancillary)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("the server reads nothing") from None
                self.loop.step(0)
                continue
            except (BrokenPipeError, ConnectionResetError):
                raise Disconnected from None
            data = data[sent:]
            ancillary = []

    def request(self, command: int, payload: bytes = b"", fds: Sequence[int] = ()) -> bytes:
        """Send a command and return the payload of its reply."""
        return self.reply(self.send(command, payload, fds))

    def reply(self, message_id: int) -> bytes:
        """Turn the loop until the reply to ``message_id`` is there; return its payload."""
        self.until(lambda: self._whole() is not None)
        size = self._whole()
        assert size is not None
        got_id, _, _, flags, number = protocol.HEADER.unpack_from(self._buffer)
        payload = bytes(self._buffer[protocol.HEADER.size : size])
        del self._buffer[:size]
        assert got_id == message_id, f"reply to {got_id}, expected one to {message_id}"
        assert flags & 0xF == Flags.REPLY
        if flags & Flags.ERROR:
            raise ClientError(number, os.strerror(number))
        return payload

    def drop_input(self) -> None:
        """Forget whatever the server sent. :raises Disconnected: it closed the connection."""
        self._receive()
        self._buffer.clear()
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def until(self, condition: Callable[[], bool]) -> None:
        """Turn the loop until ``condition()``. :raises TimeoutError: it does not come true."""
        deadline = time.monotonic() + self.patience
        while True:
            self._receive()
            if condition():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {self.patience} s")
            self.loop.step(0.01)

    def settle(self) -> None:
        """Return when everything sent so far is processed and no deferred call of the loop waits."""
        self.request(Command.DEVICE_GET_INFO, protocol.DEVICE_INFO.pack(protocol.DEVICE_INFO.size, 0, 0, 0))
        self.until(lambda: self.loop.idle)

    def until_lost(self, endpoint: Endpoint) -> None:
        """After :meth:`close`: turn the loop until the server noticed."""
        deadline = time.monotonic() + self.patience
        while endpoint.attached:
            assert time.monotonic() < deadline, "the server did not notice that the client is gone"
            self.loop.step(0.01)

    # Device and regions.

    def device_info(self) -> tuple[int, int, int]:
        """Flags, number of regions, number of interrupt types."""
        size = protocol.DEVICE_INFO.size
        reply = self.request(Command.DEVICE_GET_INFO, protocol.DEVICE_INFO.pack(size, 0, 0, 0))
        _, flags, regions, irqs = protocol.DEVICE_INFO.unpack(reply)
        return flags, regions, irqs

    def region_info(self, index: int) -> RegionInfo:
        """Size, flags, mappable areas and descriptors of a region."""
        reply = self.request(
            Command.DEVICE_GET_REGION_INFO, protocol.REGION_INFO.pack(4096, 0, index, 0, 0, 0)
        )
        _, flags, _, cap, size, offset = protocol.REGION_INFO.unpack_from(reply)
        info = RegionInfo(index, size, flags, offset)
        info.fds, self._fds = self._fds, []
        if cap:
            (count,) = struct.unpack_from("<I", reply, cap + 8)
            for number in range(count):
                info.areas.append(struct.unpack_from("<QQ", reply, cap + 16 + 16 * number))
        return info

    def map_region(self, index: int) -> memoryview:
        """Map a mappable region as the guest does."""
        info = self.region_info(index)
        assert info.mappable and info.fds, f"region {index} is not mappable"
        mapping = mmap.mmap(info.fds[0], info.size, offset=info.offset)
        for fd in info.fds:
            os.close(fd)
        self._mappings.append(mapping)
        return memoryview(mapping)

    def read(self, region: int, offset: int, size: int) -> bytes:
        """Read ``size`` bytes of a region."""
        reply = self.request(Command.REGION_READ, protocol.REGION_ACCESS.pack(offset, region, size))
        assert protocol.REGION_ACCESS.unpack_from(reply) == (offset, region, size)
        return reply[protocol.REGION_ACCESS.size :]

    def write(self, region: int, offset: int, data: bytes) -> None:
        """Write and wait for the acknowledgement; deferred work may still wait, see :meth:`settle`."""
        self.request(Command.REGION_WRITE, protocol.REGION_ACCESS.pack(offset, region, len(data)) + data)

    def write_posted(self, region: int, offset: int, data: bytes) -> None:
        """Write without acknowledgement, as QEMU does for a function that maps nothing."""
        payload = protocol.REGION_ACCESS.pack(offset, region, len(data)) + data
        self.send(Command.REGION_WRITE, payload, flags=Flags.NO_REPLY)

    def write_multi(self, writes: Sequence[tuple[int, int, bytes]]) -> None:
        """Several posted writes ``(region, offset, data)`` of at most 8 bytes in one message."""
        payload = struct.pack("<Q", len(writes))
        for region, offset, data in writes:
            payload += protocol.WRITE_MULTI.pack(offset, region, len(data), data)
        self.request(Command.REGION_WRITE_MULTI, payload)

    def read_int(self, region: int, offset: int, size: int) -> int:
        """Read a little-endian integer of ``size`` bytes."""
        return int.from_bytes(self.read(region, offset, size), "little")

    def write_int(self, region: int, offset: int, size: int, value: int) -> None:
        """Write a little-endian integer of ``size`` bytes and wait for the acknowledgement."""
        self.write(region, offset, value.to_bytes(size, "little"))

    def config_read(self, offset: int, size: int) -> int:
        """Read 1, 2 or 4 bytes of configuration space."""
        return self.read_int(CONFIG, offset, size)

    def config_write(self, offset: int, size: int, value: int) -> None:
        """Write 1, 2 or 4 bytes of configuration space."""
        self.write_int(CONFIG, offset, size, value)

    # Memory.

    def map_ram(self, size: int, address: int, *, writable: bool = True) -> Ram:
        """Give the device ``size`` bytes of fresh, zeroed guest memory at bus address ``address``."""
        fd = os.memfd_create("guest-ram", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        mapping = mmap.mmap(fd, size)
        ram = Ram(address, size, fd, mapping, memoryview(mapping))
        self.dma_map(address, size, fd, writable=writable)
        self.ram.append(ram)
        return ram

    def unmap_ram(self, ram: Ram) -> None:
        """Take the memory away again; ``ram`` stays readable on this side until the client closes."""
        self.dma_unmap(ram.address, ram.size)

    def dma_map(
        self, address: int, size: int, fd: int | None, *, offset: int = 0, writable: bool = True
    ) -> None:
        """Announce a range; without ``fd``: memory the server cannot reach, as another function's BAR is."""
        flags = protocol.DMA_READ_WRITE if writable else protocol.DMA_READ_ONLY
        payload = protocol.DMA_MAP.pack(protocol.DMA_MAP.size, flags, offset, address, size)
        self.request(Command.DMA_MAP, payload, () if fd is None else (fd,))

    def dma_unmap(self, address: int, size: int) -> None:
        """Withdraw a range."""
        self.request(Command.DMA_UNMAP, protocol.DMA_UNMAP.pack(protocol.DMA_UNMAP.size, 0, address, size))

    # Interrupts and reset.

    def irq_info(self, irq: int = Irq.MSIX) -> int:
        """Number of vectors of an interrupt type."""
        size = protocol.IRQ_INFO.size
        reply = self.request(Command.DEVICE_GET_IRQ_INFO, protocol.IRQ_INFO.pack(size, 0, irq, 0))
        return int(protocol.IRQ_INFO.unpack(reply)[3])

    def enable_msix(self, count: int, start: int = 0) -> None:
        """Install eventfds for ``count`` vectors from ``start``."""
        for first in range(start, start + count, _FDS_A_MESSAGE):
            vectors = range(first, min(first + _FDS_A_MESSAGE, start + count))
            fds = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in vectors]
            self.set_irqs(IrqAction.DATA_EVENTFD | IrqAction.TRIGGER, first, len(fds), fds=fds)
            for vector, fd in zip(vectors, fds, strict=True):
                self._forget_vector(vector)
                self._eventfds[vector] = fd
                self._fired[vector] = 0

    def disable_msix(self) -> None:
        """Take every eventfd away."""
        self.set_irqs(IrqAction.DATA_NONE | IrqAction.TRIGGER, 0, 0)
        for vector in tuple(self._eventfds):
            self._forget_vector(vector)

    def set_irqs(
        self, flags: int, start: int, count: int, data: bytes = b"", fds: Sequence[int] = ()
    ) -> None:
        """The bare DEVICE_SET_IRQS for MSI-X."""
        size = protocol.IRQ_SET.size + len(data)
        payload = protocol.IRQ_SET.pack(size, flags, Irq.MSIX, start, count)
        self.request(Command.DEVICE_SET_IRQS, payload + data, fds)

    def irq_count(self, vector: int) -> int:
        """How often ``vector`` fired since its eventfd was installed."""
        with contextlib.suppress(BlockingIOError):
            self._fired[vector] += os.eventfd_read(self._eventfds[vector])
        return self._fired[vector]

    def reset(self) -> None:
        """Device reset, as QEMU sends for a system reset."""
        self.request(Command.DEVICE_RESET)

    def close(self) -> None:
        """Hang up, as a killed QEMU does, and release what this side holds. Safe to repeat."""
        self.socket.close()
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        for vector in tuple(self._eventfds):
            self._forget_vector(vector)
        for ram in self.ram:
            ram.close()
        self.ram = []

    def _forget_vector(self, vector: int) -> None:
        fd = self._eventfds.pop(vector, None)
        if fd is not None:
            os.close(fd)
            del self._fired[vector]

    def _whole(self) -> int | None:
        """Size of the first message in the buffer, when all of it is there."""
        if len(self._buffer) < protocol.HEADER.size:
            return None
        size = int(protocol.HEADER.unpack_from(self._buffer)[2])
        return size if len(self._buffer) >= size else None

    def _receive(self) -> None:
        """Take what has arrived."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, _FDS_A_MESSAGE)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, fds = b"", []
            self._fds += fds
            if not data:
                if self._whole() is None:
                    raise Disconnected
                return
            self._buffer += data
