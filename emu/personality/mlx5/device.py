# SPDX-License-Identifier: Apache-2.0
"""The state of one mlx5-compatible function: the core NIC, and the objects only this interface has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from emu.nic.context import Context, ProtectionDomain
from emu.nic.device import Nic
from emu.nic.eq import EventQueue
from emu.nic.errors import ErrorKind, NicError
from emu.nic.ethernet import EthernetCounters, EthernetReceiveQueue, EthernetSendQueue
from emu.nic.pages import PageList
from emu.nic.qp import QueuePair
from emu.nic.ring import RingMemory
from emu.nic.rss import RssHash
from emu.nic.srq import SharedReceiveQueue
from emu.nic.table import ObjectTable
from emu.personality.mlx5.addresses import AddressTable
from emu.personality.mlx5.identity import FIRST_UAR, UAR_COUNT
from emu.personality.mlx5.mkey import MkeyTable
from emu.personality.mlx5.port import PortState
from emu.personality.mlx5.steering import Steering

__all__ = ["CounterSet", "Door", "Mlx5Device", "Tir", "UserMemory", "record_memory", "ring_memory"]

LAST_NUMBER = 0xFFFFFF
FIRST_QUEUE = 0x800000
"""Ethernet queues are numbered above every queue pair: a doorbell names either by number alone."""
SMALL_TABLE = 1 << 10
COUNTER_SETS = 255
PAGE_SHIFT = 12
OFFSET_UNITS = 64
"""``page_offset`` counts in 64ths of a page."""
RECORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Door:
    """What a send doorbell reaches: the user access region it must come through, and the queue's own
    doorbell; a queue pair's also says up to where."""

    uar: int
    ring: Callable[[], None]
    qp: QueuePair | None = None


@dataclass(frozen=True, slots=True)
class UserMemory:
    """Memory that queues live in."""

    number: int
    pages: PageList

    def at(self, offset: int, length: int) -> RingMemory:
        """A part of it. :raises NicError: BAD_FIELD, it is not inside."""
        if offset + length > self.pages.length:
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"{offset:#x}+{length:#x} is outside user memory {self.number} ({self.pages.length:#x})",
                "umem",
            )
        return RingMemory(self.pages, offset)


@dataclass(slots=True)
class CounterSet:
    """A counter set: what the counters were when it began, and whether it is about Ethernet frames."""

    base: dict[str, int] = field(default_factory=dict)
    ethernet: bool = False


@dataclass(slots=True)
class Tir:
    """Where steering sends a packet: one receive queue, or one of a table, which ``hash`` chooses."""

    rqn: int | None
    rqt: int | None
    hash: RssHash


@dataclass(slots=True)
class _Objects:
    """Objects of this interface by number; empty after a reset."""

    uars: ObjectTable[int] = field(default_factory=lambda: _table("UAR", UAR_COUNT, FIRST_UAR, UAR_COUNT - 1))
    domains: ObjectTable[int] = field(default_factory=lambda: _table("transport domain"))
    xrcds: ObjectTable[dict[int, SharedReceiveQueue]] = field(
        default_factory=lambda: ObjectTable("XRC domain", SMALL_TABLE, 1, LAST_NUMBER)
    )
    counter_sets: ObjectTable[CounterSet] = field(
        default_factory=lambda: ObjectTable("counter set", COUNTER_SETS, 1, COUNTER_SETS)
    )
    uctxs: ObjectTable[int] = field(default_factory=lambda: _table("user context"))
    tises: ObjectTable[int] = field(default_factory=lambda: _table("TIS"))


def _table(kind: str, limit: int = SMALL_TABLE, first: int = 1, last: int = LAST_NUMBER) -> ObjectTable[int]:
    return ObjectTable(kind, limit, first, last)


class Mlx5Device:
    """One function's objects and port. Commands work on it; doorbells look into ``doors``.

    ``command_eq`` is the event queue that hears of finished commands, None while the driver polls.
    ``qp_contexts`` are the queue pair contexts as the driver gave them, for QUERY_QP. All objects belong
    to one context of the core: which process may use which is the guest kernel's to decide, and keys and
    queues meet in protection domains.
    """

    def __init__(self, nic: Nic, addresses: AddressTable, mkeys: MkeyTable) -> None:
        self.nic = nic
        self.addresses = addresses
        self.mkeys = mkeys
        mkeys.attach(nic)
        self.ethernet = EthernetCounters()
        self.port = PortState(nic)
        self._start()
        nic.ethernet = self._receive

    def reset(self, reason: str) -> None:
        """Back to the state after power-on: every object is gone."""
        for queue in (*self.sqs, *self.rqs):
            queue.close()
        self.nic.reset(reason)
        self.addresses.clear()
        self.mkeys.clear()
        self.ethernet = EthernetCounters()
        self.port = PortState(self.nic)
        self.port.listen(unicast=False, multicast=False, every=False)
        self.answer_to()
        self._start()

    def _start(self) -> None:
        self.context: Context = self.nic.alloc_context()
        self._no_keys = ProtectionDomain(0, self.context)
        self.objects = _Objects()
        self.tirs: ObjectTable[Tir] = ObjectTable("TIR", SMALL_TABLE, 1, LAST_NUMBER)
        self.rqts: ObjectTable[list[int]] = ObjectTable("RQ table", SMALL_TABLE, 1, LAST_NUMBER)
        self._queue_numbers: ObjectTable[None] = ObjectTable(
            "Ethernet queue", 2 * SMALL_TABLE, FIRST_QUEUE, LAST_NUMBER - 1
        )
        self.sqs: ObjectTable[EthernetSendQueue] = ObjectTable("send queue", SMALL_TABLE, 0, LAST_NUMBER)
        self.rqs: ObjectTable[EthernetReceiveQueue] = ObjectTable(
            "receive queue", SMALL_TABLE, 0, LAST_NUMBER
        )
        self.srqs: ObjectTable[SharedReceiveQueue] = ObjectTable(
            "shared receive queue", SMALL_TABLE, 1, LAST_NUMBER
        )
        self.umems: ObjectTable[UserMemory] = ObjectTable("user memory", SMALL_TABLE, 1, LAST_NUMBER)
        self.doors: dict[int, Door] = {}
        self.qp_contexts: dict[int, dict[str, int]] = {}
        self.command_eq: EventQueue | None = None
        self.steering = Steering()

    def pd(self, number: int) -> ProtectionDomain:
        """A protection domain; 0 is one without keys, for queues of the driver's own that touch no memory.

        :raises NicError: BAD_OBJECT.
        """
        return self.nic.pds.get(number, "pd") if number else self._no_keys

    def record(self, context: Mapping[str, int]) -> RingMemory:
        """The doorbell record a queue's context names: a bus address, or a place in user memory.

        :raises NicError: BAD_OBJECT, BAD_FIELD.
        """
        if context["dbr_umem_valid"]:
            memory = self.umems.get(context["dbr_umem_id"], "dbr_umem_id")
            return memory.at(context["dbr_addr"], RECORD_BYTES)
        return record_memory(context["dbr_addr"])

    def queue_number(self) -> int:
        """A number for an Ethernet queue of either kind. :raises NicError: NO_RESOURCE."""
        if len(self.sqs) + len(self.rqs) >= 2 * SMALL_TABLE:
            raise NicError(ErrorKind.NO_RESOURCE, f"all {2 * SMALL_TABLE} Ethernet queues are in use")
        while True:
            number = self._queue_numbers.reserve()
            if number not in self.sqs.items and number not in self.rqs.items:
                return number

    def answer_to(self) -> None:
        """Have the port answer to the driver's unicast addresses."""
        self.nic.addresses = frozenset((self.nic.gids.mac, self.port.mac, *self.port.unicast))

    def _receive(self, frame: bytes) -> None:
        """A frame that is no RoCE packet: let the rules say which queues get it."""
        for number in self.steering.route(frame):
            tir = self.tirs.items.get(number)
            if tir is None:
                continue
            rqn, flow = tir.rqn, tir.hash.of(frame)
            if tir.rqt is not None:
                table = self.rqts.items.get(tir.rqt)
                rqn = table[flow.value % len(table)] if table else None
            queue = self.rqs.items.get(rqn) if rqn is not None else None
            if queue is not None:
                queue.receive(frame, flow)


def ring_memory(context: Mapping[str, int], pages: list[int], log_page: str, length: int) -> RingMemory:
    """The memory of a queue whose context names page size (``log_page``, above 4 KiB) and ``page_offset``."""
    shift = PAGE_SHIFT + context[log_page]
    offset = context["page_offset"] * ((1 << shift) // OFFSET_UNITS)
    return RingMemory(PageList(pages, shift, offset, length), 0)


def record_memory(address: int) -> RingMemory:
    """The doorbell record at a bus address."""
    return RingMemory(PageList.contiguous(address, RECORD_BYTES), 0)
