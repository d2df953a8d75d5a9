# SPDX-License-Identifier: Apache-2.0
"""Rendezvous: a message whose beginning comes with its announcement, and whose rest the target READs.

The sender keeps the message as an :class:`Offer` under a key of its own, which serves only the peer's queue
pair. It is done when the target has answered and every byte beyond the eager part was fetched and
acknowledged. The target fetches when it has a receive element, by a :class:`Fetch`. Until then the sender
asks after its message now and then, by a NO_OP with its key: a target that was reset does not know it.

How the key looks is this project's choice: the upper half of the READs' memory key is the offer's number, the
lower half 0, ``read_offset`` counts from the start of the message, and PIDonFEP and resource index name the
sender's queue pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from emu.nic.work import Opcode, SendRequest, Sge
from emu.uet.headers import RequestHeader
from emu.uet.message import Message

if TYPE_CHECKING:
    from emu.nic.engine import EngineHost
    from emu.uet.engine import UetEngine
    from emu.uet.outgoing import Failure
    from emu.uet.parameters import Parameters

__all__ = ["Fetch", "behind"]

_U32 = 0xFFFFFFFF


def behind(sges: list[Sge], offset: int) -> list[Sge]:
    """A scatter list without its first ``offset`` bytes."""
    rest = []
    for sge in sges:
        if offset >= sge.length:
            offset -= sge.length
            continue
        rest.append(Sge(sge.address + offset, sge.length - offset, sge.lkey))
        offset = 0
    return rest


class Fetch:
    """READs of one message's rest into its receive element; ``done`` is told how it ended.

    It stands for the queue pair towards :class:`emu.uet.message.Message`: what a READ of a guest would
    complete goes to ``done`` instead.
    """

    def __init__(
        self,
        engine: UetEngine,
        header: RequestHeader,
        sges: list[Sge],
        done: Callable[[Failure | None], None],
    ) -> None:
        self._engine = engine
        self._done = done
        self.host: EngineHost = engine.host
        self.parameters: Parameters = engine.parameters
        self.qpn = engine.qpn
        self.dest_qpn = header.read_qpn
        rest = header.request_length - header.eager
        request = SendRequest(
            0,
            Opcode.READ,
            length=rest,
            sges=behind(sges, header.eager),
            remote_address=header.read_offset,
            rkey=header.read_key & _U32,
        )
        self._message = Message(self, request, header.read_key >> 32, engine.mtu)

    def start(self) -> None:
        """Send the READs."""
        self._engine.submit(self._message)

    def stop(self) -> None:
        """Give up; nobody is told."""
        self._message.abandon()

    # What a message asks of its queue pair

    def restart(self, message: Message) -> None:
        """Fetch again what nobody answered, on another PDC."""
        self.release(message)
        message.reset()
        self.start()

    def release(self, message: Message) -> None:
        """The message needs its id no more."""
        self._engine.release(message)

    def called_off(self, message: Message) -> None:
        """Nobody calls READs off."""

    def unfetched(self, message: Message) -> None:
        """READs are on offer to nobody."""

    def ended(self, message: Message) -> None:
        """All is here, or it failed."""
        self.release(message)
        self._done(message.failure)
