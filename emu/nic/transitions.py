# SPDX-License-Identifier: Apache-2.0
"""Which queue pair states follow which, and the attributes each step needs.

The tables are those that Linux checks (``ib_modify_qp_is_ok``), one for each service; nothing changes when a
step is refused. Transports of Ultra Ethernet take the steps of reliable connections, its datagrams (UUD)
those of datagrams.

Paths do not migrate: that is InfiniBand's, and Linux refuses alternate paths on RoCE. ALT_PATH is refused
where verbs have it, PATH_MIG_STATE is taken and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.nic.errors import ErrorKind, NicError
from emu.nic.work import ModifyMask, QpState, Transport

__all__ = ["check_transition"]

M = ModifyMask
_NOTHING = ModifyMask(0)


@dataclass(frozen=True, slots=True)
class _Step:
    required: ModifyMask = _NOTHING
    optional: ModifyMask = _NOTHING


_DRAIN = _Step(optional=M.EN_SQD_ASYNC_NOTIFY)
_CURRENT = M.CUR_STATE
_MIGRATION = M.ALT_PATH | M.PATH_MIG_STATE
_IDENTITY = M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS

_RC: dict[tuple[QpState, QpState], _Step] = {
    (QpState.RESET, QpState.INIT): _Step(required=_IDENTITY),
    (QpState.INIT, QpState.INIT): _Step(optional=_IDENTITY),
    (QpState.INIT, QpState.RTR): _Step(
        required=M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER,
        optional=M.ALT_PATH | M.ACCESS_FLAGS | M.PKEY_INDEX,
    ),
    (QpState.RTR, QpState.RTS): _Step(
        required=M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY | M.SQ_PSN | M.MAX_RD_ATOMIC,
        optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS | M.MIN_RNR_TIMER,
    ),
    (QpState.RTS, QpState.RTS): _Step(optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS | M.MIN_RNR_TIMER),
    (QpState.RTS, QpState.SQD): _DRAIN,
    (QpState.SQD, QpState.SQD): _Step(
        optional=M.PORT
        | M.AV
        | M.TIMEOUT
        | M.RETRY_CNT
        | M.RNR_RETRY
        | M.MAX_RD_ATOMIC
        | M.MAX_DEST_RD_ATOMIC
        | _MIGRATION
        | M.ACCESS_FLAGS
        | M.PKEY_INDEX
        | M.MIN_RNR_TIMER,
    ),
    (QpState.SQD, QpState.RTS): _Step(optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS | M.MIN_RNR_TIMER),
}

_UC: dict[tuple[QpState, QpState], _Step] = {
    (QpState.RESET, QpState.INIT): _Step(required=_IDENTITY),
    (QpState.INIT, QpState.INIT): _Step(optional=_IDENTITY),
    (QpState.INIT, QpState.RTR): _Step(
        required=M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN,
        optional=M.ALT_PATH | M.ACCESS_FLAGS | M.PKEY_INDEX,
    ),
    (QpState.RTR, QpState.RTS): _Step(required=M.SQ_PSN, optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS),
    (QpState.RTS, QpState.RTS): _Step(optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS),
    (QpState.RTS, QpState.SQD): _DRAIN,
    (QpState.SQD, QpState.SQD): _Step(optional=_MIGRATION | M.AV | M.ACCESS_FLAGS | M.PKEY_INDEX),
    (QpState.SQD, QpState.RTS): _Step(optional=_CURRENT | _MIGRATION | M.ACCESS_FLAGS),
    (QpState.SQE, QpState.RTS): _Step(optional=_CURRENT | M.ACCESS_FLAGS),
}

_DATAGRAM_IDENTITY = M.PKEY_INDEX | M.PORT | M.QKEY

_UD: dict[tuple[QpState, QpState], _Step] = {
    (QpState.RESET, QpState.INIT): _Step(required=_DATAGRAM_IDENTITY),
    (QpState.INIT, QpState.INIT): _Step(optional=_DATAGRAM_IDENTITY),
    (QpState.INIT, QpState.RTR): _Step(optional=M.PKEY_INDEX | M.QKEY),
    (QpState.RTR, QpState.RTS): _Step(required=M.SQ_PSN, optional=_CURRENT | M.QKEY),
    (QpState.RTS, QpState.RTS): _Step(optional=_CURRENT | M.QKEY),
    (QpState.RTS, QpState.SQD): _DRAIN,
    (QpState.SQD, QpState.SQD): _Step(optional=M.PKEY_INDEX | M.QKEY),
    (QpState.SQD, QpState.RTS): _Step(optional=_CURRENT | M.QKEY),
    (QpState.SQE, QpState.RTS): _Step(optional=_CURRENT | M.QKEY),
}

_TABLES = {Transport.ROCE_UC: _UC, Transport.ROCE_UD: _UD, Transport.UET_UUD: _UD}


def check_transition(
    current: QpState, target: QpState, mask: ModifyMask, transport: Transport = Transport.ROCE_RC
) -> None:
    """Check one modify of a queue pair of service ``transport``.

    :raises NicError: BAD_STATE for a step that does not exist or lacks an attribute, BAD_FIELD (``mask``) for
        an attribute that the step does not take, UNSUPPORTED (``mask``) for an alternate path where verbs
        have one.
    """
    step = _step(current, target, transport)
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
    if given & M.ALT_PATH:
        raise NicError(
            ErrorKind.UNSUPPORTED, "RoCE has no alternate paths; connect through another GID instead", "mask"
        )


def _step(current: QpState, target: QpState, transport: Transport) -> _Step | None:
    if target is QpState.RESET or (target is QpState.ERR and current is not QpState.RESET):
        return _Step()
    return _TABLES.get(transport, _RC).get((current, target))


def _names(mask: ModifyMask) -> str:
    return ", ".join(flag.name or hex(flag) for flag in ModifyMask if flag & mask)
