# SPDX-License-Identifier: Apache-2.0
"""The register document."""

from __future__ import annotations

__all__ = ["render_document"]


def render_document() -> str:
    """The whole document."""
    return "# Registers\n"
