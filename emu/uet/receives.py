# SPDX-License-Identifier: Apache-2.0
"""The receive elements of one queue pair: which message takes which, and their completions.

Messages without a tag take elements in the order the sender numbered them, however they arrive, and complete
in that order. Tagged ones take the oldest element whose match bits agree, in the order in which they arrive
(the order sent, on ordered delivery), and complete as they are ready.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from emu.nic.engine import ProtectionError
from emu.nic.work import Cause, Completion, CompletionOpcode, ReceiveRequest, Status
from emu.uet.inbound import Inbound
from emu.uet.message import IMMEDIATE, INVALIDATE, SOLICITED
from emu.uet.psn import distance
from emu.uet.verdicts import Refused
from emu.wire.uet_names import ReturnCode

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine

__all__ = ["Receives"]

_U32 = 0xFFFFFFFF


class Receives:
    """``next_number`` is that of the next message without a tag to take an element from the ring."""

    def __init__(self, engine: UetEngine) -> None:
        self._engine = engine
        self._host = engine.host
        self.clear()

    def clear(self) -> None:
        """Forget everything, without completions."""
        self.next_number = 1
        self._next_done = 1
        self._plain: deque[ReceiveRequest] = deque()
        self._tagged: list[ReceiveRequest] = []
        self._early: dict[int, ReceiveRequest] = {}
        self._bound: dict[int, ReceiveRequest] = {}
        self._finished: dict[int, Completion] = {}

    # From the ring

    def pull(self) -> None:
        """Take what the ring has. :raises Refused: an element cannot be read, which ends the queue pair."""
        while (element := self._read()) is not None:
            (self._plain if element.tag is None else self._tagged).append(element)

    def _read(self) -> ReceiveRequest | None:
        try:
            return self._host.take_receive()
        except ProtectionError as error:
            self._engine.fail(f"receive element cannot be read: {error.rule}")
            raise Refused(ReturnCode.UNCOR) from error

    def _next(self) -> ReceiveRequest | None:
        if self._plain:
            return self._plain.popleft()
        while (element := self._read()) is not None:
            if element.tag is None:
                return element
            self._tagged.append(element)
        return None

    # For messages

    def take(self, inbound: Inbound, number: int) -> bool:
        """Give message ``number`` its element; those before it are kept for theirs. False when there is none.

        :raises Refused: the ring cannot be read, or the number was used.
        """
        while distance(number, self.next_number) >= 0:
            element = self._next()
            if element is None:
                return False
            self._early[self.next_number] = element
            self.next_number = self.next_number % _U32 + 1
        element = self._early.pop(number, None)
        if element is None:
            raise Refused(ReturnCode.DROPPED)
        inbound.number = number
        self.bind(inbound, element)
        return True

    def match(self, inbound: Inbound, tag: int) -> bool:
        """Give a tagged message the oldest element that matches. False when none does.

        :raises Refused: the ring cannot be read.
        """
        self.pull()
        for position, element in enumerate(self._tagged):
            if not ((element.tag or 0) ^ tag) & ~element.ignore:
                del self._tagged[position]
                self.bind(inbound, element)
                return True
        return False

    def bind(self, inbound: Inbound, element: ReceiveRequest) -> None:
        """Let a message have an element."""
        inbound.receive = element
        self._bound[id(element)] = element

    def release(self, inbound: Inbound) -> ReceiveRequest | None:
        """Take a message's element from it, if it has one."""
        element, inbound.receive = inbound.receive, None
        if element is not None:
            self._bound.pop(id(element), None)
        return element

    def put_back(self, inbound: Inbound) -> None:
        """A message came to nothing: its element is good for the one that comes in its place."""
        element = self.release(inbound)
        if element is None:
            return
        if inbound.tag is None:
            self._early[inbound.number] = element
        else:
            self._tagged.insert(0, element)

    # Outcomes

    def check_length(self, inbound: Inbound) -> None:
        """:raises Refused: the message is longer than its element, which is spoiled."""
        element = inbound.receive
        if element is None or inbound.total <= element.length:
            return
        reason = (
            f"message of {inbound.total} bytes for the {element.length} of receive element {element.index}"
        )
        self.spoil(inbound, Status.LOC_LEN_ERR, Cause.BAD_LENGTH, reason)
        raise Refused(ReturnCode.TOO_LONG)

    def spoil(self, inbound: Inbound, status: Status, cause: int, reason: str) -> None:
        """A message ruined its receive element, which ends the queue pair."""
        element = self.release(inbound)
        if element is not None:
            self._end(element, status, cause)
        self._engine.fail(reason)

    def complete(self, inbound: Inbound) -> None:
        """A message is in its element. :raises Refused: it invalidates a key that it may not."""
        element = inbound.receive
        assert element is not None  # only for bound messages
        data = inbound.header_data
        invalidated = data & _U32 if data & INVALIDATE else None
        if invalidated is not None:
            try:
                self._host.invalidate(invalidated)
            except ProtectionError as error:
                reason = f"SEND with invalidate: {error.rule}"
                self.spoil(inbound, Status.LOC_PROT_ERR, error.cause, reason)
                raise Refused(ReturnCode.PERM_VIOLATION) from error
        self.release(inbound)
        completion = Completion(
            self._host.qpn,
            element.index,
            CompletionOpcode.RECV if inbound.send else CompletionOpcode.RECV_WRITE_IMM,
            Status.SUCCESS,
            length=inbound.total,
            immediate=data & _U32 if data & IMMEDIATE else None,
            solicited=bool(data & SOLICITED),
            cookie=element.cookie,
            invalidated=invalidated,
            tag=inbound.tag,
        )
        if inbound.tag is not None:
            self._host.complete(completion)
            return
        self._finished[inbound.number] = completion
        while (done := self._finished.pop(self._next_done, None)) is not None:
            self._next_done = self._next_done % _U32 + 1
            self._host.complete(done)

    def flush(self) -> None:
        """Complete every element with WR_FLUSH_ERR, taken and posted ones, in the order of the ring."""
        while True:
            try:
                element = self._host.take_receive()
            except ProtectionError:
                # It has its completion already.
                continue
            if element is None:
                break
            self._plain.append(element)
        elements = [*self._early.values(), *self._bound.values(), *self._tagged, *self._plain]
        elements += [ReceiveRequest(done.index, cookie=done.cookie) for done in self._finished.values()]
        next_number, next_done = self.next_number, self._next_done
        self.clear()
        self.next_number, self._next_done = next_number, next_done
        if elements:
            first = elements[0].index
            elements.sort(key=lambda element: distance(element.index, first))
        for element in elements:
            self._end(element, Status.WR_FLUSH_ERR, Cause.FLUSHED)

    def _end(self, element: ReceiveRequest, status: Status, cause: int) -> None:
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
