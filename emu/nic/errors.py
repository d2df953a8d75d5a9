# SPDX-License-Identifier: Apache-2.0
"""Refusals of the core: what a personality turns into its command status."""

from __future__ import annotations

import enum

__all__ = ["ErrorKind", "NicError"]


class ErrorKind(enum.Enum):
    """Why an operation was refused."""

    BAD_FIELD = "a parameter has a value that is not allowed"
    BAD_OBJECT = "a parameter names an object that does not exist"
    NOT_OWNER = "the object belongs to another context or protection domain"
    BUSY = "the object is still used by others"
    NO_RESOURCE = "the table is full"
    BAD_STATE = "the queue pair's state does not allow it"
    DMA_ERROR = "a bus address cannot be reached"
    UNSUPPORTED = "valid, but not offered by this device"


class NicError(Exception):
    """An operation that was refused and changed nothing.

    ``field`` is the name of the parameter that was refused, or None when no single one is to blame.
    """

    def __init__(self, kind: ErrorKind, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.field = field
