# SPDX-License-Identifier: Apache-2.0
"""What the submitter's side tells the checks of itself, whatever the bytes look like."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Hint", "HintKind", "Part", "SignalOp", "Wait"]


class HintKind(enum.IntEnum):
    """What a hint is about; values are the `vrnic` contract's."""

    ORDER = 1
    """A lane is about to ring: what it knows of the latest store that its doorbell covers."""
    REUSE = 2
    """A lane is about to store over what a WQE still uses, as far as the lane knows."""
    SCOPE = 3
    """Two CTAs update one word with atomics, at least one of them with CTA scope."""
    STALL = 4
    """Every lane waits, and one of them for this queue pair."""
    LOCK = 5
    """A lane is about to store doorbell record and doorbell."""
    MISSING = 6
    """A lane saw a flag, but not the data it stands for."""
    PEER = 7
    """Declared: which rank a queue pair leads to."""
    USE = 8
    """A WQE is meant for a rank."""
    SIGNAL = 9
    """Declared: a word that peers signal, its width and how."""


class Part(enum.IntEnum):
    """``detail`` of ORDER and REUSE: which of a WQE's memories."""

    WQE = 1
    PAYLOAD = 2
    RECORD = 3
    RESULT = 4


class Wait(enum.IntEnum):
    """``detail`` of STALL: what is waited for."""

    COMPLETION = 1
    TURN = 2
    DOORBELL = 3
    LOCK = 4


class SignalOp(enum.IntEnum):
    """``detail`` of SIGNAL: how the word changes."""

    ADD = 1
    SET = 2


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint, decoded. Fields a kind does not use are 0; see :class:`HintKind` and the contract."""

    NOBODY: ClassVar[int] = 0xFFFFFFFF

    kind: int
    detail: int
    cta: int
    lane: int
    qpn: int
    index: int
    length: int
    address: int
    writer: int
    writer_cta: int
    scope: int
    needed: int
    writer_clock: int
    known_clock: int
    loose_clock: int
    value: int
