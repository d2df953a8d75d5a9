# SPDX-License-Identifier: Apache-2.0
"""Big-endian bit structures: a table of fields, and the reading and writing that follows from it.

A structure is named and laid out as in the kernel's ``include/linux/mlx5/mlx5_ifc.h``: offsets count bits
from the most significant bit of the first byte. Only fields that are used are listed; a test compares
every one with the headers of the kernels that the set-up knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Field", "Structure"]


class Field(NamedTuple):
    """Where a field is: bit offset and width."""

    offset: int
    width: int


class _Place(NamedTuple):
    """The bytes a field lies in, and its place in their big-endian value."""

    start: int
    stop: int
    shift: int
    mask: int


class Structure:
    """A structure of ``bits`` bits.

    :param members: by name, bit offset and width, or bit offset and the structure that lies there; the
    fields of
        that one are called ``member.field``
    """

    def __init__(self, name: str, bits: int, members: Mapping[str, tuple[int, int | Structure]]) -> None:
        self.name = name
        self.size = bits // 8
        """Bytes."""
        self.fields: dict[str, Field] = {}
        for member, (offset, what) in members.items():
            if isinstance(what, Structure):
                for field, (inner, width) in what.fields.items():
                    self.fields[f"{member}.{field}"] = Field(offset + inner, width)
            else:
                self.fields[member] = Field(offset, what)
        self._places = {field: _place(*where) for field, where in self.fields.items()}

    def unpack(self, data: bytes | bytearray | memoryview, base: int = 0) -> dict[str, int]:
        """Every field of the structure at byte ``base`` of ``data``. Bytes past the end of ``data`` read
        as 0."""
        size = base + self.size
        if len(data) < size:
            data = bytes(data) + bytes(size - len(data))
        return {
            field: int.from_bytes(data[base + start : base + stop], "big") >> shift & mask
            for field, (start, stop, shift, mask) in self._places.items()
        }

    def read(self, data: bytes | bytearray | memoryview, field: str, base: int = 0) -> int:
        """One field. :raises KeyError: there is none of that name."""
        start, stop, shift, mask = self._places[field]
        return int.from_bytes(data[base + start : base + stop], "big") >> shift & mask

    def write(self, buffer: bytearray, values: Mapping[str, int], base: int = 0) -> None:
        """Set fields in place.

        :raises KeyError: there is no field of a name.
        :raises ValueError: a value does not fit its field, or the field lies past the buffer's end.
        """
        for field, value in values.items():
            start, stop, shift, mask = self._places[field]
            if value & ~mask:
                raise ValueError(f"{self.name}.{field}: {value:#x} does not fit {mask.bit_length()} bits")
            if base + stop > len(buffer):
                raise ValueError(f"{self.name}.{field} lies past {len(buffer)} bytes")
            rest = int.from_bytes(buffer[base + start : base + stop], "big") & ~(mask << shift)
            buffer[base + start : base + stop] = (rest | value << shift).to_bytes(stop - start, "big")

    def pack(self, values: Mapping[str, int]) -> bytearray:
        """A whole structure with ``values``, everything else 0. :raises KeyError, ValueError: as
        :meth:`write`."""
        buffer = bytearray(self.size)
        self.write(buffer, values)
        return buffer

    def byte(self, field: str) -> int:
        """Byte offset of a field. :raises KeyError: there is none of that name."""
        return self.fields[field].offset // 8

    def __repr__(self) -> str:
        return f"Structure({self.name!r})"


def _place(offset: int, width: int) -> _Place:
    start, stop = offset // 8, (offset + width + 7) // 8
    return _Place(start, stop, stop * 8 - offset - width, (1 << width) - 1)
