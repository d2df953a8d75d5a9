# SPDX-License-Identifier: Apache-2.0
"""Reads ``mlx5_ifc.h``: where each field of each structure is, by the kernel's own C text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HeaderStructure", "KernelHeader"]

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*", re.S | re.M)
_TOKEN = re.compile(r"\w+|[{}\[\];]|[^\w\s]")


@dataclass
class HeaderStructure:
    """Size in bits, and bit offset and width of every member; those of a nested one as ``member.field``.

    An array's width is that of one element; ``arrays`` has that of all of them.
    """

    bits: int = 0
    fields: dict[str, tuple[int, int]] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)


class KernelHeader:
    """Every ``struct mlx5_ifc_*_bits`` and ``union mlx5_ifc_*_bits`` of one header, by its middle name."""

    def __init__(self, path: Path) -> None:
        self.structures: dict[str, HeaderStructure] = {}
        self._tokens = _TOKEN.findall(_COMMENT.sub("", path.read_text()))
        self._bodies: dict[str, tuple[str, int]] = {}
        for at in range(len(self._tokens) - 2):
            kind, name, brace = self._tokens[at : at + 3]
            if kind in ("struct", "union") and brace == "{" and (middle := _middle(name)):
                self._bodies[middle] = (kind, at + 3)

    def structure(self, name: str) -> HeaderStructure | None:
        """One structure, None when the header has none of that name."""
        if name not in self.structures and name in self._bodies:
            kind, at = self._bodies[name]
            self.structures[name], _ = self._body(kind, at)
        return self.structures.get(name)

    def _body(self, kind: str, at: int) -> tuple[HeaderStructure, int]:
        """Members from token ``at`` to the closing brace; also the index behind that."""
        tokens, found = self._tokens, HeaderStructure()
        while tokens[at] != "}":
            inner = HeaderStructure(bits=1)
            if tokens[at] == "u8":
                at += 1
            elif tokens[at + 1] == "{":
                inner, at = self._body(tokens[at], at + 2)
            else:
                middle = _middle(tokens[at + 1])
                inner = (self.structure(middle) if middle else None) or HeaderStructure()
                at += 2
            name = ""
            if tokens[at] != ";":
                name, at = tokens[at], at + 1
            counts = []
            while tokens[at] == "[":
                end = tokens.index("]", at)
                text = "".join(tokens[at + 1 : end])
                counts.append(sum(int(part, 0) for part in text.split("+")) if text else 0)
                at = end + 1
            at += 1
            base = found.bits if kind == "struct" else 0
            width = inner.bits
            if inner.bits == 1 and counts:
                width = counts.pop()
            if name:
                found.fields[name] = (base, width)
            for ours, theirs in ((found.fields, inner.fields), (found.arrays, inner.arrays)):
                for field_name, (offset, size) in theirs.items():
                    ours[f"{name}.{field_name}" if name else field_name] = (base + offset, size)
            total = width
            for count in counts:
                total *= count
            if counts and name:
                found.arrays[name] = (base, total)
            found.bits = found.bits + total if kind == "struct" else max(found.bits, total)
        return found, at + 1


def _middle(name: str) -> str | None:
    match = re.fullmatch(r"mlx5_ifc_(\w+?)(?:_bits)?", name)
    return match[1] if match else None
