# SPDX-License-Identifier: Apache-2.0
"""Send descriptors that the NIC carries out by itself, without a peer.

::

    DUMP   control, data segments: memory that is read and thrown away
    WAIT   control, then reserved (8) | CQE number (4) | CQN (4)

A READ's or an atomic's data may come to rest in memory behind its completion. A DUMP of the same memory reads
it the way everything else reaches it, so what was written before is there when the DUMP completes.

WAIT holds its queue up until another queue's CQE is written. What the number means is nowhere written down:
it is taken for the CQE's own, counted from 0 since the CQ was made, as libraries that ask for a CQE of every
descriptor give the descriptor's index. Sixteen bits count, since some of them give no more. A CQ is in reach
when it is rung through the same user access region.

Source: ``MLX5_OPCODE_DUMP`` in ``include/linux/mlx5/device.h``; for WAIT the open libraries' segment
(``max_index``, ``qpn_cqn``).
"""

from __future__ import annotations

import struct

from emu.checks.rule import Rule
from emu.nic.engine import ProtectionError
from emu.nic.formats import WqeFault
from emu.nic.qp import QueuePair
from emu.nic.work import Cause, CompletionOpcode, SendRequest, Sge, Status
from emu.personality.mlx5.codes import WaitFor

__all__ = ["dump", "wait"]

_WAIT = struct.Struct(">8xII")
_NUMBER_BITS = 16
_HALF = 1 << _NUMBER_BITS - 1


def dump(request: SendRequest, sges: list[Sge], qp: QueuePair) -> None:
    """Make ``request`` a read of ``sges`` whose bytes nobody keeps.

    The ends of each piece are read: any read flushes what was written before, and a long one would hold up
    everybody else.
    """

    def read() -> None:
        for sge in sges:
            qp.host.gather([sge], 0, 1)
            qp.host.gather([sge], sge.length - 1, 1)

    request.local = read
    request.local_status = Status.LOC_PROT_ERR


def wait(request: SendRequest, segment: bytes, modifier: int, qp: QueuePair) -> WqeFault | None:
    """Make ``request`` wait for a CQE, or say what is wrong with its ``segment``."""
    if len(segment) < _WAIT.size:
        return _fault(request, Cause.BAD_LENGTH, f"a WAIT has a segment of {_WAIT.size} bytes")
    if modifier != WaitFor.CQE:
        return _fault(request, Cause.BAD_OPCODE, f"WAIT of kind {modifier} is not offered; wait for a CQE")
    number, cqn = _WAIT.unpack_from(segment)
    cqn &= 0xFFFFFF

    def ready() -> bool:
        cq = qp.pd.context.cqs.get(cqn)
        if cq is None or cq.page != qp.page:
            # It ends with an error when its turn comes.
            return True
        if (cq.producer - number - 1) % (2 * _HALF) < _HALF:
            return True
        cq.waiting[qp.number] = qp
        return False

    def check() -> None:
        cq = qp.pd.context.cqs.get(cqn)
        if cq is None or cq.page != qp.page:
            where = "does not exist" if cq is None else "is rung through another user access region"
            raise ProtectionError(f"WAIT for a CQE of CQ {cqn}, which {where}", cause=Cause.BAD_FLAGS)

    request.ready = ready
    request.local = check
    request.local_status = Status.LOC_QP_OP_ERR
    return None


def _fault(request: SendRequest, cause: Cause, text: str) -> WqeFault:
    return WqeFault(
        request.index,
        Rule.C29_UNSUPPORTED,
        cause,
        f"index {request.index}: {text}",
        request.slots,
        opcode=CompletionOpcode.NOP,
    )
