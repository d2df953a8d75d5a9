# SPDX-License-Identifier: Apache-2.0
"""The life of objects: what is left behind, and what goes too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.checks.check import Check
from emu.checks.rule import Rule
from emu.nic.work import QpState

if TYPE_CHECKING:
    from emu.checks.checks import Checks
    from emu.nic.context import Context
    from emu.nic.qp import QueuePair

__all__ = ["CHECKS", "LifecycleWatch"]

CHECKS = (
    Check(
        Rule.C30_LIFECYCLE,
        "Objects end in the order of their use: work, queue pairs, CQs, regions, domains, context; none "
        "is left.",
        "context or QPN, what is left",
        "Nothing: what is left goes with its owner.",
        "Destroy what was made, in the reverse order; let a queue pair finish or reset it first.",
        limits="A process that is killed leaves objects without a mistake of its own.",
    ),
)


class LifecycleWatch:
    """Looks at objects as they end."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks

    def context_ends(self, context: Context) -> None:
        """The owner goes, with all it still has."""
        qps = sum(len(pd.qps) for pd in context.pds.values())
        regions = sum(len(pd.regions) for pd in context.pds.values())
        left = [
            f"{count} {what}"
            for count, what in (
                (qps, "queue pairs"),
                (len(context.cqs), "CQs"),
                (regions, "memory regions"),
                (len(context.pds), "protection domains"),
            )
            if count
        ]
        if left:
            self._checks.report(
                Rule.C30_LIFECYCLE,
                f"context {context.number} ends and leaves {', '.join(left)}; destroy them first, unless its "
                "process was killed",
            )

    def qp_ends(self, qp: QueuePair) -> None:
        """A queue pair is destroyed."""
        if qp.state is QpState.RTS and qp.doorbell != qp.completed:
            self._checks.report(
                Rule.C30_LIFECYCLE,
                f"QP {qp.number:#x} is destroyed in RTS, and index {qp.completed} up to the doorbell's "
                f"{qp.doorbell} are not complete: nobody will hear of them; wait, or move it to ERR first",
                qpn=qp.number,
                index=qp.completed,
            )
