# SPDX-License-Identifier: Apache-2.0
"""Command line of the generator."""

from __future__ import annotations

import argparse
import sys

from emu.personality.vrnic.generate import PROJECT, outputs, stale


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with ``--check`` name the stale ones and return 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m emu.personality.vrnic.generate",
        description="Write the guest's C header and REGISTERS.md from the contract.",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    options = parser.parse_args(arguments)
    wrong = stale()
    if options.check:
        for path in wrong:
            print(f"{path} is stale: run {parser.prog}", file=sys.stderr)
        return 1 if wrong else 0
    texts = outputs()
    for path in wrong:
        file = PROJECT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
