# SPDX-License-Identifier: Apache-2.0
"""Reads pcapng files, ours and others': both byte orders, several sections, damaged ends."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

from emu.capture.pcapng import BYTE_ORDER_MAGIC, BlockType, Direction, Interface, Option, PcapngError

__all__ = ["MAX_BLOCK", "PacketRecord", "PcapngError", "PcapngReader"]

MAX_BLOCK = 16 * 1024 * 1024
"""Longest block accepted, in bytes. A longer one is taken for damage, not for a reason to allocate memory."""


@dataclass(frozen=True, slots=True)
class PacketRecord:
    """A packet: ``time`` in nanoseconds since 1970, ``data`` as captured, ``length`` on the wire."""

    interface: Interface
    time: int
    data: bytes
    length: int
    direction: Direction = Direction.UNKNOWN
    queue: int | None = None
    comment: str = ""


class _Damage(Exception):
    """What is wrong with the block at hand."""


class PcapngReader:
    """Iterates over the packets of a file.

    The iteration ends at the end of the file or at the first damage, which :attr:`damage` then describes
    (empty when there was none): a capture whose writer was killed is read up to its last whole block.

    :raises PcapngError: the file does not start as pcapng does.
    :raises OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.damage = ""
        self.application = ""
        self.interfaces: list[Interface] = []
        self._order = "<"
        self._offset = 0
        self._file: BinaryIO = open(self.path, "rb")  # noqa: SIM115 - closed by close() or the with statement
        try:
            if self._file.read(4) != b"\x0a\x0d\x0d\x0a":
                raise PcapngError("not a pcapng file: it has no section header")
            self._file.seek(0)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> PcapngReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[PacketRecord]:
        try:
            while (block := self._next_block()) is not None:
                kind, body = block
                if kind == BlockType.SECTION:
                    self._section(body)
                elif kind == BlockType.INTERFACE:
                    self._interface(body)
                elif kind == BlockType.ENHANCED_PACKET:
                    yield self._packet(body)
                elif kind == BlockType.SIMPLE_PACKET:
                    yield self._simple_packet(body)
        except _Damage as error:
            self.damage = f"block at byte {self._offset}: {error}"
        except struct.error:
            self.damage = f"block at byte {self._offset}: too short for its type"

    def _next_block(self) -> tuple[int, bytes] | None:
        self._offset = self._file.tell()
        head = self._file.read(8)
        if not head:
            return None
        if len(head) < 8:
            raise _Damage("the file ends inside the block")
        if head[:4] == b"\x0a\x0d\x0d\x0a":
            magic = self._file.read(4)
            self._file.seek(-len(magic), os.SEEK_CUR)
            if magic == struct.pack("<I", BYTE_ORDER_MAGIC):
                self._order = "<"
            elif magic == struct.pack(">I", BYTE_ORDER_MAGIC):
                self._order = ">"
            else:
                raise _Damage("a section header without byte-order magic")
        kind, length = self._unpack("II", head)
        if length < 12 or length & 3 or length > MAX_BLOCK:
            raise _Damage(f"impossible block length {length}")
        rest = self._file.read(length - 8)
        if len(rest) < length - 8:
            raise _Damage("the file ends inside the block")
        (again,) = self._unpack("I", rest[-4:])
        if again != length:
            raise _Damage(f"lengths at its two ends differ ({length} and {again})")
        return kind, rest[:-4]

    def _unpack(self, layout: str, data: bytes) -> tuple[int, ...]:
        return struct.unpack(self._order + layout, data)

    def _options(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while offset + 4 <= len(data):
            code, length = self._unpack("HH", data[offset : offset + 4])
            if code == Option.END:
                return
            value = data[offset + 4 : offset + 4 + length]
            if len(value) < length:
                raise _Damage("an option is longer than the block")
            yield code, value
            offset += 4 + (length + 3 & ~3)

    def _section(self, body: bytes) -> None:
        _, major, _, _ = self._unpack("IHHq", body[:16])
        if major != 1:
            raise _Damage(f"version {major} of the format is not known")
        self.interfaces = []
        for code, value in self._options(body[16:]):
            if code == Option.SHB_USERAPPL:
                self.application = _text(value)

    def _interface(self, body: bytes) -> None:
        link_type, _, _ = self._unpack("HHI", body[:8])
        name = description = ""
        resolution = 1_000_000
        for code, value in self._options(body[8:]):
            if code == Option.IF_NAME:
                name = _text(value)
            elif code == Option.IF_DESCRIPTION:
                description = _text(value)
            elif code == Option.IF_TSRESOL and value:
                exponent = value[0] & 0x7F
                resolution = 1 << exponent if value[0] & 0x80 else 10**exponent
        self.interfaces.append(Interface(link_type, name, description, resolution))

    def _packet(self, body: bytes) -> PacketRecord:
        number, high, low, size, length = self._unpack("5I", body[:20])
        if number >= len(self.interfaces):
            raise _Damage(f"packet of interface {number}, which is not described")
        if size > len(body) - 20:
            raise _Damage("a packet is longer than its block")
        interface = self.interfaces[number]
        direction = Direction.UNKNOWN
        queue = None
        comment = ""
        for code, value in self._options(body[20 + (size + 3 & ~3) :]):
            if code == Option.COMMENT:
                comment = _text(value)
            elif code == Option.EPB_FLAGS and len(value) == 4:
                bits = self._unpack("I", value)[0] & 3
                direction = Direction(bits) if bits != 3 else Direction.UNKNOWN
            elif code == Option.EPB_QUEUE and len(value) == 4:
                (queue,) = self._unpack("I", value)
        time = (high << 32 | low) * 1_000_000_000 // interface.resolution
        return PacketRecord(interface, time, body[20 : 20 + size], length, direction, queue, comment)

    def _simple_packet(self, body: bytes) -> PacketRecord:
        if not self.interfaces:
            raise _Damage("a packet before any interface is described")
        (length,) = self._unpack("I", body[:4])
        return PacketRecord(self.interfaces[0], 0, body[4 : 4 + length], length)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
