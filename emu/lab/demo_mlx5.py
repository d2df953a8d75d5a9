# SPDX-License-Identifier: Apache-2.0
"""The demonstration with unmodified drivers: the distribution's tools between two guests, and the proof."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from emu.capture.tshark import tshark_command
from emu.lab.claims import Counters, counter_claims, growth
from emu.lab.demo import DemoOptions
from emu.lab.demo_parts import capture_path, capture_stopped, check_capture, counters_of, demo_folder
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest
from emu.lab.installation import Installation
from emu.lab.perftest import latencies, throughputs
from emu.lab.report import Check
from emu.lab.runner import LabRunner
from emu.lab.stock_report import StockReport, ToolRow
from emu.lab.tools import CM_LISTENS, bring_up_rdma, run_tool, tcp_listens
from emu.lab.topology import Lab, Nic, Node

__all__ = ["STEPS", "StockStep", "complaints", "run_stock_demo", "stock_lab"]

IPERF_PORT = 5201
_COMPLAINT = re.compile(r"fail|error|warn|unable|invalid|abort|timeout|BUG|Call Trace", re.IGNORECASE)
_HARMLESS = ("PTM is not supported by PCIe",)
"""Lines about what a slot of this machine does not have."""

Values = tuple[float | None, float | None]
"""MiB/s and microseconds, where a tool measures them."""


def _ping(lines: tuple[str, ...]) -> Values:
    """Of the line "round-trip min/avg/max = 0.301/0.412/0.603 ms"."""
    match = re.search(r"= [\d.]+/([\d.]+)/", "\n".join(lines))
    return None, float(match[1]) * 1000 if match else None


def _iperf(lines: tuple[str, ...]) -> Values:
    """Of ``iperf3 -J``: what the receiver got."""
    try:
        return json.loads("\n".join(lines))["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20), None
    except (ValueError, KeyError, TypeError):
        return None, None


def _pingpong(lines: tuple[str, ...]) -> Values:
    """Of "8192000 bytes in 0.05 seconds = 1230.45 Mbit/sec" and "1000 iters in 0.05 seconds = 53.26
    usec/iter"."""
    text = "\n".join(lines)
    rate, time_each = re.search(r"= ([\d.]+) Mbit/sec", text), re.search(r"= ([\d.]+) usec/iter", text)
    return float(rate[1]) * 1e6 / 8 / (1 << 20) if rate else None, float(time_each[1]) if time_each else None


def _bandwidth(lines: tuple[str, ...]) -> Values:
    rows = throughputs(lines)
    return (rows[-1].mebibytes if rows else None), None


def _latency(lines: tuple[str, ...]) -> Values:
    rows = latencies(lines)
    return None, (rows[-1].typical if rows else None)


def _nothing(lines: tuple[str, ...]) -> Values:
    return None, None


@dataclass(frozen=True, slots=True)
class StockStep:
    """One tool: the server's and the client's command, ``{server}`` standing for its address.

    ``ready`` holds in the server's guest once it listens; without it there is no server. ``read`` takes
    values from what the client printed, ``measures`` says that there must be some. ``repairs`` is False for
    services that do not repeat what is lost: their tools then wait for ever.
    """

    name: str
    server: str
    client: str
    ready: str
    read: Callable[[tuple[str, ...]], Values]
    measures: bool = True
    repairs: bool = True


def _both(name: str, command: str, read: Callable[[tuple[str, ...]], Values], **more: bool) -> StockStep:
    return StockStep(name, command, command + " {server}", tcp_listens(), read, **more)


_PERF = "-F -x 1 -u 17"
STEPS = (
    StockStep("ping", "", "ping -c 5 -s 1400 {server}", "", _ping, repairs=False),
    StockStep("iperf3", "iperf3 -s -1", "iperf3 -J -n 8M -c {server}", tcp_listens(IPERF_PORT), _iperf),
    _both("ibv_rc_pingpong", "ibv_rc_pingpong -g 1 -n 500", _pingpong),
    _both("ibv_uc_pingpong", "ibv_uc_pingpong -g 1 -n 500", _pingpong, repairs=False),
    _both("ibv_ud_pingpong", "ibv_ud_pingpong -g 1 -n 500", _pingpong, repairs=False),
    _both("ibv_srq_pingpong", "ibv_srq_pingpong -g 1 -n 500", _pingpong),
    StockStep("rping", "rping -s -C 50", "rping -c -C 50 -a {server}", CM_LISTENS, _nothing, measures=False),
    _both("ib_write_bw", f"ib_write_bw {_PERF} -s 65536 -n 300", _bandwidth),
    _both("ib_write_lat", f"ib_write_lat {_PERF} -s 8 -n 500", _latency),
    _both("ib_read_bw", f"ib_read_bw {_PERF} -s 65536 -n 300", _bandwidth),
    _both("ib_read_lat", f"ib_read_lat {_PERF} -s 8 -n 500", _latency),
    _both("ib_send_bw", f"ib_send_bw {_PERF} -s 65536 -n 300", _bandwidth),
    _both("ib_send_lat", f"ib_send_lat {_PERF} -s 8 -n 500", _latency),
    _both("ib_atomic_bw", f"ib_atomic_bw {_PERF} -n 500", _bandwidth),
    _both("ib_atomic_lat", f"ib_atomic_lat {_PERF} -n 500", _latency),
    StockStep(
        "ib_send_bw -R",
        f"ib_send_bw -R {_PERF} -s 4096 -n 500",
        f"ib_send_bw -R {_PERF} -s 4096 -n 500 {{server}}",
        CM_LISTENS,
        _bandwidth,
    ),
)


def stock_lab(loss: float = 0.0, seed: int = 1) -> Lab:
    """Two guests with an mlx5-compatible NIC each."""
    nodes = tuple(Node(f"node{index}", (Nic(device="mlx5"),), ()) for index in range(2))
    return Lab(nodes=nodes, name="stock", loss=loss, seed=seed)


def run_stock_demo(options: DemoOptions, installation: Installation | None = None) -> StockReport:
    """Boot two guests with the distribution's kernel, drivers and tools; run every tool; check the outcome
    against the NICs' counters, the kernel logs and the capture.

    :raises LabFailure: the guests do not come up; a tool that fails is a line of the report.
    :raises emu.setup.error.SetupError: the set-up is missing something.
    :raises emu.lab.topology.LabError: an option is out of its range.
    """
    lab = stock_lab(options.loss, options.seed)
    if installation is None:
        options.progress("checking the drivers and programs")
        installation = Installation.require(options.accelerator)
    began = time.monotonic()
    capture = capture_path(options.out)
    report = StockReport(
        device="mlx5",
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
        running.wait_guests(180)
        report.boot_seconds = {guest.name: round(guest.boot_seconds, 2) for guest in running.guests}
        report.kernel = running.guests[0].agent.release
        addresses = {nic.node: f"10.77.0.{nic.number}" for nic in lab.nics}
        for guest in running.guests:
            bring_up_rdma(guest, addresses[guest.name])
            _use_once(guest, addresses[guest.name])
        start = counters_of(running)
        for step in STEPS:
            options.progress(f"running {step.name}")
            report.tools.append(_run_step(running, addresses, step, lossy=options.loss > 0))
        end = counters_of(running)
        stopped = capture_stopped(running)
        report.checks.append(_tool_claim(report.tools))
        # A program that disconnects has its receives flushed; the kernel keeps memory keys for later ones.
        tolerated = ["cqe_errors"]
        if options.loss:
            # rping writes its next message once the peer has answered, and not once the last one is complete:
            # where the acknowledgement was lost, rule C05 says so, and rightly.
            tolerated.append("check_violations")
        report.checks += counter_claims(start, end, tolerated=tolerated, kinds=("qps", "cqs"))
        report.checks.append(_log_claim(running.guests))
    options.progress("checking the capture")
    report.checks += check_capture(installation, capture, end, stopped)
    report.seconds = round(time.monotonic() - began, 2)
    return report


def complaints(guest: Guest) -> list[str]:
    """Lines of the kernel log about the NIC that report trouble."""
    log = guest.run("dmesg | grep -E 'mlx5|infiniband|eth0|Call Trace|BUG'", 30).out
    return [line for line in log if _COMPLAINT.search(line) and not any(text in line for text in _HARMLESS)]


def _use_once(guest: Guest, address: str) -> None:
    """Have the driver make what it makes for itself when memory is registered for the first time."""
    tool = "ibv_rc_pingpong -g 1 -n 1"
    run_tool((guest, tool), (guest, f"{tool} {address}"), ready=tcp_listens(), timeout=60)


def _run_step(running: LabRunner, addresses: dict[str, str], step: StockStep, *, lossy: bool) -> ToolRow:
    left, right = running.guests
    command = step.client.format(server=addresses[right.name])
    if lossy and not step.repairs:
        return ToolRow(step.name, "not run", reason="it does not repeat what is lost", command=command)
    before = counters_of(running)
    result, reason = "ok", ""
    values: Values = (None, None)
    try:
        if step.ready:
            _, client = run_tool((right, step.server), (left, command), ready=step.ready, timeout=180)
        else:
            client = left.run(command, 60).check()
        values = step.read(client.out)
        if step.measures and values == (None, None):
            result, reason = "failed", "it printed no result"
    except LabFailure as error:
        result, reason = "failed", error.message
    after = counters_of(running)
    return ToolRow(
        step.name,
        result,
        *values,
        reason=reason,
        packets=_sent(before, after),
        retransmitted=sum(growth(before, after, nic, "retransmitted_packets") for nic in after),
        command=command,
    )


def _sent(before: Counters, after: Counters) -> int:
    """Packets that all NICs sent in between."""
    return sum(
        after[nic][group]["tx_packets"] - before[nic][group]["tx_packets"]
        for nic in after
        for group in ("nic", "ethernet")
    )


def _tool_claim(rows: list[ToolRow]) -> Check:
    failed = [f"{row.tool}: {row.reason}" for row in rows if row.result == "failed"]
    done = sum(row.result == "ok" for row in rows)
    return Check(
        "every tool that ran succeeded", bool(done) and not failed, "; ".join(failed) or f"{done} tools"
    )


def _log_claim(guests: tuple[Guest, ...]) -> Check:
    found = [f"{guest.name}: {line}" for guest in guests for line in complaints(guest)]
    return Check("no kernel complained", not found, "; ".join(found[:3]))
