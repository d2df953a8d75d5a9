# SPDX-License-Identifier: Apache-2.0
"""Which queue pair states follow which, and the attributes each step needs.

The table is that of reliable connections as Linux checks it (``ib_modify_qp_is_ok``); nothing changes when a
step is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.nic.errors import ErrorKind, NicError
from emu.nic.work import ModifyMask, QpState

__all__ = ["check_transition"]

M = ModifyMask
_NOTHING = ModifyMask(0)


@dataclass(frozen=True, slots=True)
class _Step:
    required: ModifyMask = _NOTHING
    optional: ModifyMask = _NOTHING


_IDENTITY = M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS

_RC: dict[tuple[QpState, QpState], _Step] = {
    (QpState.RESET, QpState.INIT): _Step(required=_IDENTITY),
    (QpState.INIT, QpState.INIT): _Step(optional=_IDENTITY),
    (QpState.INIT, QpState.RTR): _Step(
        required=M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER,
        optional=M.ACCESS_FLAGS | M.PKEY_INDEX,
    ),
    (QpState.RTR, QpState.RTS): _Step(
        required=M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.SQ_PSN | M.MAX_RD_ATOMIC,
        optional=M.ACCESS_FLAGS | M.MIN_RNR_TIMER,
    ),
    (QpState.RTS, QpState.RTS): _Step(optional=M.ACCESS_FLAGS | M.MIN_RNR_TIMER),
    (QpState.RTS, QpState.SQD): _Step(),
    (QpState.SQD, QpState.SQD): _Step(
        optional=M.PORT
        | M.AV
        | M.TIMEOUT
        | M.RETRY_CNT
        | M.RNR_RETRY
        | M.MAX_RD_ATOMIC
        | M.MAX_DEST_RD_ATOMIC
        | M.ACCESS_FLAGS
        | M.PKEY_INDEX
        | M.MIN_RNR_TIMER,
    ),
    (QpState.SQD, QpState.RTS): _Step(optional=M.ACCESS_FLAGS | M.MIN_RNR_TIMER),
}


def check_transition(current: QpState, target: QpState, mask: ModifyMask) -> None:
    """Check one modify.

    :raises NicError: BAD_STATE for a step that does not exist or lacks an attribute, BAD_FIELD (``mask``) for
        an attribute that the step does not take.
    """
    step = _step(current, target)
    if step is None:
        raise NicError(
            ErrorKind.BAD_STATE, f"a queue pair cannot go from {current.name} to {target.name}", "state"
        )
    given = mask & ~M.STATE
    missing = step.required & ~given
    if missing:
        raise NicError(
            ErrorKind.BAD_STATE, f"{current.name} to {target.name} also needs {_names(missing)}", "mask"
        )
    extra = given & ~(step.required | step.optional)
    if extra:
        raise NicError(
            ErrorKind.BAD_FIELD, f"{current.name} to {target.name} does not take {_names(extra)}", "mask"
        )


def _step(current: QpState, target: QpState) -> _Step | None:
    if target is QpState.RESET or (target is QpState.ERR and current is not QpState.RESET):
        return _Step()
    return _RC.get((current, target))


def _names(mask: ModifyMask) -> str:
    return ", ".join(flag.name or hex(flag) for flag in ModifyMask if flag & mask)
