# SPDX-License-Identifier: Apache-2.0
"""A command: what goes in, what comes out, and the function that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.personality.mlx5.codes import CommandOpcode
from emu.personality.mlx5.layout.structure import Structure

if TYPE_CHECKING:
    from emu.personality.mlx5.device import Mlx5Device

__all__ = ["COMMAND", "NOTHING_IN", "NOTHING_OUT", "REPLY", "Command", "Handler", "Request"]

COMMAND = Structure("command", 0x80, {"opcode": (0x000, 16), "uid": (0x010, 16), "op_mod": (0x030, 16)})
"""Start of every input; the rest of 16 bytes belongs to the opcode. No structure of the kernel's header."""
REPLY = Structure("reply", 0x80, {"status": (0x000, 8), "syndrome": (0x020, 32)})
"""Start of every output."""
NOTHING_IN = Structure("nothing_in", 0x80, {})
NOTHING_OUT = Structure("nothing_out", 0x40, {})


@dataclass(frozen=True, slots=True)
class Request:
    """One command as it arrived.

    ``fields`` are those of its structure, ``data`` all its bytes with what follows the structure (page
    lists), ``output`` the bytes the driver has room for. ``uid`` is the user context it comes
    from, 0 for the driver itself.
    """

    opcode: CommandOpcode
    op_mod: int
    data: bytes
    output: int
    fields: Mapping[str, int]
    uid: int = 0

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    def within(self, member: str) -> dict[str, int]:
        """The fields of a nested structure, by their own names."""
        prefix = f"{member}."
        return {name[len(prefix) :]: value for name, value in self.fields.items() if name.startswith(prefix)}

    def pages(self, offset: int) -> list[int]:
        """The 64-bit page addresses from byte ``offset`` to the end; their low 12 bits are flags."""
        count = max(0, len(self.data) - offset) // 8
        return [
            int.from_bytes(self.data[offset + 8 * at : offset + 8 * at + 8], "big") & ~0xFFF
            for at in range(count)
        ]


Handler = Callable[["Mlx5Device", Request], "Mapping[str, int] | None"]
"""Carries out a command and gives the fields of its reply. :raises NicError: it is refused."""


@dataclass(frozen=True, slots=True)
class Command:
    """One opcode. An input shorter than ``takes`` is refused; one with more is taken."""

    opcode: CommandOpcode
    takes: Structure
    gives: Structure
    run: Handler
