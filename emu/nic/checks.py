# SPDX-License-Identifier: Apache-2.0
"""The rules of a NIC; they live in :mod:`emu.checks`."""

from __future__ import annotations

from emu.checks.checks import Checks
from emu.checks.rule import Rule

__all__ = ["Checks", "Rule"]
