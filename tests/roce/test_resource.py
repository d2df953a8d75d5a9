# SPDX-License-Identifier: Apache-2.0
"""What a responder remembers of READs and atomics, over more PSNs than the circle has."""

from __future__ import annotations

import pytest

from emu.roce.psn import PSN_MASK
from emu.roce.resource import Resource, ResourceRing
from emu.wire.opcodes import RcOpcode


def _read(first: int, packets: int = 1) -> Resource:
    return Resource(RcOpcode.READ_REQUEST, first & PSN_MASK, packets, 0x1000, 0x22, packets * 1024)


def _ring(*entries: Resource, size: int = 4) -> ResourceRing:
    ring = ResourceRing(size)
    for entry in entries:
        ring.add(entry)
    return ring


@pytest.mark.parametrize("psn", [100, 0xFFFFF8])
def test_the_earliest_request_after_a_psn(psn: int) -> None:
    first, second = _read(psn + 4), _read(psn + 9)
    ring = _ring(first, second)
    epsn = (psn + 12) & PSN_MASK
    assert ring.after(psn, epsn) is first
    assert ring.after((psn + 4) & PSN_MASK, epsn) is second
    assert ring.after((psn + 9) & PSN_MASK, epsn) is None


def test_a_request_of_half_a_circle_ago_does_not_lie_ahead() -> None:
    # 24-bit arithmetic alone would put PSN 100 after 0x900000.
    assert _ring(_read(100)).after(0x900000, 0x900010) is None


def test_the_last_owner_of_a_psn_answers_for_it() -> None:
    old, new = _read(100, 4), _read(102, 4)
    ring = _ring(old, new)
    assert ring.find(103) is new
    assert ring.find(101) is old
    assert ring.find(106) is None


def test_a_smaller_ring_keeps_the_latest() -> None:
    ring = _ring(*(_read(psn) for psn in range(4)))
    ring.resize(2)
    assert [entry.first for entry in ring] == [2, 3]
    ring.resize(4)
    assert not ring.full
