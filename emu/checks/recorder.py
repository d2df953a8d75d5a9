# SPDX-License-Identifier: Apache-2.0
"""The last things a NIC was told and did: what a dump shows of the way to a broken rule."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from emu.checks.rule import Action, Rule

__all__ = ["LAST", "Recorder", "Violation"]

LAST = 64
"""Doorbells, fetches and violations that are remembered, of each kind."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule with its evidence.

    ``time`` is nanoseconds, ``index`` the running index it is about, ``address`` a virtual or bus address as
    the text says, ``writers`` who stored last what matters, where hints told.
    """

    time: int
    rule: Rule
    action: Action
    text: str
    qpn: int | None = None
    index: int | None = None
    address: int | None = None
    writers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "time": self.time,
            "rule": self.rule.code,
            "action": self.action.name.lower(),
            "qpn": self.qpn,
            "index": self.index,
            "address": self.address,
            "writers": list(self.writers),
            "text": self.text,
        }


class Recorder:
    """Doorbells as (time, QPN, index, what became of it), fetches as (time, QPN, first index, slots)."""

    __slots__ = ("doorbells", "fetches")

    def __init__(self) -> None:
        self.doorbells: deque[tuple[int, int, int, str]] = deque(maxlen=LAST)
        self.fetches: deque[tuple[int, int, int, int]] = deque(maxlen=LAST)

    def clear(self) -> None:
        """Forget everything."""
        self.doorbells.clear()
        self.fetches.clear()
