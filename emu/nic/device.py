# SPDX-License-Identifier: Apache-2.0
"""The NIC: its object tables, the operations on them, and the port."""

from __future__ import annotations

from collections.abc import Sequence

from emu.checks.hintring import HintRing
from emu.clock import Scheduler
from emu.events import EventBus, Kind
from emu.fabric.port import Port, Receiver
from emu.fabric.run import FrameRun
from emu.nic.context import Context, ProtectionDomain
from emu.nic.cq import COUNTER_BYTES, CompletionQueue, CqMode, CqOverrun
from emu.nic.drops import DropReason
from emu.nic.endpoint import ENDPOINT_TRANSPORTS, EndpointFactory
from emu.nic.endpoint_host import NicEndpointHost
from emu.nic.engine import AsyncEvent, Drop, Engine, EngineFactory, EngineHost, Packet, PacketParser
from emu.nic.eq import EventQueue
from emu.nic.errors import ErrorKind, NicError
from emu.nic.formats import Formats
from emu.nic.gid import GidTable
from emu.nic.handles import HandleTable
from emu.nic.limits import NicLimits
from emu.nic.loopback import LoopbackPort
from emu.nic.mr import MemoryKeys, MemoryKind, MemoryRegion
from emu.nic.multicast import MULTICAST_QPN, MulticastGroups
from emu.nic.objects import ObjectCounts
from emu.nic.pages import Memory
from emu.nic.platform import Platform
from emu.nic.qp import QpConfig, QpSnapshot, QueuePair
from emu.nic.ring import RingMemory
from emu.nic.submission import Submission
from emu.nic.table import ObjectTable
from emu.nic.work import Access, Transport
from emu.pcie.bus import Bus, Interrupts, MasteredBus

__all__ = ["Nic"]

_FRAME_IN = Kind.FRAME_IN.bit
_FRAME_DROP = Kind.FRAME_DROP.bit
_RESET = Kind.RESET.bit

FIRST_QPN = 0x100
LAST_NUMBER = 0xFFFFFF


class Nic:
    """One RDMA NIC behind some personality.

    Operations check everything, change nothing when they raise :class:`NicError`, and name the refused
    parameter by the name it has here. All calls come from the owner loop.

    :param name: the PCI function's name in events ("node0.nic0")
    :param bus: guest memory and peer BARs, by bus address
    :param port: where frames go; the NIC attaches itself
    :param formats: the personality's descriptor formats
    :param create_engine: makes a queue pair's transport engine
    :param parse: takes inbound frames apart for routing
    :param create_endpoint: makes the state that queue pairs of a transport like UET share; it serves the
        queue pairs of :data:`emu.nic.endpoint.ENDPOINT_TRANSPORTS`
    :param mac: 6 bytes
    :param gids: initial GID table, 16 bytes each
    """

    def __init__(
        self,
        name: str,
        *,
        bus: Bus,
        interrupts: Interrupts,
        port: Port,
        scheduler: Scheduler,
        events: EventBus,
        formats: Formats,
        create_engine: EngineFactory,
        parse: PacketParser,
        mac: bytes,
        gids: Sequence[bytes],
        limits: NicLimits | None = None,
        create_endpoint: EndpointFactory | None = None,
    ) -> None:
        limits = limits or NicLimits()
        loopback = LoopbackPort(port, mac, scheduler, self._receive_own_multicast)
        self.gids = GidTable(mac, gids, limits.gid_table_size)
        self.platform = Platform.build(
            name,
            bus=bus,
            interrupts=interrupts,
            port=loopback,
            scheduler=scheduler,
            events=events,
            formats=formats,
            limits=limits,
            gids=self.gids,
        )
        self.name = name
        self._bus = bus if isinstance(bus, MasteredBus) else None
        self.limits = limits
        self.counters = self.platform.counters
        self.checks = self.platform.checks
        self.multicast = MulticastGroups(limits)
        self.handles = HandleTable(limits.handles)
        self.submission = Submission(self.platform)
        self.keys = MemoryKeys(limits.mrs, limits.first_mr, limits.mr_pieces)
        self.contexts: ObjectTable[Context] = ObjectTable("context", limits.contexts, 1, limits.contexts)
        self.pds: ObjectTable[ProtectionDomain] = ObjectTable("protection domain", limits.pds, 1, LAST_NUMBER)
        self.eqs: ObjectTable[EventQueue] = ObjectTable("event queue", limits.eqs, 0, limits.eqs - 1)
        self.cqs: ObjectTable[CompletionQueue] = ObjectTable("completion queue", limits.cqs, 1, LAST_NUMBER)
        self.qps: ObjectTable[QueuePair] = ObjectTable("queue pair", limits.qps, FIRST_QPN, LAST_NUMBER - 1)
        self.checks.attach(self)
        self._create_engine = create_engine
        self._parse = parse
        self._endpoint = (
            None if create_endpoint is None else create_endpoint(NicEndpointHost(self.platform, self._wake))
        )
        self.addresses = frozenset((mac,))
        """Unicast MACs the port answers to."""
        self.promiscuous = False
        """Ethernet queues get frames for other stations too; queue pairs never do."""
        self.well_known: dict[int, QueuePair] = {}
        """Queue pairs that peers reach under a number below all others, besides their own."""
        self.ethernet: Receiver | None = None
        """Takes frames that are not the transport's; without it they are dropped."""
        loopback.attach(self._receive)
        loopback.attach_runs(self._receive_run)
        loopback.watch(self._link_changed)

    @property
    def port_up(self) -> bool:
        """Link state of the port."""
        return self.platform.port.up

    def objects(self) -> ObjectCounts:
        """How many objects exist now."""
        return ObjectCounts(
            contexts=len(self.contexts),
            pds=len(self.pds),
            mrs=len(self.keys),
            eqs=len(self.eqs),
            cqs=len(self.cqs),
            qps=len(self.qps),
            ahs=len(self.handles),
        )

    def qp_snapshots(self) -> list[QpSnapshot]:
        """Every queue pair, for people."""
        return [qp.snapshot() for qp in self.qps]

    def alloc_context(self) -> Context:
        """Make an owner; its number is its doorbell page. :raises NicError: NO_RESOURCE."""
        context = Context(self.contexts.reserve())
        self.contexts.items[context.number] = context
        return context

    def free_context(self, context: Context, *, force: bool = False) -> None:
        """End an owner.

        :raises NicError: BUSY, it owns something and ``force`` does not say to destroy that too.
        """
        if force and self.checks.watch is not None:
            self.checks.watch.context_ends(context)
        if force or context.empty:
            self.set_hints(context, None)
        if not context.empty:
            if not force:
                raise NicError(ErrorKind.BUSY, f"context {context.number} still owns objects", "ctx")
            for pd in tuple(context.pds.values()):
                for qp in tuple(pd.qps.values()):
                    self.destroy_qp(qp)
            for cq in tuple(context.cqs.values()):
                self.destroy_cq(cq)
            for pd in tuple(context.pds.values()):
                for region in tuple(pd.regions.values()):
                    self.deregister_mr(region)
                for handle in tuple(pd.handles.values()):
                    self.handles.destroy(handle)
                self.free_pd(pd)
        del self.contexts.items[context.number]

    def alloc_pd(self, context: Context) -> ProtectionDomain:
        """Make a protection domain. :raises NicError: NO_RESOURCE."""
        pd = ProtectionDomain(self.pds.reserve(), context)
        self.pds.items[pd.number] = pd
        context.pds[pd.number] = pd
        return pd

    def free_pd(self, pd: ProtectionDomain) -> None:
        """End a protection domain. :raises NicError: BUSY, it has regions, queue pairs or address handles."""
        if not pd.empty:
            raise NicError(
                ErrorKind.BUSY,
                f"PD {pd.number} has {len(pd.regions)} memory regions, {len(pd.qps)} queue pairs and "
                f"{len(pd.handles)} address handles",
                "object",
            )
        del self.pds.items[pd.number]
        del pd.context.pds[pd.number]

    def register_mr(
        self,
        pd: ProtectionDomain,
        *,
        access: Access,
        address: int,
        pages: Memory,
        kind: MemoryKind = MemoryKind.HOST,
        atomic_capable: bool = False,
        variant: int | None = None,
        invalidatable: bool = False,
        relaxed: bool = False,
    ) -> MemoryRegion:
        """Put ``pages`` behind a key; ``address`` is the virtual address of their first byte.

        ``variant`` is bits 7:0 of the key where the driver chooses them; ``invalidatable`` lets a peer's SEND
        with invalidate take the key out of use; ``relaxed`` writes payload with PCIe relaxed ordering.

        :raises NicError: BAD_FIELD ``access`` (a remote right to change memory needs LOCAL_WRITE) or
            ``length`` (empty, or past the end of the address space), NO_RESOURCE.
        """
        changing = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
        if access & changing and not access & Access.LOCAL_WRITE:
            raise NicError(
                ErrorKind.BAD_FIELD, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well", "access"
            )
        if pages.length <= 0 or address + pages.length > 1 << 64:
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"{pages.length} bytes at {address:#x} are not a range of memory",
                "length",
            )
        atomic_capable = atomic_capable and self.limits.atomics
        region = self.keys.add(pd, access, address, pages, kind, atomic_capable, variant, invalidatable)
        region.relaxed = relaxed
        return region

    def deregister_mr(self, region: MemoryRegion) -> None:
        """Invalidate a key. :raises NicError: BUSY, a ring or doorbell record lives in the region."""
        if region.pins:
            raise NicError(
                ErrorKind.BUSY,
                f"key {region.key:#x} holds {region.pins} rings or doorbell records; "
                "destroy their queues first",
                "object",
            )
        self.keys.remove(region)

    def ring_memory(
        self, region: MemoryRegion, address: int, length: int, align: int, field: str
    ) -> RingMemory:
        """The memory of a ring or record inside a region.

        :raises NicError: BAD_FIELD: ``field`` for alignment and bounds, ``ring_key`` when the region lacks
            LOCAL_WRITE.
        """
        if not region.access & Access.LOCAL_WRITE:
            raise NicError(ErrorKind.BAD_FIELD, f"key {region.key:#x} lacks LOCAL_WRITE", "ring_key")
        if address % align:
            raise NicError(ErrorKind.BAD_FIELD, f"{field} {address:#x} is not {align}-byte aligned", field)
        if address < region.address or address + length > region.end:
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"{field} {address:#x}+{length:#x} is outside key {region.key:#x}, which covers "
                f"{region.address:#x}..{region.end:#x}",
                field,
            )
        return RingMemory(region.pages, address - region.address, region)

    def create_eq(self, vector: int, log_size: int, memory: RingMemory) -> EventQueue:
        """Make an event queue. :raises NicError: BAD_FIELD ``vector`` or ``log_size``, NO_RESOURCE."""
        first, count = self.limits.first_vector, self.limits.vectors
        if not first <= vector < count:
            raise NicError(ErrorKind.BAD_FIELD, f"vector {vector} is not in {first}..{count - 1}", "vector")
        self.check_log_size("log_size", log_size, 1)
        eq = EventQueue(self.platform, self.eqs.reserve(), vector, log_size, memory)
        self.eqs.items[eq.number] = eq
        return eq

    def destroy_eq(self, eq: EventQueue) -> None:
        """End an event queue. :raises NicError: BUSY, CQs report to it."""
        if eq.cqs:
            raise NicError(ErrorKind.BUSY, f"EQ {eq.number} serves {len(eq.cqs)} CQs", "object")
        eq.ring.release()
        self.platform.routes.forget(eq)
        del self.eqs.items[eq.number]

    def check_log_size(self, field: str, value: int, least: int) -> None:
        """Check a queue's size. :raises NicError: BAD_FIELD ``field``, not in ``least``..max_log_ring."""
        if not least <= value <= self.limits.max_log_ring:
            raise NicError(
                ErrorKind.BAD_FIELD, f"{field} {value} is not in {least}..{self.limits.max_log_ring}", field
            )

    def cq_bytes(self, mode: CqMode, log_size: int) -> int:
        """Bytes of memory a CQ needs."""
        if mode is CqMode.COUNTER:
            return 2 * COUNTER_BYTES
        slots = 1 if mode is CqMode.COLLAPSED else 1 << log_size
        return slots * self.platform.formats.cqe.slot_size

    def create_cq(
        self,
        context: Context,
        eq: EventQueue | None,
        *,
        mode: CqMode,
        overrun: CqOverrun,
        log_size: int,
        memory: RingMemory,
        slot_size: int | None = None,
        record: RingMemory | None = None,
    ) -> CompletionQueue:
        """Make a CQ of ``1 << log_size`` entries in ``memory`` (:meth:`cq_bytes` of it).

        ``slot_size`` is the bytes of an entry where CQs differ in that (None: the format's), ``record`` where
        software keeps its consumer index, if it does.

        :raises NicError: BAD_FIELD ``log_size``, NOT_OWNER ``ring_key``, NO_RESOURCE.
        """
        self.check_log_size("log_size", log_size, 0)
        if memory.region is not None and memory.region.pd.context is not context:
            raise NicError(
                ErrorKind.NOT_OWNER, f"key {memory.region.key:#x} belongs to another context", "ring_key"
            )
        number = self.cqs.reserve()
        if mode is not CqMode.RING:
            log_size = 0
        cq = CompletionQueue(
            self.platform, number, context, eq, mode, overrun, log_size, memory, slot_size, record
        )
        self.cqs.items[number] = cq
        context.cqs[number] = cq
        if eq is not None:
            eq.cqs.add(number)
        if self.checks.watch is not None:
            self.checks.watch.cq_made(cq)
        return cq

    def set_hints(self, context: Context, ring: HintRing | None) -> None:
        """Have a process's submitters tell the checks of themselves through ``ring``, or no more."""
        if context.hints is not None:
            context.hints.release()
        context.hints = ring

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """End a CQ. :raises NicError: BUSY, queue pairs complete to it."""
        users = len(cq.qps) + len(cq.queues)
        if users:
            raise NicError(ErrorKind.BUSY, f"CQ {cq.number} serves {users} queues", "object")
        cq.close()
        del self.cqs.items[cq.number]
        del cq.context.cqs[cq.number]
        if cq.eq is not None:
            cq.eq.cqs.discard(cq.number)

    def create_qp(self, config: QpConfig) -> QueuePair:
        """Make a queue pair in state RESET.

        :raises NicError: NOT_OWNER (``send_cq``, ``recv_cq``: another context; ``ring_key``: another domain),
            BAD_FIELD (``sq_log_size``, ``rq_log_size``), UNSUPPORTED ``transport``, NO_RESOURCE.
        """
        context = config.pd.context
        for field, cq in (("send_cq", config.send_cq), ("recv_cq", config.recv_cq)):
            if cq.context is not context:
                raise NicError(ErrorKind.NOT_OWNER, f"CQ {cq.number} belongs to another context", field)
        for memory in (config.send, config.receive, config.record):
            if memory is not None and memory.region is not None and memory.region.pd is not config.pd:
                raise NicError(
                    ErrorKind.NOT_OWNER, f"key {memory.region.key:#x} belongs to another PD", "ring_key"
                )
        if config.transport is Transport.ROCE_XRC and config.domain is None:
            raise NicError(ErrorKind.UNSUPPORTED, "an XRC queue pair needs a domain", "transport")
        self.check_log_size("sq_log_size", config.send_log_size, self.limits.min_log_send)
        if config.receive is not None:
            self.check_log_size("rq_log_size", config.receive_log_size, 0)
        number = self.qps.reserve()
        qp = QueuePair(self.platform, number, config, self.keys, self.submission, self._engine)
        self.qps.items[number] = qp
        if self.checks.watch is not None:
            self.checks.watch.qp_made(qp)
        return qp

    def destroy_qp(self, qp: QueuePair) -> None:
        """End a queue pair in any state, without completions for what it still had to do."""
        if self.checks.watch is not None:
            self.checks.watch.qp_ends(qp)
        qp.close()
        self.qps.items.pop(qp.number, None)
        self.well_known = {number: other for number, other in self.well_known.items() if other is not qp}
        self.multicast.forget(qp)
        if self._endpoint is not None:
            self._endpoint.forget_engine(qp.number)

    def fatal(self, reason: str) -> None:
        """The device gives up: say so on every event queue."""
        for eq in self.platform.routes.about_device(AsyncEvent.DEVICE_FATAL, self.eqs):
            eq.post(AsyncEvent.DEVICE_FATAL, 0, reason)

    def reset(self, reason: str) -> None:
        """Return to the state after power-on: every object, timer and pending piece of work is gone, without
        completions, and counters read zero. Keys given out before stay invalid."""
        for qp in self.qps:
            qp.close()
        for cq in self.cqs:
            cq.close()
        self.well_known.clear()
        self.multicast.clear()
        self.handles.clear()
        self.submission.clear()
        if self._endpoint is not None:
            self._endpoint.reset()
        for table in (self.qps, self.cqs, self.eqs, self.pds, self.contexts):
            table.clear()
        self.keys.clear()
        self.platform.routes.clear()
        self.gids.clear()
        self.counters.clear()
        self.checks.clear()
        if self.platform.events.mask & _RESET:
            self.platform.trace.emit(Kind.RESET, reason)

    def _link_changed(self, up: bool) -> None:
        self.counters.link_downed += not up
        event = AsyncEvent.PORT_ACTIVE if up else AsyncEvent.PORT_ERR
        for eq in self.platform.routes.about_device(event, self.eqs):
            eq.post(event, 0, f"link {'up' if up else 'down'}")

    def _receive(self, frame: bytes) -> None:
        platform = self.platform
        if platform.events.mask & _FRAME_IN:
            platform.trace.emit(Kind.FRAME_IN, f"{len(frame)} bytes", length=len(frame), frame=frame)
        if frame[:6] not in self.addresses and not (frame and frame[0] & 1):
            if self.promiscuous and self.ethernet is not None and frame:
                self.ethernet(frame)
            else:
                self._drop(Drop("for another station", DropReason.FOREIGN))
            return
        if self._bus is not None and not self._bus.mastering:
            # In the middle of a reset, or without a driver: a NIC that cannot reach memory answers nobody.
            self._drop(Drop("bus mastering is off"))
            return
        if self.checks.stopped is not None:
            self._drop(Drop(f"stopped by {self.checks.stopped.rule.code}"))
            return
        packet = self._parse(frame)
        if isinstance(packet, Drop):
            self._receive_other(frame, packet)
            return
        number = packet.dest_qpn
        qp = self.qps.items.get(number) or self.well_known.get(number)
        if qp is None:
            if number == MULTICAST_QPN:
                self._receive_multicast(packet, frame)
            else:
                self._drop(Drop(f"there is no QP {number:#x}", DropReason.QPN))
            return
        counters = platform.counters
        counters.rx_packets += 1
        counters.rx_bytes += len(frame)
        qp.engine.receive(packet, platform.scheduler.now())
        if not qp.queued:
            self.submission.kick(qp)

    def _receive_run(self, run: FrameRun) -> None:
        """Frames that arrive as one: a queue pair whose engine takes them so gets them so."""
        platform = self.platform
        qp = self.qps.items.get(run.dest_qpn)
        take = None if qp is None else qp.receive_run
        single = platform.events.mask & _FRAME_IN or self.checks.stopped is not None
        if self._bus is not None and not self._bus.mastering:
            single = True
        if qp is None or take is None or single or run.dest_mac not in self.addresses:
            for frame in run.frames():
                self._receive(frame)
            return
        counters = platform.counters
        counters.rx_packets += run.count
        counters.rx_bytes += run.octets
        take(run, platform.scheduler.now())
        if not qp.queued:
            self.submission.kick(qp)

    def _receive_multicast(self, packet: Packet, frame: bytes) -> None:
        """A datagram to a group: every queue pair attached gets it, but not the one that sent it."""
        members = self.multicast.members(packet.dest_ip)
        if not members:
            self._drop(Drop(f"no queue pair is attached to {packet.dest_ip.hex()}", DropReason.QPN))
            return
        self.counters.rx_packets += 1
        self.counters.rx_bytes += len(frame)
        sender = packet.source_qpn if self.gids.holds(packet.source_ip) else None
        for qp in members:
            if qp.number != sender:
                qp.engine.receive(packet, self.platform.scheduler.now())
                self.submission.kick(qp)

    def _receive_own_multicast(self, frame: bytes) -> None:
        """A frame to a group address left: queue pairs of this NIC may be attached to the group."""
        if not len(self.multicast):
            return
        packet = self._parse(frame)
        if isinstance(packet, Drop) or packet.dest_qpn != MULTICAST_QPN:
            return
        if self.multicast.members(packet.dest_ip):
            self._receive_multicast(packet, frame)

    def _receive_other(self, frame: bytes, drop: Drop) -> None:
        """A frame that is no packet of a queue-pair transport, as ``drop`` says."""
        if drop.foreign and self._endpoint is not None:
            other = self._endpoint.receive(frame, self.platform.scheduler.now())
            if other is None:
                self.counters.rx_packets += 1
                self.counters.rx_bytes += len(frame)
                return
            drop = other
        if drop.foreign and self.ethernet is not None:
            self.ethernet(frame)
        else:
            self._drop(drop)

    def _engine(self, transport: Transport, host: EngineHost) -> Engine:
        if self._endpoint is not None and transport in ENDPOINT_TRANSPORTS:
            return self._endpoint.create_engine(transport, host)
        return self._create_engine(transport, host)

    def _wake(self, number: int) -> None:
        qp = self.qps.items.get(number)
        if qp is not None:
            self.submission.kick(qp)

    def _drop(self, drop: Drop) -> None:
        platform = self.platform
        platform.counters.rx_dropped += 1
        if drop.counter != "rx_dropped":
            platform.counters.bump(drop.counter)
        if platform.events.mask & _FRAME_DROP:
            platform.trace.emit(Kind.FRAME_DROP, drop.reason)
