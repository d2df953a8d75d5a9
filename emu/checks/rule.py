# SPDX-License-Identifier: Apache-2.0
"""Numbers of the rules, and what can happen when one is broken."""

from __future__ import annotations

import enum

__all__ = ["Action", "Rule"]


class Rule(enum.IntEnum):
    """Rules a driver or kernel can break; the value is the rule's number (C01 is 1)."""

    NONE = 0
    C01_INDEX = 1
    C02_OWNER = 2
    C03_STALE = 3
    C04_CHANGED = 4
    C05_REUSE = 5
    C06_AHEAD = 6
    C07_OLDER = 7
    C08_DBR = 8
    C09_ORDER = 9
    C10_SCOPE = 10
    C11_BYTE_ORDER = 11
    C12_WIDTH = 12
    C13_LOST_DOORBELL = 13
    C14_UNRUNG = 14
    C15_CQ_OVERRUN = 15
    C16_UNPREPARED = 16
    C17_IGNORED_ERROR = 17
    C18_WRAP = 18
    C19_CONSUMER = 19
    C20_LOCK = 20
    C21_STATE = 21
    C22_KEY = 22
    C23_ATOMIC = 23
    C24_UNORDERED = 24
    C25_SIGNAL = 25
    C26_PATH = 26
    C27_RETRY = 27
    C28_PEER = 28
    C29_UNSUPPORTED = 29
    C30_LIFECYCLE = 30
    C31_SPIN = 31
    C32_REGISTER = 32
    C33_REARM = 33
    C34_HINT = 34

    @property
    def code(self) -> str:
        """The rule's short name, "C01"."""
        return f"C{self.value:02d}"


class Action(enum.IntEnum):
    """What a broken rule leads to besides what the device does anyway; each includes those before it."""

    OFF = 0
    """Nothing is looked for or counted."""
    COUNT = 1
    """It is counted."""
    LOG = 2
    """It gives an event with its sentence, in capture and trace."""
    ERROR = 3
    """The queue pair goes to ERR; its oldest element completes with LOC_QP_OP_ERR, cause RULE_BROKEN."""
    STOP = 4
    """The NIC stands still, with a dump of what led there, until it is told to go on or reset."""
