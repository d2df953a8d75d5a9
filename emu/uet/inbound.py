# SPDX-License-Identifier: Apache-2.0
"""A message that begins to arrive at a queue pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.nic.work import ReceiveRequest

if TYPE_CHECKING:
    from emu.uet.headers import RequestHeader
    from emu.uet.pdc import Pdc

__all__ = ["Inbound"]


@dataclass(slots=True, eq=False)
class Inbound:
    """A message of several packets, or one with a receive element.

    ``expected`` bytes of its ``total`` come in its packets (the eager part of a rendezvous), ``placed`` of
    them did, and ``here`` says that all did. ``code`` is why it is refused; ``epoch`` the life of the queue
    pair it belongs to. ``number`` is its place among those without ``tag``. ``buffer`` holds what came while
    there was no receive element. ``offer`` is where to READ the rest of a rendezvous. ``initiator_token``
    and ``target_token`` name a message that was called off for now (``deferred``); ``home`` is where it
    began.
    """

    epoch: int
    total: int
    expected: int
    send: bool
    tag: int | None = None
    number: int = 0
    placed: int = 0
    here: bool = False
    receive: ReceiveRequest | None = None
    header_data: int = 0
    code: int | None = None
    buffer: bytearray | None = None
    offer: RequestHeader | None = None
    deferred: bool = False
    initiator_token: int = 0
    target_token: int = 0
    home: tuple[Pdc, tuple[int, int]] | None = None

    @property
    def rest(self) -> int:
        """Bytes that do not come by themselves."""
        return self.total - self.expected if self.offer is not None else 0
