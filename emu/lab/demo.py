# SPDX-License-Identifier: Apache-2.0
"""The demonstration: GPU-style kernels of two guests write into each other's memory, and the proof of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from emu.capture.pcapng import PcapngError
from emu.capture.summary import Summary, summarize
from emu.capture.tshark import tshark_arguments, tshark_command
from emu.control.locate import lab_directory
from emu.control.server import ControlError
from emu.lab.claims import (
    Counters,
    capture_claims,
    counter_claims,
    driver_claim,
    growth,
    measurement,
    step_claims,
)
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest, tail
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.report import Check, DemoReport
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, default_lab

__all__ = ["STEPS", "DemoOptions", "Step", "run_demo"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a run may vary.

    ``out`` is the folder for the capture; ``progress`` gets one line per step.
    """

    out: Path
    transport: str = "roce-rc"
    loss: float = 0.0
    seed: int = 1
    accelerator: str = "auto"
    progress: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel both guests run: its arguments, its timeout in seconds, whether a CPU proxy is expected."""

    name: str
    arguments: str
    timeout: float
    proxy: bool = False


STEPS = (
    Step("put", "put", 20),
    Step("ping-pong", "pingpong", 20),
    Step("atomics", "atomics", 20),
    Step("bulk 1 MiB", "bulk", 40),
    Step("put, host proxy", "put --proxy", 20, proxy=True),
)


def run_demo(options: DemoOptions, installation: Installation | None = None) -> DemoReport:
    """Boot two guests, run every step, check the outcome against the NICs' counters and the capture.

    :raises LabFailure: something did not run; the report's checks say what ran but came out wrong.
    :raises emu.setup.error.SetupError: the set-up is missing something.
    :raises emu.lab.topology.LabError: an option is out of its range.
    """
    lab = default_lab(transport=options.transport, loss=options.loss, seed=options.seed)
    if installation is None:
        options.progress("checking the drivers and programs")
        installation = Installation.require(options.accelerator)
    began = time.monotonic()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabFailure(
            f"cannot make {options.out}: {error.strerror}", "choose another folder with --out"
        ) from error
    capture = options.out.absolute() / "demo.pcapng"
    report = DemoReport(
        transport=options.transport,
        loss=options.loss,
        seed=options.seed,
        capture=str(capture),
        tshark=tshark_command(capture),
        accelerator=installation.accelerator,
    )
    with _folder() as folder, LabRunner(lab, installation, folder, capture) as running:
        options.progress("starting the device server")
        running.start_server()
        options.progress(f"booting {len(lab.nodes)} guests ({installation.accelerator})")
        running.start_guests()
        running.wait_guests()
        report.boot_seconds = {guest.name: round(guest.boot_seconds, 2) for guest in running.guests}
        for guest in running.guests:
            guest.run("reload-driver", 20).check()
        start = _counters(running)
        for step in STEPS:
            options.progress(f"running {step.name}")
            _run_step(running, lab, step, report)
        end = _counters(running)
        stopped = _capture_stopped(running)
        report.checks += counter_claims(start, end)
        report.driver_counters = {guest.name: _driver_counters(guest) for guest in running.guests}
        report.checks.append(driver_claim(report.driver_counters, end))
    options.progress("checking the capture")
    try:
        summary = summarize(capture)
    except (OSError, PcapngError) as error:
        raise LabFailure(f"the capture {capture} cannot be read: {error}", "is the disk full?") from error
    report.checks += capture_claims(summary, end, stopped)
    if not stopped:
        report.checks.append(_tshark_agrees(installation, capture, summary))
    report.seconds = round(time.monotonic() - began, 2)
    return report


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for sockets and logs of this run alone: several demos may run at a time.

    After a failure it stays, since the error points into it.
    """
    folder = lab_directory(f"demo-{os.getpid()}")
    try:
        yield folder
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _run_step(running: LabRunner, lab: Lab, step: Step, report: DemoReport) -> None:
    nodes = [node.name for node in lab.nodes]
    before = _counters(running)
    options = f"--transport {lab.transport} --timeout {step.timeout:.0f}"
    command = f"vrnic-kernels {step.arguments} {options} --role "
    sides = run_pair((running[nodes[0]], command + "a"), (running[nodes[1]], command + "b"), step.timeout + 5)
    after = _counters(running)
    rows = []
    for side in sides:
        resent = growth(before, after, f"{side.name}.nic0", "retransmitted_packets")
        rows += [measurement(step.name, side.name, record, resent) for record in side.records]
    report.measurements += rows
    report.checks += step_claims(step.name, rows, before, after, proxy=step.proxy)


def _driver_counters(guest: Guest) -> dict[str, int]:
    """What the driver of ``guest`` counted since it was loaded: "name value" lines of its debugfs file."""
    result = guest.run("cat /sys/kernel/debug/vrnic/*/driver", 10).check()
    pairs = [line.split() for line in result.out]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _tshark_agrees(installation: Installation, capture: Path, summary: Summary) -> Check:
    """tshark, with the project's dissector where it has none of its own, decodes every packet and finds none
    malformed.
    """
    if any(flow.pdc is not None for flow in summary.flows):
        claim, protocol, opcode = "tshark decodes every packet", "uet", "uet.pds.type"
    else:
        claim, protocol, opcode = "stock tshark decodes every packet", "infiniband", "infiniband.bth.opcode"
    fields = ("-Y", protocol, "-T", "fields", "-e", opcode, "-e", "_ws.malformed")
    argv = [*installation.tree.tshark_command(), *tshark_arguments(capture, *fields)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(claim, False, str(error))
    if done.returncode:
        return Check(claim, False, done.stderr.strip()[-200:])
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    malformed = sum(1 for line in lines if len(line) > 1 and line[1])
    expected = sum(flow.sent.packets + flow.received.packets for flow in summary.flows)
    evidence = f"{len(lines):,} decoded of {expected:,}, {malformed} malformed"
    return Check(claim, len(lines) == expected > 0 and not malformed, evidence)


def _capture_stopped(running: LabRunner) -> str:
    """Why the server writes no capture any more, empty while it does."""
    return str(_ask(running, "flush")["reason"])


def _counters(running: LabRunner) -> Counters:
    return cast(Counters, _ask(running, "counters"))


def _ask(running: LabRunner, method: str) -> dict[str, object]:
    try:
        with running.server.control() as client:
            return cast(dict[str, object], client.call(method))
    except ControlError as error:
        raise LabFailure(f"the server is gone: {error}", tail(running.server.log)) from error
