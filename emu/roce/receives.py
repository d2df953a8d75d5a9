# SPDX-License-Identifier: Apache-2.0
"""Receive elements of one queue pair: taken, put back when a message came to nothing, failed, flushed."""

from __future__ import annotations

from emu.nic.engine import EngineHost, ProtectionError
from emu.nic.work import Cause, Completion, CompletionOpcode, ReceiveRequest, Status

__all__ = ["Receives"]


class Receives:
    """The host's receive queue, with room for one element that was taken and not used."""

    __slots__ = ("_host", "_spare")

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._spare: ReceiveRequest | None = None

    def take(self) -> ReceiveRequest | None:
        """The next element, None when there is none. :raises ProtectionError: it cannot be read."""
        element, self._spare = self._spare, None
        return element if element is not None else self._host.take_receive()

    def put_back(self, element: ReceiveRequest) -> None:
        """Have :meth:`take` return ``element`` next."""
        self._spare = element

    def give_up(self, element: ReceiveRequest, status: Status, cause: int = Cause.NONE) -> None:
        """``element`` was taken for a message that came to nothing.

        It serves the next one, unless others share its queue. Then it completes in error (fault class E), as
        it can neither be returned nor kept from them. Which ``status`` says so is a choice: that of the
        fault, and LOC_QP_OP_ERR where a message broke off.
        """
        if element.shared:
            self.fail(element, status, cause)
        else:
            self.put_back(element)

    def clear(self) -> None:
        """Forget what was put back."""
        self._spare = None

    def fail(self, element: ReceiveRequest, status: Status, cause: int) -> None:
        """Complete an element in error."""
        self._host.complete(
            Completion(
                self._host.qpn,
                element.index,
                CompletionOpcode.RECV,
                status,
                cause=cause,
                cookie=element.cookie,
            )
        )

    def flush(self) -> None:
        """Complete every element with WR_FLUSH_ERR."""
        while (element := self._next()) is not None:
            self.fail(element, Status.WR_FLUSH_ERR, Cause.FLUSHED)

    def _next(self) -> ReceiveRequest | None:
        try:
            return self.take()
        except ProtectionError:
            return None
