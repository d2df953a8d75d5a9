# SPDX-License-Identifier: Apache-2.0
"""Messages that came before there was a receive element for them.

A tagged one waits, as far as there is room, with its data: its sender is told that it was put on the overflow
list. A deferrable one is called off; once there is an element the sender is asked to start over. A rendezvous
waits with its beginning, and its rest is fetched then. What finds no room is refused, and the sender tries
again, as without a receive element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.nic.engine import ProtectionError
from emu.nic.work import Status
from emu.uet.headers import RequestHeader, response
from emu.uet.inbound import Inbound
from emu.uet.notice import Notice
from emu.uet.outgoing import Answer, Failure
from emu.uet.receives import Receives
from emu.uet.rendezvous import Fetch
from emu.uet.verdicts import Refused, refusal
from emu.wire.uet_names import NextHeader, RequestOpcode, ResponseList, ResponseOpcode, ReturnCode

if TYPE_CHECKING:
    from emu.uet.engine import UetEngine
    from emu.uet.pdc import Pdc

__all__ = ["Waiting"]

_U32 = 0xFFFFFFFF


class Waiting:
    """``messages`` wait, oldest first; ``fetches`` are under way."""

    def __init__(self, engine: UetEngine, receives: Receives) -> None:
        self._engine = engine
        self._host = engine.host
        self._parameters = engine.parameters
        self._receives = receives
        self._token = 0
        self.messages: list[Inbound] = []
        self.fetches: dict[Fetch, tuple[Inbound, tuple[Pdc, int] | None]] = {}

    def clear(self) -> None:
        """Forget everything. Who waits for a response gets one; others ask after their messages."""
        self.messages.clear()
        fetches, self.fetches = self.fetches, {}
        for fetch, (inbound, owed) in fetches.items():
            fetch.stop()
            if owed is not None and inbound.offer is not None:
                owed[0].respond(owed[1], refusal(ReturnCode.CANCELLED, inbound.offer))

    def knows(self, key: int) -> bool:
        """True when the rendezvous under this key waits, or is being fetched."""
        messages = [*self.messages, *(inbound for inbound, _ in self.fetches.values())]
        return any(inbound.offer is not None and inbound.offer.read_key == key for inbound in messages)

    def forget(self, inbound: Inbound) -> None:
        """Its sender gave it up."""
        if inbound in self.messages:
            self.messages.remove(inbound)

    # In

    def buffer(self, inbound: Inbound) -> None:
        """Let a message wait with its data. :raises Refused: there is no room."""
        held = sum(len(other.buffer) for other in self.messages if other.buffer is not None)
        if held + inbound.expected > self._parameters.unexpected_bytes:
            self._no_room()
        self._keep(inbound)
        inbound.buffer = bytearray(inbound.expected)

    def defer(self, inbound: Inbound) -> None:
        """Call a message off until there is an element for it. :raises Refused: always."""
        self._keep(inbound)
        self._token = self._token % _U32 + 1
        inbound.target_token = self._token
        inbound.deferred = True
        raise Refused(self._parameters.wire.deferred_return_code)

    def _keep(self, inbound: Inbound) -> None:
        if len(self.messages) >= self._parameters.max_unexpected:
            self._no_room()
        self.messages.append(inbound)

    def _no_room(self) -> None:
        self._host.count("send_rnr_err")
        raise Refused(ReturnCode.NO_MATCH)

    def resume(self, inbound: Inbound) -> bool:
        """A deferrable message comes, maybe again. True when it was asked for, and has the element that was
        found for it.

        :raises Refused: it is too long for that.
        """
        before = next((other for other in self.messages if self._same(other, inbound)), None)
        if before is None:
            return False
        self.messages.remove(before)
        if before.home is not None:
            # All its packets are answered, or the sender would not start over.
            before.home[0].inbound.pop(before.home[1], None)
        if before.receive is None or before.target_token != inbound.target_token:
            # It comes by itself: it is matched anew.
            self._receives.put_back(before)
            return False
        inbound.tag, inbound.number = before.tag, before.number
        inbound.receive, before.receive = before.receive, None
        self._receives.check_length(inbound)
        return True

    @staticmethod
    def _same(other: Inbound, inbound: Inbound) -> bool:
        return other.deferred and other.initiator_token == inbound.initiator_token

    def answer(self, inbound: Inbound, header: RequestHeader) -> Answer:
        """What the sender of a message is told that is all here and waits."""
        octets = response(
            ResponseOpcode.RESPONSE,
            ReturnCode.OK,
            header.message_id,
            header.job_id,
            inbound.expected,
            listed=ResponseList.OVERFLOW,
        )
        return Answer(NextHeader.RESPONSE, octets)

    # Out

    def posted(self) -> None:
        """There are new receive elements: messages that wait may have one now."""
        try:
            for inbound in tuple(self.messages):
                if inbound.receive is None and inbound in self.messages:
                    self._serve(inbound)
        except Refused:
            # The queue pair is in error by now.
            return

    def _serve(self, inbound: Inbound) -> None:
        receives = self._receives
        if inbound.tag is None:
            found = receives.take(inbound, inbound.number)
        else:
            found = receives.match(inbound, inbound.tag)
        if not found:
            return
        try:
            receives.check_length(inbound)
        except Refused:
            self.forget(inbound)
            self._decline(inbound)
            raise
        if inbound.deferred:
            self._ask(inbound)
        elif inbound.here:
            self.messages.remove(inbound)
            self.deliver(inbound)

    def _ask(self, inbound: Inbound) -> None:
        """Ask for a message that was called off."""
        tokens = inbound.initiator_token << 32 | inbound.target_token

        def unknown() -> None:
            # The sender gave it up; its element is good for another.
            if inbound in self.messages:
                self.messages.remove(inbound)
                self._receives.put_back(inbound)
                self.posted()

        self._engine.notify(Notice(self._engine, RequestOpcode.DEFERRABLE_RTR, tokens, unknown))

    def deliver(self, inbound: Inbound) -> None:
        """Move a message that waited into its element. Its sender thinks it done, but for a rendezvous."""
        element, octets = inbound.receive, inbound.buffer
        assert element is not None and octets is not None  # checked by the callers
        inbound.buffer = None
        try:
            if octets:
                self._host.scatter(element.sges, 0, memoryview(octets))
        except ProtectionError as error:
            self._decline(inbound)
            reason = f"receive element {element.index}: {error.rule}"
            self._receives.spoil(inbound, Status.LOC_PROT_ERR, error.cause, reason)
            return
        if inbound.rest:
            self.fetch(inbound, None)
            return
        try:
            self._receives.complete(inbound)
        except Refused:
            # The queue pair is in error, which is all that can be said of a message taken before.
            return

    def fetch(self, inbound: Inbound, owed: tuple[Pdc, int] | None) -> None:
        """READ the rest of a rendezvous; ``owed`` is the packet that waits for its response."""
        element, offer = inbound.receive, inbound.offer
        assert element is not None and offer is not None  # checked by the callers

        def done(failure: Failure | None) -> None:
            self.fetches.pop(fetch, None)
            code: int = ReturnCode.OK
            if failure is None:
                try:
                    self._receives.complete(inbound)
                except Refused as refused:
                    code = refused.code
            else:
                code = ReturnCode.DROPPED
                reason = f"rendezvous into receive element {element.index}: {failure.reason}"
                self._receives.spoil(inbound, failure.status, failure.cause, reason)
            if owed is not None:
                pdc, psn = owed
                pdc.respond(psn, None if code == ReturnCode.OK else refusal(code, offer))
            elif code != ReturnCode.OK:
                self._decline(inbound)

        fetch = Fetch(self._engine, offer, element.sges, done)
        self.fetches[fetch] = (inbound, owed)
        fetch.start()

    def _decline(self, inbound: Inbound) -> None:
        """Tell the sender of a rendezvous that its rest will not be fetched."""
        if inbound.offer is not None:
            self._engine.notify(Notice(self._engine, RequestOpcode.MSG_ERROR, inbound.offer.read_key))
