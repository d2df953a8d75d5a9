# SPDX-License-Identifier: Apache-2.0
"""When the demo's claims hold, and above all when they do not."""

from __future__ import annotations

from collections import Counter

import pytest

from emu.capture.summary import Flow, Summary, Traffic
from emu.lab.claims import (
    Counters,
    capture_claims,
    counter_claims,
    driver_claim,
    measurement,
    step_claims,
)
from emu.lab.report import Check

NIC = "node0.nic0"
ERRORS = (
    "cqe_errors",
    "dma_errors",
    "protection_errors",
    "rx_icrc_encapsulated",
    "bad_mmio",
    "check_violations",
)

RECORD: dict[str, object] = {
    "kernel": "put",
    "messages": 8,
    "bytes": 2048,
    "doorbells": 8,
    "ioctls": 0,
    "cpu_touches": 0,
    "seconds": 0.008,
    "verified": True,
}


def counters(doorbells: int = 0, objects: int = 1, lost: int = 0, **nic: int) -> Counters:
    values = dict.fromkeys((*ERRORS, "admin_commands", "tx_packets", "retransmitted_packets"), 0)
    return {
        NIC: {
            "nic": {**values, "doorbells": doorbells, **nic},
            "link": {"out.lost": lost, "in.lost": 0, "out.frames": 99},
            "objects": {"qps": 0, "eqs": objects},
        }
    }


def claim(checks: list[Check], part: str) -> Check:
    (found,) = [check for check in checks if part in check.claim]
    return found


def step(record: dict[str, object], rung: int = 8, *, proxy: bool = False) -> list[Check]:
    rows = [measurement("put", "node0", record, 0)]
    return step_claims("put", rows, counters(), counters(rung), proxy=proxy)


def test_a_direct_put_proves_itself() -> None:
    assert all(check.holds for check in step(RECORD))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"verified": False}, "every byte"),
        ({"verified": "yes"}, "every byte"),
        ({"bytes": 0}, "every byte"),
        ({"cpu_touches": 1}, "no CPU"),
        ({"ioctls": 1}, "no CPU"),
        ({"syscalls": 1}, "no CPU"),
        ({"doorbells": 0}, "no CPU"),
        ({"doorbells": 9}, "no CPU"),
        ({"cpu_touches": None}, "no CPU"),
        ({"doorbells": "8"}, "no CPU"),
    ],
)
def test_each_piece_of_evidence_counts(change: dict[str, object], broken: str) -> None:
    assert [check.claim for check in step(RECORD | change) if not check.holds] == [
        claim(step(RECORD), broken).claim
    ]


def test_a_kernel_that_says_nothing_proves_nothing() -> None:
    assert not any(check.holds for check in step_claims("put", [], counters(), counters(), proxy=False))


def test_the_proxy_must_show_a_cpu() -> None:
    assert claim(step(RECORD | {"cpu_touches": 24}, proxy=True), "for contrast").holds
    assert not claim(step(RECORD, proxy=True), "for contrast").holds


def test_latency_is_the_kernels_or_its_time_by_message() -> None:
    assert measurement("put", "a", RECORD, 0).latency_ns == pytest.approx(1e6)
    assert measurement("put", "a", RECORD | {"latency_ns": 5}, 0).latency_ns == 5
    assert measurement("put", "a", RECORD | {"messages": 0}, 0).latency_ns is None


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_the_nic_is_named(error: str) -> None:
    found = claim(counter_claims(counters(), counters(**{error: 3})), "no error")
    assert not found.holds and found.evidence == f"{NIC} {error}: 3"


def test_errors_from_before_the_run_do_not_count() -> None:
    assert all(check.holds for check in counter_claims(counters(dma_errors=3), counters(dma_errors=3)))


def test_an_object_left_behind_is_a_leak() -> None:
    found = claim(counter_claims(counters(objects=1), counters(objects=2)), "object")
    assert not found.holds and "1 before, 2 after" in found.evidence


@pytest.mark.parametrize(
    ("driver", "seen", "holds"),
    [
        ({"admin_commands": 5, "admin_polled": 0, "interrupts": 4}, 5, True),
        ({"admin_commands": 5, "admin_polled": 0, "interrupts": 4}, 6, False),
        ({"admin_commands": 5, "admin_polled": 1, "interrupts": 4}, 5, False),
        ({"admin_commands": 5, "admin_polled": 0, "interrupts": 0}, 5, False),
        ({"admin_commands": 0, "admin_polled": 0, "interrupts": 1}, 0, False),
        ({}, 0, False),
    ],
)
def test_driver_and_nic_must_agree(driver: dict[str, int], seen: int, holds: bool) -> None:
    assert driver_claim({"node0": driver}, counters(admin_commands=seen)).holds is holds


def test_no_driver_is_no_agreement() -> None:
    assert not driver_claim({}, counters()).holds


def capture(sent: dict[str, int], received: dict[str, int], resent: int = 0, bad: int = 0) -> Summary:
    flow = Flow("10.77.0.1", "10.77.0.2", 0x100, sender=NIC, receiver="node1.nic0")
    flow.sent = Traffic(packets=sum(sent.values()), bad_icrc=bad, opcodes=Counter(sent))
    flow.received = Traffic(packets=sum(received.values()), opcodes=Counter(received))
    flow.sent.requests.repeated = resent
    return Summary("demo.pcapng", flows=[flow])


def test_a_clean_capture_holds_what_the_nics_sent() -> None:
    write = {"RC WRITE ONLY": 4}
    checks = capture_claims(capture(write, write), counters(tx_packets=4))
    assert all(check.holds for check in checks) and len(checks) == 3


def test_a_capture_with_packets_missing_bad_or_damaged_does_not_pass() -> None:
    write = {"RC WRITE ONLY": 4}
    assert not claim(capture_claims(capture(write, write), counters(tx_packets=5)), "every packet").holds
    assert not claim(capture_claims(capture({}, {}), counters()), "every packet").holds
    assert not claim(capture_claims(capture(write, write, bad=1), counters(tx_packets=4)), "CRC").holds
    damaged = capture(write, write)
    damaged.damage = "cut at byte 7"
    found = claim(capture_claims(damaged, counters(tx_packets=4)), "whole")
    assert not found.holds and found.evidence == "cut at byte 7"


def test_a_capture_that_stopped_is_told_as_that_alone() -> None:
    (found,) = capture_claims(capture({}, {}), counters(tx_packets=4), "no space left")
    assert not found.holds and found.evidence == "no space left"


@pytest.mark.parametrize(
    ("sent", "received", "resent", "holds"),
    [
        ({"RC WRITE ONLY": 5}, {"RC WRITE ONLY": 4}, 1, True),
        ({"RC WRITE ONLY": 5}, {"RC WRITE ONLY": 4}, 0, False),
        ({"RC WRITE ONLY": 4, "RC ACKNOWLEDGE": 4}, {"RC WRITE ONLY": 4, "RC ACKNOWLEDGE": 3}, 0, True),
        ({"RC READ RESPONSE ONLY": 2}, {"RC READ RESPONSE ONLY": 1}, 0, True),
    ],
)
def test_every_lost_request_must_come_again(
    sent: dict[str, int], received: dict[str, int], resent: int, holds: bool
) -> None:
    summary = capture(sent, received, resent)
    packets = sum(sent.values())
    found = claim(capture_claims(summary, counters(lost=1, tx_packets=packets)), "lost request")
    assert found.holds is holds
