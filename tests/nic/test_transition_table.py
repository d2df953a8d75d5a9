# SPDX-License-Identifier: Apache-2.0
"""Each attribute in each step of each service, against the tables of ``ib_modify_qp_is_ok``."""

from __future__ import annotations

import pytest

from emu.nic.engine import AsyncEvent
from emu.nic.errors import ErrorKind, NicError
from emu.nic.limits import NicLimits
from emu.nic.transitions import check_transition
from emu.nic.work import ModifyMask, QpAttributes, QpState, Transport
from tests.nic.rig import SLOT, Rig

M, S = ModifyMask, QpState

TABLES = {
    Transport.ROCE_RC: """
        RESET INIT : PKEY_INDEX PORT ACCESS_FLAGS :
        INIT INIT  : : PKEY_INDEX PORT ACCESS_FLAGS
        INIT RTR   : AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
                   : ALT_PATH ACCESS_FLAGS PKEY_INDEX
        RTR RTS    : TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_RD_ATOMIC
                   : CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
        RTS RTS    : : CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
        RTS SQD    : : EN_SQD_ASYNC_NOTIFY
        SQD SQD    : : PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH
                       ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
        SQD RTS    : : CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
    """,
    Transport.ROCE_UC: """
        RESET INIT : PKEY_INDEX PORT ACCESS_FLAGS :
        INIT INIT  : : PKEY_INDEX PORT ACCESS_FLAGS
        INIT RTR   : AV PATH_MTU DEST_QPN RQ_PSN : ALT_PATH ACCESS_FLAGS PKEY_INDEX
        RTR RTS    : SQ_PSN : CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
        RTS RTS    : : CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
        RTS SQD    : : EN_SQD_ASYNC_NOTIFY
        SQD SQD    : : AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
        SQD RTS    : : CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
        SQE RTS    : : CUR_STATE ACCESS_FLAGS
    """,
    Transport.ROCE_UD: """
        RESET INIT : PKEY_INDEX PORT QKEY :
        INIT INIT  : : PKEY_INDEX PORT QKEY
        INIT RTR   : : PKEY_INDEX QKEY
        RTR RTS    : SQ_PSN : CUR_STATE QKEY
        RTS RTS    : : CUR_STATE QKEY
        RTS SQD    : : EN_SQD_ASYNC_NOTIFY
        SQD SQD    : : PKEY_INDEX QKEY
        SQD RTS    : : CUR_STATE QKEY
        SQE RTS    : : CUR_STATE QKEY
    """,
}

Step = tuple[QpState, QpState]


def _parse(text: str) -> dict[Step, tuple[set[str], set[str]]]:
    """Required and optional attributes by step; words before the first colon that are states begin one."""
    steps: dict[Step, tuple[set[str], set[str]]] = {}
    words = text.split()
    names = set(QpState.__members__)
    at = 0
    while at < len(words):
        step = (S[words[at]], S[words[at + 1]])
        at += 2
        parts: list[set[str]] = []
        while at < len(words) and words[at] not in names:
            if words[at] == ":":
                parts.append(set())
            else:
                parts[-1].add(words[at])
            at += 1
        steps[step] = (parts[0], parts[1])
    return steps


CASES = [
    (service, step, required, optional)
    for service, text in TABLES.items()
    for step, (required, optional) in _parse(text).items()
]


def _mask(names: set[str]) -> ModifyMask:
    mask = M.STATE
    for name in names:
        mask |= M[name]
    return mask


@pytest.mark.parametrize(
    ("service", "step", "required", "optional"),
    CASES,
    ids=[f"{service.name}-{step[0].name}-{step[1].name}" for service, step, _, _ in CASES],
)
def test_each_attribute(service: Transport, step: Step, required: set[str], optional: set[str]) -> None:
    check_transition(*step, _mask(required), service)
    check_transition(*step, _mask(required | optional - {"ALT_PATH"}), service)
    for name in set(M.__members__) - {"STATE"}:
        if name in required:
            mask, kind = _mask(required - {name}), ErrorKind.BAD_STATE
        elif name == "ALT_PATH" and name in optional:
            mask, kind = _mask(required | {name}), ErrorKind.UNSUPPORTED
        elif name in optional:
            check_transition(*step, _mask(required | {name}), service)
            continue
        else:
            mask, kind = _mask(required | {name}), ErrorKind.BAD_FIELD
        with pytest.raises(NicError) as caught:
            check_transition(*step, mask, service)
        assert (caught.value.kind, caught.value.field) == (kind, "mask"), name


@pytest.fixture
def rig() -> Rig:
    return Rig(NicLimits())


def test_a_wrong_idea_of_the_current_state_changes_nothing(rig: Rig) -> None:
    qp, _, _, _ = rig.create_qp(rig.create_cq()[0])
    before = qp.attributes
    mask = M.STATE | M.CUR_STATE | M.MIN_RNR_TIMER
    with pytest.raises(NicError) as caught:
        qp.modify(mask, QpAttributes(state=S.RTS, current=S.SQD, min_rnr_timer=3))
    assert caught.value.kind is ErrorKind.BAD_STATE
    assert caught.value.message == "the state is RTS, not SQD"
    assert qp.attributes == before
    qp.modify(mask, QpAttributes(state=S.RTS, current=S.RTS, min_rnr_timer=3))
    assert qp.attributes.min_rnr_timer == 3


@pytest.mark.parametrize(
    ("mask", "wanted", "events"),
    [
        (M(0), False, 0),
        (M(0), True, 0),
        (M.EN_SQD_ASYNC_NOTIFY, False, 0),
        (M.EN_SQD_ASYNC_NOTIFY, True, 1),
    ],
)
def test_who_asked_hears_when_the_send_queue_is_drained(
    rig: Rig, mask: ModifyMask, wanted: bool, events: int
) -> None:
    qp, engine, _, _ = rig.create_qp(rig.create_cq()[0])
    eq = rig.nic.create_eq(1, 4, rig.memory(SLOT << 4))
    rig.nic.platform.routes.subscribe(eq, [AsyncEvent.SQ_DRAINED])
    qp.modify(M.STATE | mask, QpAttributes(state=S.SQD, sqd_notify=wanted))
    assert qp.snapshot().draining
    engine.host.moved(S.SQD, "drained")
    engine.host.raise_event(AsyncEvent.SQ_DRAINED, "drained")
    assert not qp.snapshot().draining
    assert eq.producer == events
    # The next time it has to ask again.
    qp.modify(M.STATE, QpAttributes(state=S.RTS))
    qp.modify(M.STATE, QpAttributes(state=S.SQD))
    engine.host.moved(S.SQD, "drained")
    engine.host.raise_event(AsyncEvent.SQ_DRAINED, "drained")
    assert eq.producer == events
