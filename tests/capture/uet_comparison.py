# SPDX-License-Identifier: Apache-2.0
"""Holds what tshark prints of UET frames against what the scapy layers decode."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from scapy.layers.inet import UDP
from scapy.packet import Packet

from emu.wire import uet, uet_pds, uet_ses
from emu.wire.uet_layer import Layer
from tests.capture.tshark_program import run_tshark

__all__ = ["FILTERS", "assert_tshark_agrees", "complaints_of", "fields", "number"]

_FORMATS = [
    uet_pds.PROLOGUE,
    *uet_pds.BY_TYPE.values(),
    uet_pds.ENTROPY,
    uet.Security.header,
    *uet_ses.BY_NEXT_HEADER.values(),
    uet_ses.RENDEZVOUS,
    uet_ses.ATOMIC,
    uet_ses.COMPARE_SWAP,
]
FILTERS = sorted(
    {
        *(item.filter for header in _FORMATS for item in header.fields),
        *(derived.filter for header in _FORMATS for derived in header.derived),
    }
    - {"uet.pds.flags"}
)
"""Filter name of every field of every header. The flags together are a field of reserved types only."""


def fields(path: Path, *names: str, more: tuple[str, ...] = ()) -> list[list[list[str]]]:
    """Per frame and field the values that tshark prints."""
    wanted = [word for name in names for word in ("-e", name)]
    options = ("-T", "fields", "-E", "aggregator=|", "-E", "occurrence=a")
    lines = run_tshark(path, *options, *wanted, *more)
    return [[cell.split("|") if cell else [] for cell in line.split("\t")] for line in lines]


def number(text: str) -> int:
    """The number that tshark printed."""
    if text in ("True", "False"):
        return int(text == "True")
    return int(text, 0)


def complaints_of(packet: Packet) -> list[str]:
    """What the layers call impossible in ``packet``."""
    layers = (layer for layer in packet.iterpayloads() if isinstance(layer, Layer))
    return [text for layer in layers for text in layer.complaints()]


def _values_of(packet: Packet) -> dict[str, list[int]]:
    values: dict[str, list[int]] = defaultdict(list)
    for layer in packet.iterpayloads():
        if not isinstance(layer, Layer):
            continue
        present = layer.values()
        for item in layer.header.fields:
            if item.name in present:
                values[item.filter].append(present[item.name])
        for derived in layer.header.derived:
            value = derived.of(present)
            if value is not None:
                values[derived.filter].append(value)
    if UDP in packet and (uet.UET in packet or uet.Security in packet):
        values["uet.pds.entropy"].append(packet[UDP].sport)
    return values


def assert_tshark_agrees(path: Path, frames: Sequence[Packet]) -> set[str]:
    """Every field of ``frames``, those of ``path``, is what tshark prints, and so is every complaint.

    Returns the filter names that occurred.
    """
    found = fields(path, *FILTERS, "_ws.expert.message", "uet.pds.flags")
    assert len(found) == len(frames)
    seen: set[str] = set()
    for frame, (*cells, told, flags) in zip(frames, found, strict=True):
        values = _values_of(frame)
        for name, cell in zip(FILTERS, cells, strict=True):
            octets = name.endswith(("_value", "ccx_state"))
            shown = [int(text, 16) if octets else number(text) for text in cell]
            assert shown == values.get(name, []), f"{name} in {bytes(frame).hex()}"
            if cell:
                seen.add(name)
        messages = [text for text in told if re.search(r"reserved$|, not 0$|, must be ", text)]
        assert sorted(messages) == sorted(complaints_of(frame))
        if uet.UET in frame:
            assert [number(text) for text in flags] == [bytes(frame[uet.UET])[1] & 0x7F]
    return seen
