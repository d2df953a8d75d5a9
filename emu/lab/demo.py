# SPDX-License-Identifier: Apache-2.0
"""The demonstration: GPU-style kernels of two guests write into each other's memory, and the proof of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emu.capture.tshark import tshark_command
from emu.lab.claims import counter_claims, driver_claim, growth, measurement, step_claims
from emu.lab.demo_parts import capture_path, capture_stopped, check_capture, counters_of, demo_folder
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.relay import run_pair
from emu.lab.report import DemoReport
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, default_lab

__all__ = ["STEPS", "DemoOptions", "Step", "run_demo", "steps_of"]


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


_IDEMPOTENT = ("put", "bulk 1 MiB", "put, host proxy")
DATAGRAMS = (
    Step("datagrams", "datagram", 20),
    Step(
        "datagrams in host memory", "datagram --ring host --data host --size 1024 --messages 32 --cq ring", 20
    ),
)
"""What a transport of datagrams can do."""
STEPS = (
    Step("put", "put", 20),
    Step("ping-pong", "pingpong", 20),
    Step("atomics", "atomics", 20),
    Step("bulk 1 MiB", "bulk", 40),
    Step("put, host proxy", "put --proxy", 20, proxy=True),
)


def steps_of(transport: str) -> tuple[Step, ...]:
    """The steps that queue pairs of ``transport`` can take: UET RUDI has what may happen twice only."""
    if transport in ("roce-ud", "uet-uud"):
        return DATAGRAMS
    if transport == "uet-rudi":
        return tuple(step for step in STEPS if step.name in _IDEMPOTENT)
    return STEPS


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
    capture = capture_path(options.out)
    report = DemoReport(
        transport=options.transport,
        loss=options.loss,
        seed=options.seed,
        capture=str(capture),
        tshark=tshark_command(capture),
        accelerator=installation.accelerator,
    )
    with demo_folder() as folder, LabRunner(lab, installation, folder, capture) as running:
        options.progress("starting the device server")
        running.start_server()
        options.progress(f"booting {len(lab.nodes)} guests ({installation.accelerator})")
        running.start_guests()
        running.wait_guests()
        report.boot_seconds = {guest.name: round(guest.boot_seconds, 2) for guest in running.guests}
        for guest in running.guests:
            guest.run("reload-driver", 20).check()
        start = counters_of(running)
        for step in steps_of(options.transport):
            options.progress(f"running {step.name}")
            _run_step(running, lab, step, report)
        end = counters_of(running)
        stopped = capture_stopped(running)
        report.checks += counter_claims(start, end)
        report.driver_counters = {guest.name: _driver_counters(guest) for guest in running.guests}
        report.checks.append(driver_claim(report.driver_counters, end))
    options.progress("checking the capture")
    report.checks += check_capture(installation, capture, end, stopped)
    report.seconds = round(time.monotonic() - began, 2)
    return report


def _run_step(running: LabRunner, lab: Lab, step: Step, report: DemoReport) -> None:
    nodes = [node.name for node in lab.nodes]
    before = counters_of(running)
    options = f"--transport {lab.transport} --timeout {step.timeout:.0f}"
    command = f"vrnic-kernels {step.arguments} {options} --role "
    sides = run_pair((running[nodes[0]], command + "a"), (running[nodes[1]], command + "b"), step.timeout + 5)
    after = counters_of(running)
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
