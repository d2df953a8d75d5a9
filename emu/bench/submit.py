# SPDX-License-Identifier: Apache-2.0
"""What submitting costs: 8-byte puts from one lane, from warps, and through a CPU, between two guests.

What counts are the counts: doorbells, descriptor fetches and completions for each message are what they would
be on hardware. Rates are the emulator's own and only comparable with each other, in one run; whatever else
runs on the machine only adds time, so each form's best round is taken.
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
from emu.lab.topology import default_lab

__all__ = ["FORMS", "Form", "SubmitCost", "SubmitReport", "run_submit_bench"]

_TIMEOUT = 60.0
_COUNTERS = ("doorbells", "wqe_fetches", "cqes")


@dataclass(frozen=True, slots=True)
class Form:
    """A way to submit: what it is called and the command both guests run, without the role.

    Warps go together, with one doorbell for 32 messages; mixed, half of them go lane by lane.
    """

    name: str
    command: str


FORMS = (
    Form("one lane", "vrnic-simt single --size 8 --messages 256 --timeout 50"),
    Form("1 warp", "vrnic-simt coalesced --size 8 --slots 9 --messages 2048 --timeout 50"),
    Form(
        "4 warps", "vrnic-simt coalesced --size 8 --slots 9 --messages 2048 --timeout 50 --ctas 2 --warps 2"
    ),
    Form(
        "16 warps", "vrnic-simt coalesced --size 8 --slots 9 --messages 2048 --timeout 50 --ctas 4 --warps 4"
    ),
    Form(
        "16 warps, mixed",
        "vrnic-simt shared --size 8 --slots 9 --messages 2048 --timeout 50 --ctas 4 --warps 4",
    ),
    Form(
        "mixed, weak memory",
        "vrnic-simt shared --size 8 --slots 9 --messages 2048 --timeout 50 --ctas 4 --warps 4 --engine weak",
    ),
    Form("CPU proxy", "vrnic-kernels put --proxy --size 8 --messages 64 --timeout 50"),
)


@dataclass(frozen=True, slots=True)
class SubmitCost:
    """One form in its best round: messages of both guests a second, and NIC and CPU work for each message."""

    name: str
    rate: float
    doorbells: float
    fetches: float
    completions: float
    cpu_touches: float

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """All forms, in the order of :data:`FORMS`."""

    costs: tuple[SubmitCost, ...]
    rounds: int
    accelerator: str

    def ratio(self, cost: SubmitCost) -> float:
        """Rate of ``cost`` as a multiple of the first form's."""
        return cost.rate / self.costs[0].rate

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        costs = [{**cost.to_json(), "ratio": self.ratio(cost)} for cost in self.costs]
        return {"costs": costs, "rounds": self.rounds, "accelerator": self.accelerator}


def run_submit_bench(
    *, rounds: int = 3, accelerator: str = "auto", progress: Callable[[str], None] = lambda _: None
) -> SubmitReport:
    """Boot two guests and run every form ``rounds`` times; ``progress`` is told what happens.

    :raises LabFailure: a guest or a kernel fails.
    :raises emu.setup.error.SetupError: the set-up is incomplete.
    """
    progress("preparing")
    installation = Installation.require(accelerator)
    folder = lab_directory(f"bench-{os.getpid()}")
    best: dict[str, SubmitCost] = {}
    try:
        with LabRunner(default_lab(), installation, folder, None) as running:
            progress(f"booting two guests ({installation.accelerator})")
            running.start()
            for guest in running.guests:
                guest.run("reload-driver", 30).check()
            for number in range(1, rounds + 1):
                progress(f"round {number} of {rounds}")
                for form in FORMS:
                    cost = _measure(running, form)
                    if form.name not in best or cost.rate > best[form.name].rate:
                        best[form.name] = cost
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return SubmitReport(tuple(best[form.name] for form in FORMS), rounds, installation.accelerator)


def _measure(running: LabRunner, form: Form) -> SubmitCost:
    left, right = running.guests
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
        name=form.name,
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
