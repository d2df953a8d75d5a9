# SPDX-License-Identifier: Apache-2.0
"""What submitting costs: 8-byte puts from one lane, from warps, and through a CPU, between two guests.

What counts are the counts: doorbells, descriptor fetches and completions for each message are what they would
be on hardware. Rates are the emulator's own and only comparable with each other, in one run; whatever else
runs on the machine only adds time, so each form's best round is taken.

Each number of warps is measured with trapped and with mapped doorbells (see
:mod:`emu.personality.vrnic.mapped`), with all rules off and with the device watching them, and in weak memory
with the submitter's hints, where every store and fence is followed. The time of trapped doorbells and of the
rules is that of the server's one thread.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from emu.control.locate import lab_directory
from emu.lab.failure import LabFailure
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, Nic, Node

__all__ = ["CHECK_COST_TARGET", "FORMS", "Form", "SubmitCost", "SubmitReport", "run_submit_bench"]

CHECK_COST_TARGET = 0.30
"""Part of the message rate that the device's rules may cost at most."""

_TIMEOUT = 90.0
_COUNTERS = ("doorbells", "wqe_fetches", "cqes")
_MESSAGES = 8192


@dataclass(frozen=True, slots=True)
class Form:
    """A way to submit: what it is called, and the command both guests run, without the role.

    ``doorbells`` is trapped or mapped, ``checks`` whether the NICs watch the rules. ``base`` names the form
    that the rate is compared with; "" for the first one.
    """

    name: str
    command: str
    doorbells: str = "trapped"
    checks: bool = False
    base: str = ""


def _warps(name: str, grid: str) -> tuple[Form, ...]:
    command = f"vrnic-simt coalesced --size 8 --slots 9 --messages {_MESSAGES} --timeout 80 {grid}"
    plain = f"{command} --hints off"
    return (
        Form(name, plain),
        Form(f"{name} +rules", plain, checks=True, base=name),
        Form(f"{name} weak +hints", f"{command} --engine weak --hints on", checks=True, base=name),
        Form(f"{name} mapped", plain, doorbells="mapped", base=name),
        Form(f"{name} mapped +rules", plain, doorbells="mapped", checks=True, base=f"{name} mapped"),
    )


FORMS = (
    Form("one lane", "vrnic-simt single --size 8 --messages 256 --timeout 80 --hints off"),
    *_warps("1 warp", ""),
    *_warps("4 warps", "--ctas 2 --warps 2"),
    *_warps("16 warps", "--ctas 4 --warps 4"),
    Form(
        "16 warps, half alone",
        f"vrnic-simt shared --size 8 --slots 9 --messages {_MESSAGES} --timeout 80 --hints off "
        "--ctas 4 --warps 4",
    ),
    Form("CPU proxy", "vrnic-kernels put --proxy --size 8 --messages 64 --timeout 80"),
)
"""Warps go together, with one completion for 32 messages."""


@dataclass(frozen=True, slots=True)
class SubmitCost:
    """One form in its best round: messages of both guests a second, and NIC and CPU work for each message."""

    form: Form
    rate: float
    doorbells: float
    fetches: float
    completions: float
    cpu_touches: float


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """All forms, in the order they were given."""

    costs: tuple[SubmitCost, ...]
    rounds: int
    accelerator: str

    def of(self, name: str) -> SubmitCost:
        """The cost of the form called ``name``. :raises KeyError: it was not run."""
        return {cost.form.name: cost for cost in self.costs}[name]

    def ratio(self, cost: SubmitCost) -> float:
        """Rate of ``cost`` as a multiple of its base's."""
        base = self.of(cost.form.base) if cost.form.base else self.costs[0]
        return cost.rate / base.rate

    @property
    def check_cost(self) -> float:
        """The largest part of the rate that watching the rules costs, of all forms that do (0 to 1)."""
        return max(
            (1 - self.ratio(cost) for cost in self.costs if cost.form.name.endswith("+rules")),
            default=0.0,
        )

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        costs = [
            {
                "name": cost.form.name,
                "base": cost.form.base or self.costs[0].form.name,
                "rate": cost.rate,
                "ratio": self.ratio(cost),
                "doorbells": cost.doorbells,
                "fetches": cost.fetches,
                "completions": cost.completions,
                "cpu_touches": cost.cpu_touches,
            }
            for cost in self.costs
        ]
        return {
            "costs": costs,
            "check_cost": self.check_cost,
            "check_cost_target": CHECK_COST_TARGET,
            "rounds": self.rounds,
            "accelerator": self.accelerator,
        }


def run_submit_bench(
    *,
    rounds: int = 3,
    accelerator: str = "auto",
    forms: tuple[Form, ...] = FORMS,
    progress: Callable[[str], None] = lambda _: None,
) -> SubmitReport:
    """Boot two guests, twice, and run every form ``rounds`` times; ``progress`` is told what happens.

    :raises LabFailure: a guest or a kernel fails.
    :raises emu.setup.error.SetupError: the set-up is incomplete.
    """
    progress("preparing")
    installation = Installation.require(accelerator)
    best: dict[str, SubmitCost] = {}
    for doorbells in ("trapped", "mapped"):
        chosen = [form for form in forms if form.doorbells == doorbells]
        if not chosen:
            continue
        nodes = tuple(Node(name, nics=(Nic(doorbells=doorbells),)) for name in ("node0", "node1"))
        folder = lab_directory(f"bench-{os.getpid()}")
        try:
            with LabRunner(Lab(nodes, name=folder.name), installation, folder, None) as running:
                progress(f"booting two guests with {doorbells} doorbells ({installation.accelerator})")
                running.start()
                for guest in running.guests:
                    guest.run("reload-driver", 30).check()
                for number in range(1, rounds + 1):
                    progress(f"{doorbells} doorbells, round {number} of {rounds}")
                    for form in chosen:
                        cost = _measure(running, form)
                        if form.name not in best or cost.rate > best[form.name].rate:
                            best[form.name] = cost
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return SubmitReport(tuple(best[form.name] for form in forms), rounds, installation.accelerator)


def _measure(running: LabRunner, form: Form) -> SubmitCost:
    left, right = running.guests
    with running.server.control() as client:
        client.call("checks_set", rule="all", action="log" if form.checks else "off")
    before = _counted(running)
    commands = (left, f"{form.command} --role a"), (right, f"{form.command} --role b")
    records = [record for side in run_pair(*commands, _TIMEOUT) for record in side.records]
    after = _counted(running)
    messages = sum(_number(record, "messages") for record in records)
    seconds = max((_number(record, "seconds") for record in records), default=0.0)
    if not messages or not seconds:
        raise LabFailure(f"the benchmark's kernel `{form.command}` gave no result")
    doorbells, fetches, completions = ((after[name] - before[name]) / messages for name in _COUNTERS)
    return SubmitCost(
        form=form,
        rate=messages / seconds,
        doorbells=doorbells,
        fetches=fetches,
        completions=completions,
        cpu_touches=sum(_number(record, "cpu_touches") for record in records) / messages,
    )


def _number(record: dict[str, object], key: str) -> float:
    value = record.get(key, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _counted(running: LabRunner) -> dict[str, int]:
    with running.server.control() as client:
        found = client.call("counters")
    if not isinstance(found, dict):
        raise LabFailure("the server's counters are not a table")
    groups = [group["nic"] for group in found.values() if isinstance(group, dict) and "nic" in group]
    return {name: sum(int(group[name]) for group in groups) for name in _COUNTERS}
