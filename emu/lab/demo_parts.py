# SPDX-License-Identifier: Apache-2.0
"""What every demonstration does besides its work: a folder of its own, questions to the server, tshark."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from emu.capture.pcapng import PcapngError
from emu.capture.summary import Summary, summarize
from emu.capture.tshark import tshark_arguments
from emu.control.locate import lab_directory
from emu.control.server import ControlError
from emu.lab.claims import Counters, capture_claims
from emu.lab.failure import LabFailure
from emu.lab.guest import tail
from emu.lab.installation import Installation
from emu.lab.report import Check
from emu.lab.runner import LabRunner

__all__ = ["capture_path", "capture_stopped", "check_capture", "counters_of", "demo_folder"]


def capture_path(out: Path) -> Path:
    """The capture file in folder ``out``, which is made. :raises LabFailure: it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabFailure(
            f"cannot make {out}: {error.strerror}", "choose another folder with --out"
        ) from error
    return out.absolute() / "demo.pcapng"


@contextlib.contextmanager
def demo_folder() -> Iterator[Path]:
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


def counters_of(running: LabRunner) -> Counters:
    """Every NIC's counters now. :raises LabFailure: the server is gone."""
    return cast(Counters, _ask(running, "counters"))


def capture_stopped(running: LabRunner) -> str:
    """Why the server writes no capture any more, empty while it does. :raises LabFailure: it is gone."""
    return str(_ask(running, "flush")["reason"])


def check_capture(installation: Installation, capture: Path, end: Counters, stopped: str) -> list[Check]:
    """Hold the finished ``capture`` against the counters at the ``end``, and have tshark read it.

    ``stopped`` says why the server gave up writing it.

    :raises LabFailure: it cannot be read.
    """
    try:
        summary = summarize(capture)
    except (OSError, PcapngError) as error:
        raise LabFailure(f"the capture {capture} cannot be read: {error}", "is the disk full?") from error
    checks = capture_claims(summary, end, stopped)
    if not stopped:
        checks.append(_tshark_agrees(installation, capture, summary))
    return checks


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
        done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(claim, False, str(error))
    if done.returncode:
        return Check(claim, False, done.stderr.strip()[-200:])
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    malformed = sum(1 for line in lines if len(line) > 1 and line[1])
    expected = sum(flow.sent.packets + flow.received.packets for flow in summary.flows)
    evidence = f"{len(lines):,} decoded of {expected:,}, {malformed} malformed"
    return Check(claim, len(lines) == expected > 0 and not malformed, evidence)


def _ask(running: LabRunner, method: str) -> dict[str, object]:
    try:
        with running.server.control() as client:
            return cast(dict[str, object], client.call(method))
    except ControlError as error:
        raise LabFailure(f"the server is gone: {error}", tail(running.server.log)) from error
