# SPDX-License-Identifier: Apache-2.0
"""``vrnic doctor``: what is present, missing or broken."""

from __future__ import annotations

import dataclasses

import typer

from emu.cli.output import JsonFlag, guarded, print_json, print_table

__all__ = ["doctor"]


@guarded
def doctor(as_json: JsonFlag = False) -> None:
    """Check the set-up part by part and say what to do about each fault.

    Exit code 1 when something is broken.

    Examples: `vrnic doctor`, `vrnic doctor --json`.
    """
    from emu.setup.doctor import run_doctor

    findings = run_doctor()
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        rows = [tuple(dataclasses.asdict(finding).values()) for finding in findings]
        names = tuple(field.name for field in dataclasses.fields(findings[0]))
        print_table("vrnic doctor", names, rows)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
