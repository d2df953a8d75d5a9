# SPDX-License-Identifier: Apache-2.0
"""How a driver uses registers: what is not there, and waiting for what never comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.check import Check
from emu.checks.rule import Rule

if TYPE_CHECKING:
    from emu.checks.checks import Checks

__all__ = ["CHECKS", "PATIENCE", "RegisterWatch"]

CHECKS = (
    Check(
        Rule.C31_SPIN,
        "Nobody polls a bit that cannot change any more.",
        "the register and its value; with hints the QPN, and the index that is waited for",
        "Nothing.",
        "Wait only for what was asked for, and with an end; a reset queue pair completes nothing.",
        limits="Of registers: reads of one of them in a row, with nothing else between.",
    ),
    Check(
        Rule.C32_REGISTER,
        "Software touches registers that exist, with their width, and writes only those that take it.",
        "offset, width, value, the next register that exists",
        "The access is ignored, reads as zero, and is counted as `bad_mmio`.",
        "Compare offsets with REGISTERS.md.",
    ),
)

PATIENCE = 256
"""Reads in a row that give one value before they count as spinning."""


class RegisterWatch:
    """Looks at accesses of one function's registers."""

    __slots__ = ("_checks", "_offset", "_reads", "_value")

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._offset = -1
        self._value = 0
        self._reads = 0

    def wrote(self) -> None:
        """A register was written: what is read next may have changed."""
        self._offset = -1

    def read(self, offset: int, value: int, name: str, changing: bool) -> None:
        """A register was read; ``changing`` says that its value can still change without a write."""
        if offset != self._offset or value != self._value or changing:
            self._offset, self._value, self._reads = offset, value, 1
            return
        self._reads += 1
        if self._reads == PATIENCE:
            self._checks.report(
                Rule.C31_SPIN,
                f"{name} was read {PATIENCE} times in a row and is {value:#x} each time; nothing that is "
                "under "
                "way can change it, so stop waiting",
                address=offset,
            )

    def missing(self, offset: int, size: int, what: str) -> None:
        """An access that the registers do not take; ``what`` says why."""
        self._checks.report(
            Rule.C32_REGISTER,
            f"{size}-byte access at {offset:#x} of the registers: {what}; compare with the register document",
            address=offset,
        )
