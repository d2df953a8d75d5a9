# SPDX-License-Identifier: Apache-2.0
"""Queue pairs without a wire: their elements work on the NIC itself and complete in order."""

from __future__ import annotations

from collections import deque

from emu.nic.engine import EngineHost, Packet
from emu.nic.work import (
    Cause,
    Completion,
    CompletionOpcode,
    Opcode,
    QpAttributes,
    QpState,
    SendRequest,
    Status,
)

__all__ = ["LocalEngine"]


class LocalEngine:
    """Implements :class:`emu.nic.engine.Engine`. Anything that would need a peer ends the queue pair."""

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._state = QpState.RESET
        self._queue: deque[SendRequest] = deque()

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Enter a state; RESET forgets, ERR flushes."""
        self._state = attributes.state
        if attributes.state is QpState.RESET:
            self._queue.clear()
        elif attributes.state is QpState.ERR:
            self._flush()

    def post(self, request: SendRequest) -> None:
        """Queue one element; in ERR it is flushed at once."""
        self._queue.append(request)
        if self._state is QpState.ERR:
            self._flush()

    def receive(self, packet: Packet, now: int) -> None:
        """No packet is for such a queue pair."""
        self._host.note_drop("rx_dropped", f"packet for a queue pair without a wire: {packet!r}")

    def receive_posted(self, now: int) -> None:
        """There is nothing to receive."""

    def transmit(self, now: int, budget: int) -> bool:
        """Carry out what is queued."""
        while self._queue and self._state is QpState.RTS:
            request = self._queue.popleft()
            self._host.retire(request.index + request.slots)
            if request.opcode is not Opcode.NOP:
                self._complete(request, Status.LOC_QP_OP_ERR, Cause.BAD_OPCODE)
                self._state = QpState.ERR
                self._host.moved(QpState.ERR, f"{request.opcode.name} on a queue pair without a wire")
                self._flush()
            elif request.signaled:
                self._complete(request, Status.SUCCESS, Cause.NONE)
        return False

    def deadline(self) -> int | None:
        """No timers."""
        return None

    def expire(self, now: int) -> None:
        """No timers."""

    def idle(self) -> bool:
        """True when nothing is queued."""
        return not self._queue

    @property
    def next_psn(self) -> int:
        """There are no packets."""
        return 0

    @property
    def expected_psn(self) -> int:
        """There are no packets."""
        return 0

    def _flush(self) -> None:
        while self._queue:
            request = self._queue.popleft()
            self._host.retire(request.index + request.slots)
            self._complete(request, Status.WR_FLUSH_ERR, Cause.FLUSHED)

    def _complete(self, request: SendRequest, status: Status, cause: Cause) -> None:
        self._host.complete(
            Completion(
                self._host.qpn,
                request.index,
                CompletionOpcode.NOP,
                status,
                cause=cause,
                cookie=request.cookie,
            )
        )
