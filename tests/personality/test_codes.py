# SPDX-License-Identifier: Apache-2.0
"""The contract's numbers and the core's are the same where both name a thing."""

from __future__ import annotations

import enum

import pytest

from emu.nic.counters import Counters
from emu.nic.cq import CqMode, CqOverrun
from emu.nic.engine import AsyncEvent
from emu.nic.errors import ErrorKind
from emu.nic.mr import MemoryKind
from emu.nic.record import DbrPolicy
from emu.nic.work import Cause
from emu.personality.vrnic.contract import codes
from emu.personality.vrnic.contract.registers import COUNTERS

SHARED_RECEIVES = ("SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED")


def numbers(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


@pytest.mark.parametrize(
    ("core", "contract"),
    [
        (Cause, codes.VendorCause),
        (CqMode, codes.CqMode),
        (CqOverrun, codes.CqOverrun),
        (DbrPolicy, codes.DbrPolicy),
        (MemoryKind, codes.MrKind),
    ],
    ids=lambda kind: kind.__name__,
)
def test_numbers_agree(core: type[enum.IntEnum], contract: type[enum.IntEnum]) -> None:
    # The core may know more, for other personalities.
    assert numbers(contract).items() <= numbers(core).items()


def test_every_async_event_has_an_event_type() -> None:
    # The contract has no shared receive queues.
    ours = {name: number for name, number in numbers(AsyncEvent).items() if name not in SHARED_RECEIVES}
    assert {**ours, "COMPLETION": 32} == numbers(codes.EventType)


def test_every_refusal_has_a_status() -> None:
    assert {kind.name for kind in ErrorKind} <= {status.name for status in codes.AdminStatus}


def test_the_guest_can_read_every_counter() -> None:
    assert [name for name, _ in COUNTERS] == list(Counters().snapshot())
