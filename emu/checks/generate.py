# SPDX-License-Identifier: Apache-2.0
"""``python -m emu.checks.generate``: writes the documents about rules; ``--check`` only names stale ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from emu.checks.document import render_checks, render_limits

__all__ = ["CHECKS_FILE", "LIMITS_FILE", "outputs", "stale"]

FOLDER = Path(__file__).resolve().parent
CHECKS_FILE = "CHECKS.md"
LIMITS_FILE = "LIMITS.md"


def outputs() -> dict[str, str]:
    """Text of every document, by its name."""
    return {CHECKS_FILE: render_checks(), LIMITS_FILE: render_limits()}


def stale(folder: Path = FOLDER) -> list[str]:
    """Documents in ``folder`` that are missing or differ from what the rules say now."""
    return [
        name
        for name, text in outputs().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write stale documents, or with ``--check`` name them and return 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m emu.checks.generate", description="Write CHECKS.md and LIMITS.md from the rules."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one is stale")
    options = parser.parse_args(arguments)
    wrong = stale()
    for name in wrong:
        if options.check:
            print(f"{name} is stale: run {parser.prog}", file=sys.stderr)
        else:
            (FOLDER / name).write_text(outputs()[name], encoding="utf-8")
            print(f"wrote {name}")
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
