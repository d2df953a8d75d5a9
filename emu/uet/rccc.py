# SPDX-License-Identifier: Apache-2.0
"""RCCC: receiver credit. The source's account, and the pacer that fills the accounts of all who send here.

No public source gives the specification's algorithm; this is the model of section 6.4 of the wire reference.
Credit and demand are cumulative counters of 24 bits, in quanta of bytes. A source begins with as much as its
window without having asked; the first answer ends that. The destination gives one packet's credit at a time,
a little slower than its link: first to those whose packets were trimmed, then to those who ask, in turn, then
a small stock to those who do not, so that their next message need not wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from emu.clock import NS_PER_S, Timer
from emu.wire.uet_names import CtlType

if TYPE_CHECKING:
    from emu.uet.fep import Fep
    from emu.uet.pdc import Pdc

__all__ = ["CREDIT_MASK", "Account", "CreditPacer", "CreditSource"]

CREDIT_MASK = 0xFFFFFF
_HALF = 0x800000
_SHARE = 0.99
"""Of the link's speed: a queue must be able to drain."""
_PACKET = 4096 + 160
"""Bytes of credit given at a time: a nominal packet."""
_LATE = 64
"""Ticks made up for at once when the loop was late."""

_Key = tuple[bytes, bytes, int]


class CreditSource:
    """``limit`` bounds what is asked for at a time, and what may be sent before the first answer, of which
    ``began`` tells. ``told`` is the target told last.
    """

    __slots__ = ("_granted", "_last", "_quantum", "_speculative", "began", "limit", "told")

    def __init__(self, quantum: int, limit: int) -> None:
        self._quantum = quantum
        self.limit = limit
        self._speculative = limit
        self._granted = 0
        self._last = 0
        self.began = False
        self.told = 0

    def allows(self) -> bool:
        """Whether a packet may be paid; the account may be overdrawn by one."""
        return self._granted > 0 or (self._speculative > 0 and not self.began)

    def spend(self, nominal: int) -> None:
        """Pay for a packet."""
        if self._granted > 0 or self.began:
            self._granted -= nominal
        else:
            self._speculative -= nominal

    def heard(self) -> None:
        """The destination answered: from now on only what it gives counts."""
        self.began = True

    def update(self, credit: int) -> bool:
        """Take the destination's counter. True when it is newer."""
        self.began = True
        newer = (credit - self._last) & CREDIT_MASK
        if not 0 < newer < _HALF:
            return False
        self._last = credit
        self._granted += newer * self._quantum
        return True

    def target(self, backlog: int) -> int:
        """The counter value at which ``backlog`` bytes could be sent."""
        wanted = min(backlog, self.limit) - self._granted
        self.told = (self._last + max(0, -(-wanted // self._quantum))) & CREDIT_MASK
        return self.told


class Account:
    """What one CCC of a peer was given (``issued``), wants (``target``) and has in stock unasked."""

    __slots__ = ("issued", "key", "pdc", "queued", "stock", "target", "urgent")

    def __init__(self, pdc: Pdc, key: _Key) -> None:
        self.pdc = pdc
        self.key = key
        self.issued = self.target = self.urgent = self.stock = 0
        self.queued = False

    @property
    def demand(self) -> int:
        """Quanta asked for and not given."""
        wanted = (self.target - self.issued) & CREDIT_MASK
        return wanted if wanted < _HALF else 0


class CreditPacer:
    """Gives credit to those who send to one endpoint."""

    def __init__(self, fep: Fep) -> None:
        self._fep = fep
        parameters = fep.parameters
        self._quantum = parameters.wire.credit_quantum
        rate = parameters.nscc.bytes_per_second * _SHARE
        self._interval = max(1, int(_PACKET * NS_PER_S / rate))
        self._stock = parameters.nscc.bytes_per_second * parameters.nscc.base_rtt_ns // NS_PER_S
        # No source has use for more than its greatest window at a time; who asks for more is not believed.
        self._most = max(-(-3 * self._stock // (2 * self._quantum)), -(-2 * _PACKET // self._quantum))
        self._carried = parameters.congestion == "rccc"
        self.accounts: dict[_Key, Account] = {}
        self._urgent: deque[Account] = deque()
        self._asking: deque[Account] = deque()
        self._idle: deque[Account] = deque()
        self._timer: Timer | None = None
        self._next = 0

    def room(self, key: _Key) -> bool:
        """Whether a CCC may come, or is known."""
        return key in self.accounts or len(self.accounts) < self._fep.parameters.max_cccs

    def demand(self, pdc: Pdc, key: _Key, target: int, trimmed: int = 0) -> None:
        """A peer's CCC tells its target; ``trimmed`` bytes of it must come again."""
        account = self.accounts.get(key)
        if account is None:
            account = self.accounts[key] = Account(pdc, key)
        account.pdc = pdc
        account.urgent += trimmed
        pdc.account = account
        self._heed(account, target)

    def ask(self, account: Account, target: int) -> None:
        """A peer's CCC that is known has no credit, and asks for some. What was given may have been lost."""
        self._heed(account, target)
        if not account.demand:
            self._tell(account)

    def _heed(self, account: Account, target: int) -> None:
        newer = (target - account.target) & CREDIT_MASK
        if 0 < newer < _HALF:
            account.target = target
            if account.demand > self._most:
                account.target = (account.issued + self._most) & CREDIT_MASK
        self._queue(account)

    def forget(self, pdc: Pdc) -> None:
        """A PDC ended; its CCC's account goes when no other PDC speaks for it."""
        account = pdc.account
        if account is not None and account.pdc is pdc:
            self.accounts.pop(account.key, None)

    def _queue(self, account: Account) -> None:
        if account.queued:
            return
        if account.urgent > 0:
            queue = self._urgent
        elif account.demand:
            queue = self._asking
        elif account.stock < self._stock:
            queue = self._idle
        else:
            return
        account.queued = True
        queue.append(account)
        if self._timer is None or not self._timer.pending:
            now = self._fep.host.scheduler.now()
            self._next = max(self._next, now)
            self._timer = self._fep.host.scheduler.call_at(self._next, self._run)

    def stop(self) -> None:
        """The endpoint is reset."""
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        now = self._fep.host.scheduler.now()
        ticks = min(_LATE, 1 + (now - self._next) // self._interval)
        given: dict[Account, None] = {}
        for _ in range(ticks):
            account = self._give()
            if account is None:
                break
            given[account] = None
        self._next = now + self._interval
        for account in given:
            self._tell(account)
        if self._urgent or self._asking or self._idle:
            self._timer = self._fep.host.scheduler.call_at(self._next, self._run)

    def _give(self) -> Account | None:
        """One packet's credit to whoever comes first."""
        for queue in (self._urgent, self._asking, self._idle):
            while queue:
                account = queue.popleft()
                account.queued = False
                if account.pdc.closed:
                    continue
                if queue is self._idle:
                    account.stock += _PACKET
                elif account.urgent > 0:
                    account.urgent -= _PACKET
                account.issued = (account.issued + -(-_PACKET // self._quantum)) & CREDIT_MASK
                if (account.target - account.issued) & CREDIT_MASK >= _HALF:
                    account.target = account.issued
                self._queue(account)
                return account
        return None

    def _tell(self, account: Account) -> None:
        pdc = account.pdc
        if self._carried and pdc.destination.owed is not None:
            # An ACK that is due carries it.
            pdc.kick()
        else:
            pdc.control(CtlType.CREDIT, payload=account.issued)
