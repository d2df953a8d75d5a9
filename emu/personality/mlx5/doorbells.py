# SPDX-License-Identifier: Apache-2.0
"""Send doorbells: what a store to a user access region says, and descriptors pushed into it whole.

From 0x800 of a region on there are registers of 256 bytes. A store of 8 bytes to the start of one rings a
queue; its bytes are the start of a control segment, in one of two ways::

    next index     0 (1) | index of the next free slot (2) | 0 (1) | QPN (3) | 0 (1)
    last header    modifier (1) | index of the last descriptor (2) | opcode (1) | QPN (3) | its segments (1)

The segment count tells them apart. Index bytes are 1 and 2 only: where a wider index is shifted in without a
mask, the byte before them holds more of it. The doorbell counts beside the queue's record, see
``DbrPolicy.LATEST``.

A whole descriptor written from the start of a register on ("BlueFlame") needs no fetch. Its 8-byte stores may
come in any order. When its start is here the queue is rung as by any doorbell, and if not all has come by the
time of the fetch, it is fetched from the ring, where it has to be as well. Libraries copy whole slots of 64
bytes; what follows the descriptor in its last slot means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emu.checks.rule import Rule
from emu.nic.qp import QueuePair
from emu.nic.serial import MASK
from emu.personality.mlx5.formats.wqe import SLOT, UNIT

if TYPE_CHECKING:
    from emu.personality.mlx5.device import Door, Mlx5Device

__all__ = ["FIRST_REGISTER", "REGISTER_BYTES", "SendDoorbells", "queue_number"]

FIRST_REGISTER = 0x800
REGISTER_BYTES = 0x100
WORD = 8
MOST_PARTIAL = 256
"""Registers whose incomplete descriptors are kept; the oldest one's are dropped for another's."""
_HALF = 0x8000
_WHOLE = 0x10000


def queue_number(place: int, data: bytes) -> int | None:
    """The queue that a store of ``data`` at ``place`` of a region rings; None when it rings none."""
    at = place % REGISTER_BYTES
    if len(data) == WORD and at == 0:
        return int.from_bytes(data[4:7], "big")
    if len(data) == 4 and at == 4:
        return int.from_bytes(data[:3], "big")
    return None


@dataclass(slots=True)
class _Register:
    """``words`` that came, by their place, and were not used; places of ``padding`` that is still to come."""

    words: dict[int, bytes] = field(default_factory=dict)
    padding: set[int] = field(default_factory=set)

    def used(self, size: int) -> None:
        """A descriptor of ``size`` bytes is done with."""
        end = (size + SLOT - 1) // SLOT * SLOT
        self.padding = set(range(size, end, WORD)) - self.words.keys()
        self.words.clear()


class SendDoorbells:
    """The doorbell registers of all regions of a function."""

    def __init__(self, device: Mlx5Device) -> None:
        self._device = device
        self._pushes: dict[int, _Register] = {}
        """By their offset in the BAR, registers that were written to."""

    def clear(self) -> None:
        """Forget descriptors that came in part."""
        self._pushes.clear()

    def store(self, uar: int, place: int, data: bytes) -> None:
        """A store of ``data`` at ``place`` of region ``uar``; one that breaks a rule is ignored and named."""
        register = uar << 12 | place & ~(REGISTER_BYTES - 1)
        at = place % REGISTER_BYTES
        if len(data) == WORD and at % WORD == 0:
            self._push(uar, register, at, data)
        elif len(data) == 4:
            # Two stores of four bytes say the same, in the order of a 32-bit processor: the second one rings.
            self._half(uar, at, data)
        else:
            self._ignore(Rule.C12_WIDTH, f"{len(data)}-byte store at {place:#x} of region {uar}")

    def _push(self, uar: int, register: int, at: int, data: bytes) -> None:
        state = self._state(register)
        words = state.words
        if at == 0:
            state.padding.clear()
        elif at in state.padding:
            state.padding.remove(at)
            return
        if at in words:
            # Another descriptor begins.
            words.clear()
        words[at] = data
        start = words.get(0)
        if start is None:
            # The rest of a descriptor whose start is still to come.
            return
        units = start[7] & 0x3F
        door = self._door(uar, int.from_bytes(start[4:7], "big"), quiet=at != 0)
        if at == 0 and door is not None:
            self._ring(door, int.from_bytes(start[1:3], "big"), units)
        if units < 2:
            state.used(WORD)
        elif all(WORD * word in words for word in range(2 * units)):
            if door is not None and door.qp is not None:
                self._whole(door.qp, b"".join(words[WORD * word] for word in range(2 * units)))
            state.used(UNIT * units)

    def _state(self, register: int) -> _Register:
        state = self._pushes.get(register)
        if state is None:
            if len(self._pushes) >= MOST_PARTIAL:
                self._pushes.pop(next(iter(self._pushes)))
            state = self._pushes[register] = _Register()
        return state

    def _whole(self, qp: QueuePair, wqe: bytes) -> None:
        """All segments of a descriptor are here: if it is the only one to fetch, nothing is fetched."""
        slots = (len(wqe) + SLOT - 1) // SLOT
        index = _extend(int.from_bytes(wqe[1:3], "big"), qp.fetched)
        if index == qp.fetched and qp.doorbell == (index + slots) & MASK:
            self._device.nic.submission.push(qp, index, wqe, slots)

    def _half(self, uar: int, at: int, data: bytes) -> None:
        if at != 4:
            # Says nothing yet.
            return
        number = int.from_bytes(data[:3], "big")
        door = self._door(uar, number)
        if door is None:
            return
        self._device.nic.checks.report(
            Rule.C12_WIDTH,
            f"queue {number:#x} is rung by two stores of 4 bytes; ring with one of 8, or hold a lock",
            qpn=number,
        )
        if door.qp is None:
            door.ring()
        else:
            self._device.nic.submission.ring(door.qp, door.qp.doorbell)

    def _ring(self, door: Door, index: int, units: int) -> None:
        qp = door.qp
        if qp is None:
            door.ring()
            return
        slots = (units * UNIT + SLOT - 1) // SLOT
        self._device.nic.submission.ring(qp, (_extend(index, qp.doorbell) + slots) & MASK)

    def _door(self, uar: int, number: int, *, quiet: bool = False) -> Door | None:
        door = self._device.doors.get(number)
        if door is not None and door.uar == uar:
            return door
        if not quiet:
            text = (
                f"doorbell in region {uar} for queue {number:#x}, which has none"
                if door is None
                else f"queue {number:#x} was rung through region {uar} but belongs to region {door.uar}"
            )
            self._ignore(Rule.C02_OWNER, text, number)
        return None

    def _ignore(self, rule: Rule, text: str, qpn: int | None = None) -> None:
        self._device.nic.counters.doorbells_ignored += 1
        self._device.nic.checks.report(rule, f"{text}; doorbell ignored", qpn=qpn)


def _extend(index: int, near: int) -> int:
    """The 32-bit running index closest to ``near`` whose low 16 bits are ``index``."""
    return (near + ((index - near + _HALF) % _WHOLE) - _HALF) & MASK
