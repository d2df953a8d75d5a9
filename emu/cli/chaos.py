# SPDX-License-Identifier: Apache-2.0
"""``vrnic chaos``: the profiles under which a lab misbehaves on purpose."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from emu.chaos import PROFILES, Profile, find_profile
from emu.cli.output import JsonFlag, console, guarded, print_json, print_table
from emu.lab.failure import LabFailure

__all__ = ["app"]

app = typer.Typer(help="Chaos profiles: trouble on purpose, seeded and in the capture.", no_args_is_help=True)


@app.command("list")
@guarded
def list_profiles(as_json: JsonFlag = False) -> None:
    """List the profiles.

    A correct program gives the same results under a harmless one. Under the others it has to notice.

    Examples: `vrnic chaos list`, `vrnic lab run pair.toml --chaos torn-writes --seed 7`.
    """
    if as_json:
        print_json([_to_json(profile) for profile in PROFILES.values()])
        return
    print_table(
        "chaos profiles",
        ("name", "harmless", "what happens"),
        [(p.name, "yes" if p.harmless else "no", p.summary) for p in PROFILES.values()],
    )


@app.command()
@guarded
def explain(
    name: Annotated[str, typer.Argument(help="Profile, as `vrnic chaos list` shows it.")],
    as_json: JsonFlag = False,
) -> None:
    """Say what a profile does, and what a program must do to live with it.

    Example: `vrnic chaos explain pcie-order`.
    """
    try:
        profile = find_profile(name)
    except ValueError as error:
        raise LabFailure(str(error)) from error
    if as_json:
        print_json(_to_json(profile))
        return
    console.print(f"{profile.name}: {profile.summary}", style="bold", highlight=False)
    console.print(profile.text, highlight=False)
    for part, settings in _settings(profile).items():
        values = ", ".join(f"{key} {value}" for key, value in settings.items())
        console.print(f"  {part}: {values}", highlight=False)


def _settings(profile: Profile) -> dict[str, dict[str, object]]:
    """What each part is set to, without what is off."""
    parts = {
        "memory": profile.memory,
        "doorbells": profile.doorbells,
        "path": profile.path,
        "failure": profile.failure,
    }
    return {
        name: {key: _plain(value) for key, value in dataclasses.asdict(part).items() if value}
        for name, part in parts.items()
        if part is not None
    }


def _plain(value: object) -> object:
    return getattr(value, "name", value)


def _to_json(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "summary": profile.summary,
        "text": profile.text,
        "harmless": profile.harmless,
        "atomics": profile.atomics,
        "reset_ns": profile.reset_ns,
        "parts": list(profile.parts),
        **_settings(profile),
    }
