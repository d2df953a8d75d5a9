# SPDX-License-Identifier: Apache-2.0
"""The seam between the NIC core and a transport protocol (``emu.roce``, later ``emu.uet``).

One :class:`Engine` per queue pair. It does no I/O and knows no clock: the core hands it work, packets and the
time, and gives it an :class:`EngineHost` through which it reads and writes memory, sends frames, takes
receive elements and reports completions. So a protocol test is two engines, a host made of dictionaries, and
a virtual clock.

Call order, always from the owner loop and never re-entrant: after any call the core asks
:meth:`Engine.deadline` and re-arms one timer, and keeps calling :meth:`Engine.transmit` while it returns
True.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emu.nic.atomics import AtomicOperation
from emu.nic.work import (
    Access,
    Completion,
    QpAttributes,
    QpState,
    ReceiveRequest,
    SendRequest,
    Sge,
    Transport,
)

__all__ = [
    "AsyncEvent",
    "Drop",
    "Engine",
    "EngineFactory",
    "EngineHost",
    "Packet",
    "PacketParser",
    "ProtectionError",
    "XrcHost",
]


class ProtectionError(Exception):
    """A key, bound, domain or right that does not allow the access. ``rule`` is the sentence for a person."""

    def __init__(self, rule: str, *, cause: int = 0) -> None:
        super().__init__(rule)
        self.rule = rule
        self.cause = cause


class AsyncEvent(enum.IntEnum):
    """Events that belong to no work element; numbers are ``enum ibv_event_type``."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16


class Packet(Protocol):
    """A parsed inbound packet.

    The concrete type belongs to the protocol (``emu.roce.packet``); the core only routes.
    """

    @property
    def dest_qpn(self) -> int:
        """Queue pair it is addressed to (24 bits)."""

    @property
    def dest_ip(self) -> bytes:
        """Destination address, 4 or 16 bytes."""

    @property
    def source_ip(self) -> bytes:
        """Source address, 4 or 16 bytes."""

    @property
    def source_qpn(self) -> int | None:
        """Queue pair that sent it, where the packet says."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A frame the parser refuses: why, for a person, and the counter that tells (besides ``rx_dropped``).

    ``foreign`` frames are not of the protocol at all: a NIC with Ethernet queues receives them there.
    """

    reason: str
    counter: str = "rx_dropped"
    foreign: bool = False


PacketParser = Callable[[bytes], Packet | Drop]
"""Takes a whole Ethernet frame apart. Never raises."""


class EngineHost(Protocol):
    """What the core offers one queue pair's engine. Addresses are in the key's (virtual) address space."""

    @property
    def qpn(self) -> int:
        """Own QP number (24 bits)."""

    def send(self, frame: bytes) -> None:
        """Hand a whole Ethernet frame to the port."""

    def owns_address(self, address: bytes) -> bool:
        """True for an IP address (4 or 16 bytes) that the port answers to."""

    def gather(self, sges: list[Sge], offset: int, length: int) -> bytes:
        """Read ``length`` bytes at ``offset`` of a gather list.

        :raises ProtectionError: lkey, bounds, domain.
        """

    def scatter(self, sges: list[Sge], offset: int, data: bytes | memoryview) -> None:
        """Write ``data`` at ``offset`` of a scatter list.

        :raises ProtectionError: as gather, or no LOCAL_WRITE.
        """

    def check_remote(self, rkey: int, address: int, length: int, access: Access) -> None:
        """Check a whole remote range before any byte moves. :raises ProtectionError: the rule that failed."""

    def write_remote(self, rkey: int, address: int, data: bytes | memoryview) -> None:
        """Place data under a remote key. :raises ProtectionError: the key changed since the check."""

    def read_remote(self, rkey: int, address: int, length: int) -> bytes:
        """Read under a remote key. :raises ProtectionError: the key changed since the check."""

    def invalidate(self, rkey: int) -> None:
        """Take a remote key out of use, as its owner allowed when it was made.

        :raises ProtectionError: it cannot be invalidated from a peer.
        """

    def atomic(self, rkey: int, address: int, operation: AtomicOperation) -> int:
        """Carry out ``operation`` at ``address``, which is aligned to its size; the old value.

        Memory holds the word in the guest's (little-endian) order.

        :raises ProtectionError: no REMOTE_ATOMIC, or the target is not atomic-capable.
        """

    def take_receive(self) -> ReceiveRequest | None:
        """The next receive element, or None when the queue is empty.

        :raises ProtectionError: it cannot be read.
        """

    def complete(self, completion: Completion) -> None:
        """Report the outcome of a send or receive element, if it must be seen: signaled, or in error."""

    def retire(self, index: int) -> None:
        """Say that every send slot before running index ``index`` is free, unsignaled elements too."""

    def moved(self, state: QpState, reason: str) -> None:
        """The engine moved the QP to ``state`` (ERR, SQE, or SQD drained)."""

    def raise_event(self, event: AsyncEvent, reason: str) -> None:
        """Raise an affiliated asynchronous event."""

    def note_retransmit(self, psn: int, packets: int, octets: int, reason: str) -> None:
        """Report that ``packets`` packets (``octets`` payload bytes) from ``psn`` on are sent again."""

    def note_drop(self, counter: str, reason: str) -> None:
        """Report an inbound packet that was dropped; ``counter`` is the name of the counter to bump."""

    def note_timer(self, name: str) -> None:
        """Report that a protocol timer ran out."""

    def count(self, counter: str) -> None:
        """Bump a counter by name for something that is no drop, such as ``send_rnr_err``."""


class XrcHost(EngineHost, Protocol):
    """What the core also offers the engine of an XRC queue pair."""

    def select_srq(self, number: int) -> None:
        """What follows is about shared receive queue ``number`` of the queue pair's domain. The next receive
        elements come from there, and keys must be of its protection domain. One that is not there refuses
        both.
        """


class Engine(Protocol):
    """One queue pair's protocol state."""

    def modify(self, attributes: QpAttributes, previous: QpState) -> None:
        """Attributes changed (already validated); ``attributes.state`` is the state entered now.

        Entering RESET forgets everything without completions; entering ERR flushes both queues.
        """

    def post(self, request: SendRequest) -> None:
        """Queue one send element (already validated in form)."""

    def receive(self, packet: Packet, now: int) -> None:
        """Handle one packet addressed to this QP."""

    def receive_posted(self, now: int) -> None:
        """Receive elements were added; a parked message may go on, and a QP in ERR flushes them."""

    def transmit(self, now: int, budget: int) -> bool:
        """Send at most ``budget`` frames. True when more could be sent right now."""

    def deadline(self) -> int | None:
        """When :meth:`expire` wants to be called (ns), or None."""

    def expire(self, now: int) -> None:
        """The deadline passed."""

    def idle(self) -> bool:
        """True when nothing is queued, in flight or waiting."""

    @property
    def next_psn(self) -> int:
        """Sequence number of the requester's next new packet (24 bits)."""

    @property
    def expected_psn(self) -> int:
        """Sequence number the responder expects next (24 bits)."""


EngineFactory = Callable[[Transport, EngineHost], Engine]
"""Makes a queue pair's engine in state RESET. :raises ValueError: the transport is not offered."""
