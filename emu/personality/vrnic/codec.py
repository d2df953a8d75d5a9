# SPDX-License-Identifier: Apache-2.0
"""Packs and unpacks the contract's layouts fast: ``struct`` formats derived from the layouts themselves."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache

from construct import Struct

from emu.personality.vrnic.generate.layout import Field, fields_of

__all__ = ["Codec", "Fields", "codec_of", "packer"]

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _reserved(field: Field) -> bool:
    return field.name.startswith("reserved")


def packer(layout: Struct, start: int, end: int) -> struct.Struct:
    """A packer of the fields at bytes ``[start, end)``; reserved ones are written as zero and take no
    argument.
    """
    codes = [
        f"{field.size}x" if _reserved(field) else _code(field)
        for field in fields_of(layout)
        if start <= field.offset < end
    ]
    return struct.Struct("<" + "".join(codes))


def _code(field: Field) -> str:
    return f"{field.size}s" if field.count else _CODES[field.width]


@dataclass(frozen=True, slots=True)
class Fields:
    """A command taken apart: integers and byte strings by name."""

    numbers: dict[str, int]
    blobs: dict[str, bytes]

    def __getitem__(self, name: str) -> int:
        return self.numbers[name]


class Codec:
    """One layout. ``offsets`` gives each field's byte offset."""

    def __init__(self, layout: Struct) -> None:
        self._fields = fields_of(layout)
        self._struct = struct.Struct("<" + "".join(_code(field) for field in self._fields))
        self.size = self._struct.size
        self.offsets = {field.name: field.offset for field in self._fields}

    def unpack(self, data: bytes) -> Fields:
        """Take ``size`` bytes apart."""
        numbers: dict[str, int] = {}
        blobs: dict[str, bytes] = {}
        for field, value in zip(self._fields, self._struct.unpack(data), strict=True):
            if field.count:
                blobs[field.name] = value
            else:
                numbers[field.name] = value
        return Fields(numbers, blobs)

    def pack(self, values: dict[str, int | bytes]) -> bytes:
        """Put fields together; those not given are zero."""
        arguments = [
            values.get(field.name, bytes(field.size) if field.count else 0) for field in self._fields
        ]
        return self._struct.pack(*arguments)

    def stray(self, data: bytes) -> int | None:
        """Byte offset of the first reserved field that is not zero."""
        for field in self._fields:
            if _reserved(field) and any(data[field.offset : field.end]):
                return field.offset
        return None


@cache
def codec_of(layout: Struct) -> Codec:
    """The codec of a layout, made once."""
    return Codec(layout)
