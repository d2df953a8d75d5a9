# SPDX-License-Identifier: Apache-2.0
"""Everything that led to a broken rule, on one page: doorbells, fetches, indices, pending descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.nic.serial import MASK, ahead
from emu.nic.work import Opcode, SendRequest
from emu.pcie.bus import BusError

if TYPE_CHECKING:
    from emu.nic.device import Nic
    from emu.nic.formats import WqeFault
    from emu.nic.qp import QueuePair

__all__ = ["dump_nic", "render_dump"]

PENDING = 64
"""Pending descriptors that are shown of each queue pair."""
MOST_QPS = 16
"""Queue pairs that are shown when none is named: those with something to do come first."""


def dump_nic(nic: Nic, qpn: int | None = None) -> dict[str, object]:
    """The state of ``nic``, or of one of its queue pairs, as plain values.

    :raises KeyError: there is no queue pair ``qpn``.
    """
    recorder = nic.checks.recorder
    doorbells = [] if recorder is None else list(recorder.doorbells)
    fetches = [] if recorder is None else list(recorder.fetches)
    if qpn is not None:
        if qpn not in nic.qps.items:
            raise KeyError(qpn)
        chosen = [nic.qps.items[qpn]]
        doorbells = [entry for entry in doorbells if entry[1] == qpn]
        fetches = [entry for entry in fetches if entry[1] == qpn]
    else:
        chosen = sorted(nic.qps, key=lambda qp: qp.doorbell == qp.completed)[:MOST_QPS]
    stopped = nic.checks.stopped
    return {
        "function": nic.name,
        "time": nic.platform.scheduler.now(),
        "stopped_by": None if stopped is None else stopped.to_json(),
        "violations": [
            violation.to_json() for violation in nic.checks.violations if qpn in (None, violation.qpn)
        ],
        "doorbells": [
            {"time": time, "qpn": number, "index": index, "what": what}
            for time, number, index, what in doorbells
        ],
        "fetches": [
            {"time": time, "qpn": number, "index": index, "slots": slots}
            for time, number, index, slots in fetches
        ],
        "queue_pairs": [_queue_pair(nic, qp) for qp in chosen],
        "left_out": len(nic.qps) - len(chosen),
    }


def render_dump(dump: dict[str, object]) -> str:
    """The dump as text for people."""
    lines = [f"{dump['function']} at {dump['time']} ns"]
    stopped = dump["stopped_by"]
    if isinstance(stopped, dict):
        lines.append(f"stopped by {stopped['rule']}: {stopped['text']}")
    for title, name, form in (
        ("last violations", "violations", "{time:>16} {rule} {text}"),
        ("last doorbells", "doorbells", "{time:>16} QP {qpn:#x} {what} index {index}"),
        ("last fetches", "fetches", "{time:>16} QP {qpn:#x} index {index}, {slots} slots"),
    ):
        entries = dump[name]
        assert isinstance(entries, list)
        lines.append(f"\n{title} ({len(entries)})")
        lines += ["  " + form.format(**entry) for entry in entries] or ["  none"]
    pairs = dump["queue_pairs"]
    assert isinstance(pairs, list)
    for pair in pairs:
        lines.append(
            f"\nQP {pair['qpn']:#x}: {pair['state']}, {pair['transport']}, to QP {pair['dest_qpn']:#x}"
        )
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in pair["indices"].items()))
        if pair["first_error"]:
            lines.append(f"  first error: {pair['first_error']}")
        lines += [f"  {entry['state']:<10} {entry['index']:>10} {entry['text']}" for entry in pair["pending"]]
        if pair["pending_left_out"]:
            lines.append(f"  and {pair['pending_left_out']} more")
    if dump["left_out"]:
        lines.append(f"\n{dump['left_out']} more queue pairs; name one to see it")
    return "\n".join(lines) + "\n"


def _queue_pair(nic: Nic, qp: QueuePair) -> dict[str, object]:
    shot = qp.snapshot()
    quiet = nic.platform.dma.quiet()
    indices: dict[str, object] = {
        "completed": shot.completed,
        "fetched": shot.fetched,
        "doorbell": shot.doorbell,
        "receive": shot.receive_index,
        "receive doorbell": shot.receive_doorbell,
        "CQ producer": qp.send_cq.producer,
        "CQ consumer": qp.send_cq.consumer,
        "slots": qp.sq.size,
    }
    if qp.record is not None:
        try:
            receive, send = qp.record.peek(quiet, qp.doorbell)
            indices |= {"record send": send, "record receive": receive, "policy": qp.record.policy.name}
        except BusError as error:
            indices["record"] = str(error)
    pending, left = _pending(nic, qp)
    return {
        "qpn": qp.number,
        "state": shot.state.name,
        "transport": shot.transport.name,
        "dest_qpn": shot.dest_qpn,
        "indices": indices,
        "first_error": shot.to_json()["first_error"],
        "pending": pending,
        "pending_left_out": left,
    }


def _pending(nic: Nic, qp: QueuePair) -> tuple[list[dict[str, object]], int]:
    """Slots from the oldest not complete to the doorbell, decoded, and the one behind it if it is written."""
    covered = (qp.doorbell - qp.completed) & MASK
    count = min(covered, PENDING, qp.sq.size)
    rows: list[dict[str, object]] = []
    try:
        burst = qp.sq.peek(nic.platform.dma.quiet(), qp.completed, count) if count else b""
        behind = qp.sq.peek(nic.platform.dma.quiet(), qp.doorbell, 1)
    except BusError as error:
        return [{"index": qp.completed, "state": "unreadable", "text": str(error)}], covered
    decode = nic.platform.formats.wqe.decode
    for found in decode(burst, qp.completed, count, qp) if count else []:
        state = "fetched" if ahead(qp.fetched, found.index) > 0 else "rung"
        rows.append({"index": found.index, "state": state, "text": _describe(found)})
    unrung = decode(behind, qp.doorbell, 1, qp)
    if unrung and isinstance(unrung[0], SendRequest):
        rows.append({"index": qp.doorbell, "state": "not rung", "text": _describe(unrung[0])})
    return rows, covered - count


def _describe(found: SendRequest | WqeFault) -> str:
    if not isinstance(found, SendRequest):
        return f"{found.rule.code if found.rule else 'error'}: {found.text}"
    parts = [found.opcode.name, f"{found.length} bytes"]
    if found.opcode not in (Opcode.NOP, Opcode.SEND, Opcode.SEND_IMM, Opcode.SEND_INV):
        parts.append(f"remote {found.remote_address:#x} key {found.rkey:#x}")
    parts += [f"local {sge.address:#x} key {sge.lkey:#x}" for sge in found.sges[:4]]
    flags = (("inline", found.inline is not None), ("signaled", found.signaled), ("fence", found.fence))
    parts += [name for name, on in flags if on]
    return ", ".join(parts)
