# SPDX-License-Identifier: Apache-2.0
"""Error completions: the syndrome that drivers translate, and the vendor's own code beside it.

What the vendor's code is for which cause is not documented. Some are known from logs that people published
(retries 0x81 and 0x83, remote access 0x88, local protection 0x51 and 0x52, flushed 0xf9); where none is known
it is the number of the cause that ``vrnic`` queue pairs report, all of which are below 0x40.
"""

from __future__ import annotations

from emu.nic.work import Cause, Completion, Status
from emu.personality.mlx5.codes import CqeSyndrome

__all__ = ["syndrome", "vendor_syndrome"]

_SYNDROMES: dict[Status, CqeSyndrome] = {
    Status.LOC_LEN_ERR: CqeSyndrome.LOCAL_LENGTH,
    Status.LOC_QP_OP_ERR: CqeSyndrome.LOCAL_QP_OPERATION,
    Status.LOC_PROT_ERR: CqeSyndrome.LOCAL_PROTECTION,
    Status.WR_FLUSH_ERR: CqeSyndrome.FLUSHED,
    Status.MW_BIND_ERR: CqeSyndrome.MEMORY_WINDOW_BIND,
    Status.BAD_RESP_ERR: CqeSyndrome.BAD_RESPONSE,
    Status.LOC_ACCESS_ERR: CqeSyndrome.LOCAL_ACCESS,
    Status.REM_INV_REQ_ERR: CqeSyndrome.REMOTE_INVALID_REQUEST,
    Status.REM_ACCESS_ERR: CqeSyndrome.REMOTE_ACCESS,
    Status.REM_OP_ERR: CqeSyndrome.REMOTE_OPERATION,
    Status.RETRY_EXC_ERR: CqeSyndrome.TRANSPORT_RETRIES,
    Status.RNR_RETRY_EXC_ERR: CqeSyndrome.RNR_RETRIES,
}
_REMOTE_ACCESS = 0x88
_VENDOR: dict[int, int] = {
    Cause.ACK_TIMEOUT: 0x81,
    Cause.SEQUENCE_RETRIES: 0x83,
    Cause.LKEY_UNKNOWN: 0x51,
    Cause.LKEY_PD: 0x51,
    Cause.LKEY_ACCESS: 0x51,
    Cause.LKEY_BOUNDS: 0x52,
    Cause.FLUSHED: 0xF9,
}


def syndrome(completion: Completion) -> CqeSyndrome:
    """Byte 55 of an error completion."""
    return _SYNDROMES.get(completion.status, CqeSyndrome.REMOTE_ABORTED)


def vendor_syndrome(completion: Completion) -> int:
    """Byte 54 of an error completion."""
    if completion.status is Status.REM_ACCESS_ERR:
        return _REMOTE_ACCESS
    return _VENDOR.get(completion.cause, completion.cause & 0xFF)
