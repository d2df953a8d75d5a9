# SPDX-License-Identifier: Apache-2.0
"""The sending half of UC and UD: nobody answers, so an element is done when its last packet has left."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from emu.nic.engine import ProtectionError
from emu.nic.work import Cause, Completion, QpState, SendRequest, Status
from emu.roce.connection import Connection
from emu.roce.element import NO_OPERATION, OPERATIONS, Fault
from emu.roce.psn import PSN_MASK

__all__ = ["Packets", "Sender"]


class Packets(Protocol):
    """How a service makes packets of elements."""

    def refusal(self, request: SendRequest) -> Fault | None:
        """What forbids to carry out ``request`` at all; None when nothing does."""

    def count(self, request: SendRequest) -> int:
        """Packets that it makes."""

    def send(self, request: SendRequest, cursor: int, count: int, psn: int) -> None:
        """Send packet ``cursor`` of ``count``. :raises ProtectionError: its payload cannot be read."""


class Sender:
    """Send queue of one queue pair. ``failed`` is told why when an element ended in error."""

    def __init__(self, connection: Connection, packets: Packets, failed: Callable[[str], None]) -> None:
        self._connection = connection
        self._host = connection.host
        self._packets = packets
        self._failed = failed
        self.clear()

    def clear(self) -> None:
        """Forget all work, without completions."""
        self._queue: deque[SendRequest] = deque()
        self._cursor = 0
        self.psn = 0
        self._drained = False

    def start(self) -> None:
        """RTR to RTS: take the initial PSN from the attributes."""
        self.psn = self._connection.attributes.sq_psn & PSN_MASK

    def post(self, request: SendRequest) -> None:
        """Queue one element."""
        self._queue.append(request)

    def transmit(self, now: int, budget: int) -> int:
        """Send up to ``budget`` packets; return how many left."""
        sent = 0
        queue = self._queue
        while queue and sent < budget:
            request = queue[0]
            if not self._cursor:
                if self._connection.state is not QpState.RTS:
                    break
                fault = self._packets.refusal(request)
                if fault is not None:
                    self._fail(fault)
                    break
            count = self._packets.count(request)
            if count:
                if self._connection.holds(now):
                    break
                try:
                    self._packets.send(request, self._cursor, count, self.psn)
                except ProtectionError as error:
                    self._fail(Fault(Status.LOC_PROT_ERR, error.cause, f"payload: {error.rule}"))
                    break
                self.psn = (self.psn + 1) & PSN_MASK
                self._cursor += 1
                sent += 1
            if self._cursor == count:
                self._cursor = 0
                queue.popleft()
                self._host.retire(request.index + request.slots)
                if request.signaled:
                    self._report(request, Status.SUCCESS, request.length, Cause.NONE)
        return sent

    def _fail(self, fault: Fault) -> None:
        self._cursor = 0
        request = self._queue.popleft()
        self._host.retire(request.index + request.slots)
        self._report(request, fault.status, 0, fault.cause)
        self._failed(fault.reason)

    def flush(self) -> None:
        """Complete everything left with WR_FLUSH_ERR, in order."""
        waiting, self._queue = self._queue, deque()
        self._cursor = 0
        for request in waiting:
            self._host.retire(request.index + request.slots)
            self._report(request, Status.WR_FLUSH_ERR, 0, Cause.FLUSHED)

    def _report(self, request: SendRequest, status: Status, length: int, cause: int) -> None:
        operation = OPERATIONS.get(request.opcode, NO_OPERATION)
        self._host.complete(
            Completion(
                self._host.qpn,
                request.index,
                operation.completion,
                status,
                length=length,
                cause=cause,
                cookie=request.cookie,
            )
        )

    def drained(self) -> bool:
        """True once in SQD when the message that had begun has left."""
        if self._connection.state is not QpState.SQD:
            self._drained = False
            return False
        if self._cursor or self._drained:
            return False
        self._drained = True
        return True

    def idle(self) -> bool:
        """True when nothing is queued."""
        return not self._queue
