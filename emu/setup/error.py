# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the set-up: what is wrong in one sentence, and what to do about it."""

from __future__ import annotations

__all__ = ["BuildError", "SetupError"]


class SetupError(Exception):
    """Something the set-up needs is missing or failed.

    :param message: one sentence: what is wrong, with the object's name.
    :param hint: what the user can do about it; shown on its own line.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)
        self.message = message
        self.hint = hint


class BuildError(SetupError):
    """Guest sources do not compile.

    :param output: what make and the compiler printed, unabridged.
    """

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message, output.rstrip())
        self.output = output
