# SPDX-License-Identifier: Apache-2.0
"""The seam between packet delivery and semantics: packets that want delivery, and what became of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from emu.nic.work import Cause, Status
from emu.uet.headers import ResponseHeader
from emu.wire.uet_names import CtlType, NackCode, NextHeader

if TYPE_CHECKING:
    from emu.uet.pdc import Pdc

__all__ = ["Answer", "Failure", "Outgoing", "Pending", "State", "Stream", "Verdict", "Work"]


class State(enum.Enum):
    """Where the source believes a packet to be."""

    FLIGHT = "on its way"
    LOST = "waits to be sent again"
    HELD = "refused for a while"
    ARRIVED = "at the destination"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a PDC ended before its work did: the completion's status and cause, and a sentence.

    ``fresh`` says that the target cannot have carried out what it did not answer, so that a message of
    which nothing was answered may be tried on a new PDC.
    """

    status: Status
    cause: Cause
    reason: str
    fresh: bool = False


class Stream(Protocol):
    """The packets of one message, made one by one as the window opens. Never interleaved with another's.

    ``qpn`` is the queue pair they belong to, for reports.
    """

    qpn: int | None

    @property
    def remaining(self) -> int:
        """Nominal bytes of the packets still to be made, or a little more."""

    def next(self) -> Outgoing | None:
        """The next packet; None after the last one, or when the message cannot go on."""

    def acknowledged(self, outgoing: Outgoing, header: ResponseHeader | None, frame: bytes) -> None:
        """A packet is done with the target's response ``header`` in ``frame``; None is plain success."""

    def failed(self, failure: Failure) -> None:
        """The PDC ended before all packets were acknowledged. Called at most once."""


class Work(Stream, Protocol):
    """A message that the endpoint gives an id, and a PDC.

    ``reads`` tells that data comes back in the return direction, ``abandoned`` that nobody waits for it.
    """

    message_id: int
    pdc: Pdc | None
    abandoned: bool

    @property
    def reads(self) -> bool:
        """See above."""

    def place(self, offset: int, data: memoryview) -> None:
        """Read data came."""


class Outgoing:
    """One request packet of a direction of a PDC.

    ``body`` is everything behind the delivery header, ``octets`` the message bytes in it, ``last`` tells
    that the stream has no more. ``control`` is set for control packets that take a PSN. ``order`` numbers
    transmissions, ``due`` is when the source next looks at it.
    """

    __slots__ = (
        "answered",
        "asks",
        "body",
        "control",
        "due",
        "ev",
        "following",
        "last",
        "nominal",
        "octets",
        "order",
        "passed",
        "psn",
        "refusals",
        "sends",
        "sent_at",
        "state",
        "stream",
        "timeouts",
    )

    def __init__(
        self,
        stream: Stream | None,
        following: NextHeader,
        body: bytes,
        octets: int,
        *,
        last: bool = False,
        control: CtlType | None = None,
    ) -> None:
        self.stream = stream
        self.following = following
        self.body = body
        self.octets = octets
        self.last = last
        self.control = control
        self.psn = self.order = self.ev = self.nominal = 0
        self.sent_at = self.due = 0
        self.sends = self.asks = self.timeouts = self.refusals = self.passed = 0
        self.state = State.FLIGHT
        self.answered = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A SES response that needs guaranteed delivery."""

    following: NextHeader
    body: bytes


class Pending(enum.Enum):
    """The packet is received, and its response follows when it is known."""

    RESPONSE = "response to follow"


Verdict = Answer | NackCode | Pending | None
"""What semantics say of a packet: an answer to be delivered, a refusal (the packet counts as not received),
plain success, or that they will say so later by :meth:`emu.uet.pdc.Pdc.respond`."""
