# SPDX-License-Identifier: Apache-2.0
"""Rules a driver or a submission kernel can break, and the record of what was broken last."""

from __future__ import annotations

import enum

from emu.events import Kind
from emu.nic.counters import Counters
from emu.nic.trace import Trace

__all__ = ["Checks", "Rule"]

_CHECK = Kind.CHECK.bit


class Rule(enum.IntEnum):
    """Rules the core and its personalities watch; the value is the rule's number (C01 is 1)."""

    NONE = 0
    C01_INDEX = 1
    C02_OWNER = 2
    C03_STALE = 3
    C06_AHEAD = 6
    C07_OLDER = 7
    C08_DBR = 8
    C12_WIDTH = 12
    C15_CQ_OVERRUN = 15
    C19_CONSUMER = 19
    C21_STATE = 21
    C22_KEY = 22
    C23_ATOMIC = 23
    C29_UNSUPPORTED = 29

    @property
    def code(self) -> str:
        """The rule's short name, "C01"."""
        return f"C{self.value:02d}"


class Checks:
    """Counts violations and keeps the last one for the registers that show it."""

    __slots__ = ("_counters", "_trace", "last_index", "last_qpn", "last_rule")

    def __init__(self, counters: Counters, trace: Trace) -> None:
        self._counters = counters
        self._trace = trace
        self.last_rule = Rule.NONE
        self.last_qpn = 0
        self.last_index = 0

    def report(self, rule: Rule, text: str, *, qpn: int | None = None, index: int | None = None) -> None:
        """A rule was broken. ``text`` names the object, what is wrong and what to do about it."""
        self._counters.check_violations += 1
        self.last_rule = rule
        self.last_qpn = qpn or 0
        self.last_index = index or 0
        if self._trace.bus.mask & _CHECK:
            self._trace.emit(Kind.CHECK, f"{rule.code}: {text}", qpn=qpn, index=index, value=int(rule))

    def clear(self) -> None:
        """Forget the last violation."""
        self.last_rule = Rule.NONE
        self.last_qpn = 0
        self.last_index = 0
