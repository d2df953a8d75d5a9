# SPDX-License-Identifier: Apache-2.0
"""Configuration space of one function: bytes, what may be written, and the two capability chains.

Every bit has a kind. Read-only is the default; ``writable`` bits take what is written, ``clearable`` bits are
RW1C (writing 1 clears), ``sticky`` bits live through a hot reset and an FLR, ``kept`` bits through an FLR
only (PCI Express Base Specification, "Register Types" and "Function Level Reset"). Little-endian throughout.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.transport.model import ResetKind

__all__ = ["CONFIG_SIZE", "ConfigSpace"]

CONFIG_SIZE = 4096
CAPABILITY_POINTER = 0x34
STATUS = 0x06
STATUS_CAPABILITIES = 1 << 4
FIRST_CAPABILITY = 0x40
END_OF_CAPABILITIES = 0x100
FIRST_EXTENDED = 0x100


class ConfigSpace:
    """4096 bytes with per-bit rules. Offsets and sizes are bytes, register values little-endian integers."""

    def __init__(self) -> None:
        self._value = bytearray(CONFIG_SIZE)
        self._initial = bytearray(CONFIG_SIZE)
        self._writable = bytearray(CONFIG_SIZE)
        self._clearable = bytearray(CONFIG_SIZE)
        self._sticky = bytearray(CONFIG_SIZE)
        self._kept = bytearray(CONFIG_SIZE)
        self._watchers: list[tuple[int, int, Callable[[], None]]] = []
        self._link = CAPABILITY_POINTER
        self._free = FIRST_CAPABILITY
        self._extended_link: int | None = None
        self._extended_free = FIRST_EXTENDED

    def define(
        self,
        offset: int,
        width: int,
        value: int,
        *,
        writable: int = 0,
        clearable: int = 0,
        sticky: int = 0,
        kept: int = 0,
    ) -> None:
        """Set the reset value of the register at ``offset`` (``width`` bytes) and the kinds of its bits.

        :raises ValueError: a bit is both writable and clearable, or the register leaves the space.
        """
        if writable & clearable:
            raise ValueError(f"config {offset:#x}: bits {writable & clearable:#x} are both RW and RW1C")
        if offset < 0 or offset + width > CONFIG_SIZE:
            raise ValueError(f"config {offset:#x}+{width} leaves the space")
        span = slice(offset, offset + width)
        for target, bits in (
            (self._value, value),
            (self._initial, value),
            (self._writable, writable),
            (self._clearable, clearable),
            (self._sticky, sticky),
            (self._kept, kept),
        ):
            target[span] = bits.to_bytes(width, "little")

    def get(self, offset: int, width: int) -> int:
        """The register's value now."""
        return int.from_bytes(self._value[offset : offset + width], "little")

    def put(self, offset: int, width: int, value: int) -> None:
        """Change a register from the device's side: no bit is protected, no watcher is called."""
        self._value[offset : offset + width] = value.to_bytes(width, "little")

    def read(self, offset: int, size: int) -> bytes:
        """What a configuration read returns; all ones beyond the space."""
        data = bytes(self._value[offset : offset + size])
        return data + b"\xff" * (size - len(data))

    def write(self, offset: int, data: bytes) -> None:
        """A configuration write: each bit by its kind, then the watchers of the bytes it covers."""
        end = min(offset + len(data), CONFIG_SIZE)
        value, writable, clearable = self._value, self._writable, self._clearable
        for at, new in zip(range(offset, end), data, strict=False):
            mask = writable[at]
            value[at] = (value[at] & ~mask | new & mask) & ~(new & clearable[at])
        for start, stop, callback in tuple(self._watchers):
            if start < end and offset < stop:
                callback()

    def watch(self, offset: int, size: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every configuration write that covers one of these bytes."""
        self._watchers.append((offset, offset + size, callback))

    def reset(self, kind: ResetKind) -> None:
        """Return to reset values, but for the bits that live through this kind of reset."""
        survive = bytes(CONFIG_SIZE)
        if kind is ResetKind.DEVICE:
            survive = bytes(self._sticky)
        elif kind is ResetKind.FLR:
            survive = bytes(a | b for a, b in zip(self._sticky, self._kept, strict=True))
        self._value[:] = bytes(
            now & keep | initial & ~keep
            for now, initial, keep in zip(self._value, self._initial, survive, strict=True)
        )

    def add_capability(self, identity: int, size: int) -> int:
        """Append a capability of ``size`` bytes to the chain; its offset (multiple of 4).

        :raises ValueError: no room below 0x100.
        """
        offset = self._free
        if offset + size > END_OF_CAPABILITIES:
            raise ValueError(f"no room for capability {identity:#x} of {size} bytes at {offset:#x}")
        self._free = (offset + size + 3) & ~3
        self.define(offset, 2, identity)
        self._fix(self._link, 1, offset)
        self._fix(STATUS, 2, self.get(STATUS, 2) | STATUS_CAPABILITIES)
        self._link = offset + 1
        return offset

    def add_extended_capability(self, identity: int, version: int, size: int) -> int:
        """Append an extended capability; its offset (multiple of 4, the first at 0x100).

        Its header is version in bits 19:16, id in 15:0, and the offset of the next one in 31:20.

        :raises ValueError: no room.
        """
        offset = self._extended_free
        if offset + size > CONFIG_SIZE:
            raise ValueError(f"no room for extended capability {identity:#x} of {size} bytes at {offset:#x}")
        self._extended_free = (offset + size + 3) & ~3
        self.define(offset, 4, version << 16 | identity)
        if self._extended_link is not None:
            previous = self._extended_link
            self._fix(previous, 4, self.get(previous, 4) | offset << 20)
        self._extended_link = offset
        return offset

    def _fix(self, offset: int, width: int, value: int) -> None:
        """Change value and reset value of a register, leaving the kinds of its bits."""
        self.put(offset, width, value)
        self._initial[offset : offset + width] = value.to_bytes(width, "little")
