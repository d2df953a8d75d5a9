# SPDX-License-Identifier: Apache-2.0
"""Congestion control contexts (CCC): what all PDCs to one peer endpoint may have on the way together.

One for each direction, pair of addresses and payload size. It runs a window that follows the signals of the
network (NSCC), credit that the receiver paces (RCCC), or both; a packet leaves when all that run agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.uet.nscc import Nscc
from emu.uet.parameters import Parameters
from emu.uet.rccc import CreditSource

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc

__all__ = ["Ccc"]


class Ccc:
    """``inflight`` are the nominal bytes on the way, ``members`` the PDCs, ``number`` what the wire calls it.

    ``credit`` is None without RCCC. PDCs that had to stop are in ``blocked``, oldest first. ``probed_at`` is
    when the base round trip was asked for (0: not yet).
    """

    __slots__ = ("_windowed", "blocked", "credit", "inflight", "members", "nscc", "number", "probed_at")

    def __init__(self, number: int, parameters: Parameters, mtu: int) -> None:
        self.number = number
        self.nscc = Nscc(parameters.nscc, mtu)
        self.inflight = self.probed_at = 0
        self.members: set[Pdc] = set()
        self.blocked: dict[Pdc, None] = {}
        self._windowed = parameters.congestion != "rccc"
        self.credit: CreditSource | None = None
        if parameters.congestion != "nscc":
            self.credit = CreditSource(parameters.wire.credit_quantum, int(self.nscc.max_wnd))

    def allows(self) -> bool:
        """Whether one more packet may leave; one always may when none is on the way, but for credit."""
        inflight = self.inflight
        if self._windowed and inflight > 0 and inflight + self.nscc.mtu > self.nscc.cwnd:
            return False
        credit = self.credit
        # Who never heard of the destination cannot ask for credit, and has to try again.
        return credit is None or credit.allows() or (inflight <= 0 and not credit.began)

    def wake(self) -> None:
        """There may be room again: those who had to stop have their turns."""
        blocked, self.blocked = self.blocked, {}
        for pdc in blocked:
            pdc.kick()

    def credit_target(self) -> int:
        """Credit that all members together want, as the wire tells it."""
        credit = self.credit
        assert credit is not None  # asked only where there is credit
        backlog = 0
        for pdc in self.members:
            backlog += pdc.source.backlog(credit.limit - backlog)
            if backlog >= credit.limit:
                break
        return credit.target(backlog)
