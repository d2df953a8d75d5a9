# SPDX-License-Identifier: Apache-2.0
"""Writes the guest's C header and the register document out of the contract.

``python -m emu.personality.vrnic.generate`` writes both, ``--check`` only says whether they are current.
"""

from __future__ import annotations

from pathlib import Path

from emu.personality.vrnic.generate.document import render_document
from emu.personality.vrnic.generate.header import render_header

__all__ = ["DOCUMENT", "HEADER", "outputs", "stale"]

HEADER = Path("guest/include/vrnic_contract.h")
DOCUMENT = Path("emu/personality/vrnic/REGISTERS.md")

PROJECT = Path(__file__).resolve().parents[4]


def outputs() -> dict[Path, str]:
    """Text of every generated file, by its path in the project."""
    return {HEADER: render_header(), DOCUMENT: render_document()}


def stale(root: Path = PROJECT) -> list[Path]:
    """Generated files below ``root`` that are missing or differ from what the contract says now."""
    wrong = []
    for path, text in outputs().items():
        file = root / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            wrong.append(path)
    return wrong
