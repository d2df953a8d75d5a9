# SPDX-License-Identifier: Apache-2.0
"""``vrnic checks``: the rules a driver or kernel can break, in words, and in a running lab."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emu.checks.catalogue import ACTION_WORDS, CHECKS, find_rule, parse_choice
from emu.checks.check import Check
from emu.cli.output import (
    JsonFlag,
    LabOption,
    SocketOption,
    connect,
    console,
    fail,
    guarded,
    print_json,
    print_table,
)
from emu.control.server import ControlError

__all__ = ["CheckOption", "app", "chosen_actions"]

app = typer.Typer(help="Rules that a driver or a kernel can break.", no_args_is_help=True)

CheckOption = Annotated[
    list[str] | None,
    typer.Option("--check", help='"C08=stop", "all=count": action of a rule (`vrnic checks list`); repeat.'),
]
FunctionOption = Annotated[
    str | None, typer.Option("--function", help='NIC, for example "node0.nic0"; all of them when left out.')
]


def chosen_actions(options: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Pairs of rule and action of ``--check`` options.

    :raises typer.Exit: one of them is none, which was said.
    """
    pairs = []
    for option in options or []:
        name, equals, word = option.partition("=")
        if not equals:
            raise fail(f"--check {option!r} has no action", 'write it like "C08=stop" or "all=count"')
        pairs.append((name, word))
    try:
        parse_choice(pairs)
    except ValueError as error:
        raise fail(f"--check: {error}", "`vrnic checks list` shows the rules") from None
    return tuple(pairs)


@app.command("list")
@guarded
def list_rules(as_json: JsonFlag = False, lab: LabOption = None, socket: SocketOption = None) -> None:
    """Every rule; with actions and counts of each NIC while a lab runs.

    Examples: `vrnic checks list`, `vrnic checks list --lab mine --json`.
    """
    live = _live(lab, socket)
    if as_json:
        rules = [{**_document(check), "nics": _states(live, check)} for check in CHECKS.values()]
        print_json(rules)
        return
    columns = ["rule", "what must hold", "found by", "personalities"]
    rows = []
    for check in CHECKS.values():
        row = [
            check.rule.code,
            check.sentence,
            check.found.name.lower(),
            ", ".join(check.personalities),
        ]
        row += [f"{state['action']} {state['count']}" for state in _states(live, check).values()]
        rows.append(row)
    print_table("rules", (*columns, *live), rows)
    if not live:
        console.print("No lab runs: `vrnic checks explain C08` says more.", highlight=False)


@app.command()
@guarded
def explain(
    rule: Annotated[str, typer.Argument(help='Rule, "C08".')],
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """What a rule says, what it needs, what happens and what to do; and what broke it last in a running lab.

    Example: `vrnic checks explain C08`.
    """
    check = CHECKS[_rule(rule)]
    live = _live(lab, socket)
    last = [
        {"function": name, **violation}
        for name, nic in live.items()
        for violation in nic["violations"]
        if violation["rule"] == check.rule.code
    ]
    if as_json:
        print_json({**_document(check), "nics": _states(live, check), "violations": last})
        return
    console.print(f"{check.name}: {check.sentence}", highlight=False)
    for title, text in (
        ("Found by", check.found.value),
        ("Personalities", ", ".join(check.personalities)),
        ("Evidence", check.evidence),
        ("What happens anyway", check.happens),
        ("What to do", check.advice),
        ("What it misses", check.limits),
        ("Default action", check.default.name.lower()),
    ):
        if text:
            console.print(f"  {title}: {text}", highlight=False)
    for name, state in _states(live, check).items():
        console.print(f"  {name}: {state['action']}, broken {state['count']} times", highlight=False)
    for violation in last[-5:]:
        console.print(f"    {violation['function']}: {violation['text']}", highlight=False)


@app.command("set")
@guarded
def set_action(
    rule: Annotated[str, typer.Argument(help='Rule, "C08", or "all".')],
    action: Annotated[str, typer.Argument(help=f"One of {', '.join(ACTION_WORDS)}.")],
    function: FunctionOption = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Say what a running lab does when a rule is broken, until the NIC is reset.

    Examples: `vrnic checks set C08 stop`, `vrnic checks set all count --function node0.nic0`.
    """
    chosen_actions([f"{rule}={action}"])
    with connect(socket, lab) as client:
        done = client.call("checks_set", rule=rule, action=action, function=function)
    if as_json:
        print_json(done)
    else:
        console.print(f"{rule} is {action} on {', '.join(done['functions'])}", highlight=False)


@app.command()
@guarded
def dump(
    function: Annotated[
        str | None, typer.Argument(help='NIC, for example "node0.nic0"; all when left out.')
    ] = None,
    number: Annotated[str | None, typer.Option("--qpn", help="Only this QP (decimal or 0x...).")] = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """The last 64 doorbells, fetches and violations of a NIC, all indices, and pending WQEs in words.

    Examples: `vrnic checks dump`, `vrnic checks dump node0.nic0 --qpn 0x101 --json`.
    """
    print_dump(function, number, as_json, lab, socket)


@app.command()
@guarded
def resume(
    function: FunctionOption = None,
    as_json: JsonFlag = False,
    lab: LabOption = None,
    socket: SocketOption = None,
) -> None:
    """Let NICs go on that a rule with the action "stop" made stand still.

    Example: `vrnic checks resume`.
    """
    with connect(socket, lab) as client:
        done = client.call("checks_resume", function=function)
    if as_json:
        print_json(done)
    elif done["functions"]:
        console.print(f"goes on: {', '.join(done['functions'])}", highlight=False)
    else:
        console.print("No NIC stands still.")


def print_dump(function: str | None, number: str | None, as_json: bool, lab: Any, socket: Any) -> None:
    """Print the dump of a running lab's NICs."""
    from emu.checks.dump import render_dump

    try:
        qpn = None if number is None else int(number, 0)
    except ValueError:
        raise fail(f"QP number {number!r} is not a number", "write it like 257 or 0x101") from None
    with connect(socket, lab) as client:
        dumps = client.call("checks_dump", function=function, qpn=qpn)
    if as_json:
        print_json(dumps)
        return
    for entry in dumps:
        typer.echo(render_dump(entry))


def _rule(text: str) -> Any:
    try:
        return find_rule(text)
    except ValueError as error:
        raise fail(str(error), "`vrnic checks list` shows them") from None


def _live(lab: str | None, socket: Any) -> dict[str, Any]:
    """What running NICs know of the rules; nothing when no lab runs and none was named."""
    try:
        with connect(socket, lab) as client:
            found = client.call("checks")
    except ControlError:
        if lab is not None or socket is not None:
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _states(live: dict[str, Any], check: Check) -> dict[str, Any]:
    return {
        name: next(state for state in nic["rules"] if state["rule"] == check.rule.code)
        for name, nic in live.items()
    }


def _document(check: Check) -> dict[str, object]:
    return {
        "rule": check.rule.code,
        "name": check.rule.name[4:],
        "sentence": check.sentence,
        "evidence": check.evidence,
        "happens": check.happens,
        "advice": check.advice,
        "found": check.found.value,
        "personalities": list(check.personalities),
        "limits": check.limits,
        "default": check.default.name.lower(),
    }
