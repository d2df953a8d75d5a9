# SPDX-License-Identifier: Apache-2.0
"""Elements that the NIC carries out itself: in their turn, between those of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from emu.nic.engine import ProtectionError
from emu.nic.formats import WqeFault
from emu.nic.qp import QueuePair
from emu.nic.work import Cause, ModifyMask, QpAttributes, QpState, SendRequest, Status
from tests.nic.rig import Rig
from tests.nic.test_submission import fill, publish, statuses


@dataclass
class Errands:
    """Makes the elements at some indices the NIC's own, and notes when they ran."""

    at: set[int]
    failing: set[int] = field(default_factory=set)
    ran: list[int] = field(default_factory=list)

    def install(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put them into what the format decodes."""
        form = rig.nic.platform.formats.wqe
        decode = form.decode

        def wrapped(burst: bytes, first: int, count: int, qp: QueuePair) -> list[SendRequest | WqeFault]:
            found = decode(burst, first, count, qp)
            for request in found:
                if isinstance(request, SendRequest) and request.index in self.at:
                    request.local = self._errand(request.index)
            return found

        monkeypatch.setattr(form, "decode", wrapped)

    def _errand(self, index: int) -> Callable[[], None]:
        def run() -> None:
            self.ran.append(index)
            if index in self.failing:
                raise ProtectionError("not allowed", cause=Cause.LKEY_ACCESS)

        return run


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_they_wait_for_what_is_before_them_and_hold_what_is_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    errands = Errands({1, 2})
    errands.install(rig, monkeypatch)
    cq, cqes = rig.create_cq()
    qp, engine, ring, record = rig.create_qp(cq)
    engine.hold = True
    publish(rig, record, fill(rig, ring, 4, 0, [1, 1, 1, 1]))
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    assert [request.index for request in engine.posted] == [0]
    assert errands.ran == []
    engine.hold = False
    rig.nic.submission.kick(qp)
    rig.settle()
    assert errands.ran == [1, 2]
    assert statuses(rig, cqes, 4) == [(index, Status.SUCCESS) for index in range(4)]
    assert [request.index for request in engine.posted] == [0, 3]


def test_one_that_fails_ends_the_queue_pair(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    errands = Errands({1, 2}, failing={1})
    errands.install(rig, monkeypatch)
    cq, cqes = rig.create_cq()
    qp, _, ring, record = rig.create_qp(cq)
    publish(rig, record, fill(rig, ring, 4, 0, [1, 1, 1]))
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    assert errands.ran == [1]
    assert qp.state is QpState.ERR
    assert statuses(rig, cqes, 3) == [
        (0, Status.SUCCESS),
        (1, Status.MW_BIND_ERR),
        (2, Status.WR_FLUSH_ERR),
    ]
    assert qp.first_error is not None and qp.first_error.cause == Cause.LKEY_ACCESS


@pytest.mark.parametrize("state", [QpState.ERR, QpState.RESET])
def test_one_that_waits_is_given_up_with_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, state: QpState
) -> None:
    errands = Errands({1})
    errands.install(rig, monkeypatch)
    cq, cqes = rig.create_cq()
    qp, engine, ring, record = rig.create_qp(cq)
    engine.hold = True
    publish(rig, record, fill(rig, ring, 4, 0, [1, 1]))
    rig.nic.submission.ring(qp, 0)
    rig.settle()
    qp.modify(ModifyMask.STATE, QpAttributes(state=state))
    rig.settle()
    assert errands.ran == []
    assert qp.local is None
    flushed = [(0, Status.WR_FLUSH_ERR), (1, Status.WR_FLUSH_ERR)] if state is QpState.ERR else []
    assert statuses(rig, cqes, len(flushed)) == flushed
    assert cq.producer == len(flushed)
