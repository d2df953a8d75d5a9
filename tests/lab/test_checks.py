# SPDX-License-Identifier: Apache-2.0
"""Rules in lab files, and of a lab that runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from emu.checks.rule import Action, Rule
from emu.cli.checks import chosen_actions
from emu.control.server import ControlError, ControlServer
from emu.lab.checks import LabChecks
from emu.lab.file import LabFileError, format_lab, parse_lab
from tests.checks.pair import Pair
from tests.checks.test_actions import break_c04

LAB = """
[checks]
all = "count"
C04 = "stop"

[[node]]
name = "a"
"""


class Methods:
    """Stands for the control server: keeps what is offered."""

    def __init__(self) -> None:
        self.offered: dict[str, Any] = {}

    def method(self, name: str, call: Any) -> None:
        self.offered[name] = call


def lab_of(pair: Pair, folder: Path, choice: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """Methods of a lab that holds both NICs."""
    pair.b.machine.nic.name = "node1.nic0"
    devices = {side.machine.nic.name: SimpleNamespace(nic=side.machine.nic) for side in (pair.a, pair.b)}
    methods = Methods()
    LabChecks(cast(Any, devices), choice, folder).serve(cast(ControlServer, methods))
    return methods.offered


def test_a_lab_file_chooses_actions_and_says_them_again() -> None:
    lab = parse_lab(LAB)
    assert lab.checks == (("all", "count"), ("C04", "stop"))
    assert parse_lab(format_lab(lab)).checks == lab.checks


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('C99 = "stop"', "lab.toml:3: there is no rule 'C99'"),
        ('C04 = "explode"', "lab.toml:3: 'explode' is no action"),
        ("C04 = 3", "lab.toml:3: the action of 'C04' must be text"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_line(line: str, complaint: str) -> None:
    with pytest.raises(LabFileError) as refused:
        parse_lab(f'\n[checks]\n{line}\n[[node]]\nname = "a"\n')
    assert complaint in str(refused.value)


def test_options_are_read_as_pairs() -> None:
    assert chosen_actions(["C08=stop", "all=off"]) == (("C08", "stop"), ("all", "off"))
    for wrong in ("C08", "C08=", "C99=off"):
        with pytest.raises(typer.Exit):
            chosen_actions([wrong])


def test_a_running_lab_lists_sets_dumps_and_resumes(tmp_path: Path) -> None:
    pair = Pair()
    offered = lab_of(pair, tmp_path, (("C04", "stop"),))
    index = break_c04(pair)
    listed = json.loads(json.dumps(offered["checks"]({})))
    assert listed["node0.nic0"]["stopped_by"]["rule"] == "C04"
    (state,) = (state for state in listed["node0.nic0"]["rules"] if state["rule"] == "C04")
    assert (state["action"], state["count"]) == ("stop", 1)
    (written,) = tmp_path.iterdir()
    assert written.name == "node0.nic0.C04.dump.txt"
    assert f"index {index}" in written.read_text()
    (dump,) = offered["checks_dump"]({"function": "node0.nic0", "qpn": pair.a.qp.number})
    assert dump["violations"][0]["index"] == index
    assert offered["checks_resume"]({}) == {"functions": ["node0.nic0"]}
    assert offered["checks_set"]({"rule": "C04", "action": "off", "function": "node1.nic0"}) == {
        "functions": ["node1.nic0"]
    }
    assert pair.a.machine.nic.checks.actions[Rule.C04_CHANGED] is Action.STOP
    assert pair.b.machine.nic.checks.actions[Rule.C04_CHANGED] is Action.OFF


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("checks_set", {"rule": "C99", "action": "off"}),
        ("checks_set", {"rule": "C08", "action": "explode"}),
        ("checks_set", {"rule": "C08", "action": "off", "function": "node9.nic0"}),
        ("checks_dump", {"qpn": 0x777777}),
        ("checks_dump", {"qpn": "seven"}),
        ("checks_resume", {"function": 3}),
    ],
)
def test_a_wrong_request_is_refused_in_words(tmp_path: Path, method: str, params: dict[str, object]) -> None:
    offered = lab_of(Pair(), tmp_path)
    with pytest.raises(ControlError):
        offered[method](params)


def test_a_dump_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    pair = Pair()
    lab_of(pair, tmp_path / "gone", (("C04", "stop"),))
    break_c04(pair)
    assert pair.a.machine.nic.checks.stopped is not None
