# SPDX-License-Identifier: Apache-2.0
"""The state tables of all services, pair by pair."""

from __future__ import annotations

import itertools

import pytest

from emu.nic.errors import ErrorKind, NicError
from emu.nic.transitions import check_transition
from emu.nic.work import ModifyMask, QpState, Transport

M, S = ModifyMask, QpState

REQUIRED = {
    (S.RESET, S.INIT): M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS,
    (S.INIT, S.RTR): M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER,
    (S.RTR, S.RTS): M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.SQ_PSN | M.MAX_RD_ATOMIC,
}
PLAIN = {(S.INIT, S.INIT), (S.RTS, S.RTS), (S.RTS, S.SQD), (S.SQD, S.SQD), (S.SQD, S.RTS)}
ALLOWED = {
    *REQUIRED,
    *PLAIN,
    *((state, S.RESET) for state in S),
    *((state, S.ERR) for state in S if state is not S.RESET),
}
PAIRS = list(itertools.product(S, S))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_only_the_listed_steps_exist(pair: tuple[QpState, QpState]) -> None:
    mask = M.STATE | REQUIRED.get(pair, M(0))
    if pair in ALLOWED:
        check_transition(*pair, mask)
        return
    with pytest.raises(NicError) as caught:
        check_transition(*pair, mask)
    assert (caught.value.kind, caught.value.field) == (ErrorKind.BAD_STATE, "state")


@pytest.mark.parametrize("pair", list(REQUIRED))
def test_each_required_attribute_is_missed(pair: tuple[QpState, QpState]) -> None:
    for attribute in REQUIRED[pair]:
        with pytest.raises(NicError) as caught:
            check_transition(*pair, M.STATE | REQUIRED[pair] & ~attribute)
        assert caught.value.kind is ErrorKind.BAD_STATE
        assert str(attribute.name) in caught.value.message


@pytest.mark.parametrize(
    ("pair", "extra"),
    [
        ((S.RESET, S.INIT), M.AV),
        ((S.INIT, S.RTR), M.TIMEOUT),
        ((S.RTR, S.RTS), M.AV),
        ((S.RTS, S.RTS), M.PATH_MTU),
        ((S.RTS, S.ERR), M.ACCESS_FLAGS),
        ((S.RTS, S.RESET), M.ACCESS_FLAGS),
        ((S.SQD, S.SQD), M.DEST_QPN),
    ],
)
def test_an_attribute_out_of_place_is_named(pair: tuple[QpState, QpState], extra: ModifyMask) -> None:
    with pytest.raises(NicError) as caught:
        check_transition(*pair, M.STATE | REQUIRED.get(pair, M(0)) | extra)
    assert (caught.value.kind, caught.value.field) == (ErrorKind.BAD_FIELD, "mask")
    assert str(extra.name) in caught.value.message


@pytest.mark.parametrize(
    ("pair", "optional"),
    [
        ((S.INIT, S.INIT), M.ACCESS_FLAGS | M.PORT),
        ((S.RTS, S.RTS), M.ACCESS_FLAGS | M.MIN_RNR_TIMER),
        ((S.SQD, S.SQD), M.AV | M.TIMEOUT | M.RETRY_CNT | M.MAX_RD_ATOMIC),
        ((S.SQD, S.RTS), M.MIN_RNR_TIMER),
    ],
)
def test_optional_attributes_are_taken(pair: tuple[QpState, QpState], optional: ModifyMask) -> None:
    check_transition(*pair, M.STATE | optional)


SERVICES = {
    Transport.ROCE_UC: {
        (S.RESET, S.INIT): M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS,
        (S.INIT, S.RTR): M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN,
        (S.RTR, S.RTS): M.SQ_PSN,
    },
    Transport.ROCE_UD: {
        (S.RESET, S.INIT): M.PKEY_INDEX | M.PORT | M.QKEY,
        (S.INIT, S.RTR): M(0),
        (S.RTR, S.RTS): M.SQ_PSN,
    },
}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
@pytest.mark.parametrize("service", SERVICES)
def test_services_without_a_reply_add_the_way_back_from_sqe(
    service: Transport, pair: tuple[QpState, QpState]
) -> None:
    mask = M.STATE | SERVICES[service].get(pair, M(0))
    if pair in ALLOWED | {(S.SQE, S.RTS)}:
        check_transition(*pair, mask, service)
        return
    with pytest.raises(NicError):
        check_transition(*pair, mask, service)


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_needs_its_own_attributes(service: Transport) -> None:
    for pair, required in SERVICES[service].items():
        for attribute in required:
            with pytest.raises(NicError) as caught:
                check_transition(*pair, M.STATE | required & ~attribute, service)
            assert str(attribute.name) in caught.value.message


@pytest.mark.parametrize(
    ("service", "pair", "extra"),
    [
        (Transport.ROCE_UC, (S.RTR, S.RTS), M.TIMEOUT),
        (Transport.ROCE_UC, (S.INIT, S.RTR), M.MIN_RNR_TIMER),
        (Transport.ROCE_UC, (S.RESET, S.INIT), M.QKEY),
        (Transport.ROCE_UD, (S.RESET, S.INIT), M.ACCESS_FLAGS),
        (Transport.ROCE_UD, (S.INIT, S.RTR), M.AV),
        (Transport.ROCE_UD, (S.RTS, S.RTS), M.PATH_MTU),
    ],
)
def test_attributes_of_other_services_are_refused(
    service: Transport, pair: tuple[QpState, QpState], extra: ModifyMask
) -> None:
    with pytest.raises(NicError) as caught:
        check_transition(*pair, M.STATE | SERVICES[service].get(pair, M(0)) | extra, service)
    assert str(extra.name) in caught.value.message


@pytest.mark.parametrize(
    ("service", "pair", "optional"),
    [
        (Transport.ROCE_UC, (S.SQE, S.RTS), M.ACCESS_FLAGS),
        (Transport.ROCE_UC, (S.SQD, S.SQD), M.AV | M.PKEY_INDEX),
        (Transport.ROCE_UD, (S.SQE, S.RTS), M.QKEY),
        (Transport.ROCE_UD, (S.RTS, S.RTS), M.QKEY),
        (Transport.ROCE_UD, (S.INIT, S.RTR), M.QKEY | M.PKEY_INDEX),
    ],
)
def test_services_take_their_optional_attributes(
    service: Transport, pair: tuple[QpState, QpState], optional: ModifyMask
) -> None:
    check_transition(*pair, M.STATE | optional, service)
