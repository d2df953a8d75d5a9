# SPDX-License-Identifier: Apache-2.0
"""What the demo claims, decided from what kernels, drivers, NICs and the capture counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from emu.capture.summary import Summary
from emu.lab.report import Check, Measurement

__all__ = [
    "Counters",
    "capture_claims",
    "counter_claims",
    "driver_claim",
    "growth",
    "measurement",
    "step_claims",
]

Counters = Mapping[str, Mapping[str, Mapping[str, int]]]
"""The server's counters: by NIC, then group ("nic", "link", "objects"), then counter."""

_ERRORS = (
    "cqe_errors",
    "dma_errors",
    "protection_errors",
    "rx_icrc_encapsulated",
    "bad_mmio",
    "check_violations",
)
_ANSWERS = ("ACK", "RESPONSE", "READ_DATA", "CP ")


def growth(before: Counters, after: Counters, nic: str, counter: str) -> int:
    """By how much a NIC's counter grew."""
    return after[nic]["nic"][counter] - before[nic]["nic"][counter]


def measurement(step: str, guest: str, record: Mapping[str, object], retransmitted: int) -> Measurement:
    """One line a kernel printed; what it does not say, or says in the wrong type, is None."""
    verified = record.get("verified")
    return Measurement(
        step=step,
        guest=guest,
        messages=_integer(record, "messages"),
        octets=_integer(record, "bytes"),
        doorbells=_integer(record, "doorbells"),
        retransmitted=retransmitted,
        latency_ns=_latency(record),
        cpu_touches=_integer(record, "cpu_touches"),
        syscalls=_integer(record, "syscalls" if "syscalls" in record else "ioctls"),
        verified=verified if isinstance(verified, bool) else None,
    )


def step_claims(
    step: str, rows: Sequence[Measurement], before: Counters, after: Counters, *, proxy: bool
) -> list[Check]:
    """Claims about one step: its bytes, and who did the submitting. ``proxy``: a CPU is meant to."""
    octets = sum(row.octets or 0 for row in rows)
    right = bool(rows) and octets > 0 and all(row.verified for row in rows)
    checks = [Check(f"{step}: every byte arrived as sent", right, f"{octets:,} bytes")]
    rung = sum(row.doorbells or 0 for row in rows)
    seen = sum(growth(before, after, nic, "doorbells") for nic in after)
    touches = sum(row.cpu_touches or 0 for row in rows)
    calls = sum(row.syscalls or 0 for row in rows)
    counted = f"{rung} doorbells rung, {seen} reached the NICs, {touches} CPU touches, {calls} system calls"
    if proxy:
        return [*checks, Check(f"{step}: for contrast, a CPU did the submitting", touches > 0, counted)]
    reported = all(None not in (row.cpu_touches, row.syscalls, row.doorbells) for row in rows)
    # Arming a completion queue rings too, so the NIC may see more than the kernel counted.
    direct = bool(rows) and reported and touches == 0 and calls == 0 and 0 < rung <= seen
    return [*checks, Check(f"{step}: no CPU and no system call on the path", direct, counted)]


def counter_claims(
    start: Counters, end: Counters, *, tolerated: Collection[str] = (), kinds: Collection[str] = ()
) -> list[Check]:
    """Claims from the NICs' counters over the whole run.

    ``tolerated`` are error counters that the work may move; ``kinds`` are the kinds of object that must be
    gone (none: all).
    """
    errors = [name for name in _ERRORS if name not in tolerated]
    grown = {f"{nic} {name}": growth(start, end, nic, name) for nic in end for name in errors}
    wrong = [f"{name}: {count}" for name, count in grown.items() if count]

    def count_objects(counters: Counters) -> dict[str, int]:
        return {
            nic: sum(count for kind, count in groups["objects"].items() if not kinds or kind in kinds)
            for nic, groups in counters.items()
        }

    before, left = count_objects(start), count_objects(end)
    objects = ", ".join(f"{nic} {before.get(nic, 0)} before, {count} after" for nic, count in left.items())
    return [
        Check("no error completion, DMA error or bad packet", not wrong, "; ".join(wrong)),
        Check("every object the kernels made is gone", left == before, objects),
    ]


def driver_claim(drivers: Mapping[str, Mapping[str, int]], counters: Counters) -> Check:
    """Drivers (by guest) and NICs count the same admin commands, and interrupts told of their completions."""
    agree = bool(drivers)
    texts = []
    for guest, driver in drivers.items():
        seen = counters[f"{guest}.nic0"]["nic"]["admin_commands"]
        sent, interrupts = driver.get("admin_commands", 0), driver.get("interrupts", 0)
        agree &= sent == seen > 0 and interrupts > 0 and driver.get("admin_polled") == 0
        texts.append(f"{guest} {sent} commands, NIC {seen}, {interrupts} interrupts")
    return Check("drivers and NICs agree; interrupts arrive", agree, "; ".join(texts))


def capture_claims(summary: Summary, counters: Counters, stopped: str = "") -> list[Check]:
    """Claims from the capture: whole, complete, right, and every lost request sent again.

    ``stopped`` says why the server gave up writing it; what a part of it shows proves nothing then.
    """
    if stopped:
        return [Check("the capture is whole", False, stopped)]
    sent = sum(flow.sent.packets for flow in summary.flows)
    counted = sum(groups["nic"]["tx_packets"] for groups in counters.values())
    checks = [
        Check("the capture is whole", not summary.damage and not summary.bad_records, summary.damage),
        Check(
            "it holds every packet the NICs sent",
            sent == counted > 0,
            f"{sent:,} captured, {counted:,} counted",
        ),
    ]
    if any(flow.pdc is None for flow in summary.flows):
        checks.append(Check("every invariant CRC in it is right", summary.bad_icrc == 0 < sent))
    links = [groups["link"] for groups in counters.values()]
    dropped = sum(count for link in links for name, count in link.items() if name.endswith(".lost"))
    if dropped:
        # A lost acknowledgement need not be repeated: the next one covers it.
        lost = sum(
            count - flow.received.opcodes[name]
            for flow in summary.flows
            for name, count in flow.sent.opcodes.items()
            if not any(word in name for word in _ANSWERS)
        )
        evidence = f"{dropped:,} frames lost, {lost:,} of them requests; {summary.retransmitted:,} sent again"
        checks.append(Check("every lost request was sent again", summary.retransmitted >= lost, evidence))
    return checks


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
