# SPDX-License-Identifier: Apache-2.0
"""What a rule says, for people: the one place that documents, commands and registers take it from."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emu.checks.rule import Action, Rule

__all__ = ["BOTH", "Check", "Found"]

BOTH = ("vrnic", "mlx5")
"""Rules of the core, which holds for whatever personality stands before it."""


class Found(enum.Enum):
    """What a rule needs to be noticed."""

    DEVICE = "the device alone"
    HINTS = "hints of the submitter's side, through the hint ring"
    DECLARED = "something declared through the hint ring"
    FAULT = "a fault that a chaos profile injects"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule.

    ``sentence`` is what must hold, ``evidence`` what a report names, ``happens`` what the device does
    whatever
    the action is, ``advice`` what to do about it. ``personalities`` are those whose formats carry the
    evidence, ``limits`` is what of it goes unnoticed.
    """

    rule: Rule
    sentence: str
    evidence: str
    happens: str
    advice: str
    found: Found = Found.DEVICE
    personalities: tuple[str, ...] = BOTH
    default: Action = Action.LOG
    limits: str = ""

    @property
    def name(self) -> str:
        """ "C08 DBR" without the underscore."""
        return self.rule.name.replace("_", " ", 1)
