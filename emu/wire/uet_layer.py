# SPDX-License-Identifier: Apache-2.0
"""How a header table becomes a scapy layer, and what all UET layers have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from scapy.fields import BitEnumField, BitField, ConditionalField, XBitField
from scapy.packet import Packet, Raw

from emu.wire.uet_format import Field, HeaderFormat, Truncated, When

__all__ = ["Layer", "Summary", "fields_of", "fitting", "flags_of"]

Summary = Any
"""What scapy takes: a sentence, alone or with the layers below after which it is shown."""


def _condition(conditions: tuple[When, ...]) -> Callable[[Packet], bool]:
    return lambda packet: all(
        (packet.getfieldval(each.name) in each.values) != each.inverted for each in conditions
    )


class _SignedBitField(BitField):
    """Two's complement."""

    def i2m(self, pkt: Any, x: int | None) -> int:
        return (x or 0) & (1 << self.size) - 1

    def m2i(self, pkt: Any, x: int) -> int:
        return x - (1 << self.size) if x >> self.size - 1 else x


def fields_of(header: HeaderFormat, **defaults: int) -> list[Any]:
    """scapy fields of a table; ``defaults`` for those that are not 0 unless given."""
    return [_field(item, defaults.get(item.name, 0)) for item in header.fields]


def _field(item: Field, default: int) -> Any:
    made: Any
    if item.names:
        made = BitEnumField(item.name, default, item.bits, dict(item.names))
    elif item.signed:
        made = _SignedBitField(item.name, default, item.bits)
    elif item.hexadecimal:
        made = XBitField(item.name, default, item.bits)
    else:
        made = BitField(item.name, default, item.bits)
    return ConditionalField(made, _condition(item.conditions)) if item.conditions else made


class Layer(Packet):
    """A layer made from a table."""

    header: ClassVar[HeaderFormat]
    shown_after: ClassVar[list[type[Packet]]] = []
    """Layers whose summary is shown too when this one's is: the delivery headers."""

    def values(self) -> dict[str, int]:
        """Values of the fields that are there, by name."""
        found: dict[str, int] = {}
        for item in self.header.fields:
            if all(condition.holds(found) for condition in item.conditions):
                found[item.name] = self.getfieldval(item.name)
        return found

    def complaints(self) -> list[str]:
        """What is impossible in this header, one sentence each."""
        return self.header.complaints(self.values())

    def hashret(self) -> bytes:
        return b""

    def derived(self, name: str) -> int | None:
        """The number ``name`` that follows from two fields; None where it does not exist.

        :raises StopIteration: the table has none of this name.
        """
        found = next(derived for derived in self.header.derived if derived.name == name)
        return found.of(self.values())


def fitting(layer: type[Layer] | None, octets: bytes) -> type[Packet]:
    """``layer``, or Raw when there is none or ``octets`` end before it does."""
    try:
        if layer is not None and layer.header.size(octets):
            return layer
    except Truncated:
        pass
    return Raw


def flags_of(packet: Packet, *names: str) -> str:
    """Those of the one-bit fields ``names`` that are set, each after a space."""
    return "".join(f" {name.upper()}" for name in names if packet.getfieldval(name))
