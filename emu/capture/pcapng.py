# SPDX-License-Identifier: Apache-2.0
"""The pcapng format: blocks as bytes. Source: IETF draft-ietf-opsawg-pcapng, sections 3 and 4.

Written here in little-endian, with times in nanoseconds (``if_tsresol`` 9)::

     0          4          8          12         16                        n-4
    +----------+----------+----------+----------+---- - - - ---+----------+----------+
    | type     | length   | fixed fields of the type           | options  | length   |
    +----------+----------+----------+----------+---- - - - ---+----------+----------+

Every part is padded to 4 bytes; ``length`` is that of the whole block and stands at both ends.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

__all__ = [
    "BYTE_ORDER_MAGIC",
    "BlockType",
    "Direction",
    "Interface",
    "LinkType",
    "Option",
    "PcapngError",
    "encode_interface",
    "encode_options",
    "encode_packet",
    "encode_section",
    "encode_statistics",
]

BYTE_ORDER_MAGIC = 0x1A2B3C4D


class PcapngError(ValueError):
    """A file that is not pcapng, or is damaged; the message says where and how."""


class BlockType(enum.IntEnum):
    """Block types in use here."""

    INTERFACE = 1
    SIMPLE_PACKET = 3
    STATISTICS = 5
    ENHANCED_PACKET = 6
    SECTION = 0x0A0D0D0A


class LinkType(enum.IntEnum):
    """Link types (``LINKTYPE_`` values of tcpdump.org)."""

    ETHERNET = 1
    USER0 = 147


class Option(enum.IntEnum):
    """Option codes; those from 2 on depend on the block."""

    END = 0
    COMMENT = 1
    SHB_HARDWARE = 2
    SHB_USERAPPL = 4
    IF_NAME = 2
    IF_DESCRIPTION = 3
    IF_TSRESOL = 9
    EPB_FLAGS = 2
    EPB_QUEUE = 6
    ISB_IFRECV = 4
    ISB_IFDROP = 5


class Direction(enum.IntEnum):
    """Bits 0 and 1 of ``epb_flags``: how the packet passed the interface."""

    UNKNOWN = 0
    INBOUND = 1
    OUTBOUND = 2


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of a section. ``resolution`` is time units a second."""

    link_type: int
    name: str = ""
    description: str = ""
    resolution: int = 1_000_000


_EPB = struct.Struct("<7I")
_EPB_TAIL = struct.Struct("<HHIHHI")
_EPB_QUEUE_TAIL = struct.Struct("<HHIHHIHHI")
_LENGTH = struct.Struct("<I")
# Plain integers: looking up an enum member costs more than packing it.
_ENHANCED_PACKET = int(BlockType.ENHANCED_PACKET)
_FLAGS, _QUEUE = int(Option.EPB_FLAGS), int(Option.EPB_QUEUE)
_PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
_OPTION_LIMIT = 0xFFFF


def encode_options(options: list[tuple[int, bytes]]) -> bytes:
    """Option list with its end mark; nothing at all for an empty list. Values over 65535 bytes are cut."""
    if not options:
        return b""
    parts = []
    for code, value in options:
        value = value[:_OPTION_LIMIT]
        parts.append(struct.pack("<HH", code, len(value)) + value + _PADS[len(value) & 3])
    parts.append(struct.pack("<HH", Option.END, 0))
    return b"".join(parts)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + _LENGTH.pack(length)


def encode_section(application: str, comment: str = "") -> bytes:
    """Section header block, of a section whose length is not known beforehand."""
    options = [(int(Option.SHB_USERAPPL), application.encode())]
    if comment:
        options.append((int(Option.COMMENT), comment.encode()))
    body = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + encode_options(options)
    return _block(BlockType.SECTION, body)


def encode_interface(link_type: LinkType, name: str, description: str = "") -> bytes:
    """Interface description block: no snap length, nanosecond times."""
    options = [(int(Option.IF_NAME), name.encode())]
    if description:
        options.append((int(Option.IF_DESCRIPTION), description.encode()))
    options.append((int(Option.IF_TSRESOL), b"\x09"))
    return _block(BlockType.INTERFACE, struct.pack("<HHI", link_type, 0, 0) + encode_options(options))


def encode_packet(
    interface: int,
    time: int,
    data: bytes,
    direction: Direction = Direction.UNKNOWN,
    queue: int | None = None,
    comment: str = "",
) -> tuple[bytes, bytes, bytes]:
    """Enhanced packet block as three pieces to be written in a row; the middle one is ``data`` itself.

    :param time: nanoseconds since 1970.
    :param queue: queue of the interface the packet belongs to, 32 bits.
    """
    size = len(data)
    pad = _PADS[size & 3]
    if comment:
        options = [(int(Option.COMMENT), comment.encode()), (int(Option.EPB_FLAGS), _LENGTH.pack(direction))]
        if queue is not None:
            options.append((int(Option.EPB_QUEUE), _LENGTH.pack(queue)))
        encoded = encode_options(options)
        length = 32 + size + len(pad) + len(encoded)
        tail = pad + encoded + _LENGTH.pack(length)
    elif queue is not None:
        length = 52 + size + len(pad)
        tail = pad + _EPB_QUEUE_TAIL.pack(_FLAGS, 4, direction, _QUEUE, 4, queue, 0, 0, length)
    elif direction:
        length = 44 + size + len(pad)
        tail = pad + _EPB_TAIL.pack(_FLAGS, 4, direction, 0, 0, length)
    else:
        length = 32 + size + len(pad)
        tail = pad + _LENGTH.pack(length)
    head = _EPB.pack(_ENHANCED_PACKET, length, interface, time >> 32, time & 0xFFFFFFFF, size, size)
    return head, data, tail


def encode_statistics(interface: int, time: int, received: int, dropped: int) -> bytes:
    """Interface statistics block: packets ``received``, and of those ``dropped`` for want of resources."""
    options = encode_options(
        [
            (int(Option.ISB_IFRECV), struct.pack("<Q", received)),
            (int(Option.ISB_IFDROP), struct.pack("<Q", dropped)),
        ]
    )
    body = struct.pack("<III", interface, time >> 32, time & 0xFFFFFFFF) + options
    return _block(BlockType.STATISTICS, body)
