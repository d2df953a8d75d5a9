# SPDX-License-Identifier: Apache-2.0
"""Every rule, by number, and how people write their choice of actions."""

from __future__ import annotations

from collections.abc import Iterable

from emu.checks import (
    completions,
    declared,
    descriptors,
    doorbells,
    hintring,
    lifecycle,
    memory,
    ordering,
    path,
    registers,
    reuse,
)
from emu.checks.check import Check
from emu.checks.rule import Action, Rule

__all__ = ["ACTION_WORDS", "CHECKS", "find_rule", "parse_action", "parse_choice"]

_FAMILIES = (
    descriptors,
    reuse,
    doorbells,
    ordering,
    completions,
    memory,
    declared,
    path,
    lifecycle,
    registers,
    hintring,
)

CHECKS: dict[Rule, Check] = {
    check.rule: check
    for check in sorted((check for family in _FAMILIES for check in family.CHECKS), key=lambda c: c.rule)
}
"""In the order of their numbers."""

ACTION_WORDS = {
    "off": Action.OFF,
    "count": Action.COUNT,
    "log": Action.LOG,
    "error": Action.ERROR,
    "stop": Action.STOP,
}


def find_rule(text: str) -> Rule:
    """The rule of "C08" or "c8". :raises ValueError: a sentence; there is no such rule."""
    number = text[1:] if text[:1] in "cC" else text
    if number.isdecimal() and int(number) in (int(rule) for rule in CHECKS):
        return Rule(int(number))
    raise ValueError(f"there is no rule {text!r}; rules are C01 to C{max(CHECKS):02d}")


def parse_action(text: str) -> Action:
    """The action of a word. :raises ValueError: a sentence; it is none."""
    action = ACTION_WORDS.get(text.lower())
    if action is None:
        raise ValueError(f"{text!r} is no action; actions are {', '.join(ACTION_WORDS)}")
    return action


def parse_choice(pairs: Iterable[tuple[str, str]]) -> dict[Rule, Action]:
    """Actions by rule from pairs such as ("C08", "stop"); "all" stands for every rule, and comes first.

    :raises ValueError: a sentence; a rule or an action that does not exist.
    """
    chosen: dict[Rule, Action] = {}
    for name, word in sorted(pairs, key=lambda pair: pair[0] != "all"):
        action = parse_action(word)
        if name == "all":
            chosen |= dict.fromkeys(CHECKS, action)
        else:
            chosen[find_rule(name)] = action
    return chosen
