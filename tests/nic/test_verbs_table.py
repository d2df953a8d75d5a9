# SPDX-License-Identifier: Apache-2.0
"""What verbs must refuse, as far as a device sees it: the rows V of the wire reference's negative table, and
those that need a whole NIC. Where verbs answer a post with an error number a device ignores the doorbell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from emu.nic.engine import ProtectionError
from emu.nic.errors import ErrorKind, NicError
from emu.nic.limits import NicLimits
from emu.nic.pages import PageList
from emu.nic.qp import QueuePair
from emu.nic.work import (
    Access,
    Completion,
    CompletionOpcode,
    ModifyMask,
    QpAttributes,
    QpState,
    Status,
)
from tests.nic.rig import MAC, RAM, Rig

M, S = ModifyMask, QpState
TO_INIT = M.STATE | M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS
TO_RTR = M.STATE | M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER
TO_RTS = M.STATE | M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.SQ_PSN | M.MAX_RD_ATOMIC
STEPS = {S.INIT: TO_INIT, S.RTR: TO_RTR, S.RTS: TO_RTS}


@dataclass(frozen=True)
class Row:
    """A modify in state ``start`` that must be refused, or a doorbell in it when ``mask`` is None."""

    id: str
    start: QpState
    target: QpState = S.RESET
    mask: ModifyMask | None = None
    kind: ErrorKind = ErrorKind.BAD_STATE
    values: dict[str, Any] = field(default_factory=dict)
    receive: bool = False


ROWS = (
    *(Row(f"V1-{state.name}", state) for state in (S.RESET, S.INIT, S.RTR)),
    Row("V2", S.RESET, receive=True),
    *(
        Row(f"V3-{step.name}-{attribute.name}", start, step, STEPS[step] & ~attribute)
        for start, step in ((S.RESET, S.INIT), (S.INIT, S.RTR), (S.RTR, S.RTS))
        for attribute in STEPS[step] & ~M.STATE
    ),
    Row("V4-reset-rts", S.RESET, S.RTS, TO_RTS),
    Row("V4-init-rts", S.INIT, S.RTS, TO_RTS),
    Row("V4-rtr-sqd", S.RTR, S.SQD, M.STATE),
    Row("V5", S.INIT, S.RTR, TO_RTR | M.SQ_PSN, ErrorKind.BAD_FIELD),
    Row("V8", S.INIT, S.RTR, TO_RTR, ErrorKind.BAD_FIELD, {"path_mtu": 4096}),
    Row("V9-timeout", S.RTR, S.RTS, TO_RTS, ErrorKind.BAD_FIELD, {"timeout": 32}),
    Row("V9-retry", S.RTR, S.RTS, TO_RTS, ErrorKind.BAD_FIELD, {"retry_cnt": 8}),
    Row("V9-rnr-retry", S.RTR, S.RTS, TO_RTS, ErrorKind.BAD_FIELD, {"rnr_retry": 8}),
    Row("V9-rnr-timer", S.INIT, S.RTR, TO_RTR, ErrorKind.BAD_FIELD, {"min_rnr_timer": 32}),
)


@pytest.fixture
def rig() -> Rig:
    return Rig(NicLimits(port_mtu=2048))


def reach(qp: QueuePair, state: QpState) -> None:
    """RESET to ``state``."""
    qp.modify(M.STATE, QpAttributes())
    for step, mask in STEPS.items():
        if qp.state is state:
            return
        qp.modify(mask, QpAttributes(state=step, dest_gid=b"\1" * 16, dest_mac=MAC))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_verbs(rig: Rig, row: Row) -> None:
    qp, _, _, _ = rig.create_qp(rig.create_cq()[0])
    reach(qp, row.start)
    before = qp.attributes
    if row.mask is None:
        assert rig.nic.counters.doorbells_ignored == 0
        (rig.nic.submission.ring_receive if row.receive else rig.nic.submission.ring)(qp, 1)
        assert rig.nic.counters.doorbells_ignored == rig.nic.counters.check_violations == 1
        assert (qp.doorbell, qp.receive.doorbell if qp.receive else -1) == (0, 0)
    else:
        given = QpAttributes(state=row.target, dest_gid=b"\1" * 16, dest_mac=MAC)
        for name, value in row.values.items():
            setattr(given, name, value)
        with pytest.raises(NicError) as caught:
            qp.modify(row.mask, given)
        assert caught.value.kind is row.kind
    assert qp.state is row.start
    assert qp.attributes == before


def test_a_doorbell_past_the_ring_is_refused(rig: Rig) -> None:
    qp, engine, _, record = rig.create_qp(rig.create_cq()[0], log_size=4)
    rig.store(record + 4, (17).to_bytes(4, "big"))
    rig.nic.submission.ring(qp, 17)
    rig.settle()
    assert rig.nic.counters.doorbells_ignored == 1
    assert not engine.posted


def test_a_key_of_another_domain_is_refused(rig: Rig) -> None:
    _, engine, _, _ = rig.create_qp(rig.create_cq()[0])
    other = rig.nic.alloc_pd(rig.context)
    pages = PageList.contiguous(RAM, 4096)
    region = rig.nic.register_mr(
        other, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE, address=0, pages=pages, invalidatable=True
    )
    with pytest.raises(ProtectionError, match="belongs to PD"):
        engine.host.write_remote(region.key, 0, b"x")
    with pytest.raises(ProtectionError, match="belongs to PD"):
        engine.host.invalidate(region.key)
    assert rig.nic.keys.get(region.key, "key") is region


def test_a_receive_completion_without_room_ends_the_queue_pair(rig: Rig) -> None:
    cq, _ = rig.create_cq(log_size=0)
    qp, engine, _, _ = rig.create_qp(cq)
    for index in (0, 1):
        engine.host.complete(Completion(qp.number, index, CompletionOpcode.RECV, Status.SUCCESS))
    rig.settle()
    assert cq.broken
    assert qp.state is S.ERR


def test_a_peer_invalidates_a_key_that_was_made_for_it(rig: Rig) -> None:
    _, engine, _, _ = rig.create_qp(rig.create_cq()[0])
    pages = PageList.contiguous(RAM, 4096)
    access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
    region = rig.nic.register_mr(rig.pd, access=access, address=0, pages=pages, invalidatable=True)
    engine.host.write_remote(region.key, 0, b"x")
    engine.host.invalidate(region.key)
    with pytest.raises(ProtectionError, match="invalidated by a peer"):
        engine.host.write_remote(region.key, 0, b"x")
    with pytest.raises(ProtectionError, match="invalidated by a peer"):
        engine.host.invalidate(region.key)
    rig.nic.deregister_mr(rig.nic.keys.get(region.key, "key"))
    with pytest.raises(NicError, match="was deregistered"):
        rig.nic.keys.get(region.key, "key")


def test_a_peer_does_not_invalidate_another_key(rig: Rig) -> None:
    _, engine, _, _ = rig.create_qp(rig.create_cq()[0])
    region = rig.region(0, PageList.contiguous(RAM, 4096))
    with pytest.raises(ProtectionError, match="not for peers to invalidate"):
        engine.host.invalidate(region.key)
    engine.host.write_remote(region.key, 0, b"x")
