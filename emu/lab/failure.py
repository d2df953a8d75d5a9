# SPDX-License-Identifier: Apache-2.0
"""The one kind of error a lab's user sees."""

from __future__ import annotations

__all__ = ["LabFailure"]


class LabFailure(Exception):
    """Something about the lab did not work: one sentence, and in ``hint`` what to do or the evidence."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
