# SPDX-License-Identifier: Apache-2.0
"""The demonstration: GPU-style kernels of two guests write into each other's memory, and the proof of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from emu.capture.summary import Summary, summarize
from emu.capture.tshark import tshark_arguments, tshark_command
from emu.control.locate import lab_directory
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.relay import Side, run_pair
from emu.lab.report import Check, DemoReport, Measurement
from emu.lab.runner import LabRunner
from emu.lab.topology import Lab, default_lab

__all__ = ["STEPS", "DemoOptions", "Step", "run_demo"]

Counters = Mapping[str, Mapping[str, Mapping[str, int]]]


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
        _check_counters(report, start, end, options.loss)
        report.driver_counters = {guest.name: _driver_counters(guest) for guest in running.guests}
        _check_drivers(report, end)
    options.progress("checking the capture")
    summary = summarize(capture)
    _check_capture(report, summary, end, options.loss)
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
    command = f"vrnic-kernels {step.arguments} --timeout {step.timeout:.0f} --role "
    sides = run_pair((running[nodes[0]], command + "a"), (running[nodes[1]], command + "b"), step.timeout + 5)
    after = _counters(running)
    for side in sides:
        resent = _growth(before, after, f"{side.name}.nic0", "retransmitted_packets")
        report.measurements += [_measurement(step, side, record, resent) for record in side.records]
    _check_step(report, step, sides, before, after)


def _measurement(step: Step, side: Side, record: Mapping[str, object], resent: int) -> Measurement:
    verified = record.get("verified")
    return Measurement(
        step=step.name,
        guest=side.name,
        messages=_integer(record, "messages"),
        octets=_integer(record, "bytes"),
        doorbells=_integer(record, "doorbells"),
        retransmitted=resent,
        latency_ns=_latency(record),
        cpu_touches=_integer(record, "cpu_touches"),
        syscalls=_integer(record, "syscalls" if "syscalls" in record else "ioctls"),
        verified=verified if isinstance(verified, bool) else None,
    )


def _check_step(
    report: DemoReport, step: Step, sides: Sequence[Side], before: Counters, after: Counters
) -> None:
    rows = [row for row in report.measurements if row.step == step.name]
    octets = sum(row.octets or 0 for row in rows)
    report.checks.append(
        Check(
            f"{step.name}: every byte arrived as sent",
            bool(rows) and all(row.verified for row in rows),
            f"{octets:,} bytes",
        )
    )
    rung = sum(row.doorbells or 0 for row in rows)
    seen = sum(_growth(before, after, f"{side.name}.nic0", "doorbells") for side in sides)
    touches = sum(row.cpu_touches or 0 for row in rows)
    calls = sum(row.syscalls or 0 for row in rows)
    counted = f"{rung} doorbells rung, {seen} reached the NICs, {touches} CPU touches, {calls} system calls"
    if step.proxy:
        report.checks.append(
            Check(f"{step.name}: the contrast shows, a CPU did the submitting", touches > 0, counted)
        )
    else:
        reported = all(None not in (row.cpu_touches, row.syscalls, row.doorbells) for row in rows)
        # Arming a completion queue rings too, so the NIC may see more than the kernel counted.
        direct = bool(rows) and reported and touches == 0 and calls == 0 and 0 < rung <= seen
        report.checks.append(Check(f"{step.name}: no CPU and no system call on the path", direct, counted))


def _check_counters(report: DemoReport, start: Counters, end: Counters, loss: float) -> None:
    errors = {
        f"{name} {counter}": _growth(start, end, name, counter)
        for name in end
        for counter in ("cqe_errors", "dma_errors", "protection_errors", "rx_icrc_errors", "bad_mmio")
    }
    wrong = [f"{name}: {count}" for name, count in errors.items() if count]
    report.checks.append(Check("no error completion, DMA error or bad packet", not wrong, "; ".join(wrong)))
    left = {name: sum(groups["objects"].values()) for name, groups in end.items()}
    before = {name: sum(groups["objects"].values()) for name, groups in start.items()}
    text = ", ".join(f"{name} {before[name]} before, {count} after" for name, count in left.items())
    report.checks.append(Check("every object the kernels made is gone", left == before, text))
    if loss:
        dropped = sum(
            value for groups in end.values() for key, value in groups["link"].items() if key.endswith(".lost")
        )
        resent = sum(_growth(start, end, name, "retransmitted_packets") for name in end)
        evidence = f"{dropped} frames lost, {resent} packets sent again"
        report.checks.append(Check("lost frames were sent again", resent > 0, evidence))


def _driver_counters(guest: Guest) -> dict[str, int]:
    """What the driver of ``guest`` counted since it was loaded: "name value" lines of its debugfs file."""
    result = guest.run("cat /sys/kernel/debug/vrnic/*/driver", 10).check()
    pairs = [line.split() for line in result.out]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _check_drivers(report: DemoReport, counters: Counters) -> None:
    agree = True
    texts = []
    for guest, driver in report.driver_counters.items():
        seen = counters[f"{guest}.nic0"]["nic"]["admin_commands"]
        sent, polled = driver.get("admin_commands", 0), driver.get("admin_polled", 0)
        agree &= sent == seen > 0 and polled == 0
        texts.append(f"{guest} {sent} commands, NIC {seen}, {driver.get('interrupts', 0)} interrupts")
    report.checks.append(Check("drivers and NICs agree; interrupts arrive", agree, "; ".join(texts)))


def _check_capture(report: DemoReport, summary: Summary, counters: Counters, loss: float) -> None:
    sent = sum(flow.sent.packets for flow in summary.flows)
    counted = sum(groups["nic"]["tx_packets"] for groups in counters.values())
    report.checks.append(
        Check("the capture is whole", not summary.damage and not summary.bad_records, summary.damage)
    )
    report.checks.append(
        Check(
            "it holds every packet the NICs sent",
            sent == counted > 0,
            f"{sent:,} captured, {counted:,} counted",
        )
    )
    report.checks.append(Check("every invariant CRC in it is right", summary.bad_icrc == 0 < sent))
    if loss:
        report.checks.append(
            Check(
                "it shows the retransmissions",
                summary.retransmitted > 0,
                f"{summary.retransmitted} packets twice",
            )
        )


def _tshark_agrees(installation: Installation, capture: Path, summary: Summary) -> Check:
    """Stock tshark decodes every RoCE packet and finds none malformed."""
    claim = "stock tshark decodes every packet"
    fields = ("-Y", "infiniband", "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed")
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


def _counters(running: LabRunner) -> Counters:
    with running.server.control() as client:
        return cast(Counters, client.call("counters"))


def _growth(before: Counters, after: Counters, function: str, counter: str) -> int:
    return after[function]["nic"][counter] - before[function]["nic"][counter]


def _integer(record: Mapping[str, object], key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _latency(record: Mapping[str, object]) -> float | None:
    """Nanoseconds per message; a kernel that waits for each message need not report them apart."""
    value = record.get("latency_ns")
    if isinstance(value, int | float):
        return float(value)
    seconds, messages = record.get("seconds"), _integer(record, "messages")
    return seconds * 1e9 / messages if isinstance(seconds, int | float) and messages else None
