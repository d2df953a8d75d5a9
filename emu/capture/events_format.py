# SPDX-License-Identifier: Apache-2.0
"""Device events as packets of a capture, and as one line for a person.

The record, big-endian (link type USER0)::

     0         1         2         4                   8
    +---------+---------+---------+-------------------+---------------------------------------+
    | version | kind    | present | qpn               | index                                 |   0
    +---------+---------+---------+-------------------+---------------------------------------+
    | address                                         | length                                |  16
    +---------------------------------------+----+----+---------+-----------------------------+
    | value                                 | function length   | text length                 |  32
    +---------------------------------------+-------------------+-----------------------------+
    | function, text (UTF-8, no terminator) ...                                                  44

``present`` says which numbers the event had (bit 0 qpn, 1 index, 2 address, 3 length, 4 value); the others
are 0. The Lua dissector is generated from the tables here, so capture, trace and Wireshark use the same
words.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field

from emu.events import Event, Kind

__all__ = [
    "FIELDS",
    "HEADER",
    "PHRASES",
    "VERSION",
    "Field",
    "FormatError",
    "Phrase",
    "decode",
    "describe",
    "encode",
]

VERSION = 1
HEADER = struct.Struct(">BBHIQQQQHH")
_TEXT_LIMIT = 2048
_FUNCTION_LIMIT = 64
_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF


class FormatError(ValueError):
    """Bytes that are not an event record."""


@dataclass(frozen=True, slots=True)
class Field:
    """One number of the record: attribute of :class:`Event`, byte offset and size, bit in ``present``.

    ``word`` introduces it in a line ("index 7") unless the kind's phrase has another; ``suffix`` follows it.
    The first field is the line's subject and stands before the kind's label.
    """

    name: str
    offset: int
    size: int
    bit: int
    word: str
    description: str
    hexadecimal: bool = False
    suffix: str = ""


FIELDS = (
    Field("qpn", 4, 4, 0, "QP", "Queue pair number", hexadecimal=True),
    Field("index", 8, 8, 1, "index", "Running index of the work element"),
    Field("address", 16, 8, 2, "at", "Address or register offset", hexadecimal=True),
    Field("length", 24, 8, 3, "", "Length in bytes", suffix=" bytes"),
    Field("value", 32, 8, 4, "value", "Value", hexadecimal=True),
)
"""In the order of a line."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a kind is told: its label, its own words for fields, and the severity shown by Wireshark."""

    label: str
    words: dict[str, str] = field(default_factory=dict)
    severity: str = ""


PHRASES = {
    Kind.MMIO_READ: Phrase("MMIO read"),
    Kind.MMIO_WRITE: Phrase("MMIO write"),
    Kind.DOORBELL: Phrase("doorbell"),
    Kind.WQE_FETCH: Phrase("WQE fetch"),
    Kind.DMA_READ: Phrase("DMA read"),
    Kind.DMA_WRITE: Phrase("DMA write"),
    Kind.FRAME_OUT: Phrase("frame out"),
    Kind.FRAME_IN: Phrase("frame in"),
    Kind.FRAME_DROP: Phrase("frame dropped", severity="note"),
    Kind.RETRANSMIT: Phrase("retransmit", severity="note"),
    Kind.TIMER: Phrase("timer expired"),
    Kind.CQE: Phrase("CQE", {"value": "status"}),
    Kind.EQE: Phrase("EQE", {"value": "EQ"}),
    Kind.MSIX: Phrase("MSI-X", {"value": "vector"}),
    Kind.STATE: Phrase("state"),
    Kind.COMMAND: Phrase("admin command"),
    Kind.RESET: Phrase("reset"),
    Kind.CHECK: Phrase("check violated", {"value": "rule"}, severity="warn"),
    Kind.LINK: Phrase("link"),
    Kind.CHAOS: Phrase("chaos", severity="note"),
    Kind.QUEUE: Phrase("queue", {"value": "depth"}),
}


def encode(event: Event) -> bytes:
    """The record of ``event``. Numbers wider than their field are cut to it; never raises."""
    present = 0
    qpn = index = address = length = value = 0
    if event.qpn is not None:
        present = 1
        qpn = event.qpn & _U32
    if event.index is not None:
        present |= 2
        index = event.index & _U64
    if event.address is not None:
        present |= 4
        address = event.address & _U64
    if event.length is not None:
        present |= 8
        length = event.length & _U64
    if event.value is not None:
        present |= 16
        value = event.value & _U64
    function = _function(event.function)
    text = event.text.encode(errors="replace")
    if len(text) > _TEXT_LIMIT:
        text = _cut(text, _TEXT_LIMIT)
    head = HEADER.pack(
        VERSION, event.kind, present, qpn, index, address, length, value, len(function), len(text)
    )
    return head + function + text


def decode(data: bytes, time: int = 0) -> Event:
    """The event of a record. :raises FormatError: too short, another version, or an unknown kind."""
    if len(data) < HEADER.size:
        raise FormatError(f"{len(data)} bytes are too few for an event record")
    version, kind, present, *numbers, function_length, text_length = HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"event record of version {version}, this reader knows {VERSION}")
    if kind not in Kind._value2member_map_:
        raise FormatError(f"event kind {kind} is not known")
    end = HEADER.size + function_length
    if len(data) < end + text_length:
        raise FormatError("the record's texts are longer than the record")
    values = {f.name: n if present >> f.bit & 1 else None for f, n in zip(FIELDS, numbers, strict=True)}
    return Event(
        Kind(kind),
        time,
        data[HEADER.size : end].decode(errors="replace"),
        text=data[end : end + text_length].decode(errors="replace"),
        **values,
    )


def describe(event: Event) -> str:
    """One line: who and what, then the event's own words, or its numbers when it brings none.

    "node0.nic0: QP 0x101 doorbell index 7"; "node0.nic0: MSI-X: vector 3 for EQ 1".
    """
    phrase = PHRASES[event.kind]
    parts = []
    for f in FIELDS:
        number = getattr(event, f.name)
        if number is not None:
            word = phrase.words.get(f.name, f.word)
            shown = f"{number:#x}" if f.hexadecimal else str(number)
            parts.append(f"{word} {shown}{f.suffix}".strip())
        if f is FIELDS[0]:
            subject = " ".join(parts)
            parts.append(phrase.label)
    if not event.text:
        return f"{event.function}: {' '.join(parts)}"
    if subject and subject not in event.text:
        return f"{event.function}: {subject} {phrase.label}: {event.text}"
    return f"{event.function}: {phrase.label}: {event.text}"


@functools.lru_cache(maxsize=256)
def _function(name: str) -> bytes:
    return _cut(name.encode(errors="replace"), _FUNCTION_LIMIT)


def _cut(data: bytes, limit: int) -> bytes:
    """At most ``limit`` bytes of UTF-8, without half a character at the end."""
    return data if len(data) <= limit else data[:limit].decode(errors="ignore").encode()
