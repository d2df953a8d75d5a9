# SPDX-License-Identifier: Apache-2.0
"""What a UET header is made of, as data: fields in wire order, conditions, names, legal values.

scapy layers, the Wireshark dissector and the generic decoder here are all made from the same tables
(:mod:`emu.wire.uet_pds`, :mod:`emu.wire.uet_ses`, :mod:`emu.wire.uet_tss`).

A header is a sequence of big-endian bit fields. A field may be there only when earlier fields have certain
values; fields that exclude each other stand one after the other in the table and have the same total width.
Runs of conditional fields are whole bytes, so a field's alignment within its byte never varies.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Derived", "Field", "Group", "HeaderFormat", "Truncated", "When", "names_of", "unless", "when"]


class Truncated(ValueError):
    """Bytes end before the header does."""


@dataclass(frozen=True, slots=True)
class When:
    """True when field ``name`` of the same header is one of ``values`` (or none of them, if ``inverted``)."""

    name: str
    values: frozenset[int]
    inverted: bool = False

    def holds(self, header: Mapping[str, int]) -> bool:
        """Whether ``header``, the fields decoded so far, meets the condition."""
        return (header.get(self.name) in self.values) != self.inverted


def when(name: str, *values: int) -> When:
    """Condition: ``name`` is one of ``values``."""
    return When(name, frozenset(values))


def unless(name: str, *values: int) -> When:
    """Condition: ``name`` is none of ``values``."""
    return When(name, frozenset(values), True)


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that Wireshark shows below one item: ``filter`` names the item, ``bits`` is its width.

    With ``octets`` it is a string of bytes, else a number.
    """

    filter: str
    title: str
    bits: int
    octets: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    ``filter`` is the Wireshark filter name and ``title`` what a person reads. ``names`` are the known values;
    others are reserved unless in ``vendor``. ``legal`` bounds the values of a field without names; both make
    :meth:`HeaderFormat.complaints`. ``conditions`` must all hold for the field to be there.
    """

    name: str
    bits: int
    filter: str
    title: str
    names: Mapping[int, str] = field(default_factory=dict)
    vendor: range = range(0)
    legal: range | None = None
    signed: bool = False
    hexadecimal: bool = False
    conditions: tuple[When, ...] = ()
    group: Group | None = None

    @property
    def reserved(self) -> bool:
        """True for bits that must be sent as 0 and ignored on receipt."""
        return self.title == "Reserved"

    def complaint(self, value: int) -> str:
        """Why ``value`` is impossible, or an empty string."""
        if self.reserved:
            return f"reserved bits are {value:#x}, not 0" if value else ""
        if self.names:
            known = value in self.names or value in self.vendor
            return "" if known else f"{self.title} {value:#x} is reserved"
        if self.legal is not None and value not in self.legal:
            return f"{self.title} is {value}, must be {_bounds(self.legal)}"
        return ""


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from two fields: ``base`` plus (``sign`` 1) or minus (-1) ``offset``, modulo 2^32.

    It exists where both fields do.
    """

    name: str
    filter: str
    title: str
    base: str
    offset: str
    sign: int = 1

    def of(self, header: Mapping[str, int]) -> int | None:
        """Its value in ``header``; None where it does not exist."""
        if self.base not in header or self.offset not in header:
            return None
        return (header[self.base] + self.sign * header[self.offset]) & 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class HeaderFormat:
    """One header: ``name`` for programs, ``title`` for people, ``filter`` of the item above its fields."""

    name: str
    title: str
    filter: str
    fields: tuple[Field, ...]
    derived: tuple[Derived, ...] = ()

    def alignment(self, name: str) -> int:
        """Bits of its first byte that lie before field ``name``; the same wherever the field is.

        :raises KeyError: there is no such field.
        """
        position = 0
        for item in self.fields:
            if item.name == name:
                return position % 8
            position += item.bits
        raise KeyError(name)

    def walk(self, octets: bytes | memoryview) -> Iterator[tuple[Field, int, int]]:
        """Yield each field that is there, its offset in bits and its value.

        :raises Truncated: ``octets`` end before the header does.
        """
        number = int.from_bytes(octets, "big")
        total = len(octets) * 8
        header: dict[str, int] = {}
        position = 0
        for item in self.fields:
            if not all(condition.holds(header) for condition in item.conditions):
                continue
            end = position + item.bits
            if end > total:
                raise Truncated(f"{self.title} needs {-(-end // 8)} bytes and more, has {len(octets)}")
            value = number >> total - end & (1 << item.bits) - 1
            if item.signed and value >> item.bits - 1:
                value -= 1 << item.bits
            header[item.name] = value
            yield item, position, value
            position = end

    def decode(self, octets: bytes | memoryview) -> dict[str, int]:
        """Field values by name. :raises Truncated: ``octets`` end before the header does."""
        return {item.name: value for item, _, value in self.walk(octets)}

    def size(self, octets: bytes | memoryview) -> int:
        """Bytes that the header at the start of ``octets`` takes.

        :raises Truncated: ``octets`` end before the header does.
        """
        end = 0
        for item, position, _ in self.walk(octets):
            end = position + item.bits
        return end // 8

    def complaints(self, header: Mapping[str, int]) -> list[str]:
        """What is impossible in ``header`` (field values by name), one sentence each."""
        told = (item.complaint(header[item.name]) for item in self.fields if item.name in header)
        return [text for text in told if text]


def names_of(kind: type[enum.IntEnum]) -> dict[int, str]:
    """Names by wire value of an enumeration."""
    return {member.value: member.name for member in kind}


def _bounds(legal: range) -> str:
    first, last = legal[0], legal[-1]
    return str(first) if first == last else f"{first} to {last}"
